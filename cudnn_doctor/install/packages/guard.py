"""Take back what package commands did: by comparing what is installed with what was."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from cudnn_doctor.errors import DoctorError
from cudnn_doctor.install import records
from cudnn_doctor.install.journal import Journal
from cudnn_doctor.install.packages import kept
from cudnn_doctor.install.packages.manager import ENVIRON, Manager, output_of
from cudnn_doctor.install.packages.managers import manager_named
from cudnn_doctor.install.plan import AnyStep, GuardSystem, RestorePackages, Run
from cudnn_doctor.install.programs import run
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.machine.managers import RELEVANT

_BEFORE, _AFTER, _FILES = "before.json", "after.json", "files.json"
_HALF_WRITTEN = re.compile(r";[0-9a-f]{8}$")
"""Names under which rpm writes files before it puts them into place: they end with the second in
which it began, so that it may meet those of a killed one."""
_FOLDERS = (
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/*-linux-gnu",
    "/usr/include",
    "/usr/lib/.build-id/*",
)


def guard(step: GuardSystem, saved: Path) -> None:
    """Write down what is installed and keep what will be replaced; raises DoctorError when that
    cannot be done."""
    installed = _installed(manager_named(step.manager))
    if step.finish:
        records.write(saved / _FILES, _files())
    kept.keep(manager_named(step.manager), step.keep, installed)
    records.write(saved / _BEFORE, installed)


def unguard(step: GuardSystem, saved: Path, progress: Progress) -> None:
    """Finish what a killed manager left, then bring everything back to what it was."""
    manager = manager_named(step.manager)
    if (saved / _BEFORE).is_file():
        for argv in manager.mend():
            _call(argv, progress)
        before = _read(saved, _BEFORE)
        if step.finish:
            _finish_torn(step, saved, progress)
        for argv in manager.outdated(before, _installed(manager)):
            _call(argv, progress)
        restore(_way_back(step, before, _installed(manager)), progress)
    kept.settle(_installed(manager))


def restore(step: RestorePackages, progress: Progress) -> None:
    """Bring packages back, from what was kept of them where that is there."""
    manager = manager_named(step.manager)
    files = kept.build(manager, step.packages)
    for argv in manager.restore(step.packages, step.remove, files):
        _call(argv, progress)


def finish_restore(step: RestorePackages, progress: Progress) -> None:
    """Let a bringing back that was broken off come to its end, before it is itself taken back."""
    for argv in manager_named(step.manager).mend():
        _call(argv, progress)
    try:
        restore(step, progress)
    except DoctorError as error:
        progress.say(str(error))


def _finish_torn(step: GuardSystem, saved: Path, progress: Progress) -> None:
    """Let the manager finish what it had begun, so that it knows of all files again."""
    before, now = _read(saved, _FILES), _files()
    if now == before:
        return
    for path in now.keys() - before.keys():
        if _HALF_WRITTEN.search(path):
            os.unlink(path)
    manager = manager_named(step.manager)
    try:
        _call(manager.again(step.finish), progress)
    except DoctorError as error:
        if _installed(manager) == _read(saved, _BEFORE):
            raise  # nothing would be taken back, and the files would stay as they are
        progress.say(str(error))


def finish(step: GuardSystem, saved: Path, *, for_good: bool) -> None:
    """After the commit: write down what is installed now, for a rollback, and let go of kept
    packages that no rollback can want. ``for_good``: there is none, this was one."""
    installed = _installed(manager_named(step.manager))
    if for_good:
        kept.forget()
    elif step.finish:
        kept.settle(installed, _read(saved, _BEFORE))
    elif not (saved / _AFTER).is_file():
        records.write(saved / _AFTER, installed)


def inverse(step: GuardSystem, saved: Path) -> list[AnyStep]:
    """The steps that undo later what was done between ``guard`` and ``finish``, and only that."""
    if step.finish:
        return []  # the guard of the whole plan tells it
    after = _read(saved, _AFTER)
    back = _way_back(step, _read(saved, _BEFORE), after)
    going = (*(name for name in back.packages if name in after), *back.remove)
    if not (back.packages or back.remove):
        return []
    title = "remember the installed packages, and keep those that go"
    return [GuardSystem(title=title, manager=step.manager, keep=going, needs_root=True), back]


def brought(receipt: Journal) -> dict[str, str]:
    """Name -> version of all packages that a plan asked for or that came along."""
    steps = enumerate(receipt.plan.steps)
    number = next((n for n, s in steps if isinstance(s, GuardSystem) and not s.finish), None)
    if number is None:
        return {}
    before, after = (_read(receipt.saved(number), name) for name in (_BEFORE, _AFTER))
    found = {}
    for full, version in after.items():
        name = re.sub(r"[:.](?:amd64|arm64|all|noarch|x86_64|aarch64)$", "", full)
        if name in receipt.plan.packages or before.get(full) != version:
            found[name] = version
    return {name: version for name, version in found.items() if RELEVANT.search(name)}


def _files() -> dict[str, str]:
    """Files of cuDNN and CUDA where packages put them, those half written too, with their marks."""
    found = {}
    for pattern in _FOLDERS:
        for folder in glob.glob(pattern):
            for entry in os.scandir(folder):
                if RELEVANT.search(entry.name) or _HALF_WRITTEN.search(entry.name):
                    stat = entry.stat(follow_symlinks=False)
                    found[entry.path] = f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
    return found


def _way_back(step: GuardSystem, before: dict[str, str], now: dict[str, str]) -> RestorePackages:
    changed = {name: version for name, version in before.items() if now.get(name) != version}
    added = sorted(now.keys() - before.keys())
    told = [f"bring back {name} {version}" for name, version in changed.items()]
    told += [f"remove {name}" for name in added]
    return RestorePackages(
        title=", ".join(told),
        manager=step.manager,
        packages=changed,
        remove=tuple(added),
        needs_root=True,
    )


def _installed(manager: Manager) -> dict[str, str]:
    return manager.parse_installed(output_of(manager.installed()))


def _call(argv: tuple[str, ...], progress: Progress) -> None:
    run(Run(argv=argv, environ=ENVIRON), progress)


def _read(saved: Path, name: str) -> dict[str, str]:
    return records.read(saved / name, dict[str, str])
