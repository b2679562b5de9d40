"""Space and mount state of the folders that installs write to."""

from __future__ import annotations

import os
import re

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.kernel import speaks_for
from cudnn_doctor.machine.model import DiskSpace

_OCTAL = re.compile(r"\\([0-7]{3})")


def probe_disks(host: Host, tmpdir: str) -> tuple[DiskSpace, ...]:
    """TMPDIR first, then the home folder, ``/usr/local`` and ``/opt``; one entry each.

    Free space is what this user may write (``f_bavail``), in bytes.
    """
    paths = dict.fromkeys([tmpdir, host.home, "/usr/local", "/opt"])
    return tuple(_disk(host, path) for path in paths if host.is_dir(path))


def _disk(host: Host, path: str) -> DiskSpace:
    try:
        space = os.statvfs(host.outer(path))
    except OSError as error:
        host.fail("system", f"{path}: {error.strerror}")
        return DiskSpace(path=path)
    filesystem = _filesystem(host, path)
    return DiskSpace(
        path=path,
        total=space.f_blocks * space.f_frsize,
        free=space.f_bavail * space.f_frsize,
        filesystem=filesystem,
        read_only=bool(space.f_flag & os.ST_RDONLY),
    )


def _filesystem(host: Host, path: str) -> str:
    """Type of the file system that ``path`` is on: the last mount of the longest prefix."""
    if not host.live and not speaks_for(host, "/proc"):
        return ""
    real = host.real(path) or path
    best, kind = "", ""
    for line in (host.text("/proc/self/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
