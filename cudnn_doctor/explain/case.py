"""`Case`: observations and facts at hand, and the votes that the rules cast on diagnoses."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks.model import Evidence, Finding
from cudnn_doctor.explain.facts import Facts
from cudnn_doctor.explain.model import Observation
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.status import STATUS_NAMES

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
            name = STATUS_NAMES.get(int(observation.get("code")))
            if name and name != "SUCCESS":
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


_STATUS_NAMES = frozenset(STATUS_NAMES.values())


def _whole_name(name: str) -> str:
    """The name of which ``name`` is the beginning (lines are cut off), else ``name``."""
    if name in _STATUS_NAMES or len(name) < 6:
        return name
    longer = [whole for whole in _STATUS_NAMES if whole.startswith(name)]
    return min(longer, key=len) if longer else name
