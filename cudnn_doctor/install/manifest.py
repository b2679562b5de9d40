"""The manifest of a version's folder: what was put there, so that damage can be told later."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from cudnn_doctor.errors import BadInput
from cudnn_doctor.install import records

NAME = ".cudnn-doctor.json"
PKGCONFIG = "lib/pkgconfig/cudnn.pc"
"""Written after the manifest."""
_PIECE = 1 << 20


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file (size in bytes and SHA-256) or symbolic link."""

    size: int = 0
    sha256: str = ""
    link: str = ""


def write(folder: Path, known: Mapping[str, Entry]) -> None:
    """Record every file of the folder in it, without reading those ``known``; raises OSError."""
    data = msgspec.json.format(msgspec.json.encode(scan(folder, known)), indent=1)
    (folder / NAME).write_bytes(data + b"\n")


def scan(folder: Path, known: Mapping[str, Entry] | None = None) -> dict[str, Entry]:
    """Path below ``folder`` -> what is there, without the manifest; files that are ``known`` are
    not read. Raises OSError."""
    told = known or {}
    paths = _names(folder)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        entries = pool.map(lambda path: told.get(path) or _entry(folder / path), paths)
        return dict(zip(paths, entries, strict=True))


def damage(folder: Path) -> list[str] | None:
    """What differs from the manifest, one line each; None when there is no manifest."""
    if not os.path.lexists(folder / NAME):
        return None
    try:
        expected = records.read(folder / NAME, dict[str, Entry])
        found = scan(folder)
    except BadInput as error:
        return [f"{NAME}: {error.what}"]
    except OSError as error:
        return [f"{error.filename} cannot be read: {error.strerror}"]
    return [
        f"{path} is missing" if path not in found else f"{path} was changed"
        for path, entry in sorted(expected.items())
        if found.get(path) != entry
    ]


def strangers(folder: Path) -> list[str]:
    """Paths below ``folder`` that the manifest does not name: all without a manifest, none where
    it cannot be read."""
    try:
        told = records.read(folder / NAME, dict[str, Entry])
    except BadInput:
        told = {}
        if os.path.lexists(folder / NAME):
            return []
    return [path for path in _names(folder) if path not in told and path != PKGCONFIG]


def _names(folder: Path) -> list[str]:
    """Relative paths of all in there that is no folder, without the manifest, sorted."""
    return sorted(
        os.path.relpath(os.path.join(base, name), folder)
        for base, folders, names in os.walk(folder)
        for name in (*names, *(f for f in folders if os.path.islink(os.path.join(base, f))))
        if name != NAME
    )


def _entry(path: Path) -> Entry:
    """Of what is neither file nor link an empty one: to open a pipe would be to wait for ever."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return Entry(link=os.readlink(path))
    if not stat.S_ISREG(mode):
        return Entry()
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while data := file.read(_PIECE):
            digest.update(data)
            size += len(data)
    return Entry(size=size, sha256=digest.hexdigest())
