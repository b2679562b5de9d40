"""Take back what package commands did: by comparing what is installed with what was."""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
from pathlib import Path

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.packages import ENVIRON, Manager, manager_named
from cudnn_doctor.install.plan import AnyStep, GuardSystem, Run
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.install.state import held
from cudnn_doctor.machine.managers import RELEVANT

_BEFORE, _AFTER, _FILES = "before.json", "after.json", "files.json"
_HALF_WRITTEN = re.compile(r";[0-9a-f]{8}$")
"""Names under which rpm writes files before it puts them into place."""
_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/include")


def guard(step: GuardSystem, saved: Path) -> None:
    """Write down what is installed; raises DoctorError when the manager cannot tell."""
    if step.finish:
        _write(saved, _FILES, _files())
    _write(saved, _BEFORE, _installed(manager_named(step.manager)))


def unguard(step: GuardSystem, saved: Path, progress: Progress) -> None:
    """Finish what a killed manager left, then bring everything back to what it was."""
    if not (saved / _BEFORE).is_file():
        return
    manager = manager_named(step.manager)
    for argv in manager.mend():
        _call(argv, progress)
    before = _read(saved, _BEFORE)
    if step.finish:
        _finish_torn(step, saved, progress)
    for argv in manager.outdated(before, _installed(manager)):
        _call(argv, progress)
    for argv in _way_back(manager, before, _installed(manager)):
        _call(argv, progress)


def _finish_torn(step: GuardSystem, saved: Path, progress: Progress) -> None:
    """Let the manager finish what it had begun, so that it knows of all files again."""
    before, now = _read(saved, _FILES), _files()
    if now == before:
        return
    for path in now.keys() - before.keys():
        if _HALF_WRITTEN.search(path):
            os.unlink(path)
    try:
        _call(step.finish, progress)
    except DoctorError as error:
        if _installed(manager_named(step.manager)) == _read(saved, _BEFORE):
            raise  # nothing would be taken back, and the files would stay as they are
        progress.say(str(error))


def finish(step: GuardSystem, saved: Path) -> None:
    """After the commit: write down what is installed now, for a rollback."""
    if not step.finish and not (saved / _AFTER).is_file():
        _write(saved, _AFTER, _installed(manager_named(step.manager)))


def inverse(step: GuardSystem, saved: Path) -> list[AnyStep]:
    """The steps that undo later what was done between ``guard`` and ``finish``, and only that."""
    if step.finish:
        return []  # the guard of the whole plan tells it
    manager = manager_named(step.manager)
    commands = _way_back(manager, _read(saved, _BEFORE), _read(saved, _AFTER))
    if not commands:
        return []
    runs = [Run(title=" ".join(argv), argv=argv, needs_root=True) for argv in commands]
    return [GuardSystem(title="remember the installed packages", manager=step.manager), *runs]


def _files() -> dict[str, str]:
    """Files of cuDNN and CUDA where packages put them, those half written too, with their marks."""
    found = {}
    for pattern in _FOLDERS:
        for folder in glob.glob(pattern):
            for entry in os.scandir(folder):
                if RELEVANT.search(entry.name):
                    stat = entry.stat(follow_symlinks=False)
                    found[entry.path] = f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
    return found


def _way_back(
    manager: Manager, before: dict[str, str], now: dict[str, str]
) -> tuple[tuple[str, ...], ...]:
    changed = {name: version for name, version in before.items() if now.get(name) != version}
    return manager.restore(changed, sorted(now.keys() - before.keys()))


def _installed(manager: Manager) -> dict[str, str]:
    argv = manager.installed()
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except OSError as error:
        raise _failed(argv, error.strerror or "cannot be run") from error
    if done.returncode:
        raise _failed(argv, done.stderr.decode("utf-8", "replace").strip())
    return manager.parse_installed(done.stdout.decode("utf-8", "replace"))


def _call(argv: tuple[str, ...], progress: Progress) -> None:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C", **ENVIRON},
        pass_fds=held(),
        check=False,
    )
    output = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode:
        raise _failed(argv, "\n".join(output.splitlines()[-15:]))
    progress.say(output)


def _failed(argv: tuple[str, ...], told: str) -> DoctorError:
    return DoctorError(
        f"{argv[0]} failed:\n{told}",
        where=" ".join(argv),
        exit_code=ExitCode.NOTHING_CHANGED,
    )


def _write(saved: Path, name: str, data: dict[str, str]) -> None:
    saved.mkdir(parents=True, exist_ok=True)
    fresh = saved / f"{name}.new"
    fresh.write_text(json.dumps(data), "utf-8")
    fresh.rename(saved / name)


def _read(saved: Path, name: str) -> dict[str, str]:
    data: dict[str, str] = json.loads((saved / name).read_text("utf-8"))
    return data
