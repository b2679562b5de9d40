"""The ``cudnn_copies`` phrases of a description: folders, versions, links, packages, headers."""

from __future__ import annotations

import re
from typing import NamedTuple

from cudnn_doctor.machine.model import (
    CudnnCopy,
    Distribution,
    Header,
    Library,
    Owner,
    Package,
)

_PATH = re.compile(
    r"(?<![\w.:])(?:\$\{?\w+\}?/|~/|/|(?:[\w.-]+/)*site-packages/|torch/lib)[^\s,;()]*"
)
_LIB = re.compile(r"libcudnn[\w*]*\.so(?:\.[\d.]*\d|\.N)?")
_PACKAGE = re.compile(r"\b(libcudnn\d+(?:-(?!cuda)[a-z]+)*(?:-cuda-\d+)?|cudnn\d*-cuda-\d+)\b")
_WHEEL = re.compile(r"\b(nvidia-cudnn(?:-cu\d+)?)\b")
_VERSION = re.compile(r"(?<![\w.+-])v?(\d{1,2}(?:\.(?:\d+|x))+)(?![\w])")
_LACKS = re.compile(
    r"\b(?:without|lacks?|missing|minus)\s+((?:lib\w+[\w.*]*(?:,\s*| and )?)+)", re.I
)


class Told(NamedTuple):
    """Facts other than copies that the phrases tell."""

    libraries: tuple[Library, ...]
    headers: tuple[Header, ...]
    packages: tuple[Package, ...]
    distributions: tuple[Distribution, ...]


def describe_copies(
    items: list[str], notes: list[str]
) -> tuple[tuple[CudnnCopy, ...] | None, Told]:
    """Copies (None: nothing known) and the rest."""
    copies: list[CudnnCopy] = []
    libraries: list[Library] = []
    headers: list[Header] = []
    packages: list[Package] = []
    distributions: list[Distribution] = []
    nothing = False
    for item in items:
        notes.append(f"cuDNN: {item}")
        if re.match(r"(none|no cudnn|not installed|nowhere)\b", item, re.I):
            nothing = True
            continue
        version = _version(item)
        if link := _link(item):
            libraries.append(link)
            if "cudnn" not in (link.link or ""):
                continue
        wheel = _WHEEL.search(item)
        if wheel:
            distributions.append(Distribution(name=wheel[1], version=version or ""))
        if package := _PACKAGE.search(item):
            packages.append(Package(name=package[1], version=version or ""))
        copy = _copy(item, version)
        if copy:
            copies.append(copy)
        if re.search(r"\bheaders?\b|\bcudnn(_version)?\.h\b", item) and copy:
            folder = re.sub(r"/lib(64)?$", "", copy.folder)
            headers.append(Header(path=f"{folder}/include", version=copy.version or version))
    told = Told(tuple(libraries), tuple(headers), tuple(packages), tuple(distributions))
    return tuple(copies) if copies or nothing else None, told


def _version(item: str) -> str | None:
    bare = re.sub(r"CUDA\s*\d+(\.\d+)?", " ", item)
    bare = _PATH.sub(" ", bare) if not _LIB.search(bare) else re.sub(r"\S*/", " ", bare)
    found = _VERSION.search(_LACKS.sub(" ", bare))
    if found:
        return found[1]
    named = re.search(r"\.so\.(\d+\.\d+[\d.]*)", item)
    return named[1].rstrip(".") if named else None


def _link(item: str) -> Library | None:
    found = re.search(r"(\S*lib[\w.]+)\s*->\s*(\S+)", item)
    if not found or "/" not in found[1] or ".so" not in found[2]:
        return None
    return Library(path=found[1], link=found[2], status="ok", soname=_soname(found[2]))


def _soname(name: str) -> str | None:
    found = re.search(r"(lib[\w+-]+\.so)\.?(\d+)?", name)
    if found is None:
        return None
    major = "1" if found[1] == "libcuda.so" else found[2]
    return f"{found[1]}.{major}" if major else found[1]


def _copy(item: str, version: str | None) -> CudnnCopy | None:
    path = _PATH.search(item)
    folder = path[0].rstrip(".,:") if path else ""
    files: tuple[str, ...] = ()
    if re.search(r"\.so[\w.]*$|\*$", folder):
        folder, _, name = folder.rpartition("/")
        files = (name,) if "*" not in name else ()
    major = _major(item, version)
    release = version if version and "x" not in version else None
    kind = _kind(item, folder)
    cuda = re.search(r"-cuda-(\d+)|-cu(\d\d)\b|(?:for|flavour)\s+CUDA\s*(\d+)", item)
    if not (folder or major or kind):
        return None
    if re.match(r"dist-info\b", item):
        return None
    lacks = _LACKS.search(item)
    empty = re.search(r"\bempty\b|\bno files\b", item)
    owner = _owner(item, release or "")
    return CudnnCopy(
        folder=folder.rstrip("/"),
        major=major,
        version=None if re.search(r"two releases|mixed|several versions", item) else release,
        version_from="told" if release else "",
        cuda=next((g for g in cuda.groups() if g), None) if cuda else None,
        kind=kind,
        files=files,
        shim=None,
        lacks=("*",) if empty else tuple(re.findall(r"lib\w+[\w.*]*\w", lacks[1])) if lacks else (),
        owners=(owner,) if owner else (),
    )


def _major(item: str, version: str | None) -> int | None:
    if version:
        return int(version.split(".")[0])
    found = (
        re.search(r"\.so\.(\d+)", item)
        or re.search(r"\bcudnn\D{0,3}v?(\d+)\b", item, re.I)
        or re.fullmatch(r"v?(\d+)", item.strip())
    )
    return int(found[1]) if found else None


_KINDS = (
    ("wheel", r"\bsite-packages/nvidia/|\bnvidia-cudnn\b"),
    ("bundled", r"torch/lib|bundled"),
    ("conda", r"conda"),
    ("ld_library_path", r"(?<!not )\b(?:on|in|or) ld_library_path|hand-unpacked|unpacked by hand"),
    ("module", r"\bmodule\b|^/apps/"),
    ("toolkit", r"^\S*/cuda"),
    ("system", r"^/(usr/(local/)?)?lib|\b(system|apt|image|libcudnn\d+)\b"),
)


def _kind(item: str, folder: str) -> str:
    """Where it was found, by the folder first and by the words around it then."""
    text = f"{folder}/ {'' if folder else '/'}{item}".lower()
    return next((kind for kind, pattern in _KINDS if re.search(pattern, text)), "")


def _owner(item: str, version: str) -> Owner | None:
    if wheel := _WHEEL.search(item):
        return Owner(kind="wheel", name=wheel[1], version=version)
    if package := _PACKAGE.search(item):
        return Owner(kind="dpkg", name=package[1], version=version)
    if re.search(r"\bAUR\b|\bpacman\b", item):
        return Owner(kind="pacman", name="cudnn", version=version)
    if re.search(r"\bconda\b|\$\{?CONDA_PREFIX", item) and "site-packages" not in item:
        return Owner(kind="conda", name="cudnn", version=version)
    return None
