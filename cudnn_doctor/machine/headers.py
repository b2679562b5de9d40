"""cuDNN's headers and the version that they state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Environment, Header, Toolkit

_SYSTEM = (
    "/usr/include",
    "/usr/include/*-linux-gnu",
    "/usr/local/include",
    "/usr/local/cuda*/include",
    "/usr/local/cuda*/targets/*/include",
    "/usr/local/cudnn*/include",
    "/opt/cudnn*/include",
    "/opt/nvidia/cudnn*/include",
)
_PREFIXES = ("CUDNN_ROOT", "CUDNN_ROOT_DIR", "CUDNN_HOME", "CUDNN_PATH")
_FOLDERS = (
    "CUDNN_INCLUDE_DIR",
    "CUDNN_INCLUDE_PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
)
_NAMES = ("cudnn_version.h", "cudnn.h")
"""Of 8 and newer, of 7; a folder counts by the first that states a version."""


def probe_headers(
    host: Host, environments: Sequence[Environment], toolkits: Sequence[Toolkit]
) -> tuple[Header, ...]:
    """Every header that states cuDNN's version, each file once: those named by the environment's
    variables first, then the system's, the toolkits' and the Python environments'."""
    found: dict[str, Header] = {}
    for folder in dict.fromkeys(_folders(host, environments, toolkits)):
        header = _read(host, folder)
        if header:
            found.setdefault(host.real(header.path) or header.path, header)
    return tuple(found.values())


def header_version(text: str) -> str | None:
    """``9.10.2`` from the CUDNN_MAJOR, CUDNN_MINOR and CUDNN_PATCHLEVEL macros of a header."""
    parts = []
    for name in ("MAJOR", "MINOR", "PATCHLEVEL"):
        match = re.search(rf"^[ \t]*#[ \t]*define[ \t]+CUDNN_{name}[ \t]+(\d{{1,4}})\b", text, re.M)
        if match is None:
            return None
        parts.append(match[1])
    return ".".join(parts)


def _read(host: Host, folder: str) -> Header | None:
    unclear = None
    for name in _NAMES:
        text = host.text(f"{folder}/{name}")
        if text is None:
            continue
        version = header_version(text)
        if version:
            return Header(path=f"{folder}/{name}", version=version)
        unclear = unclear or Header(path=f"{folder}/{name}")
    return unclear


def _folders(
    host: Host, environments: Sequence[Environment], toolkits: Sequence[Toolkit]
) -> Iterator[str]:
    for variable in _PREFIXES:
        prefix = host.environ.get(variable, "")
        if prefix.startswith("/"):
            yield from (f"{prefix.rstrip('/')}/include", prefix.rstrip("/"))
    for variable in _FOLDERS:
        for folder in host.environ.get(variable, "").split(":"):
            if folder.startswith("/"):
                yield folder.rstrip("/")
    for folder in host.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        if folder.startswith("/"):
            yield f"{folder.rstrip('/').rpartition('/')[0]}/include"
    for pattern in _SYSTEM:
        yield from host.glob(pattern)
    for toolkit in toolkits:
        yield f"{toolkit.path}/include"
        yield from host.glob("targets/*/include", toolkit.path)
    for environment in environments:
        yield f"{environment.prefix}/include"
        for site in environment.site_packages:
            yield from host.glob("nvidia/cudnn*/include", site)
