"""A walk over the whole file system that stays on local disks and out of other systems' files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cudnn_doctor.machine.host import Host

_SKIP = {
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/snap",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/containers",
}
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs"}
_REMOTE |= {"autofs", "glusterfs", "davfs", "ncpfs"}
_EVERY = 0.2
"""Seconds between two reports of progress."""


class Folder(NamedTuple):
    """One folder of the walk; links are neither followed nor listed as folders."""

    path: str
    """As seen from inside the root."""
    folders: frozenset[str]
    files: frozenset[str]
    """Names of everything else, links included."""


def walk(host: Host, progress: Callable[[str], None] | None = None) -> Iterator[Folder]:
    """Every readable folder of the probed system; folders on network mounts are left out."""
    skip = _SKIP | _remote_mounts(host)
    todo = ["/"]
    said = time.monotonic()
    while todo:
        path = todo.pop()
        folders, files = _list(_outer(host, path))
        yield Folder(path, frozenset(folders), frozenset(files))
        base = path.rstrip("/")
        stores = _stores(path, folders)
        todo.extend(
            f"{base}/{name}"
            for name in folders
            if name not in stores and f"{base}/{name}" not in skip
        )
        if progress and time.monotonic() - said >= _EVERY:
            said = time.monotonic()
            progress(path)


def _stores(path: str, folders: list[str]) -> set[str]:
    """Folders from which package managers install: nothing is used from there directly."""
    if "conda-meta" in folders:
        return {"pkgs"}
    if path.endswith("/uv"):
        return {name for name in folders if name.startswith("archive-v")}
    return set()


def _outer(host: Host, path: str) -> str:
    # no links on the way: the walk never goes through one
    return path if host.live else host.root + path


def _list(outer: str) -> tuple[list[str], list[str]]:
    folders: list[str] = []
    files: list[str] = []
    try:
        with os.scandir(outer) as entries:
            for entry in entries:
                (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    except OSError:
        pass  # unreadable folders are common and say nothing about cuDNN
    folders.sort(reverse=True)
    return folders, files


def _remote_mounts(host: Host) -> set[str]:
    found = set()
    for line in (host.text("/proc/self/mountinfo") or "").splitlines() if host.live else ():
        before, _, after = line.partition(" - ")
        kind = after.split(" ")[0]
        if kind in _REMOTE or kind.startswith("fuse."):
            found.add(before.split(" ")[4].replace("\\040", " "))
    return found
