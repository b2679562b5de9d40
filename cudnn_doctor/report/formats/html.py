"""One self-contained page for people: see `cudnn_doctor.report.page`."""

from __future__ import annotations

from cudnn_doctor.machine.loader import simulate_all
from cudnn_doctor.matrix.load import load
from cudnn_doctor.report.outcomes import Run
from cudnn_doctor.report.page.document import page


def render(run: Run) -> str:
    """The page of a check, of a verification, or of both."""
    plans = simulate_all(run.machine) if run.command == "check" else ()
    return page(run, plans, run.matrix or load())
