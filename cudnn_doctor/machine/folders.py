"""Every folder in which a library that matters may lie, as its users would spell it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Environment, Framework, LoaderConfig, Toolkit

_CUDNN_VARIABLES = (
    "CUDNN_PATH",
    "CUDNN_HOME",
    "CUDNN_ROOT",
    "CUDNN_ROOT_DIR",
    "CUDNN_INSTALL_PATH",
    "EBROOTCUDNN",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
)
_IN_PREFIX = ("", "lib", "lib64", "cuda/lib64", "targets/*/lib")
_SYSTEM = (
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/lib",
    "/usr/local/cuda*/targets/*/lib",
    "/usr/local/cudnn*/lib*",
    "/usr/local/cudnn*/cuda/lib64",
    "/opt/cudnn*/lib*",
    "/opt/cudnn*/*/lib*",
    "/opt/nvidia/cudnn*/lib*",
    "/usr/lib/wsl/lib",
)
_AT_HOME = (
    "cudnn*/lib*",
    "cudnn*/cuda/lib64",
    "cuda/lib64",
    "lib",
    ".local/lib",
    ".local/cudnn*/lib*",
    ".local/share/*cudnn*/lib*",
    ".local/share/*cudnn*/*/lib*",
    ".cupy/cuda_lib/*/cudnn/*/lib*",
)
_SPACK = ("cudnn-*/lib*", "*/cudnn-*/lib*", "*/*/cudnn-*/lib*")
_EASYBUILD = ("cuDNN/*/lib*", "cudnn/*/lib*", "cuDNN-*/lib*", "cudnn-*/lib*")


def library_folders(
    host: Host,
    environments: Sequence[Environment],
    frameworks: Sequence[Framework],
    toolkits: Sequence[Toolkit],
    loader: LoaderConfig,
    *,
    deep: bool = False,
) -> tuple[str, ...]:
    """Folders to look into, each spelling once; with ``deep`` all of the file system's that hold
    cuDNN. They need not exist."""
    found = dict.fromkeys(
        folder.rstrip("/") or "/"
        for source in (
            _searched(host, loader),
            _toolkits(host, toolkits),
            _environments(host, environments, frameworks),
            _named(host),
            _usual(host),
            _deep(host) if deep else (),
        )
        for folder in source
        if folder.startswith("/")
    )
    return tuple(found)


def _searched(host: Host, loader: LoaderConfig) -> Iterator[str]:
    """What ld.so itself looks through."""
    value = host.environ.get("LD_LIBRARY_PATH", "")
    if value:
        for folder in value.replace(";", ":").split(":"):
            yield posixpath.join(host.environ.get("PWD", ""), folder)
    for path in (*host.environ.get("LD_PRELOAD", "").replace(":", " ").split(), *loader.preload):
        yield posixpath.dirname(path)
    yield from loader.conf_folders
    yield from loader.default_folders
    for entry in loader.cache or ():
        yield posixpath.dirname(entry.path)


def _toolkits(host: Host, toolkits: Sequence[Toolkit]) -> Iterator[str]:
    for toolkit in toolkits:
        base = toolkit.path
        yield from (f"{base}/lib64", f"{base}/lib", f"{base}/lib64/stubs", f"{base}/compat")
        yield from host.glob("targets/*/lib", base)


def _environments(
    host: Host, environments: Sequence[Environment], frameworks: Sequence[Framework]
) -> Iterator[str]:
    for environment in environments:
        if environment.kind == "conda":
            yield f"{environment.prefix}/lib"
            yield from host.glob("targets/*/lib", environment.prefix)
        for site in environment.site_packages:
            yield from (f"{site}/nvidia/{name}/lib" for name in host.names(f"{site}/nvidia"))
            yield f"{site}/tensorrt_libs"
            yield from (f"{site}/{n}" for n in host.names(site) if n.endswith(".libs"))
    for framework in frameworks:
        if framework.location:
            yield from (f"{framework.location}/lib", f"{framework.location}/libs")
        yield from map(posixpath.dirname, framework.binaries)


def _named(host: Host) -> Iterator[str]:
    """Prefixes that variables of builds, modules and EasyBuild name."""
    for variable in _CUDNN_VARIABLES:
        prefix = host.environ.get(variable, "").rstrip("/")
        if prefix.startswith("/"):
            for inside in _IN_PREFIX:
                yield from host.glob(inside, prefix) if inside else (prefix,)


def _usual(host: Host) -> Iterator[str]:
    home, environ = host.home, host.environ
    for pattern in _SYSTEM:
        yield from host.glob(pattern)
    for pattern in _AT_HOME:
        yield from host.glob(pattern, home)
    for root in (environ.get("SPACK_ROOT", ""), "/opt/spack", "/spack", f"{home}/spack"):
        for pattern in _SPACK if root.startswith("/") else ():
            yield from host.glob(f"opt/spack/{pattern}", root)
    yield from host.glob("/nix/store/*cudnn*/lib*")
    easybuild = environ.get("EASYBUILD_INSTALLPATH", "")
    installed = (easybuild, "/opt/easybuild", "/easybuild", "/apps", f"{home}/.local/easybuild")
    for root in (*(f"{r}/software" for r in installed if r), "/apps", "/opt/apps", "/software"):
        for pattern in _EASYBUILD:
            yield from host.glob(pattern, root)


def _deep(host: Host) -> Iterator[str]:
    from cudnn_doctor.machine.walk import walk

    for folder in walk(host):
        if any(name.startswith("libcudnn") for name in folder.files):
            yield folder.path
