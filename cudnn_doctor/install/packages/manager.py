"""What a package manager must be able to tell and to do for a plan: one implementation each in
``apt``, ``dnf``, ``zypper`` and ``pacman``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from cudnn_doctor.errors import DoctorError, NothingChanged
from cudnn_doctor.install.plan import AnyStep
from cudnn_doctor.matrix.model import DistroPackage, NvidiaRepository

ENVIRON = {"DEBIAN_FRONTEND": "noninteractive", "ZYPP_LOCK_TIMEOUT": "60"}
"""Variables under which the managers' commands run."""
TREE = "root"
"""Folder of a kept package in which its files lie at their places."""


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

    def install(self, targets: list[Target], drop: Sequence[str]) -> tuple[str, ...]:
        """Install or downgrade to the targets and remove ``drop``, in one transaction."""

    def rehearse(
        self, targets: list[Target], drop: Sequence[str], scratch: str = ""
    ) -> tuple[str, ...]:
        """The same without doing it; with ``scratch`` (a folder for files of its own) as if
        ``before`` had been done."""

    def objection(self, code: int, output: str, targets: list[Target]) -> str:
        """Why a rehearsal that ended with ``code`` says that it cannot be done; empty: it can."""

    def removed(self, output: str) -> list[str]:
        """Packages that a rehearsal says it would remove."""

    def replaced(self, output: str) -> list[str]:
        """Packages that a rehearsal says it would bring to another version."""

    def files_of(self, name: str) -> tuple[str, ...]:
        """List the files of an installed package."""

    def installed(self) -> tuple[str, ...]:
        """List all installed packages, for ``parse_installed``."""

    def parse_installed(self, output: str) -> dict[str, str]:
        """Name -> version of each."""

    def mend(self) -> tuple[tuple[str, ...], ...]:
        """Commands that make a manager usable that was killed; they do nothing where all is
        well."""

    def again(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The form of an installing command that goes on where it was killed."""

    def outdated(
        self, before: Mapping[str, str], now: Mapping[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        """Commands that take away old packages whose successors are there beside them."""

    def cannot_keep(self) -> str:
        """Why installed packages cannot be kept for an undo; empty where they can."""

    def describe(self, name: str, version: str, folder: Path) -> None:
        """Write what the database says of an installed package into ``folder``, in whose folder
        ``root`` its files are; raises DoctorError or OSError."""

    def repack(self, folder: Path, target: str) -> str:
        """Build a package file from such a folder: ``target`` with its suffix, which is told."""

    def restore(
        self, changed: Mapping[str, str], added: Sequence[str], files: Mapping[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        """Commands that bring ``changed`` back to their versions and remove ``added``; ``files``
        are package files for some of them."""


class Choice(NamedTuple):
    """What is to be installed by which manager from where."""

    manager: Manager
    row: DistroPackage
    targets: list[Target]
    repository: NvidiaRepository | None
    arch: str


def output_of(argv: tuple[str, ...]) -> str:
    """What a program prints; raises DoctorError (NOTHING_CHANGED) when it fails."""
    environ = {**os.environ, "LC_ALL": "C", **ENVIRON}
    try:
        done = subprocess.run(
            argv, capture_output=True, stdin=subprocess.DEVNULL, env=environ, check=False
        )
    except OSError as error:
        raise failed(argv, error.strerror or "it cannot be run") from error
    if done.returncode:
        raise failed(argv, done.stderr.decode("utf-8", "replace").strip())
    return os.fsdecode(done.stdout)


def failed(argv: tuple[str, ...], told: str) -> DoctorError:
    return NothingChanged(
        f"{argv[0]} failed:\n{told}",
        where=" ".join(argv),
    )
