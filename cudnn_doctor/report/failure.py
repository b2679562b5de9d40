"""A command that could not do its job, as a run that every format can tell."""

from __future__ import annotations

from typing import Literal

from cudnn_doctor.checks.model import Remedy
from cudnn_doctor.errors import DoctorError
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.machine.redact import without_secrets
from cudnn_doctor.report.outcomes import Outcome, Run
from cudnn_doctor.report.places import Place


def of_error(command: Literal["check", "verify"], error: DoctorError) -> Run:
    """The run with one outcome: the error, where it was met, and the next step."""
    what, where, step = map(without_secrets, (error.what, error.where, error.next_step))
    place = Place(where) if where.startswith("/") else None
    outcome = Outcome(
        rule="run",
        id="could-not-run",
        group="cudnn-doctor",
        status="fail",
        severity="error",
        title=what,
        seen=(where,) if where and not place else (),
        remedies=(Remedy(title=step),) if step else (),
        place=place,
        culprit=where,
    )
    return Run(
        command=command,
        verdict="not-run" if command == "verify" else "cannot-tell",
        exit_code=int(error.exit_code),
        outcomes=(outcome,),
        machine=Machine(partial=True),
        error=f"{what} ({where})" if where else what,
    )
