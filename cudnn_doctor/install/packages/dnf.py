"""dnf: Fedora, Red Hat Enterprise Linux and their kin."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from cudnn_doctor.install.packages import rpm
from cudnn_doctor.install.packages.manager import RepositoryFile, Target
from cudnn_doctor.install.plan import AnyStep

_COMMAND = ("dnf", "-y", "--setopt=install_weak_deps=False")
_REMOVING = re.compile(r"^(Removing|Erasing)\b.*:$")
_REPLACING = re.compile(r"^(Upgrading|Downgrading|Reinstalling)\b.*:$")
_ROW = re.compile(r"^ (\S+)\s+\S+\s+\S+")


class Dnf(rpm.OverRpm):
    """The solver takes exact versions also for what they depend on."""

    name = "dnf"
    repository_path = f"/etc/yum.repos.d/{rpm.REPOSITORY}.repo"
    rehearses = False

    def repository(self, file: RepositoryFile) -> list[AnyStep]:
        return rpm.repository_steps(file, ())

    def refresh(self, path: str) -> tuple[str, ...]:
        return ("dnf", "-y", "makecache", "--refresh", *_only(path))

    def after(self, targets: list[Target], *, hold: bool) -> list[AnyStep]:
        lock, unlock = ("dnf", "-y", "versionlock", "add"), ("dnf", "-y", "versionlock", "delete")
        return rpm.hold_steps(targets, lock, unlock) if hold else []

    def cannot_hold(self) -> str:
        command = ("dnf", "versionlock", "--help")
        try:
            done = subprocess.run(
                command, capture_output=True, stdin=subprocess.DEVNULL, check=False
            )
        except OSError as error:
            return f"dnf cannot be run: {error.strerror}"
        plugin = "install python3-dnf-plugin-versionlock first"
        return f"dnf's versionlock plugin is not here: {plugin}" if done.returncode else ""

    def install(self, targets: list[Target], drop: Sequence[str]) -> tuple[str, ...]:
        words = [f"{t.name}-{t.version}" if t.version else t.name for t in targets]
        erase = ("--allowerasing",) if drop else ()
        return (*_COMMAND, *erase, "install", *words)

    def rehearse(
        self, targets: list[Target], drop: Sequence[str], scratch: str = ""
    ) -> tuple[str, ...]:
        argv = self.install(targets, drop)
        return (argv[0], "--assumeno", *(word for word in argv[1:] if word != "-y"))

    def objection(self, code: int, output: str, targets: list[Target]) -> str:
        declined = "Operation aborted" in output  # what --assumeno answered to a good plan
        return output if code and not declined else ""

    def removed(self, output: str) -> list[str]:
        return [*_rows(_REMOVING, output)]

    def replaced(self, output: str) -> list[str]:
        return [*_rows(_REPLACING, output)]

    def restore(
        self, changed: Mapping[str, str], added: Sequence[str], files: Mapping[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        keys, packages = rpm.split_keys(added)
        commands = [*rpm.restore_files(packages, files.values())]
        words = []
        for name, version in changed.items():
            stem, _, arch = name.rpartition(".")
            words += [] if name in files else [f"{stem}-{version}.{arch}"]
        if words:
            commands.append((*_COMMAND, "--allowerasing", "install", *words))
        if packages and not files:
            commands.append((*_COMMAND, "--noautoremove", "remove", *packages))
        return (*commands, *rpm.remove_keys(keys))


def _only(path: str) -> tuple[str, ...]:
    """Options that limit a command to this tool's own repository, if that is the one."""
    own = path.endswith(f"/{rpm.REPOSITORY}.repo")
    return (f"--repo={rpm.REPOSITORY}",) if own else ()


def _rows(section: re.Pattern[str], output: str) -> Iterator[str]:
    """Names in some sections of a transaction's table."""
    inside = False
    for line in output.splitlines():
        if line and not line.startswith(" "):
            inside = section.match(line) is not None
        elif inside and (match := _ROW.match(line)):
            yield match[1]
