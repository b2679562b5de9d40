"""From an error on the screen to ranked diagnoses: signatures as data, and the matcher that joins
them with a machine's facts."""

from __future__ import annotations

import io
from typing import BinaryIO

from cudnn_doctor.checks.model import Finding
from cudnn_doctor.explain.model import Diagnosis, Explanation
from cudnn_doctor.machine.model import Machine

__all__ = ["Diagnosis", "Explanation", "explain", "explain_text"]


def explain(
    stream: BinaryIO, machine: Machine | None = None, findings: tuple[Finding, ...] = ()
) -> Explanation:
    """Explain a log, read to its end in bounded memory, on a machine (None: not known)."""
    from cudnn_doctor.explain.judge import judge
    from cudnn_doctor.explain.match import scan

    return judge(scan(stream), machine, findings)


def explain_text(text: str, machine: Machine | None = None) -> Explanation:
    """`explain` for a log that is at hand as text."""
    return explain(io.BytesIO(text.encode("utf-8", "replace")), machine)
