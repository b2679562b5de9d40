"""pacman, read from its local database: one folder a package."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.managers import RELEVANT, locks
from cudnn_doctor.machine.model import Owner, Package

_LOCAL = "/var/lib/pacman/local"
_LIMIT = 1 << 26


def installed(host: Host) -> tuple[Package, ...]:
    """Relevant installed packages, sorted by name."""
    return tuple(package for _, package in _entries(host))


def owners(host: Host, paths: Sequence[str]) -> dict[str, Owner]:
    """The relevant package that owns each path; paths that none owns are left out."""
    found: dict[str, Owner] = {}
    for folder, package in _entries(host):
        owned = set((host.text(f"{folder}/files", _LIMIT) or "").splitlines())
        for path in paths:
            if path.lstrip("/") in owned:
                found[path] = Owner(kind="pacman", name=package.name, version=package.version)
    return found


def _entries(host: Host) -> Iterator[tuple[str, Package]]:
    packages = locks.of_pacman(host, "IgnorePkg")
    groups = locks.of_pacman(host, "IgnoreGroup")
    for name in host.names(_LOCAL):
        if not RELEVANT.search(name):
            continue
        folder = f"{_LOCAL}/{name}"
        fields = _fields(host.text(f"{folder}/desc") or "")
        if "NAME" in fields and RELEVANT.search(fields["NAME"]):
            lock = next((k for k in packages if k.holds(fields["NAME"])), None)
            lock = lock or next((k for k in groups if k.holds(*fields["GROUPS"].split())), None)
            yield (
                folder,
                Package(
                    name=fields["NAME"],
                    version=fields["VERSION"],
                    manager="pacman",
                    origin=fields["PACKAGER"],
                    held=lock is not None,
                    held_by=lock.file if lock else "",
                    lock=lock.text if lock else "",
                ),
            )


def _fields(text: str) -> defaultdict[str, str]:
    """The ``%FIELD%`` sections of a ``desc`` file, the lines of each in one."""
    found: defaultdict[str, str] = defaultdict(str)
    for section in text.split("\n\n"):
        head, _, body = section.strip().partition("\n")
        if head.startswith("%") and head.endswith("%"):
            found[head.strip("%")] = body.replace("\n", " ")
    return found
