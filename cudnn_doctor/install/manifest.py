"""The manifest of a version's folder: what was put there, so that damage can be told later."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

NAME = ".cudnn-doctor.json"
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
    """Path below ``folder`` -> what is there, without this tool's own files; files that are
    ``known`` are not read."""
    told = known or {}
    paths = [
        os.path.relpath(os.path.join(base, name), folder)
        for base, _, names in os.walk(folder)
        for name in names
        if name != NAME
    ]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        entries = pool.map(lambda path: told.get(path) or _entry(folder / path), sorted(paths))
        return dict(zip(sorted(paths), entries, strict=True))


def damage(folder: Path) -> list[str] | None:
    """What differs from the manifest, one line each; None when there is no manifest."""
    try:
        expected = msgspec.json.decode((folder / NAME).read_bytes(), type=dict[str, Entry])
    except OSError:
        return None
    except msgspec.MsgspecError as error:
        return [f"{NAME} cannot be read: {error}"]
    found = scan(folder)
    return [
        f"{path} is missing" if path not in found else f"{path} was changed"
        for path, entry in sorted(expected.items())
        if found.get(path) != entry
    ]


def _entry(path: Path) -> Entry:
    if path.is_symlink():
        return Entry(link=os.readlink(path))
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while data := file.read(_PIECE):
            digest.update(data)
            size += len(data)
    return Entry(size=size, sha256=digest.hexdigest())
