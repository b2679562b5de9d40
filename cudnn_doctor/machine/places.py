"""Where Python environments are: candidates by kind, not yet looked at."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cudnn_doctor.machine.host import Host


class Candidate(NamedTuple):
    """A folder that may be the prefix of an environment."""

    prefix: str
    kind: str = "venv"
    """``venv``, ``conda``, ``pyenv``, ``uv``, ``pipx``, ``poetry``, ``system``, ``user``,
    ``target`` (a bare folder of packages); what the folder holds overrules it."""
    active: bool = False


_HOMES: tuple[tuple[str, str], ...] = (
    ("venv", ".venv*"),
    ("venv", "venv*"),
    ("venv", ".virtualenvs/*"),
    ("venv", ".local/share/virtualenvs/*"),
    ("venv", "*/.venv"),
    ("venv", "*/venv"),
    ("conda", "miniconda3"),
    ("conda", "anaconda3"),
    ("conda", "miniforge3"),
    ("conda", "mambaforge"),
    ("conda", "micromamba"),
    ("conda", ".conda"),
    ("poetry", ".cache/pypoetry/virtualenvs/*"),
    ("uv", ".local/share/uv/tools/*"),
    ("uv", ".local/share/uv/python/*"),
    ("pipx", ".local/share/pipx/venvs/*"),
    ("pipx", ".local/pipx/venvs/*"),
)
_ANYWHERE: tuple[tuple[str, str], ...] = (
    ("conda", "/opt/conda"),
    ("venv", "/opt/*"),
    ("venv", "/opt/*/.venv"),
    ("venv", "/opt/*/venv"),
    ("venv", "/venv"),
    ("venv", "/.venv"),
    ("venv", "/app/.venv"),
    ("venv", "/workspace/.venv"),
)
_VARIABLES: tuple[tuple[str, str, str], ...] = (
    ("venv", "VIRTUAL_ENV", ""),
    ("conda", "CONDA_PREFIX", ""),
    ("venv", "WORKON_HOME", "*"),
    ("uv", "UV_TOOL_DIR", "*"),
    ("uv", "UV_PYTHON_INSTALL_DIR", "*"),
    ("venv", "UV_PROJECT_ENVIRONMENT", ""),
    ("pipx", "PIPX_HOME", "venvs/*"),
    ("conda", "MAMBA_ROOT_PREFIX", ""),
)
_PARENTS = 6


def candidates(host: Host, extra: Sequence[str] = ()) -> Iterator[Candidate]:
    """Candidates in order of importance: the active one, the given ones, then all others. May
    name the same folder more than once; most need not exist."""
    active = active_prefix(host)
    if active:
        yield Candidate(active, active=True)
    for given in extra:
        prefix = prefix_of(host, given)
        if prefix:
            yield Candidate(prefix)
        else:
            host.fail("environments", f"no Python environment at {given}")
    yield from _from_environ(host)
    if host.live:
        yield Candidate(sys.prefix)
        yield from _around_here(host.home)
    yield Candidate("/usr", "system")
    yield Candidate("/usr/local", "system")
    for home in _homes(host):
        yield Candidate(f"{home}/.local", "user")
        for kind, pattern in _HOMES:
            yield from _matching(host, kind, pattern, home)
    yield from _pyenv(host)
    yield from _conda(host)
    for kind, pattern in _ANYWHERE:
        yield from _matching(host, kind, pattern)


def active_prefix(host: Host) -> str | None:
    """Prefix of the environment in which the user's ``python3`` (or ``python``) would run:
    VIRTUAL_ENV, else what PATH finds first, else CONDA_PREFIX. Nothing is run."""
    activated = host.environ.get("VIRTUAL_ENV")
    if _absolute(activated) and host.is_dir(str(activated)):
        return str(activated).rstrip("/")
    program = host.which("python3") or host.which("python")
    if program:
        return prefix_of(host, program)
    conda = host.environ.get("CONDA_PREFIX")
    return conda.rstrip("/") if conda and _absolute(conda) and host.is_dir(conda) else None


def prefix_of(host: Host, given: str) -> str | None:
    """Prefix of an environment named by its folder, its interpreter or a program on PATH."""
    local = "/" in given or (host.live and os.path.isdir(given))
    path = given if local else host.which(given) or ""
    if host.live and path:
        path = os.path.abspath(os.path.expanduser(path))
    if not path.startswith("/") or host.stat(path) is None:
        return None
    if host.is_dir(path):
        return path.rstrip("/") or "/"
    if "/shims/" in path:
        return _pyenv_selected(host)
    here = os.path.dirname(os.path.dirname(path))
    if host.exists(f"{here}/pyvenv.cfg") or host.is_dir(f"{here}/conda-meta"):
        return here
    real = host.real(path) or path
    return os.path.dirname(os.path.dirname(real)) or "/"


def _homes(host: Host) -> list[str]:
    """The user's home; of a mounted root, whose user is not known, all of them."""
    return [host.home] if host.live else [*dict.fromkeys([host.home, *host.glob("/home/*")])]


def _from_environ(host: Host) -> Iterator[Candidate]:
    for folder in host.environ.get("PYTHONPATH", "").split(":"):
        if _absolute(folder):
            yield Candidate(folder.rstrip("/"), "target")
    for kind, variable, tail in _VARIABLES:
        if _absolute(host.environ.get(variable)):
            folder = host.environ[variable].rstrip("/")
            yield from _matching(host, kind, tail, folder) if tail else [Candidate(folder, kind)]


def _absolute(path: str | None) -> bool:
    return bool(path) and str(path).startswith("/")


def _matching(host: Host, kind: str, pattern: str, base: str = "") -> Iterator[Candidate]:
    for path in host.glob(pattern, base):
        yield Candidate(path, kind)
        if kind == "conda":
            yield from (Candidate(env, "conda") for env in host.glob("envs/*", path))


def _around_here(home: str) -> Iterator[Candidate]:
    try:
        here = os.getcwd()
    except OSError:
        return
    for _ in range(_PARENTS):
        yield Candidate(f"{here.rstrip('/')}/.venv")
        yield Candidate(f"{here.rstrip('/')}/venv")
        if here in ("/", home):
            return
        here = os.path.dirname(here)


def pyenv_root(host: Host) -> str:
    """Where pyenv keeps its Pythons."""
    return host.environ.get("PYENV_ROOT") or f"{host.home}/.pyenv"


def _pyenv(host: Host) -> Iterator[Candidate]:
    root = pyenv_root(host)
    yield from _matching(host, "pyenv", "versions/*", root)
    yield from _matching(host, "pyenv", "versions/*/envs/*", root)


def _pyenv_selected(host: Host) -> str | None:
    root = pyenv_root(host)
    chosen = host.environ.get("PYENV_VERSION") or host.text(f"{root}/version") or ""
    name = chosen.replace(":", " ").split()[:1]
    if not name or name == ["system"]:
        return "/usr"
    folder = f"{root}/versions/{name[0]}"
    return folder if host.is_dir(folder) else None


def _conda(host: Host) -> Iterator[Candidate]:
    executable = host.environ.get("CONDA_EXE", "")
    if _absolute(executable):
        yield from _matching(host, "conda", os.path.dirname(os.path.dirname(executable)))
    for line in (host.text(f"{host.home}/.conda/environments.txt") or "").splitlines():
        if line.startswith("/"):
            yield Candidate(line.strip().rstrip("/"), "conda")
