"""rpm, asked through its program: its database has three formats and no stable file layout."""

from __future__ import annotations

from collections.abc import Sequence

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.managers import RELEVANT, locks
from cudnn_doctor.machine.managers import spellings as path_spellings
from cudnn_doctor.machine.model import Owner, Package

_DATABASES = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")
_TIMEOUT_S = 20.0


def _has_database(host: Host) -> bool:
    return any(host.names(folder) for folder in _DATABASES)


def installed(host: Host) -> tuple[Package, ...]:
    """Relevant installed packages, sorted by name."""
    if not _has_database(host):
        return ()
    if not host.live or host.which("rpm") is None:
        why = "the rpm program is not there" if host.live else "no program is run for a root folder"
        host.fail("packages", f"the rpm database was not read: {why}")
        return ()
    line = "%{NAME}\\t%{EVR}\\t%{EPOCHNUM}\\t%{ARCH}\\t%{VENDOR}\\n"
    ran = host.run(["rpm", "-qa", "--qf", line], timeout=_TIMEOUT_S)
    if ran.code != 0:
        host.fail("packages", f"rpm -qa failed: {ran.err.strip()}")
        return ()
    rows = sorted(row.split("\t") for row in ran.out.splitlines() if row.count("\t") == 4)
    relevant = [row for row in rows if RELEVANT.search(row[0])]
    known = locks.of_rpm(host) if relevant else []
    return tuple(_package(row, known) for row in relevant)


def _package(row: list[str], known: list[locks.Lock]) -> Package:
    name, version, epoch, arch, vendor = row
    full = f"{name}-{epoch}:{version.rpartition(':')[2]}"
    spellings = [name, f"{name}-{version}", full]
    spellings += [f"{spelling}.{arch}" for spelling in spellings]
    lock = next((lock for lock in known if lock.holds(*spellings)), None)
    return Package(
        name=name,
        version=version,
        manager="rpm",
        origin="" if vendor == "(none)" else vendor,
        held=lock is not None,
        held_by=lock.file if lock else "",
        lock=lock.text if lock else "",
    )


def owners(host: Host, paths: Sequence[str]) -> dict[str, Owner]:
    """The package that owns each path; paths that none owns are left out."""
    if not paths or not _has_database(host):
        return {}
    # All files of each owner are printed, because a file may have several owners or none and
    # the answers could then not be told apart by their order.
    row = "[%{=NAME}\\t%{=EVR}\\t%{FILENAMES}\\n]"
    ran = host.run(["rpm", "-qf", "--qf", row, *paths], timeout=_TIMEOUT_S)
    wanted = {spelling: path for path in paths for spelling in path_spellings(path)}
    found: dict[str, Owner] = {}
    for text in ran.out.splitlines():
        name, _, rest = text.partition("\t")
        version, _, file = rest.partition("\t")
        if file in wanted:
            found[wanted[file]] = Owner(kind="rpm", name=name, version=version)
    return found
