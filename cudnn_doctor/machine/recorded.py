"""A folder of cuDNN libraries compared with the RECORD of the wheel that put it there."""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import RecordProblem
from cudnn_doctor.machine.records import Comparer, is_cudnn_file, parse_libraries

_DEPTH = 4
"""``nvidia/cudnn/lib`` and one folder to spare, up to site-packages."""


class Recorded(NamedTuple):
    """What the comparison with one wheel's RECORD gave."""

    wheel: str
    """Name and version, such as ``nvidia_cudnn_cu13-9.19.0.56``."""
    checked: int
    problems: tuple[RecordProblem, ...]


def compare_folder(host: Host, folder: str) -> Recorded | None:
    """Compare a folder's cuDNN libraries by SHA-256; None where no wheel's RECORD names them.

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
    return min(found, key=lambda one: len(one.problems), default=None)


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
    return Recorded(name.removesuffix(".dist-info"), len(entries), comparer.compare(site, entries))
