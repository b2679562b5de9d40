"""A prefix: cuDNN versions side by side, one of them current, found by what people build with.

::

    PREFIX/9.10.2-cuda12/{include,lib,LICENSE}   one folder a version
    PREFIX/current -> 9.10.2-cuda12              switched atomically
    PREFIX/include, PREFIX/lib                   links into current: CUDNN_ROOT=PREFIX works
    PREFIX/env.sh                                for shells: CUDNN_ROOT, CPATH, LIBRARY_PATH, ...
    PREFIX/modulefiles/cudnn/9.10.2-cuda12       for environment modules
    .../lib/pkgconfig/cudnn.pc                   for pkg-config
    /etc/ld.so.conf.d/cudnn-doctor.conf          as root, for the usual prefix
"""

from __future__ import annotations

import os
from pathlib import Path

from cudnn_doctor.install.plan import AnyStep, MakeFolder, Run, SwitchLink, WriteFile

SYSTEM = "/opt/cudnn"
CONF = "/etc/ld.so.conf.d/cudnn-doctor.conf"


def default() -> str:
    """``/opt/cudnn`` for root, else a folder under XDG data home."""
    if os.geteuid() == 0:
        return SYSTEM
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    return f"{data}/cudnn"


def folder_name(release: str, cuda: str) -> str:
    """Name of a version's folder: ``9.10.2-cuda12``."""
    return f"{release}-cuda{cuda}"


def versions(prefix: str) -> list[str]:
    """Names of the version folders in a prefix, sorted."""
    try:
        entries = sorted(os.scandir(prefix), key=lambda e: e.name)
    except OSError:
        return []
    return [e.name for e in entries if "-cuda" in e.name and e.is_dir(follow_symlinks=False)]


def current(prefix: str) -> str | None:
    """Name of the current version's folder, None where there is none."""
    try:
        return os.readlink(f"{prefix}/current")
    except OSError:
        return None


def pkgconfig(staging: str, release: str) -> WriteFile:
    """``cudnn.pc`` of a version, relative to itself, so that it moves with its folder."""
    text = f"""\
prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include
libdir=${{prefix}}/lib

Name: cuDNN
Description: NVIDIA CUDA Deep Neural Network library
Version: {release}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} -lcudnn
"""
    return WriteFile(title="write cudnn.pc", path=f"{staging}/lib/pkgconfig/cudnn.pc", content=text)


def make_current(prefix: str, name: str, *, ldconfig: bool) -> tuple[AnyStep, ...]:
    """Steps that make one version the current one and let everybody find it."""
    release = name.partition("-")[0]
    steps: list[AnyStep] = [
        MakeFolder(title="create the folder of modulefiles", path=f"{prefix}/modulefiles/cudnn"),
        WriteFile(
            title=f"write the environment module cudnn/{name}",
            path=f"{prefix}/modulefiles/cudnn/{name}",
            content=_modulefile(prefix, name, release),
        ),
        WriteFile(
            title="write env.sh for shells", path=f"{prefix}/env.sh", content=_env_script(prefix)
        ),
        SwitchLink(title=f"make {name} current", path=f"{prefix}/current", target=name),
        SwitchLink(title="link include", path=f"{prefix}/include", target="current/include"),
        SwitchLink(title="link lib", path=f"{prefix}/lib", target="current/lib"),
    ]
    if ldconfig:
        steps += [
            MakeFolder(title="create ld.so.conf.d", path=os.path.dirname(CONF)),
            WriteFile(
                title="tell the dynamic loader",
                path=CONF,
                content=f"{prefix}/current/lib\n",
                needs_root=True,
            ),
            refresh_cache(),
        ]
    return tuple(steps)


def refresh_cache() -> Run:
    """Let ldconfig read its folders anew; undone by doing it again once the rest is undone."""
    return Run(title="refresh ld.so.cache", argv=("ldconfig",), needs_root=True, may_fail=True)


def _env_script(prefix: str) -> str:
    return f"""\
# Use the cuDNN of this prefix: . {prefix}/env.sh
export CUDNN_ROOT="{prefix}"
export CUDNN_PATH="{prefix}"
export CPATH="{prefix}/include${{CPATH:+:$CPATH}}"
export LIBRARY_PATH="{prefix}/lib${{LIBRARY_PATH:+:$LIBRARY_PATH}}"
export LD_LIBRARY_PATH="{prefix}/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export PKG_CONFIG_PATH="{prefix}/lib/pkgconfig${{PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}}"
export CMAKE_PREFIX_PATH="{prefix}${{CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}}"
"""


def _modulefile(prefix: str, name: str, release: str) -> str:
    folder = f"{prefix}/{name}"
    return f"""\
#%Module1.0
module-whatis "NVIDIA cuDNN {release}"
conflict cudnn
setenv CUDNN_ROOT {folder}
setenv CUDNN_PATH {folder}
prepend-path CPATH {folder}/include
prepend-path LIBRARY_PATH {folder}/lib
prepend-path LD_LIBRARY_PATH {folder}/lib
prepend-path PKG_CONFIG_PATH {folder}/lib/pkgconfig
prepend-path CMAKE_PREFIX_PATH {folder}
"""
