"""Types of the room: signatures, observations, diagnoses."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Literal

import msgspec

from cudnn_doctor.checks.model import Evidence, Remedy

Role = Literal["cause", "symptom", "noise", "fact"]


class Signature(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One form of a message: what it looks like and what it says about the fault.

    ``cause``: names the fault itself. ``symptom``: a consequence that several faults have.
    ``noise``: harmless. ``fact``: no complaint, but tells something (a version, a loaded file).
    """

    id: str
    event: str
    """What it means, whatever product says it (``missing-library``, ``cudnn-status`` ...)."""
    any: tuple[str, ...]
    """Fixed parts, of which one stands in every such line: the cheap test before the pattern."""
    pattern: str
    role: Role = "cause"
    set: dict[str, str] = {}
    """Fields that the form implies without naming them."""
    supports: dict[str, float] = {}
    """Diagnosis -> how likely it is right when only this message is known (0 to 1)."""
    rules_out: tuple[str, ...] = ()
    """Diagnoses that this message contradicts."""
    examples: tuple[str, ...]

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The pattern, compiled when first needed."""
        return re.compile(self.pattern)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One signature seen in the log."""

    signature: Signature
    line: int
    text: str
    fields: dict[str, str] = {}
    count: int = 1

    def get(self, name: str) -> str:
        """A captured field, empty when the form does not have it."""
        return self.fields.get(name, "")


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """One answer; the fields of the ``explain --json`` contract."""

    id: str
    confidence: float
    """0 to 1; see docs/explain.md for how it is calibrated."""
    title: str
    culprit: str = ""
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    avoid: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    """Commands whose output would decide, where the evidence does not."""
    consequences: tuple[Evidence, ...] = ()
    """Other lines of the log that follow from this cause."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer, best diagnosis first; no diagnoses: nothing in the log concerns us."""

    schema: int = 1
    lines: int = 0
    diagnoses: tuple[Diagnosis, ...] = ()
    noise: tuple[Evidence, ...] = ()
    """Lines that look like errors and are harmless."""
