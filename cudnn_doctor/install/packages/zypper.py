"""zypper: SUSE and openSUSE."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cudnn_doctor.install.packages import rpm
from cudnn_doctor.install.packages.manager import RepositoryFile, Target
from cudnn_doctor.install.plan import AnyStep

_COMMAND = ("zypper", "--non-interactive")
_INSTALL = (*_COMMAND, "install", "--oldpackage", "--no-recommends")
_REMOVED = re.compile(r"package(?:s are| is) going to be REMOVED:\n((?: .*\n?)+)")
_REPLACED = re.compile(r"going to be (?:up|down)graded:\n((?: .*\n?)+)")


class Zypper(rpm.OverRpm):
    """The solver takes exact versions also for what they depend on."""

    name = "zypper"
    repository_path = f"/etc/zypp/repos.d/{rpm.REPOSITORY}.repo"
    rehearses = True

    def repository(self, file: RepositoryFile) -> list[AnyStep]:
        return rpm.repository_steps(file, ("autorefresh=0", "type=rpm-md"))

    def refresh(self, path: str) -> tuple[str, ...]:
        own = path.endswith(f"/{rpm.REPOSITORY}.repo")
        return (*_COMMAND, "refresh", *((rpm.REPOSITORY,) if own else ()))

    def after(self, targets: list[Target], *, hold: bool) -> list[AnyStep]:
        lock, unlock = (*_COMMAND, "addlock"), (*_COMMAND, "removelock")
        return rpm.hold_steps(targets, lock, unlock) if hold else []

    def cannot_hold(self) -> str:
        return ""

    def install(self, targets: list[Target], drop: Sequence[str]) -> tuple[str, ...]:
        words = [f"{t.name}={t.version}" if t.version else t.name for t in targets]
        return (*_INSTALL, *words, *(f"!{name}" for name in drop))

    def rehearse(
        self, targets: list[Target], drop: Sequence[str], scratch: str = ""
    ) -> tuple[str, ...]:
        argv = self.install(targets, drop)
        at = argv.index("install") + 1
        return (*argv[:at], "--dry-run", *argv[at:])

    def objection(self, code: int, output: str, targets: list[Target]) -> str:
        return output if code else ""

    def removed(self, output: str) -> list[str]:
        return [name for block in _REMOVED.findall(output) for name in block.split()]

    def replaced(self, output: str) -> list[str]:
        return [name for block in _REPLACED.findall(output) for name in block.split()]

    def restore(
        self, changed: Mapping[str, str], added: Sequence[str], files: Mapping[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        keys, packages = rpm.split_keys(added)
        commands = rpm.restore_files(packages, files.values())
        words = [f"{name}={version}" for name, version in changed.items() if name not in files]
        words += [] if files else [f"!{name}" for name in packages]
        commands += ((*_INSTALL, "--force-resolution", *words),) if words else ()
        return (*commands, *rpm.remove_keys(keys))
