"""What a package manager must be able to tell and to do for a plan: one implementation each in
``packages_apt``, ``packages_dnf``, ``packages_zypper`` and ``packages_pacman``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.plan import AnyStep
from cudnn_doctor.matrix.model import DistroPackage, NvidiaRepository

ENVIRON = {"DEBIAN_FRONTEND": "noninteractive", "ZYPP_LOCK_TIMEOUT": "60"}
"""Variables under which the managers' commands run."""


class Target(NamedTuple):
    """A package to install."""

    name: str
    version: str = ""
    """In the manager's spelling; ``*`` stands for anything; empty: whatever the manager has."""


class RepositoryFile(NamedTuple):
    """NVIDIA's repository as this manager is told of it."""

    path: str
    url: str
    key: str
    """Path of the key's file."""


class Manager(Protocol):
    """One package manager. Commands are argument lists that run without asking."""

    name: str
    repository_path: str
    key_path: str
    rehearses: bool
    """A rehearsal costs no download and ends with 0 where all is well: it can be a step."""

    def prepare(self, url: str, *, fresh: bool) -> list[AnyStep]:
        """Steps that bring what fetching from ``url`` needs; in a ``fresh`` image also what a
        script needs to fetch and check the key."""

    def repository(self, file: RepositoryFile) -> list[AnyStep]:
        """Steps that make a repository known, whose key is in its place already."""

    def refresh(self, path: str) -> tuple[str, ...]:
        """Fetch the index of the repository configured in the file at ``path``."""

    def before(self, targets: list[Target], version: str) -> list[AnyStep]:
        """Steps that make the solver choose exact versions also for what the targets need."""

    def after(self, targets: list[Target], *, hold: bool) -> list[AnyStep]:
        """Steps that take ``before`` back and hold the packages if asked."""

    def cannot_hold(self) -> str:
        """Why packages cannot be held here; empty where they can."""

    def install(self, targets: list[Target], drop: list[str]) -> tuple[str, ...]:
        """Install or downgrade to the targets and remove ``drop``, in one transaction."""

    def rehearse(
        self, targets: list[Target], drop: list[str], scratch: str = ""
    ) -> tuple[str, ...]:
        """The same without doing it; with ``scratch`` (a folder for files of its own) as if
        ``before`` had been done."""

    def objection(self, code: int, output: str, targets: list[Target]) -> str:
        """Why a rehearsal that ended with ``code`` says that it cannot be done; empty: it can."""

    def removed(self, output: str) -> list[str]:
        """Packages that a rehearsal says it would remove."""

    def files_of(self, name: str) -> tuple[str, ...]:
        """List the files of an installed package."""

    def installed(self) -> tuple[str, ...]:
        """List all installed packages, for ``parse_installed``."""

    def parse_installed(self, output: str) -> dict[str, str]:
        """Name -> version of each."""

    def mend(self) -> tuple[tuple[str, ...], ...]:
        """Commands that make a manager usable that was killed; they do nothing where all is
        well."""

    def outdated(
        self, before: Mapping[str, str], now: Mapping[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        """Commands that take away old packages whose successors are there beside them."""

    def restore(self, changed: Mapping[str, str], added: list[str]) -> tuple[tuple[str, ...], ...]:
        """Commands that bring ``changed`` back to their versions and remove ``added``."""


class Choice(NamedTuple):
    """What is to be installed by which manager from where."""

    manager: Manager
    row: DistroPackage
    targets: list[Target]
    repository: NvidiaRepository | None
    arch: str


def manager_named(name: str) -> Manager:
    """The implementation for a manager."""
    if name == "apt":
        from cudnn_doctor.install.packages_apt import Apt

        return Apt()
    if name == "dnf":
        from cudnn_doctor.install.packages_dnf import Dnf

        return Dnf()
    if name == "zypper":
        from cudnn_doctor.install.packages_zypper import Zypper

        return Zypper()
    from cudnn_doctor.install.packages_pacman import Pacman

    return Pacman()


def refused(what: str, next_step: str, where: str = "") -> DoctorError:
    return DoctorError(what, where=where, next_step=next_step, exit_code=ExitCode.NOTHING_CHANGED)
