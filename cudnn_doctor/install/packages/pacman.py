"""pacman: Arch Linux, whose repository has one version only, the newest."""

from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cudnn_doctor.install.packages import repack_pacman
from cudnn_doctor.install.packages.manager import TREE, RepositoryFile, Target
from cudnn_doctor.install.plan import AnyStep

_LOCK = "/var/lib/pacman/db.lck"
_LOCAL = "/var/lib/pacman/local"
_CACHE = "/var/cache/pacman/pkg"


class Pacman:
    """No version can be asked for: the rehearsal tells whether the repository has it."""

    name = "pacman"
    repository_path = ""
    key_path = ""
    rehearses = False

    def prepare(self, url: str, *, fresh: bool) -> list[AnyStep]:
        return []

    def repository(self, file: RepositoryFile) -> list[AnyStep]:
        return []

    def refresh(self, path: str) -> tuple[str, ...]:
        return ("pacman", "-Sy")

    def before(self, targets: list[Target], version: str) -> list[AnyStep]:
        return []

    def after(self, targets: list[Target], *, hold: bool) -> list[AnyStep]:
        return []

    def cannot_hold(self) -> str:
        return "pacman holds by its configuration: add `IgnorePkg = cudnn` to /etc/pacman.conf"

    def install(self, targets: list[Target], drop: Sequence[str]) -> tuple[str, ...]:
        return ("pacman", "-S", "--noconfirm", "--needed", *(t.name for t in targets))

    def rehearse(
        self, targets: list[Target], drop: Sequence[str], scratch: str = ""
    ) -> tuple[str, ...]:
        names = (t.name for t in targets)
        return ("pacman", "-S", "--print", "--print-format", "%n %v", *names)

    def objection(self, code: int, output: str, targets: list[Target]) -> str:
        if code:
            return output
        offered = dict(line.split()[:2] for line in output.splitlines() if line.count(" ") == 1)
        for target in targets:
            have = offered.get(target.name)
            if have and not fnmatch.fnmatch(have.rpartition(":")[2], target.version or "*"):
                return f"the repository has {target.name} {have} only, not {target.version}"
        return ""

    def removed(self, output: str) -> list[str]:
        return []

    def replaced(self, output: str) -> list[str]:
        return [line.split()[0] for line in output.splitlines() if line.count(" ") == 1]

    def files_of(self, name: str) -> tuple[str, ...]:
        return ("pacman", "-Qlq", name)

    def installed(self) -> tuple[str, ...]:
        return ("pacman", "-Q")

    def parse_installed(self, output: str) -> dict[str, str]:
        rows = (line.split() for line in output.splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def mend(self) -> tuple[tuple[str, ...], ...]:
        stale = [_LOCK] if os.path.exists(_LOCK) and not _at_work() else []
        begun = (entry for entry in Path(_LOCAL).iterdir() if entry.is_dir())
        torn = [str(entry) for entry in begun if not _whole(entry)]
        return (("rm", "--recursive", "--force", *stale, *torn),) if stale or torn else ()

    def again(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        # Also where it is installed by name, and over files that were written and not recorded.
        return (*(word for word in argv if word != "--needed"), "--overwrite", "*")

    def outdated(
        self, before: Mapping[str, str], now: Mapping[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        return ()

    def cannot_keep(self) -> str:
        return ""

    def describe(self, name: str, version: str, folder: Path) -> None:
        repack_pacman.describe(name, version, folder)

    def repack(self, folder: Path, target: str) -> str:
        return repack_pacman.build(folder, folder / TREE, target)

    def restore(
        self, changed: Mapping[str, str], added: Sequence[str], files: Mapping[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        commands: list[tuple[str, ...]] = []
        if added:
            commands.append(("pacman", "-R", "--noconfirm", *added))
        if changed:
            found = (_cached(n, v) or files.get(n, f"{n}-{v}") for n, v in changed.items())
            commands.append(("pacman", "-U", "--noconfirm", *found))
        return tuple(commands)


def _whole(entry: Path) -> bool:
    """Whether pacman can read a record: it writes ``desc``, then ``files``."""
    desc, files = entry / "desc", entry / "files"
    return desc.is_file() and desc.stat().st_size > 0 and files.is_file()


def _at_work() -> bool:
    """Whether a pacman works on this root folder: its lock does not tell who made it."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            named = (process / "comm").read_text("utf-8", "replace").strip() == "pacman"
            ended = not (process / "cmdline").read_bytes()  # and its parent has not noticed yet
            if named and not ended and (process / "root").samefile("/"):
                return True
    return False


def _cached(name: str, version: str) -> str:
    """The package file that pacman kept when it installed that version, signature and all."""
    found = sorted(Path(_CACHE).glob(f"{name}-{version}-*.pkg.tar*[!g]"))
    return str(found[0]) if found else ""
