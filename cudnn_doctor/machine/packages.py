"""Installed distribution packages that matter, NVIDIA's repositories, and who owns a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.managers import apk, dpkg, pacman, rpm
from cudnn_doctor.machine.model import Owner, Package, Repository
from cudnn_doctor.machine.repositories import probe_preferences, probe_repositories

_MANAGERS = (dpkg, rpm, pacman, apk)


class Packaged(NamedTuple):
    """What the package managers know that matters here."""

    packages: tuple[Package, ...] = ()
    """Those about CUDA, cuDNN and the driver that are installed."""
    repositories: tuple[Repository, ...] = ()
    """NVIDIA's."""
    preferred: tuple[Repository, ...] = ()
    """Those of others that go before them."""


def probe_packages(host: Host) -> Packaged:
    """Installed packages about CUDA, cuDNN and the driver, and NVIDIA's repositories."""
    packages = tuple(package for manager in _MANAGERS for package in manager.installed(host))
    repositories = probe_repositories(host)
    return Packaged(packages, repositories, probe_preferences(host, repositories))


def file_owner(host: Host, paths: Iterable[str]) -> dict[str, Owner]:
    """Which package owns each file; a path without an owner is left out.

    A link that no package owns (such as one made by update-alternatives) belongs to the owner of
    the file at its end.
    """
    asked = list(dict.fromkeys(paths))
    real = {path: host.real(path) or path for path in asked}
    names = list(dict.fromkeys([*asked, *real.values()]))
    known: dict[str, Owner] = {}
    for manager in _MANAGERS:
        known.update(manager.owners(host, names))
    found = {path: known.get(path) or known.get(real[path]) for path in asked}
    return {path: owner for path, owner in found.items() if owner is not None}
