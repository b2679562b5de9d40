"""What a cuDNN release contains, measured on its files: a wheel, an archive or an unpacked folder.

Libraries inside a wheel or an archive are unpacked one at a time into a temporary folder (TMPDIR),
measured and deleted: no more room is needed than the largest of them takes.
"""

from __future__ import annotations

import email.parser
import hashlib
import re
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from cudnn_doctor.errors import BadInput
from cudnn_doctor.machine.elf import read_elf
from cudnn_doctor.machine.fatbin import read_gpu_code
from cudnn_doctor.machine.flavour import cuda_named_in
from cudnn_doctor.machine.headers import header_version
from cudnn_doctor.machine.members import Member, Text, members
from cudnn_doctor.machine.names import parse_cudnn

Kind = Literal["wheel", "archive", "folder"]

_ARCHIVE = re.compile(
    r"(?P<component>cudnn(?:_jit)?)-(?P<platform>linux-[a-z0-9_]+)-(?P<build>\d+(?:\.\d+){3})"
    r"_cuda(?P<cuda>\d+(?:\.\d+)?)-archive(?:\.tar\.xz)?"
)
_OLD_ARCHIVE = re.compile(
    r"cudnn-(?P<cuda>\d+\.\d+)-(?P<platform>linux-[a-z0-9]+)-v(?P<build>\d+(?:\.\d+){3})(?:\.tgz)?"
)
_OLD_PLATFORMS = {"linux-x64": "linux-x86_64"}
_PACKAGE_CUDA = re.compile(r"nvidia-cudnn(?:-jit)?-cu(\d+)")
_DEVICE = r"^[ \t]*#[ \t]*define[ \t]+CUDNN_MAX_SM_{}_NUMBER[ \t]+(\d{{1,3}})\b"
_PIECE = 1 << 20


class LibraryContent(msgspec.Struct, frozen=True, kw_only=True):
    """One library, as its ELF headers and fat binaries tell."""

    size: int
    """Bytes."""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    machine: str | None = None
    glibc: str | None = None
    """Newest glibc symbol version that it asks for, ``2.17``."""
    sass: dict[str, int] = {}
    """Architecture (``sm_90a``) -> number of cubins."""
    ptx: dict[str, int] = {}
    ptx_isa: str | None = None
    damage: str = ""
    """What is wrong with the file; empty when it is whole."""


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What was found at one path. ``None`` and empty mean that nothing there tells."""

    file: str
    """Base name of what was inspected."""
    kind: Kind
    libraries: dict[str, LibraryContent]
    """Name (SONAME where it has one) -> content, shim first."""
    headers: tuple[str, ...] = ()
    init_files: tuple[str, ...] = ()
    """``__init__.py`` files, which make ``nvidia`` no namespace package."""
    package: str | None = None
    """Wheel's distribution, ``nvidia-cudnn-cu12``."""
    version: str | None = None
    """Full build, ``9.10.2.21``, from the wheel's metadata or the archive's name."""
    header_version: str | None = None
    """``9.10.2``, from cudnn_version.h."""
    max_device: str | None = None
    """Newest compute capability that cudnn_version.h names (CUDNN_MAX_DEVICE_VERSION)."""
    requires: tuple[str, ...] = ()
    """Requires-Dist of the wheel."""
    cuda: str | None = None
    """CUDA that it was built for, as the package or archive names it; else the major that its
    libraries name."""
    platform: str | None = None
    """``linux-x86_64``, from the archive's name."""
    jit: bool = False
    """The JIT flavour: no precompiled engines."""
    size: int | None = None
    """Bytes of the wheel or archive."""
    sha256: str | None = None

    @property
    def release(self) -> str | None:
        """``9.10.2``, by the build, else by the header."""
        return ".".join(self.version.split(".")[:3]) if self.version else self.header_version


def inspect(path: str) -> Inspection:
    """Measure what is at ``path``. Raises BadInput when it is not, or not readably, cuDNN."""
    source = Path(path)
    libraries: dict[str, LibraryContent] = {}
    texts: dict[str, str] = {}
    names: list[str] = []
    cuda = None
    for member in members(source):
        names.append(member.name)
        if isinstance(member, Text):
            texts.setdefault(_base(member.name), member.text)
        elif member.path is not None:
            content = measure(member)
            cuda = cuda or cuda_named_in(member.path)
            key = content.soname or _base(member.name)
            libraries[_base(member.name) if key in libraries else key] = content
    if not libraries:
        raise BadInput(
            "no cuDNN library in it",
            where=path,
            next_step="name a cuDNN wheel, NVIDIA's archive (.tar.xz, .tgz) or an unpacked folder",
        )
    return _described(source, libraries, names, texts, cuda)


def measure(member: Member) -> LibraryContent:
    """Read one library that lies at ``member.path``."""
    assert member.path is not None
    elf = read_elf(member.path)
    damage: str = "" if elf.status == "ok" else elf.status
    try:
        code = read_gpu_code(member.path)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", where=member.name) from error
    if not code.whole:
        damage = damage or "GPU code cut short"
    return LibraryContent(
        size=elf.size or 0,
        soname=elf.soname,
        needed=elf.needed,
        rpath=elf.rpath,
        runpath=elf.runpath,
        machine=elf.machine,
        glibc=elf.glibc_needed,
        sass=code.sass,
        ptx=code.ptx,
        ptx_isa=code.ptx_isa,
        damage=damage,
    )


def _described(
    source: Path,
    libraries: dict[str, LibraryContent],
    names: list[str],
    texts: dict[str, str],
    cuda: str | None,
) -> Inspection:
    """Put what the names and texts tell beside the measured libraries."""
    metadata = email.parser.HeaderParser().parsestr(texts.get("METADATA", ""))
    header = texts.get("cudnn_version.h", "")
    package = metadata.get("Name")
    named = _PACKAGE_CUDA.fullmatch(package or "")
    archive = _ARCHIVE.fullmatch(source.name) or _OLD_ARCHIVE.fullmatch(source.name)
    told = archive.groupdict() if archive else {}
    folder = source.is_dir()
    size, digest = (None, None) if folder else _fingerprint(source)
    headers = {_base(name) for name in names if name.endswith(".h")}
    platform = told.get("platform")
    return Inspection(
        file=source.name,
        kind="folder" if folder else "wheel" if source.suffix == ".whl" else "archive",
        libraries=dict(sorted(libraries.items(), key=lambda item: _shim_first(item[0]))),
        headers=tuple(sorted(name for name in headers if name.startswith("cudnn"))),
        init_files=tuple(sorted(n for n in names if n.endswith("__init__.py"))),
        package=package,
        version=metadata.get("Version") or told.get("build"),
        header_version=header_version(header),
        max_device=_max_device(header),
        requires=tuple(metadata.get_all("Requires-Dist") or ()),
        cuda=named[1] if named else told.get("cuda") or cuda,
        platform=_OLD_PLATFORMS.get(platform, platform) if platform else None,
        jit=not any("precompiled" in n or "cnn_infer" in n for n in libraries)
        and any("runtime_compiled" in n for n in libraries),
        size=size,
        sha256=digest,
    )


def _base(name: str) -> str:
    return PurePosixPath(name).name


def _shim_first(name: str) -> tuple[bool, str]:
    parsed = parse_cudnn(name)
    return (parsed is None or bool(parsed.part), name)


def _max_device(header: str) -> str | None:
    """``12.1`` from CUDNN_MAX_SM_MAJOR_NUMBER and _MINOR_NUMBER, which make up
    CUDNN_MAX_DEVICE_VERSION."""
    found = [re.search(_DEVICE.format(part), header, re.M) for part in ("MAJOR", "MINOR")]
    return ".".join(match[1] for match in found if match) if all(found) else None


def _fingerprint(path: Path) -> tuple[int, str]:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
        return file.tell(), digest.hexdigest()
