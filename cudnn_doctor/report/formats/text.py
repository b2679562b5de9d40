"""For people at a terminal: at most 80 columns."""

from __future__ import annotations

from cudnn_doctor.report.outcomes import Run


def render(run: Run) -> str:
    """The text of a check or a verification."""
    if run.error:
        return f"error: {run.error}\n"
    if run.command == "verify":
        from cudnn_doctor.report.verify import as_text

        return as_text(run.verdicts, run.style, verbose=run.verbose)
    from cudnn_doctor.report.terminal import render as terminal

    return terminal(run.report, run.machine, run.style, verbose=run.verbose)
