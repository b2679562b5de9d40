"""Carry out a plan: old state or new state, never between.

Each step is journalled before it is done. When a step fails, or the process is told to stop, all
begun steps are undone in reverse. When the process is killed, the next command finds the journal
and does that (`recover`).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudnn_doctor.errors import BadInput, DoctorError, ExitCode, NothingChanged
from cudnn_doctor.install import files, folders
from cudnn_doctor.install.archives.download import fetch
from cudnn_doctor.install.archives.unpack import unpack
from cudnn_doctor.install.journal import Journal
from cudnn_doctor.install.packages import guard as package_guard
from cudnn_doctor.install.packages.keys import fetch_key
from cudnn_doctor.install.plan import (
    AnyStep,
    Fetch,
    FetchKey,
    FromIndex,
    GuardPackages,
    GuardSystem,
    MakeFolder,
    MoveTree,
    Plan,
    Prove,
    RemoveFolder,
    RemoveTree,
    RestorePackages,
    RestoreWheels,
    Run,
    SwitchLink,
    Unpack,
    WriteFile,
)
from cudnn_doctor.install.programs import run
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.install.state import State, exclusive
from cudnn_doctor.install.stops import Stops, unstoppable
from cudnn_doctor.install.wheels import fromindex
from cudnn_doctor.install.wheels import guard as wheel_guard


def execute(plan: Plan, state: State, progress: Progress, *, locked: bool = False) -> Path:
    """Do the whole plan or nothing; returns the receipt's folder. ``locked``: the lock is held.

    Raises DoctorError with NOTHING_CHANGED when a step failed and everything was undone, with
    UNFINISHED when the undoing failed as well (the journal stays for the next command).
    """
    with contextlib.nullcontext() if locked else exclusive(state), Stops() as stops:
        recover(state, progress)
        _check_space(plan)
        journal = Journal.start(state, plan)
        try:
            for number, step in enumerate(plan.steps):
                progress.step(number, len(plan.steps), step)
                journal.note(f"begin {number}")
                with stops.allowed():
                    _do(step, journal.saved(number), state, progress)
                journal.note(f"done {number}")
            journal.note("commit")
        except BaseException as error:
            _undo_all(journal, progress)
            if isinstance(error, OSError):
                raise files.failed("a step failed and all was undone", "", error) from error
            if isinstance(error, MemoryError) or "start new thread" in str(error):
                raise NothingChanged(
                    "there is not enough memory, or no thread can be started: all was undone",
                    next_step="raise the limits of this shell or container (`ulimit -a`)",
                ) from error
            raise
        return _finish(journal, state)


def prove_only(plan: Plan, progress: Progress) -> None:
    """Do a plan that changes nothing: it leaves no receipt, for there is nothing to take back."""
    from cudnn_doctor.install import prove

    for number, step in enumerate(plan.steps):
        progress.step(number, len(plan.steps), step)
        if isinstance(step, Prove):
            prove.prove(step, progress)


def recover(state: State, progress: Progress) -> bool:
    """Finish or undo what a killed run left; True when there was something. Needs the lock."""
    for name in os.listdir(state.folder):
        if re.fullmatch(r"journal\.[0-9]+", name):
            folders.let_go(str(state.folder / name))
    if not Journal.exists(state):
        return False
    try:
        journal = Journal.open(state.journal)
    except BadInput as error:
        error.exit_code = ExitCode.UNFINISHED
        raise
    if journal.committed:
        progress.say(f"finishing the {journal.plan.action} that was interrupted")
        _finish(journal, state)
    else:
        progress.say(f"undoing the {journal.plan.action} that was interrupted")
        _undo_all(journal, progress)
    return True


def _finish(journal: Journal, state: State) -> Path:
    """After the commit nothing is undone, and whoever comes next goes on where this stops."""
    try:
        with unstoppable():
            _let_go(journal, state)
            return journal.keep(state)
    except (OSError, DoctorError) as error:
        why = error.what if isinstance(error, DoctorError) else error.strerror or error
        raise DoctorError(
            f"the change is made, but could not be recorded yet: {why}",
            where=str(journal.folder),
            next_step="mend that, then run `cudnn-doctor repair` to settle it",
            exit_code=ExitCode.UNFINISHED,
        ) from error


def _let_go(journal: Journal, state: State) -> None:
    """Of what was kept for an undo."""
    plan = journal.plan
    if plan.method == "tarball" and not plan.undoes:
        own = {files.aside(step) for step in plan.steps if isinstance(step, RemoveTree)}
        for old in files.kept(plan.target):
            if str(old) not in own:
                folders.let_go(str(old))
    for number, step in enumerate(plan.steps):
        if isinstance(step, RemoveTree):
            files.finish_remove_tree(step)
        elif isinstance(step, GuardPackages):
            kept = None if plan.undoes else journal.receipt_name(state)
            wheel_guard.finish_guard(step, journal.saved(number), kept)
        elif isinstance(step, GuardSystem):
            package_guard.finish(step, journal.saved(number), for_good=bool(plan.undoes))
        elif isinstance(step, RemoveFolder):
            files.finish_remove_folder(step)


def _undo_all(journal: Journal, progress: Progress) -> None:
    try:
        with unstoppable():
            if journal.committed:  # and yet the disk refused to say so
                raise BadInput("it is committed")
            for number in reversed(journal.begun()):
                _undo(journal.plan.steps[number], journal.saved(number), progress)
                journal.note(f"undone {number}")
            journal.discard()
    except (OSError, ValueError, DoctorError) as error:
        raise DoctorError(
            f"the change could not be undone yet: {error}",
            where=str(journal.folder),
            next_step="mend that, then run `cudnn-doctor repair` to finish undoing it",
            exit_code=ExitCode.UNFINISHED,
        ) from error


def _check_space(plan: Plan) -> None:
    """Folders on one file system share its space: their needs add up."""
    needs: dict[int, tuple[str, int]] = {}
    for folder, needed in plan.space_needed.items():
        place = folders.nearest(folder)
        device = os.stat(place).st_dev
        where, sum_so_far = needs.get(device, (place, 0))
        needs[device] = (where, sum_so_far + needed)
    for where, needed in needs.values():
        free = os.statvfs(where).f_bavail * os.statvfs(where).f_frsize
        if free < needed:
            raise NothingChanged(
                f"not enough space: {needed >> 20} MiB are needed, {free >> 20} MiB are free",
                where=where,
                next_step="free some space there, or point --prefix, TMPDIR or "
                "CUDNN_DOCTOR_CACHE to a larger file system",
            )


# -- one step


def _do(step: AnyStep, saved: Path, state: State, progress: Progress) -> None:
    if isinstance(step, Fetch):
        fetch(step, state, progress)
    elif isinstance(step, Unpack):
        files.claim(step, saved)
        unpack(step, state, progress)
    elif isinstance(step, FromIndex):
        files.claim(step, saved)
        fromindex.fill(step)
    elif isinstance(step, Run):
        run(step, progress)
    elif isinstance(step, Prove):
        from cudnn_doctor.install import prove

        prove.prove(step, progress)
    elif isinstance(step, RestorePackages):
        package_guard.restore(step, progress)
    elif not isinstance(step, RemoveFolder):  # that waits for the commit
        _DO[type(step)](step, saved)


def _undo(step: AnyStep, saved: Path, progress: Progress) -> None:
    if isinstance(step, Unpack | FromIndex):
        files.unclaim(step, saved)
    elif isinstance(step, Run):
        for argv in step.undo:
            run(Run(argv=argv, environ=step.environ, may_fail=step.may_fail), progress)
    elif isinstance(step, GuardSystem):
        package_guard.unguard(step, saved, progress)
    elif isinstance(step, RestorePackages):
        package_guard.finish_restore(step, progress)
    elif type(step) in _UNDO:
        _UNDO[type(step)](step, saved)


_DO: dict[type[Any], Callable[[Any, Path], None]] = {
    MakeFolder: files.make_folder,
    MoveTree: files.move_tree,
    RemoveTree: files.remove_tree,
    WriteFile: files.write_file,
    SwitchLink: files.switch_link,
    FetchKey: fetch_key,
    GuardPackages: wheel_guard.guard,
    GuardSystem: package_guard.guard,
    RestoreWheels: wheel_guard.restore,
}
_UNDO: dict[type[Any], Callable[[Any, Path], None]] = {
    MakeFolder: files.unmake_folder,
    MoveTree: files.unmove_tree,
    RemoveTree: files.unremove_tree,
    WriteFile: files.restore,
    SwitchLink: files.restore,
    FetchKey: files.restore,
    GuardPackages: wheel_guard.unguard,
}
