"""What a constraint is and what it says of a candidate."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from cudnn_doctor.matrix.candidates import Candidate

State = Literal["ok", "out", "unknown"]
METHOD_WORDS = {"wheel": "wheel", "tarball": "archive", "package": "distribution package"}


class Verdict(NamedTuple):
    """``ok``, ``out`` (ruled out) or ``unknown``, and why; unknown is never taken for yes."""

    state: State
    why: str = ""


class Constraint(Protocol):
    """One named demand that the target makes."""

    @property
    def name(self) -> str:
        """Stable within one resolution; what a conflict is told in."""
        ...

    @property
    def relax(self) -> str:
        """What a person could do to lift it."""
        ...

    def judge(self, candidate: Candidate) -> Verdict:
        """Judge one candidate."""
        ...
