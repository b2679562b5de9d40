"""Every candidate judged by every constraint, and the best of those that are left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cudnn_doctor.matrix.candidates import Candidate
from cudnn_doctor.matrix.conflict import allowed
from cudnn_doctor.matrix.verdict import Constraint, Verdict
from cudnn_doctor.matrix.wish_constraints import (
    FrameworkConstraint,
    SoundConstraint,
    VersionConstraint,
)


class Judgement:
    """A table of verdicts: one row a constraint, one column a candidate."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        constraints: Iterable[Constraint],
        known: Mapping[str, list[Verdict]] | None = None,
    ) -> None:
        self.candidates = candidates
        self.constraints = {constraint.name: constraint for constraint in constraints}
        rows = known or {}
        self.rows = {
            name: rows.get(name) or [constraint.judge(each) for each in candidates]
            for name, constraint in self.constraints.items()
        }
        self.masks = {
            name: sum(1 << i for i, verdict in enumerate(row) if verdict.state != "out")
            for name, row in self.rows.items()
        }
        self.everything = (1 << len(candidates)) - 1
        self.frameworks = tuple(
            c for c in self.constraints.values() if isinstance(c, FrameworkConstraint)
        )

    def left(self) -> list[int]:
        """Indices of the candidates that nothing rules out."""
        bits = allowed(self.masks, list(self.masks), self.everything)
        return [index for index in range(len(self.candidates)) if bits >> index & 1]

    def best(self) -> int | None:
        """Index of the best of them; None when there is none."""
        return max(self.left(), key=lambda index: (self._rank(index), -index), default=None)

    def unknowns(self, index: int) -> list[str]:
        """Names of the constraints of which nobody knows whether the candidate satisfies them."""
        return [name for name, row in self.rows.items() if row[index].state == "unknown"]

    def without(self, lifted: Iterable[str], *instead: Constraint) -> Judgement:
        """The same table with some constraints lifted, others put instead.

        A faulty release that only a lifted constraint asked for by number is then out again.
        """
        dropped = set(lifted)
        kept = [c for name, c in self.constraints.items() if name not in dropped]
        kept += instead
        versioned = any(isinstance(c, VersionConstraint) for c in kept)
        frameworks = tuple(c for c in kept if isinstance(c, FrameworkConstraint))
        rest = [
            dataclasses.replace(c, version=c.version if versioned else None, frameworks=frameworks)
            if isinstance(c, SoundConstraint)
            else c
            for c in kept
        ]
        known = {
            name: self.rows[name]
            for name, c in self.constraints.items()
            if not isinstance(c, SoundConstraint)
        }
        return Judgement(self.candidates, rest, known)

    def _rank(self, index: int) -> tuple[Any, ...]:
        candidate = self.candidates[index]
        chosen = (constraint.chosen(candidate) for constraint in self.frameworks)
        suits = tuple(-position for position in chosen if position is not None)
        return not self.unknowns(index), suits, candidate.age
