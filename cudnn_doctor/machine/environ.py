"""The environment variables that decide which libraries and GPUs a program gets."""

from __future__ import annotations

import re

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.redact import USERINFO

_RELEVANT = re.compile(
    r"(?:LD|CUDA|CUDNN|NVIDIA|TF|TORCH|PYTORCH|JAX|XLA|CONDA|UV|PIP|SINGULARITY|APPTAINER)_\w+"
    r"|PATH|PYTHONPATH|PYTHONHOME|PYTHONNOUSERSITE|VIRTUAL_ENV|MAMBA_ROOT_PREFIX|PYENV_ROOT"
    r"|(?:LOADEDMODULES|MODULEPATH|EBROOT\w*CUDNN|EBROOTCUDA|SPACK_ENV|NIX_\w*PATH)"
    r"|(?:TMPDIR|XDG_CACHE_HOME|XDG_DATA_HOME|XDG_CONFIG_HOME|HOME|SHELL)"
    r"|(?:DOCKER_CONTEXT|DOCKER_HOST|KUBERNETES_SERVICE_HOST|container|WSL_DISTRO_NAME)"
    r"|(?:CPATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|LIBRARY_PATH|CMAKE_PREFIX_PATH)"
)
_PROXIES = re.compile(r"(?:https?|ftp|all|no)_proxy", re.IGNORECASE)
_SECRET = re.compile(r"TOKEN|PASS|SECRET|KEY|CREDENTIAL|_AUTH\b|_PAT\b|_PWD\b", re.IGNORECASE)
_INDEXES = re.compile(r"(?:PIP|UV)_\w*(?:INDEX|FIND_LINKS|PROXY)\w*")


def relevant(host: Host) -> dict[str, str]:
    """Names and values, sorted by name.

    Of a proxy only ``set`` is told, passwords and tokens are left out, and index addresses lose
    the credentials in them.
    """
    found: dict[str, str] = {}
    for name, value in sorted(host.environ.items()):
        if _PROXIES.fullmatch(name):
            found[name] = "set"
        elif _RELEVANT.fullmatch(name) and not _SECRET.search(name):
            found[name] = USERINFO.sub("", value) if _INDEXES.fullmatch(name) else value
    return found
