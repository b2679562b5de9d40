"""dpkg, read from its files under ``/var/lib/dpkg`` (deb(5), dpkg(1))."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.managers import RELEVANT, spellings
from cudnn_doctor.machine.model import Owner, Package

_STATUS = "/var/lib/dpkg/status"
_STATUS_FOLDER = "/var/lib/dpkg/status.d"  # images made without dpkg (distroless)
_INFO = "/var/lib/dpkg/info"
_LIMIT = 1 << 26

_FIELD = re.compile(r"^(Status|Version|Origin|Maintainer): *(.*)$", re.MULTILINE)


def installed(host: Host) -> tuple[Package, ...]:
    """Relevant installed packages, in the order of the database."""
    return tuple(package for text in _databases(host) for package in _packages(text))


def _databases(host: Host) -> Iterator[str]:
    status = host.text(_STATUS, _LIMIT)
    if status is not None:
        yield status
    for name in host.names(_STATUS_FOLDER):
        if RELEVANT.search(name) and not name.endswith(".md5sums"):
            yield host.text(f"{_STATUS_FOLDER}/{name}") or ""


def _packages(text: str) -> Iterator[Package]:
    for block in f"\n{text}".split("\nPackage: ")[1:]:
        name = block.partition("\n")[0].strip()
        if not RELEVANT.search(name):
            continue
        fields = dict(_FIELD.findall(block))
        want, _, state = fields.get("Status", "install ok installed").partition(" ")
        if not state.endswith(" installed"):
            continue
        yield Package(
            name=name,
            version=fields.get("Version", ""),
            manager="dpkg",
            origin=fields.get("Origin") or fields.get("Maintainer", ""),
            held=want == "hold",
        )


def owners(host: Host, paths: Sequence[str]) -> dict[str, Owner]:
    """The relevant package that owns each path; paths that none owns are left out."""
    lists = [
        name
        for name in host.names(_INFO)
        if name.endswith(".list") and RELEVANT.search(name.removesuffix(".list"))
    ]
    if not lists:
        return {}
    versions = {package.name: package.version for package in installed(host)}
    wanted = {spelling: path for path in paths for spelling in spellings(path)}
    found: dict[str, Owner] = {}
    for name in lists:
        package = name.removesuffix(".list").partition(":")[0]
        owned = (host.text(f"{_INFO}/{name}", _LIMIT) or "").splitlines()
        for spelling in wanted.keys() & owned:
            owner = Owner(kind="dpkg", name=package, version=versions.get(package, ""))
            found[wanted[spelling]] = owner
    return found
