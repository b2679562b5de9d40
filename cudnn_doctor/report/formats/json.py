"""For programs: one versioned document with all facts and results."""

from __future__ import annotations

from cudnn_doctor.report.outcomes import Run


def render(run: Run) -> str:
    """The JSON document of a check or a verification."""
    if run.command == "verify":
        from cudnn_doctor.report.verify import as_json

        return as_json(run.verdicts, run.error).decode() + "\n"
    from cudnn_doctor.report.json import of_error
    from cudnn_doctor.report.json import render as document

    if run.error:
        return of_error(run.error, run.exit_code)
    return document(run.report, run.machine, run.fail_on)
