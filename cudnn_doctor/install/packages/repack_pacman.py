"""A package of pacman again of an installed one."""

from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path

_LOCAL = "/var/lib/pacman/local"
_INFO = ".PKGINFO"
_FIELDS = {
    "NAME": "pkgname",
    "BASE": "pkgbase",
    "VERSION": "pkgver",
    "DESC": "pkgdesc",
    "URL": "url",
    "BUILDDATE": "builddate",
    "PACKAGER": "packager",
    "SIZE": "size",
    "ARCH": "arch",
    "LICENSE": "license",
    "GROUPS": "group",
    "REPLACES": "replaces",
    "CONFLICTS": "conflict",
    "PROVIDES": "provides",
    "DEPENDS": "depend",
    "OPTDEPENDS": "optdepend",
    "BACKUP": "backup",
}
"""Sections of the database and what a package calls them."""
_SCRIPTS = {"install": ".INSTALL", "mtree": ".MTREE", "changelog": ".CHANGELOG"}


def describe(name: str, version: str, folder: Path) -> None:
    """Write what the database says of an installed package as a package says it."""
    known = Path(_LOCAL) / f"{name}-{version}"
    lines = []
    for file in ("desc", "files"):
        for section in (known / file).read_text("utf-8").split("\n\n"):
            head, *values = section.strip().split("\n")
            if key := _FIELDS.get(head.strip("%")):
                lines += [f"{key} = {value.partition(chr(9))[0]}" for value in values]
    (folder / _INFO).write_text("\n".join([*lines, ""]), "utf-8")
    for source, target in _SCRIPTS.items():
        if (known / source).is_file():
            (folder / target).write_bytes((known / source).read_bytes())


def build(folder: Path, tree: Path, target: str) -> str:
    """Build ``target`` with the suffix of its kind; returns that path."""
    path = f"{target}.pkg.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in (_INFO, *_SCRIPTS.values()):
            if (folder / name).is_file():
                tar.addfile(*_of_root(name, (folder / name).read_bytes()))
        for entry in sorted(tree.iterdir()):
            tar.add(entry, entry.name)
    return path


def _of_root(name: str, data: bytes) -> tuple[tarfile.TarInfo, BytesIO]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    return info, BytesIO(data)
