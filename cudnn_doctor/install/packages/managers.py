"""The package managers by name."""

from __future__ import annotations

from cudnn_doctor.install.packages.apt import Apt
from cudnn_doctor.install.packages.dnf import Dnf
from cudnn_doctor.install.packages.manager import Manager
from cudnn_doctor.install.packages.pacman import Pacman
from cudnn_doctor.install.packages.zypper import Zypper

_MANAGERS: dict[str, type[Manager]] = {"apt": Apt, "dnf": Dnf, "zypper": Zypper, "pacman": Pacman}


def manager_named(name: str) -> Manager:
    """The implementation for a manager."""
    return _MANAGERS[name]()
