"""Exit codes and the one exception that the command line turns into a message."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The verdict of a run: the same for every output format, stable across releases."""

    OK = 0
    """Healthy, or the job was done."""
    PROBLEMS = 1
    """Problems were found (by ``verify``: all passed, but its release's known fault is there)."""
    USAGE = 2
    """The command line was wrong."""
    CANNOT_TELL = 3
    """The facts did not suffice for a verdict (insufficient evidence, rungs not run)."""
    NO_COMPATIBLE_VERSION = 4
    """No cuDNN satisfies all constraints."""
    NOTHING_CHANGED = 5
    """An installation failed or was refused; the machine is as before."""
    VERIFICATION_FAILED = 6
    """A cuDNN copy failed verification."""
    BAD_INPUT = 7
    """A file given to the tool (snapshot, matrix, log, archive, lock) cannot be used."""
    UNFINISHED = 8
    """A change was interrupted and could not be undone yet; the next command tries again."""
    INTERNAL = 70
    """A bug in cudnn-doctor."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C."""


class DoctorError(Exception):
    """An error for the person at the terminal: what happened, where, what to do next.

    Raised by every room for failures that are the world's and not ours; the command line prints
    it on stderr and exits with ``exit_code``.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        next_step: str = "",
        exit_code: ExitCode = ExitCode.PROBLEMS,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next_step = next_step
        self.exit_code = exit_code


class BadInput(DoctorError):
    """A file or text given by the user cannot be used (garbage JSON, wrong schema, unreadable)."""

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what, where=where, next_step=next_step, exit_code=ExitCode.BAD_INPUT)


class NothingChanged(DoctorError):
    """An installation failed or was refused; the machine is as before."""

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what, where=where, next_step=next_step, exit_code=ExitCode.NOTHING_CHANGED)
