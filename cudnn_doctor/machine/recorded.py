"""A folder of cuDNN libraries compared with what was installed there, by SHA-256.

That is told by the RECORD of the wheel that put it there, or by this tool's own manifest.
"""

from __future__ import annotations

import base64
import posixpath
from typing import NamedTuple

import msgspec

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import RecordProblem
from cudnn_doctor.machine.records import Comparer, RecordEntry, is_cudnn_file, parse_libraries

_DEPTH = 4
"""``nvidia/cudnn/lib`` and one folder to spare, up to site-packages."""
_MANIFEST = ".cudnn-doctor.json"
"""In the folder of a version that this tool installed: path -> size and SHA-256 in hexadecimal."""


class _Entry(msgspec.Struct, frozen=True):
    size: int = 0
    sha256: str = ""


class Recorded(NamedTuple):
    """What the comparison with one record gave."""

    source: str
    """``RECORD of nvidia_cudnn_cu13-9.19.0.56``, or the path of a manifest."""
    checked: int
    problems: tuple[RecordProblem, ...]


def compare_folder(host: Host, folder: str) -> Recorded | None:
    """Compare a folder's cuDNN libraries by SHA-256; None where no record names them.

    Wheels of several CUDA majors own the same file names: of several RECORDs the one that agrees
    best is taken (that the others are overwritten is for `check` to tell).
    """
    comparer = Comparer(host, hashes=True)
    site, found = folder, []
    for _ in range(_DEPTH):
        site = posixpath.dirname(site)
        inside = posixpath.relpath(folder, site)
        for name in host.names(site):
            if name.endswith(".dist-info") and "cudnn" in name:
                one = _compare(host, comparer, site, name, inside)
                found += [one] if one else []
        if entries := _manifest(host, f"{site}/{_MANIFEST}", inside):
            problems = comparer.compare(site, entries)
            found.append(Recorded(f"{site}/{_MANIFEST}", len(entries), problems))
    return min(found, key=lambda one: len(one.problems), default=None)


def _manifest(host: Host, path: str, inside: str) -> list[RecordEntry]:
    """The folder's libraries (not links to them) of a manifest; none where it is no manifest."""
    try:
        raw = msgspec.json.decode(host.bytes(path) or b"{}", type=dict[str, _Entry])
        return [
            RecordEntry(name, _digest(entry.sha256), entry.size)
            for name, entry in raw.items()
            if entry.sha256 and posixpath.dirname(name) == inside and is_cudnn_file(name)
        ]
    except (msgspec.MsgspecError, ValueError) as error:
        host.fail("copies", f"{path}: {error}")
        return []


def _digest(hexadecimal: str) -> str:
    """In the form of RECORD."""
    raw = base64.urlsafe_b64encode(bytes.fromhex(hexadecimal))
    return f"sha256={raw.rstrip(b'=').decode()}"


def _compare(host: Host, comparer: Comparer, site: str, name: str, inside: str) -> Recorded | None:
    if (host.text(f"{site}/{name}/INSTALLER", 256) or "").strip() == "conda":
        return None  # conda rewrites files
    entries = [
        entry
        for entry in parse_libraries(host.text(f"{site}/{name}/RECORD", 1 << 25) or "")
        if posixpath.dirname(entry.path) == inside and is_cudnn_file(entry.path)
    ]
    if not entries:
        return None
    source = f"RECORD of {name.removesuffix('.dist-info')}"
    return Recorded(source, len(entries), comparer.compare(site, entries))
