"""Plans: lists of typed steps, each of which knows how it is undone. Data only; nothing runs here.

A step says everything that it will change, so that a plan shown to a person is the whole truth and
a journal entry suffices to undo it in another process, after a kill at any point.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Method = Literal["wheel", "tarball", "package"]


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Base of all steps. ``title`` is the line a person reads in the plan."""

    title: str = ""
    needs_root: bool = False


class Fetch(Step, frozen=True, kw_only=True):
    """Bring a file into the download cache, checked against its SHA-256 (content-addressed)."""

    urls: tuple[str, ...]
    """Mirrors in order of preference; ``file:`` for local ones."""
    sha256: str
    name: str
    """File name, for people."""
    size: int | None = None


class FetchKey(Step, frozen=True, kw_only=True):
    """Fetch a repository's OpenPGP signing key, if it is the one with this fingerprint, and write
    it (ASCII-armoured, nothing else that came with it); what stood there is kept for undo."""

    urls: tuple[str, ...]
    fingerprint: str
    """Of the primary key (version 4, 40 hexadecimal digits)."""
    path: str


class MakeFolder(Step, frozen=True, kw_only=True):
    """Create a folder and its missing parents."""

    path: str
    mode: int = 0o755


class Unpack(Step, frozen=True, kw_only=True):
    """Unpack an archive or wheel, while it arrives, into a new folder beside its final place."""

    source: Fetch
    staging: str
    """Folder that is created; it must not exist."""
    members: Literal["all", "shared", "static"] = "shared"
    """``shared``: libraries, headers, licence; ``static``: archives as well; ``all``: as it is."""
    links: bool = True
    """Make the unversioned and SONAME links that a build expects."""


class FromIndex(Step, frozen=True, kw_only=True):
    """Let the user's own uv or pip fetch a wheel, and lay its contents out as an archive's.

    Index, proxy, netrc and cache are theirs; the hash is ours.
    """

    argv: tuple[str, ...]
    """The program; it reads ``requirement`` as a requirements file on its standard input."""
    requirement: str
    """``name==version --hash=sha256:...``."""
    staging: str
    """Folder that is created; ``argv`` installs into the folder of that name with ``.index``."""


class MoveTree(Step, frozen=True, kw_only=True):
    """Rename a folder into place on the same file system; the target must not exist."""

    source: str
    target: str


class RemoveTree(Step, frozen=True, kw_only=True):
    """Take a folder, file or link away. Files and links stay in the receipt, for a rollback."""

    path: str
    keep: bool = False
    """A folder stays aside, hidden beside its place, for a rollback: until the next change of the
    plan's target or ``cache clear``."""


class RemoveFolder(Step, frozen=True, kw_only=True):
    """Remove a folder if it is empty once the plan is committed."""

    path: str


class WriteFile(Step, frozen=True, kw_only=True):
    """Write a small file atomically; what stood there is kept for undo."""

    path: str
    content: str = ""
    raw: bytes = b""
    """The content where it is no UTF-8 text (base64 in documents)."""
    mode: int = 0o644

    @property
    def data(self) -> bytes:
        """What will be in it."""
        return self.raw or self.content.encode()

    @staticmethod
    def of(title: str, path: str, data: bytes, mode: int = 0o644) -> WriteFile:
        """The step for any bytes."""
        try:
            return WriteFile(title=title, path=path, content=data.decode(), mode=mode)
        except UnicodeDecodeError:
            return WriteFile(title=title, path=path, raw=data, mode=mode)


class SwitchLink(Step, frozen=True, kw_only=True):
    """Point a symbolic link elsewhere atomically; what stood there is kept for undo."""

    path: str
    target: str
    """Empty: no link is left."""


class GuardPackages(Step, frozen=True, kw_only=True):
    """Keep hard-linked copies of the files of installed wheels, so that an installer's run over
    them can be undone whatever it left behind. Those that it replaced stay, hidden beside them,
    for a rollback: until the next change there or ``cache clear``."""

    site_packages: str
    names: tuple[str, ...]
    """Top-level packages (``nvidia``): their folders, and the metadata of what is in them."""


class RestoreWheels(Step, frozen=True, kw_only=True):
    """Put the files of wheels back that a change replaced and that were kept."""

    site_packages: str
    store: str
    """The folder in which they are kept."""


class GuardSystem(Step, frozen=True, kw_only=True):
    """Remember which distribution packages are installed, so that what the following commands
    change can be taken back: exact versions again, or removed where they were absent."""

    manager: Literal["apt", "dnf", "zypper", "pacman"]
    finish: tuple[str, ...] = ()
    """The command that comes next: where it was killed half-way it is run again before it is taken
    back, because a manager knows nothing of the files that it had not recorded yet."""
    keep: tuple[str, ...] = ()
    """Installed packages whose files are kept (hard-linked, hidden under ``/usr/lib``) until the
    next change or ``cache clear``: they come back also where no repository has them any more."""


class RestorePackages(Step, frozen=True, kw_only=True):
    """Bring distribution packages back to versions that they had, and remove others."""

    manager: Literal["apt", "dnf", "zypper", "pacman"]
    packages: dict[str, str] = {}
    """Name -> version, in the manager's spelling."""
    remove: tuple[str, ...] = ()


class Run(Step, frozen=True, kw_only=True):
    """Run a program (pip, uv, apt-get, ldconfig ...), without a shell."""

    argv: tuple[str, ...]
    environ: dict[str, str] = {}
    stdin: str = ""
    """Text given on its standard input."""
    undo: tuple[tuple[str, ...], ...] = ()
    """Programs that take it back, in order; run also when the step was only begun."""
    rollback: tuple[GuardPackages | Run, ...] = ()
    """Steps that take it back after the commit, where they are not those of ``undo``."""
    retry_safe: bool = False
    may_fail: bool = False
    """A failure is reported and the plan goes on (caches, ldconfig in odd containers)."""
    quiet: bool = False
    """Its output is of no interest."""


class Prove(Step, frozen=True, kw_only=True):
    """Verify the new copy as far as this machine allows; a failure undoes the plan."""

    folder: str = ""
    listing: tuple[str, ...] = ()
    """Command that lists the files of the package that holds it, where no folder is told."""
    version: str
    sonames: tuple[str, ...] = ()
    """Libraries that must be there; empty where the release's set is not known."""
    rungs: Literal["files", "load"] = "load"


AnyStep: TypeAlias = (
    Fetch
    | FetchKey
    | MakeFolder
    | Unpack
    | FromIndex
    | MoveTree
    | RemoveTree
    | RemoveFolder
    | WriteFile
    | SwitchLink
    | GuardPackages
    | RestoreWheels
    | GuardSystem
    | RestorePackages
    | Run
    | Prove
)


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What will be done, in order, and what it leads to."""

    action: str
    """``install``, ``uninstall``, ``use``, ``rollback``, ``repair``, ``fix``."""
    method: Method
    version: str
    """cuDNN release with its build, ``9.10.2.21``; empty for a ``fix``."""
    cuda: str
    """CUDA major, as text; empty for a ``fix``."""
    target: str
    """The prefix, the environment's prefix, or ``system``."""
    steps: tuple[AnyStep, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    space_needed: dict[str, int] = {}
    """Folder -> bytes that must be free there before anything is begun; folders of one file
    system add up."""
    packages: dict[str, str] = {}
    """Distribution packages that are asked for: name -> version as the manager spells it, in which
    ``*`` stands for anything."""
    undoes: str = ""
    """Receipt that a rollback takes back."""

    @property
    def needs_root(self) -> bool:
        """Whether any step does."""
        return any(step.needs_root for step in self.steps)

    @property
    def only_proves(self) -> bool:
        """Whether it changes nothing: what is wanted is there, and is looked at."""
        return all(isinstance(step, Prove) for step in self.steps)
