"""The judgement: votes of signatures and rules, ranked; consequences under their cause."""

from __future__ import annotations

import re

from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.explain.case import Case, Suspect
from cudnn_doctor.explain.catalogue import load_diagnoses
from cudnn_doctor.explain.match import Scan
from cudnn_doctor.explain.model import Diagnosis, Explanation
from cudnn_doctor.explain.remedies import remedies_for
from cudnn_doctor.explain.rules import RULES
from cudnn_doctor.machine.model import Machine

_OURS = re.compile(r"cudnn|cuda|nvidia|cublas|nvrtc|\bnvml|libcu|\bgpu\b|driver", re.I)
_OTHER_VENDOR = re.compile(
    r"\bHIP\b|rocm|miopen|amdgpu|\bgfx\d|amdhip|hipblas|level.zero|\bsycl|\bxpu\b", re.I
)
SURE_ENOUGH = 0.45
"""Below it the best diagnosis is a guess, and the answer is `insufficient-evidence`."""
_WORTH_TELLING = 0.15
_AT_MOST = 6
_NOISE, _UNDECIDED = "benign-noise", "insufficient-evidence"
_WEAKENED = 0.35
"""Factor for what only symptoms support when another diagnosis names a cause."""


def judge(
    scan: Scan, machine: Machine | None = None, findings: tuple[Finding, ...] = ()
) -> Explanation:
    """Explain what was found in a log on a machine; ``None``: nothing is known of it.

    ``findings`` are those of `cudnn_doctor.checks` on the same machine: one that says what the log
    complains of is strong evidence, and its commands are exact.
    """
    ours = (o for o in scan.observations if not _OTHER_VENDOR.search(o.text))
    case = Case(tuple(ours), machine)
    _vote_by_signature(case)
    for rule in RULES:
        rule(case)
    _vote_by_finding(case, findings)
    ranked = _rank(case)
    noise = tuple(
        Evidence(what=o.text.strip()[:240], line=o.line, how="log")
        for o in scan.observations
        if o.signature.role == "noise"
    )[:20]
    diagnoses = tuple(_diagnosis(case, suspect) for suspect in ranked)
    if diagnoses and diagnoses[0].confidence < SURE_ENOUGH:
        diagnoses = (_undecided(case, diagnoses), *diagnoses)
    elif not diagnoses and (seen := _complaints(case)):
        diagnoses = (_undecided(case, (), seen),)
    return Explanation(lines=scan.lines, diagnoses=diagnoses, noise=noise)


def _vote_by_signature(case: Case) -> None:
    """What each message says by itself, once for a kind of message."""
    heard: set[tuple[str, str]] = set()
    for seen in case.observations:
        signature = seen.signature
        for diagnosis, weight in signature.supports.items():
            key = (signature.event, diagnosis)
            again = key in heard
            heard.add(key)
            culprit = seen.get("path") or seen.get("lib")
            case.vote(
                diagnosis,
                0.0 if again else weight,
                line=seen,
                symptom=signature.role != "cause",
            )
            case.suspects[diagnosis].culprit = case.suspects[diagnosis].culprit or culprit
    for seen in case.observations:
        for diagnosis in seen.signature.rules_out:
            case.doubt(diagnosis, 0.1)


def _vote_by_finding(case: Case, findings: tuple[Finding, ...]) -> None:
    """What the checks found on the machine, where the log complains at all."""
    complaints = _complaints(case)
    for finding in findings:
        if finding.severity == "info" or not complaints or finding.caused_by:
            continue
        if finding.id in case.suspects or _names_culprit(case, finding):
            weight = 0.75
        elif finding.severity == "error" and not case.decided:
            weight = 0.46
        else:
            continue
        case.vote(finding.id, weight, finding.title, culprit=finding.culprit)
        case.findings.setdefault(finding.id, finding)


def _names_culprit(case: Case, finding: Finding) -> bool:
    """Whether the log complains of the very file that the checks found at fault."""
    name = finding.culprit.rpartition("/")[2]
    if finding.severity != "error" or ".so" not in name:
        return False
    return any(name in o.text for o in case.observations if o.signature.role == "cause")


def _rank(case: Case) -> list[Suspect]:
    suspects = list(case.suspects.values())
    causes = [s for s in suspects if s.by_cause and s.confidence >= 0.5 and s.id != _NOISE]
    for suspect in suspects:
        if causes and not suspect.by_cause:
            suspect.against *= _WEAKENED
    faults = [s for s in suspects if s.id != _NOISE and s.confidence >= 0.3]
    for suspect in suspects:
        if suspect.id == _NOISE and faults:
            suspect.against *= 0.2
    kept = [s for s in suspects if s.confidence >= _WORTH_TELLING]
    return sorted(kept, key=lambda s: -s.confidence)[:_AT_MOST]


def _diagnosis(case: Case, suspect: Suspect) -> Diagnosis:
    about = load_diagnoses()[suspect.id]
    own = {e.line for e in suspect.evidence if e.line}
    return Diagnosis(
        id=suspect.id,
        confidence=round(suspect.confidence, 2),
        title=about.title,
        culprit=suspect.culprit,
        evidence=tuple(suspect.evidence),
        remedies=_remedies(case, suspect.id),
        avoid=about.avoid,
        ask=about.ask,
        consequences=_consequences(case, own) if suspect.by_cause else (),
    )


def _remedies(case: Case, diagnosis: str) -> tuple[Remedy, ...]:
    """Those of the machine's own finding first: their paths are exact."""
    finding = case.findings.get(diagnosis)
    exact = finding.remedies if finding else ()
    return (*exact, *remedies_for(diagnosis, case))


def _consequences(case: Case, own: set[int]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(what=o.text.strip()[:240], line=o.line, how="log")
        for o in case.observations
        if o.signature.role == "symptom" and o.line not in own
    )[:8]


def _complaints(case: Case) -> list[Evidence]:
    """Lines that complain about cuDNN or CUDA although no diagnosis follows from them."""
    return [
        Evidence(what=o.text.strip()[:240], line=o.line, how="log")
        for o in case.observations
        if o.signature.role in ("cause", "symptom")
        and o.signature.event not in ("nan-output", "cpu-fallback", "cmake", "pin-conflict")
        and _OURS.search(o.text)
    ][:8]


def _undecided(
    case: Case, others: tuple[Diagnosis, ...], seen: list[Evidence] | None = None
) -> Diagnosis:
    about = load_diagnoses()[_UNDECIDED]
    ask = [command for other in others[:3] for command in other.ask[:1]]
    best = others[0].confidence if others else 0.0
    lines = seen or [e for e in others[0].evidence if e.line]
    what = f"; {_what_is_known(case)}" if _what_is_known(case) else ""
    return Diagnosis(
        id=_UNDECIDED,
        confidence=round(1.0 - best, 2),
        title=about.title,
        culprit=f"not to be told from this log{what}",
        evidence=tuple(lines[:4]),
        remedies=remedies_for(_UNDECIDED, case),
        avoid=about.avoid,
        ask=tuple(dict.fromkeys([*about.ask, *ask])),
    )


def _what_is_known(case: Case) -> str:
    """One clause about the class of the failure, for the undecided answer."""
    names = list(case.statuses())
    versions = [o.get("version") or o.get("number") for o in case.seen("cudnn-version")]
    parts = []
    if any(name.startswith("SUBLIBRARY") for name in names):
        parts.append("a sublibrary of cuDNN could not be loaded, its name is missing here")
    elif names:
        parts.append(f"CUDNN_STATUS_{names[0]} is a consequence of several faults")
    if versions:
        from cudnn_doctor.explain.facts import release

        version = release(versions[0])
        parts.append(f"cuDNN {version.short}" if version else "")
    return "; ".join(part for part in parts if part)
