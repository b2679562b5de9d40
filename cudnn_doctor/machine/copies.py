"""The copies of cuDNN: the library files of one folder and one major, and who put them there."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

import msgspec

from cudnn_doctor.machine.flavour import embedded_cuda
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import (
    CudnnCopy,
    Distribution,
    Environment,
    Header,
    Library,
    Owner,
    Package,
)
from cudnn_doctor.machine.names import is_static_cudnn, parse_cudnn, soname
from cudnn_doctor.versions import CudnnVersion

_CUDA_IN_NAME = re.compile(r"(?:-cu|cuda-?)(\d{2})")
_PACKAGE_VERSION = re.compile(r"(?:\d+:)?(\d+(?:\.\d+){2,3})")
_SYSTEM_FOLDER = re.compile(r"(/usr)?/lib(32|64)?(/[a-z0-9_]+-linux-gnu)?")
_KINDS = (
    ("nix", re.compile(r"/nix/store/")),
    ("spack", re.compile(r"/spack/")),
    ("easybuild", re.compile(r"/software/cudnn[/-]", re.IGNORECASE)),
    ("toolkit", re.compile(r"/cuda(-[\d.]+)?/(lib|targets)")),
    ("wheel", re.compile(r"/nvidia/\w+/lib$")),
    ("bundled", re.compile(r"/(site|dist)-packages/")),
)


class _Group(msgspec.Struct, eq=False):
    """Files of one major in one real folder."""

    folder: str
    major: int | None
    files: dict[str, Library] = {}
    """By file name."""


def probe_copies(
    host: Host,
    libraries: Sequence[Library],
    environments: Sequence[Environment],
    packages: Sequence[Package],
    headers: Sequence[Header],
) -> tuple[CudnnCopy, ...]:
    """Every copy, in the order in which its folder was met."""
    groups = _groups(host, libraries)
    owners = _package_owners(host, groups) if packages else {}
    return tuple(_copy(host, group, environments, owners, headers) for group in groups)


def _groups(host: Host, libraries: Sequence[Library]) -> list[_Group]:
    groups: dict[tuple[str, int | None], _Group] = {}
    real_folders: dict[str, str] = {}
    for library in libraries:
        folder, name = posixpath.split(library.path)
        parsed = parse_cudnn(name)
        if parsed is None:
            continue
        real = real_folders.get(folder)
        if real is None:
            real = real_folders[folder] = host.real(folder) or folder
        major = parsed.major
        if major is None:
            target = parse_cudnn(posixpath.basename(library.real or library.link or ""))
            by_soname = parse_cudnn(library.soname or "")
            major = next((t.major for t in (target, by_soname) if t and t.major), None)
        group = groups.setdefault((real, major), _Group(real, major))
        group.files.setdefault(name, library)
    return list(groups.values())


def _package_owners(host: Host, groups: Sequence[_Group]) -> dict[str, Owner]:
    """Owners in the distribution's database, of files outside of Python environments."""
    from cudnn_doctor.machine.packages import file_owner

    paths = [
        f"{group.folder}/{name}"
        for group in groups
        if "-packages/" not in group.folder and not group.folder.startswith("/nix/")
        for name in group.files
    ]
    return file_owner(host, paths) if paths else {}


def _copy(
    host: Host,
    group: _Group,
    environments: Sequence[Environment],
    package_owners: dict[str, Owner],
    headers: Sequence[Header],
) -> CudnnCopy:
    environment = _environment(host, group.folder, environments)
    holders = list(_distributions(host, group, environment)) if environment else []
    owned = [o for name in group.files if (o := package_owners.get(f"{group.folder}/{name}"))]
    owners = tuple(dict.fromkeys([*(_owner(d) for d in holders), *owned]))
    versions = _file_versions(group)
    version, source = _version(group, versions, owners, headers)
    names = sorted(group.files)
    jit = "/cudnn_jit/" in group.folder or any("jit" in o.name for o in owners)
    return CudnnCopy(
        folder=group.folder,
        major=group.major,
        version=version,
        version_from=source,
        cuda=_cuda(host, group, holders, owned),
        flavour="jit" if jit else "full",
        kind=_kind(host, group.folder, environment, bool(owned)),
        shim=_shim(group),
        files=tuple(names),
        file_versions=versions,
        owners=owners,
        environment=environment.prefix if environment else None,
        static_archives=tuple(n for n in host.names(group.folder) if is_static_cudnn(n)),
        private=all(p.hashed for n in names if (p := parse_cudnn(n)) and not p.part)
        and any(p.hashed for n in names if (p := parse_cudnn(n))),
    )


def _environment(
    host: Host, folder: str, environments: Sequence[Environment]
) -> Environment | None:
    """The environment whose packages (or, for conda, whose prefix) hold the folder."""
    best: tuple[int, Environment] | None = None
    for environment in environments:
        bases = list(environment.site_packages)
        if environment.kind == "conda":
            bases.append(environment.prefix)
        for base in bases:
            real = host.real(base) or base
            if folder.startswith(real + "/") and (best is None or len(real) > best[0]):
                best = (len(real), environment)
    return best[1] if best else None


def _distributions(host: Host, group: _Group, environment: Environment) -> Iterator[Distribution]:
    """Distributions whose file lists have at least one of the files."""
    for distribution in environment.distributions:
        location = host.real(distribution.location) or distribution.location
        for file in distribution.files:
            folder, name = posixpath.split(posixpath.normpath(f"{location}/{file}"))
            if folder == group.folder and (name in group.files or parse_cudnn(name)):
                yield distribution
                break


def _owner(distribution: Distribution) -> Owner:
    if distribution.installer == "conda":
        kind = "conda"
    else:
        kind = "wheel" if "cudnn" in distribution.name else "framework"
    return Owner(kind=kind, name=distribution.name, version=distribution.version)  # type: ignore[arg-type]


def _file_versions(group: _Group) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, library in sorted(group.files.items()):
        parsed = parse_cudnn(name)
        if parsed and library.version and library.real:
            key = soname(parsed.part, group.major)
            if parsed.numbers == (group.major,) or key not in found:
                found[key] = library.version
    return found


def _version(
    group: _Group, versions: dict[str, str], owners: Sequence[Owner], headers: Sequence[Header]
) -> tuple[str | None, str]:
    """The one version that all files with a known version have."""
    releases = {CudnnVersion.parse(v).release for v in versions.values()}
    if len(releases) > 1:
        return None, ""
    if releases:
        source = next(lib.version_from for lib in group.files.values() if lib.version)
        return max(versions.values(), key=len), source
    told = {m[1] for o in owners if "cudnn" in o.name and (m := _PACKAGE_VERSION.match(o.version))}
    fitting = {v for v in told if int(v.split(".")[0]) == group.major}
    if len(fitting) == 1 and not any(o.kind == "wheel" for o in owners):
        return fitting.pop(), "package"
    if not _SYSTEM_FOLDER.fullmatch(group.folder):
        include = posixpath.normpath(f"{group.folder}/../include")
        for header in headers:
            if posixpath.dirname(header.path) == include and header.version:
                return header.version, "header"
    return None, ""


def _cuda(
    host: Host, group: _Group, holders: Sequence[Distribution], owned: Sequence[Owner]
) -> str | None:
    """CUDA major that the copy was built for: its package's name, else the names inside it."""
    whole = [d for d in holders if not d.record_problems] or holders
    told = {m[1] for d in whole if (m := _CUDA_IN_NAME.search(f"{d.name} {d.build}"))}
    told |= {m[1] for o in owned if (m := _CUDA_IN_NAME.search(f"{o.name} {o.version}"))}
    if len(told) == 1:
        return told.pop()
    return embedded_cuda(host, group.files.values())


def _kind(host: Host, folder: str, environment: Environment | None, owned: bool) -> str:
    if environment and environment.kind == "conda" and "-packages/" not in folder:
        return "conda"
    if _SYSTEM_FOLDER.fullmatch(folder):
        return "system"
    for kind, pattern in _KINDS:
        if pattern.search(folder):
            return kind
    loaded = host.environ.get("LOADEDMODULES", "").lower()
    searched = host.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    if any(folder == (host.real(f) or f) for f in searched if f.startswith("/")):
        return "module" if "cudnn" in loaded and "cudnn" in folder.lower() else "ld_library_path"
    return "system" if owned else "prefix"


def _shim(group: _Group) -> str | None:
    """File name of the shim by its SONAME, or of a renamed one; None when absent or dangling."""
    there = {n for n, lib in group.files.items() if lib.status != "dangling"}
    usual = soname("", group.major)
    if usual in there:
        return usual
    renamed = [n for n in there if (p := parse_cudnn(n)) and not p.part and p.hashed]
    return min(renamed, default=None)
