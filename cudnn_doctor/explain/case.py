"""`Case`: observations and facts at hand, and the votes that the rules cast on diagnoses."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks.model import Evidence, Finding
from cudnn_doctor.explain.facts import Facts
from cudnn_doctor.explain.model import Observation
from cudnn_doctor.machine.model import Machine

_CAP = 0.97


class Suspect:
    """A diagnosis under consideration.

    ``weight``s are probabilities: how likely the diagnosis is if only that evidence is known. They
    join as independent evidence (noisy or); ``against`` multiplies what is left.
    """

    def __init__(self, diagnosis: str) -> None:
        self.id = diagnosis
        self.missed = 1.0
        self.against = 1.0
        self.culprit = ""
        self.culprit_weight = 0.0
        self.by_cause = False
        self.evidence: list[Evidence] = []

    @property
    def confidence(self) -> float:
        return min(_CAP, (1.0 - self.missed) * self.against)


class Case:
    """One log with one machine."""

    def __init__(self, observations: tuple[Observation, ...], machine: Machine | None) -> None:
        self.observations = observations
        self.facts = Facts(machine, observations)
        self.suspects: dict[str, Suspect] = {}
        self.findings: dict[str, Finding] = {}
        """Findings of the checks that agree with the log."""

    @property
    def decided(self) -> bool:
        """Whether some diagnosis is more likely than not already."""
        return any(s.confidence >= 0.5 for s in self.suspects.values() if s.by_cause)

    def seen(self, *events: str) -> list[Observation]:
        """Observations of these events, in order of lines."""
        return [o for o in self.observations if o.signature.event in events]

    def first(self, *events: str) -> Observation | None:
        """The first of `seen`."""
        return next(iter(self.seen(*events)), None)

    def statuses(self) -> dict[str, Observation]:
        """cuDNN status names of the log (numbers translated), each with its first line."""
        found: dict[str, Observation] = {}
        for name, observation in self._status_names():
            found.setdefault(_whole_name(name), observation)
        return found

    def _status_names(self) -> Iterator[tuple[str, Observation]]:
        for observation in self.seen("cudnn-status"):
            if "UserWarning: Plan failed with" not in observation.text:
                yield observation.get("status"), observation
        for observation in self.seen("cudnn-handle"):
            if observation.get("status"):
                yield observation.get("status"), observation
        for observation in self.seen("cudnn-status-number"):
            name = STATUS_NUMBERS.get(int(observation.get("code")))
            if name:
                yield name, observation

    def vote(
        self,
        diagnosis: str,
        weight: float,
        because: str = "",
        *,
        culprit: str = "",
        line: Observation | None = None,
        where: str = "",
        symptom: bool = False,
    ) -> None:
        """Raise the confidence in a diagnosis; the strongest vote names the culprit."""
        suspect = self.suspects.setdefault(diagnosis, Suspect(diagnosis))
        suspect.missed *= 1.0 - min(max(weight, 0.0), 0.99)
        if weight >= 0.3 and not symptom:
            suspect.by_cause = True
        if culprit and weight > suspect.culprit_weight:
            suspect.culprit, suspect.culprit_weight = culprit, weight
        if line is not None:
            quote = Evidence(what=line.text.strip()[:240], line=line.line, how="log")
            if quote not in suspect.evidence and len(suspect.evidence) < 12:
                suspect.evidence.append(quote)
        if because:
            fact = Evidence(what=because, where=where, how="facts")
            if fact not in suspect.evidence:
                suspect.evidence.append(fact)

    def doubt(self, diagnosis: str, factor: float) -> None:
        """Lower the confidence in a diagnosis (0 rules it out)."""
        suspect = self.suspects.get(diagnosis)
        if suspect is not None:
            suspect.against *= factor


STATUS_NUMBERS = {
    1: "NOT_INITIALIZED",
    2: "ALLOC_FAILED",
    3: "BAD_PARAM",
    4: "INTERNAL_ERROR",
    5: "INVALID_VALUE",
    6: "ARCH_MISMATCH",
    7: "MAPPING_ERROR",
    8: "EXECUTION_FAILED",
    9: "NOT_SUPPORTED",
    10: "LICENSE_ERROR",
    11: "RUNTIME_PREREQUISITE_MISSING",
    12: "RUNTIME_IN_PROGRESS",
    13: "RUNTIME_FP_OVERFLOW",
    14: "VERSION_MISMATCH",
    1001: "NOT_INITIALIZED",
    1002: "SUBLIBRARY_VERSION_MISMATCH",
    1003: "SERIALIZATION_VERSION_MISMATCH",
    1004: "DEPRECATED",
    1005: "LICENSE_ERROR",
    1006: "RUNTIME_IN_PROGRESS",
    1007: "RUNTIME_FP_OVERFLOW",
    1008: "SUBLIBRARY_LOADING_FAILED",
    2000: "BAD_PARAM",
    3000: "NOT_SUPPORTED",
    3007: "NOT_SUPPORTED_ARCH_MISMATCH",
    3008: "NOT_SUPPORTED_INCOMPATIBLE_CUDART",
    4000: "INTERNAL_ERROR",
    4001: "INTERNAL_ERROR_COMPILATION_FAILED",
    4003: "INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    4004: "INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    5000: "EXECUTION_FAILED",
    5001: "EXECUTION_FAILED_CUDA_DRIVER",
    5002: "EXECUTION_FAILED_CUBLAS",
    5003: "EXECUTION_FAILED_CUDART",
}
"""cudnnStatus_t of cuDNN 8 (below 1000) and of 9 (four digits), from their headers."""
_STATUS_NAMES = frozenset(STATUS_NUMBERS.values())


def _whole_name(name: str) -> str:
    """The name of which ``name`` is the beginning (lines are cut off), else ``name``."""
    if name in _STATUS_NAMES or len(name) < 6:
        return name
    longer = [whole for whole in _STATUS_NAMES if whole.startswith(name)]
    return min(longer, key=len) if longer else name
