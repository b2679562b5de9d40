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
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install import manifest
from cudnn_doctor.install.plan import (
    AnyStep,
    MakeFolder,
    RemoveFolder,
    RemoveTree,
    Run,
    SwitchLink,
    WriteFile,
)
from cudnn_doctor.install.state import home

SYSTEM = "/opt/cudnn"
CONF = "/etc/ld.so.conf.d/cudnn-doctor.conf"
LINKS = {
    "current": re.compile(r"[^/]+-cuda[^/]+"),
    "include": re.compile("current/include"),
    "lib": re.compile("current/lib"),
}
"""Links in a prefix, and where this tool lets them lead."""
_MODULE = "#%Module1.0"
_TOPS = (
    "bin boot dev etc home lib lib32 lib64 libx32 opt proc root run sbin srv sys tmp usr var "
    "usr/bin usr/include usr/lib usr/lib32 usr/lib64 usr/local usr/sbin usr/share var/lib"
)
_NOT_ALONE = {"/", *(f"/{top}" for top in _TOPS.split())}
_LONGEST_NAME, _LONGEST = 255, 3500
"""Bytes; below what Linux allows a path, for what will lie in the prefix."""


def checked(given: str) -> str:
    """The absolute path of a prefix, with ``~`` expanded.

    Raises DoctorError (USAGE) where no prefix can have that name.
    """
    path = re.sub("^//", "/", os.path.abspath(os.path.expanduser(given)))
    if not given.strip():
        what = "the prefix is empty"
    elif not path.isprintable():
        what = f"a prefix has no control characters and is UTF-8: {given!a}"
    elif ":" in path or ";" in path:
        what = f"search paths could not name it, for they are divided at : and ; ({path})"
    elif max(len(os.fsencode(path)) - _LONGEST, *map(_excess, path.split("/"))) > 0:
        what = f"the prefix is too long: {path[:40]}..."
    elif os.path.realpath(path) in _NOT_ALONE:
        what = f"{path} holds a whole system's files: give a folder of its own below it"
    else:
        return path
    raise DoctorError(what, next_step="give another --prefix", exit_code=ExitCode.USAGE)


def warnings(prefix: str) -> tuple[str, ...]:
    """What a prefix's name is not good for."""
    if not re.search(r"""['"\\]""", prefix):
        return ()
    return ("pkg-config cannot name files in a prefix with quotes or backslashes",)


def _excess(name: str) -> int:
    return len(os.fsencode(name)) - _LONGEST_NAME


def default(*, as_root: bool = False) -> str:
    """``/opt/cudnn`` for root, else a folder under XDG data home."""
    if as_root or os.geteuid() == 0:
        return SYSTEM
    data = os.environ.get("XDG_DATA_HOME") or str(home() / ".local/share")
    return checked(f"{data}/cudnn")


def folder_name(release: str, cuda: str, flavour: str = "full") -> str:
    """Name of a version's folder: ``9.10.2-cuda12``, ``9.10.2-cuda12-jit``."""
    return f"{release}-cuda{cuda}{'-jit' if flavour == 'jit' else ''}"


def versions(prefix: str) -> list[str]:
    """Names of the folders in a prefix that this tool filled, sorted."""
    try:
        names = sorted(os.listdir(prefix))
    except OSError:
        return []
    shown = [n for n in names if "-cuda" in n and not n.startswith(".")]
    return [n for n in shown if os.path.isfile(f"{prefix}/{n}/{manifest.NAME}")]


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
    steps: list[AnyStep] = [
        MakeFolder(title="create the folder of modulefiles", path=f"{prefix}/modulefiles/cudnn"),
        WriteFile(
            title=f"write the environment module cudnn/{name}",
            path=f"{prefix}/modulefiles/cudnn/{name}",
            content=_modulefile(prefix, name),
        ),
        WriteFile(
            title="write env.sh for shells",
            path=f"{prefix}/env.sh",
            content=_env_script(prefix, loader_told=ldconfig),
        ),
    ]
    if ldconfig:
        steps.append(cache_is_undone())
    steps += [
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
                content=_conf(prefix),
                needs_root=True,
            ),
            refresh_cache(),
        ]
    return tuple(steps)


def only_changes(steps: list[AnyStep]) -> list[AnyStep]:
    """Leave out what is so already; none at all when only loader-cache runs would be left."""
    kept = [step for step in steps if not is_so(step)]
    return [] if all(isinstance(step, Run) for step in kept) else kept


def is_so(step: AnyStep) -> bool:
    """Whether there is nothing to do, because a file, link or folder is what the step makes."""
    if isinstance(step, SwitchLink):
        return os.path.islink(step.path) and os.readlink(step.path) == step.target
    if isinstance(step, WriteFile) and os.path.isfile(step.path):
        return Path(step.path).read_bytes() == step.data
    return isinstance(step, MakeFolder) and os.path.isdir(step.path)


def make_none_current(
    prefix: str, last: Iterable[AnyStep], *, ldconfig: bool
) -> tuple[AnyStep, ...]:
    """Steps that take the ``last`` version and what `make_current` made away."""
    steps: list[AnyStep] = [cache_is_undone(), *last] if ldconfig else [*last]
    places = [f"{prefix}/{part}" for part in ("current", "include", "lib", "env.sh")]
    steps += [RemoveTree(title=f"remove {p}", path=p) for p in places if os.path.lexists(p)]
    if ldconfig:
        steps += [
            RemoveTree(title=f"remove {CONF}", path=CONF, needs_root=True),
            refresh_cache(),
        ]
    for folder in (f"{prefix}/modulefiles/cudnn", f"{prefix}/modulefiles", prefix):
        steps.append(RemoveFolder(title=f"remove {folder} if it is empty", path=folder))
    return tuple(steps)


def module_of(prefix: str, name: str) -> str:
    """The environment-module file of a version."""
    return f"{prefix}/modulefiles/cudnn/{name}"


def loader_is_told(prefix: str) -> bool:
    """Whether root's ld.so.conf.d is to name this prefix."""
    return prefix == SYSTEM and os.geteuid() == 0


def refresh_cache() -> Run:
    """Let ldconfig read its folders anew."""
    return Run(title="refresh ld.so.cache", argv=("ldconfig",), needs_root=True, may_fail=True)


def cache_is_undone() -> Run:
    """Placed before what ldconfig will read: when all after it is undone, the cache is made anew.

    ``ldconfig -p`` only prints, so that the step itself changes nothing.
    """
    return Run(
        title="see what ld.so.cache holds",
        argv=("ldconfig", "-p"),
        undo=(("ldconfig",),),
        quiet=True,
        may_fail=True,
    )


def texts_at(path: str, prefix: str) -> tuple[str, ...]:
    """What this tool may have written into a file of a prefix; nothing where it writes none."""
    if path == f"{prefix}/env.sh":
        return tuple(_env_script(prefix, loader_told=told) for told in (False, True))
    if path == CONF:
        return (_conf(prefix),)
    name = os.path.basename(path)
    return (_modulefile(prefix, name),) if path == module_of(prefix, name) else ()


def mark_of(text: str) -> str:
    """How such a file begins, by which it is known also when it was edited, or its prefix moved."""
    lines = text.split("\n")
    return "\n".join(lines[: 2 if lines[0] == _MODULE else 1])


def _conf(prefix: str) -> str:
    return f"{prefix}/current/lib\n"


def _env_script(prefix: str, *, loader_told: bool) -> str:
    """Where the loader knows the prefix, LD_LIBRARY_PATH stays as it is: it would put this cuDNN's
    sublibraries before those of the wheels that frameworks in the same shell bring."""
    lines = ["# Use the cuDNN of this prefix: source this file.", f"_cudnn={shlex.quote(prefix)}"]
    lines += ['export CUDNN_ROOT="$_cudnn"', 'export CUDNN_PATH="$_cudnn"']
    for variable, folder in _SEARCH:
        if variable == "LD_LIBRARY_PATH" and loader_told:
            continue
        lines.append(f'export {variable}="$_cudnn{folder}${{{variable}:+:${variable}}}"')
    return "\n".join([*lines, "unset _cudnn", ""])


def _modulefile(prefix: str, name: str) -> str:
    lines = [_MODULE, f'module-whatis "NVIDIA cuDNN {name}"', "conflict cudnn"]
    lines += [f"set root {_tcl(f'{prefix}/{name}')}"]
    lines += ['setenv CUDNN_ROOT "$root"', 'setenv CUDNN_PATH "$root"']
    lines += [f'prepend-path {variable} "$root{folder}"' for variable, folder in _SEARCH]
    return "\n".join([*lines, ""])


def _tcl(text: str) -> str:
    """Quote for Tcl: every character that it could take for its own gets a backslash."""
    return re.sub(r'([\\\[\]{}$"; \t])', r"\\\1", text)


_SEARCH = (
    ("CPATH", "/include"),
    ("LIBRARY_PATH", "/lib"),
    ("LD_LIBRARY_PATH", "/lib"),
    ("PKG_CONFIG_PATH", "/lib/pkgconfig"),
    ("CMAKE_PREFIX_PATH", ""),
)
"""Search paths that compilers, linkers, the loader, pkg-config and CMake read."""
