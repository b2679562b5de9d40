"""apk, read from its database of installed packages (apk-package(5))."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.managers import RELEVANT, spellings
from cudnn_doctor.machine.model import Owner, Package

_DATABASES = ("/lib/apk/db/installed", "/usr/lib/apk/db/installed")
_LIMIT = 1 << 26


def installed(host: Host) -> tuple[Package, ...]:
    """Relevant installed packages, in the order of the database."""
    return tuple(package for package, _ in _entries(host))


def owners(host: Host, paths: Sequence[str]) -> dict[str, Owner]:
    """The relevant package that owns each path; paths that none owns are left out."""
    wanted = {spelling: path for path in paths for spelling in spellings(path)}
    found: dict[str, Owner] = {}
    for package, files in _entries(host):
        for spelling in wanted.keys() & files:
            found[wanted[spelling]] = Owner(kind="apk", name=package.name, version=package.version)
    return found


def _entries(host: Host) -> Iterator[tuple[Package, set[str]]]:
    text = next((t for path in _DATABASES if (t := host.text(path, _LIMIT))), "")
    for block in text.split("\n\n"):
        name = version = folder = ""
        files: set[str] = set()
        for line in block.splitlines():
            key, _, value = line.partition(":")
            if key == "P":
                name = value
            elif key == "V":
                version = value
            elif key == "F":
                folder = value
            elif key == "R":
                files.add(f"/{folder}/{value}")
        if name and RELEVANT.search(name):
            yield Package(name=name, version=version, manager="apk"), files
