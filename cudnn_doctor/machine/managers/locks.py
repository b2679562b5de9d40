"""Locks on packages that rpm's and pacman's managers keep in files of their own."""

from __future__ import annotations

import configparser
import fnmatch
import re
from collections.abc import Iterator
from typing import NamedTuple

from cudnn_doctor.machine.host import Host

_DNF4 = ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list")
_DNF4_SETTINGS = "/etc/dnf/plugins/versionlock.conf"
_DNF5 = "/etc/dnf/versionlock.toml"
_ZYPP = "/etc/zypp/locks"
_PACMAN = "/etc/pacman.conf"


class Lock(NamedTuple):
    """One lock, as its file has it."""

    file: str
    text: str
    """What the manager's own commands call it."""
    pattern: re.Pattern[str]

    def holds(self, *spellings: str) -> bool:
        """Whether it means a package, by any of its spellings."""
        return any(self.pattern.fullmatch(spelling) for spelling in spellings)


def of_rpm(host: Host) -> list[Lock]:
    """The locks of dnf (its plugin's list, and the file of dnf 5) and of zypper."""
    return [*_versionlock_list(host), *_versionlock_toml(host), *_zypp(host)]


def of_pacman(host: Host, key: str) -> list[Lock]:
    """What ``IgnorePkg`` or ``IgnoreGroup`` of its configuration name."""
    found = re.findall(rf"^\s*{key}\s*=(.*)$", host.text(_PACMAN) or "", re.M)
    return [_glob(_PACMAN, word) for line in found for word in line.split()]


def _glob(file: str, text: str) -> Lock:
    return Lock(file, text, re.compile(fnmatch.translate(text)))


def _versionlock_list(host: Host) -> Iterator[Lock]:
    settings = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        settings.read_string(host.text(_DNF4_SETTINGS) or "", _DNF4_SETTINGS)
    except configparser.Error as error:
        host.fail("packages", f"{_DNF4_SETTINGS}: {error.message.splitlines()[0]}")
    named = settings.get("main", "locklist", fallback=None)
    for path in dict.fromkeys((*((named,) if named else ()), *_DNF4)):
        for line in (host.text(path) or "").splitlines():
            entry = line.partition("#")[0].strip()
            if entry and not entry.startswith("!"):  # that one excludes a version
                yield _glob(path, entry)


def _versionlock_toml(host: Host) -> Iterator[Lock]:
    text = host.text(_DNF5)
    if not text:
        return
    import msgspec

    try:
        packages = msgspec.toml.decode(text).get("packages", ())
        names = [package["name"] for package in packages]
        yield from (_glob(_DNF5, name) for name in names)
    except (msgspec.DecodeError, AttributeError, TypeError, KeyError) as error:
        host.fail("packages", f"{_DNF5}: {error}")


def _zypp(host: Host) -> Iterator[Lock]:
    for block in re.split(r"\n\s*\n", host.text(_ZYPP) or ""):
        fields = dict(re.findall(r"^(\w+):\s*(.*?)\s*$", block, re.M))
        name = fields.get("solvable_name")
        if not name or fields.get("type", "package") != "package":
            continue
        kind = fields.get("match_type", "glob")
        patterns = {"exact": re.escape(name), "substring": f".*{re.escape(name)}.*", "regex": name}
        try:
            pattern = re.compile(patterns.get(kind) or fnmatch.translate(name))
        except re.error as error:
            host.fail("packages", f"{_ZYPP}: {name}: {error}")
            continue
        yield Lock(_ZYPP, name, pattern)
