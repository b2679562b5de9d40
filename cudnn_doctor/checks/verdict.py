"""The verdict of a report in one word, and the exit code that goes with it."""

from __future__ import annotations

from typing import Literal

from cudnn_doctor.checks.model import Report
from cudnn_doctor.errors import ExitCode
from cudnn_doctor.machine.model import Machine

Verdict = Literal["healthy", "warnings", "problems", "cannot-tell"]
FailOn = Literal["error", "warning", "never"]


def verdict(report: Report, machine: Machine) -> Verdict:
    """``problems`` where there is an error; ``cannot-tell`` where too little was known."""
    if report.worst == "error":
        return "problems"
    crashed = any(result.status == "crash" for result in report.results)
    if crashed or not _told(machine):
        return "cannot-tell"
    return "warnings" if report.worst == "warning" else "healthy"


def _told(machine: Machine) -> bool:
    """Whether anything is known that a fault could show in."""
    if not machine.partial:
        return True
    return bool(machine.gpus or machine.frameworks or machine.copies is not None)


def exit_code(said: Verdict, fail_on: FailOn) -> ExitCode:
    """The same for every output format; warnings never fail a run unasked."""
    if fail_on == "never" or said == "healthy":
        return ExitCode.OK
    if said == "cannot-tell":
        return ExitCode.CANNOT_TELL
    failed = said == "problems" or fail_on == "warning"
    return ExitCode.PROBLEMS if failed else ExitCode.OK
