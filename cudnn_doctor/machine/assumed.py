"""Files that a partial description does not list, as the usual builds would have them.

A snapshot by hand says "copy 9.10.2 in this folder" and "torch 2.6": the loader simulation needs
files. Whatever was really seen is never replaced.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple

import msgspec

from cudnn_doctor.machine import opens
from cudnn_doctor.machine.loads import Consumer
from cudnn_doctor.machine.model import CudnnCopy, Library, LoaderConfig, Machine
from cudnn_doctor.machine.names import parse_cudnn, soname
from cudnn_doctor.versions import CudnnVersion


class Files(NamedTuple):
    known: dict[str, Library]
    """By normalised path."""
    assumed: frozenset[str]
    """Those of them that nobody saw."""


class _Build(NamedTuple):
    """The object by which a usual build of a framework brings cuDNN in."""

    path: str
    """Below site-packages."""
    rpath: str | None = None
    runpath: str | None = None
    needs_shim: bool = False
    bundled: str | None = None
    """Release of the private shim beside it."""


def _wheel_folders(up: str) -> str:
    parts = ("cudnn", "cublas", "cuda_nvrtc", "cu13")
    return ":".join(f"$ORIGIN/{up}/nvidia/{part}/lib" for part in parts)


_TORCH = _Build(
    "torch/lib/libtorch_global_deps.so", f"{_wheel_folders('../..')}:$ORIGIN", needs_shim=True
)
_TORCH_BUNDLED = _Build("torch/lib/libtorch_global_deps.so", "$ORIGIN", needs_shim=True)
_BUILDS = {
    "torch-rpath-wheel-cu12": _TORCH,
    "torch-rpath-wheel-cu13": _TORCH,
    "torch-bundled-in-torch-lib": _TORCH_BUNDLED,
    "torch-index-small-or-large": _TORCH,
    "tf-dlopen-runpath": _Build("tensorflow/libtensorflow_cc.so.2", None, _wheel_folders("..")),
    "jax-preload-then-rpath": _Build("jax_plugins/xla_cuda/plugin.so", _wheel_folders("../..")),
    "jax-dlopen-rpath": _Build("jax_plugins/xla_cuda/plugin.so", _wheel_folders("../..")),
    "ct2-bundled-shim": _Build(
        "ctranslate2.libs/libctranslate2.so", "$ORIGIN", needs_shim=True, bundled="9.1.0"
    ),
}
_USUAL_FOLDERS = ("/lib/{0}", "/usr/lib/{0}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


def known_files(machine: Machine) -> Files:
    """All library files of a machine, with those of copies that no file entry describes."""
    known = {posixpath.normpath(lib.path): lib for lib in machine.libraries}
    folders = {posixpath.dirname(path) for path in known}
    assumed: dict[str, Library] = {}
    for copy in machine.copies or ():
        if posixpath.normpath(copy.folder) not in folders:
            for library in _copy_files(copy, machine.partial):
                assumed.setdefault(posixpath.normpath(library.path), library)
    return Files({**assumed, **known}, frozenset(assumed))


def _copy_files(copy: CudnnCopy, partial: bool) -> list[Library]:
    """Its files; a description by hand names some of them and says which ones are not there."""
    release = _release(copy.version, copy.major)
    if release is None:
        return []
    parts = opens.JIT_PARTS if copy.flavour == "jit" else opens.shipped(release)
    usual = [soname(part, release[0]) for part in ("", *parts)]
    told = [name for name in copy.files if parse_cudnn(name)]
    names = dict.fromkeys([*usual, *told] if partial or not told else told)
    found = []
    for name in names:
        parsed = parse_cudnn(name)
        if parsed is None or "*" in copy.lacks or {name, parsed.soname} & set(copy.lacks):
            continue
        part, major_name = parsed.part, soname(parsed.part, release[0])
        version = copy.file_versions.get(major_name) or copy.version
        own = _release(version, release[0]) or release
        rpath, runpath = opens.tags(part, own, copy.cuda)
        found.append(
            Library(
                path=posixpath.join(copy.folder, name),
                real=posixpath.join(copy.folder, major_name),
                status="ok",
                soname=major_name,
                needed=opens.needed(part, own),
                rpath=rpath,
                runpath=runpath,
                version=version,
                version_from=copy.version_from,
            )
        )
    return found


def _release(version: str | None, major: int | None) -> opens.Release | None:
    if version:
        try:
            return CudnnVersion.parse(version).release
        except ValueError:
            pass
    return None if major is None else (major, 0, 0)


def usual_loader(machine: Machine) -> LoaderConfig:
    """The loader's configuration, with the usual folders where nobody told them."""
    config = machine.loader
    folders = config.default_folders
    if not folders:
        arch = machine.system.arch or "x86_64"
        folders = tuple(f.format(f"{arch}-linux-gnu") for f in _USUAL_FOLDERS)
    if config.cache is None:
        folders = (*config.conf_folders, *folders)
    return msgspec.structs.replace(config, default_folders=folders)


def usual_binaries(consumer: Consumer, site: str) -> list[Library]:
    """The object of a framework's usual build that asks for cuDNN, and its bundled shim."""
    build = _BUILDS.get(consumer.scheme)
    if build is None:
        return []
    path = f"{site}/{build.path}"
    major = consumer.major or 9
    needed = (soname("", major),) if build.needs_shim else ()
    found = []
    if build.bundled:
        version = build.bundled if major == CudnnVersion.parse(build.bundled).major else None
        shim = f"{posixpath.dirname(path)}/{soname('', major)}"
        found.append(
            Library(
                path=shim,
                real=shim,
                status="ok",
                soname=soname("", major),
                rpath="$ORIGIN",
                version=version,
            )
        )
    found.append(
        Library(
            path=path,
            real=path,
            status="ok",
            soname=posixpath.basename(path),
            needed=needed,
            rpath=build.rpath,
            runpath=build.runpath,
        )
    )
    return found
