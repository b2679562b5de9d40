"""CUDA toolkits and sets of CUDA run-time libraries. ``nvcc`` is found, never run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Environment, Toolkit

_PLACES = (
    "/usr/local/cuda",
    "/usr/local/cuda-*",
    "/opt/cuda",
    "/opt/cuda-*",
    "/opt/nvidia/hpc_sdk/Linux_*/*/cuda/*",
)
_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_LIBRARY_FOLDERS = ("lib64", "lib", "targets/*/lib")
_DISTRO_PREFIXES = ("/usr", "/usr/lib/nvidia-cuda-toolkit", "/usr/lib/cuda")
_WHEEL_FOLDERS = ("cuda_runtime", "cu13", "cu14")
"""Below ``nvidia/``: up to CUDA 12 a folder a component, from 13 on one for all."""


def probe_toolkits(host: Host, environments: Sequence[Environment]) -> tuple[Toolkit, ...]:
    """All toolkits, each once under its real path: the system's, then the environments'."""
    active = _active(host)
    found: dict[str, Toolkit] = {}
    for toolkit in [*_system(host), *_distro(host), *_in_environments(host, environments)]:
        real = host.real(toolkit.path)
        if real and real not in found:
            found[real] = Toolkit(
                path=real,
                version=toolkit.version,
                kind=toolkit.kind,
                nvcc=toolkit.nvcc,
                active=real in active,
            )
    return tuple(found.values())


def _active(host: Host) -> set[str | None]:
    named = [host.environ[v] for v in _VARIABLES if host.environ.get(v, "").startswith("/")]
    nvcc = _nvcc_on_path(host)
    if nvcc:
        named += _DISTRO_PREFIXES[1:] if nvcc in _DISTRO_PREFIXES else [nvcc]
    return {host.real(path) for path in named} - {None}


def _nvcc_on_path(host: Host) -> str | None:
    """Prefix of the ``nvcc`` that PATH finds."""
    nvcc = host.which("nvcc")
    return os.path.dirname(os.path.dirname(host.real(nvcc) or nvcc)) if nvcc else None


def _system(host: Host) -> Iterator[Toolkit]:
    paths = [path for place in _PLACES for path in host.glob(place)]
    paths += [host.environ[v] for v in _VARIABLES if host.environ.get(v, "").startswith("/")]
    on_path = _nvcc_on_path(host)
    for path in [*paths, *([on_path] if on_path else [])]:
        if path not in _DISTRO_PREFIXES and _is_toolkit(host, path):
            yield Toolkit(
                path=path, version=_version(host, path), kind="toolkit", nvcc=_nvcc(host, path)
            )


def _is_toolkit(host: Host, path: str) -> bool:
    """More than a folder left behind, or one that only ever held cuDNN."""
    marks = ("version.json", "version.txt", "bin/nvcc")
    return any(host.exists(f"{path}/{mark}") for mark in marks) or bool(_cudart(host, path))


def _distro(host: Host) -> Iterator[Toolkit]:
    """What the distribution itself packages (Debian's nvidia-cuda-toolkit and its like)."""
    libraries = [
        library
        for folder in (*host.glob("/usr/lib/*-linux-gnu"), "/usr/lib64", "/usr/lib")
        for library in host.glob("libcudart.so.*.*", folder)
    ]
    nvcc = "/usr/bin/nvcc" if host.exists("/usr/bin/nvcc") else None
    path = next((p for p in _DISTRO_PREFIXES[1:] if host.is_dir(p)), None)
    if libraries:
        path = path or os.path.dirname(libraries[0])
        yield Toolkit(path=path, version=_cudart_version(libraries), kind="distro", nvcc=nvcc)
    elif path and nvcc:
        yield Toolkit(path=path, version=_version(host, path), kind="distro", nvcc=nvcc)


def _in_environments(host: Host, environments: Sequence[Environment]) -> Iterator[Toolkit]:
    for environment in environments:
        prefix = environment.prefix
        if environment.kind == "conda":
            libraries, nvcc = _cudart(host, prefix), _nvcc(host, prefix)
            if libraries or nvcc:
                version = _cudart_version(libraries) or _conda_version(environment)
                yield Toolkit(path=prefix, version=version, kind="conda", nvcc=nvcc)
        for site in environment.site_packages:
            for name in _WHEEL_FOLDERS:
                path = f"{site}/nvidia/{name}"
                if host.glob("lib/libcudart.so*", path):
                    version = _wheel_version(environment, site, name)
                    nvcc = _nvcc(host, path) or _nvcc(host, f"{site}/nvidia/cuda_nvcc")
                    yield Toolkit(path=path, version=version, kind="wheels", nvcc=nvcc)


def _nvcc(host: Host, prefix: str) -> str | None:
    return f"{prefix}/bin/nvcc" if host.exists(f"{prefix}/bin/nvcc") else None


def _cudart(host: Host, prefix: str) -> list[str]:
    return [p for f in _LIBRARY_FOLDERS for p in host.glob(f"{f}/libcudart.so*", prefix)]


def _version(host: Host, path: str) -> str | None:
    """From version.json (11.1 on), version.txt (up to 11.0), libcudart's name or cuda.h."""
    stated = re.search(
        r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"',
        host.text(f"{path}/version.json", 1 << 18) or "",
    ) or re.search(r"CUDA Version ([\d.]+)", host.text(f"{path}/version.txt", 1 << 12) or "")
    if stated:
        return stated[1]
    named = _cudart_version(_cudart(host, path))
    if named:
        return named
    header = host.text(f"{path}/include/cuda.h") or ""
    number = re.search(r"^#define CUDA_VERSION (\d{4,6})\b", header, re.M)
    return f"{int(number[1]) // 1000}.{int(number[1]) % 1000 // 10}" if number else None


def _cudart_version(libraries: Sequence[str]) -> str | None:
    """``12.8.90`` of libcudart.so.12.8.90: the toolkit's major and minor, cudart's own build."""
    for library in libraries:
        match = re.search(r"/libcudart\.so\.(\d+\.\d+(\.\d+)?)$", library)
        if match:
            return match[1]
    return None


def _conda_version(environment: Environment) -> str | None:
    names = ("cuda-cudart", "cuda-version", "cudatoolkit")
    conda = {d.name: d.version for d in environment.distributions if d.installer == "conda"}
    return next((conda[name] for name in names if name in conda), None)


def _wheel_version(environment: Environment, site: str, folder: str) -> str | None:
    """Version of the runtime wheel that fills a folder."""
    major = folder[2:] if folder.startswith("cu1") else ""
    for d in environment.distributions:
        if d.location == site and d.name.startswith("nvidia-cuda-runtime"):
            unsuffixed = d.name == "nvidia-cuda-runtime"
            if unsuffixed == bool(major) and (not major or d.version.startswith(f"{major}.")):
                return d.version
    return None
