"""What cuDNN does, not whether it loads: another copy in use, slow, irreproducible, regressed.

Such faults print no error of their own; the description of the machine or the person's own words
in the log tell them.
"""

from __future__ import annotations

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.facts import numbers
from cudnn_doctor.explain.model import Observation
from cudnn_doctor.machine.model import CudnnCopy

_NOT_TAKEN = (
    r"\bstill\b|\bkeeps?\b|not (?:be )?(?:used|picked|taken|loaded)|\bignor|\bbundle|own copy"
    r"|instead of|never touch|no effect|expect"
)
_UPGRADED = r"(?:upgrad|updat|install)\w*"
_VARIES = (
    r"non-?\s?determin|not (?:bit-?\w* )?(?:deterministic|reproducib)|irreproducib"
    r"|\b(?:twice|again|each|every|same|repeat\w*)\b[^\n]{0,40}\bdifferent\b"
    r"|differ\w*\b[^\n]{0,40}\b(?:runs?|run to run|same seed|each time|every time)"
)
_WORKED = (
    r"\d+\.\d+(?:\.\d+)* (?:works?|worked|is fine|is ok)\b|since (?:cudnn )?v?\d+\.\d"
    r"|(?:work(?:s|ed)?|fine|ok)\b[^\n]{0,50}\b(?:cudnn|with|in|under|on|before)\b[^\n]{0,20}\d+\.\d"
    r"|downgrad\w+|go(?:ing|es)? back|went back|revert\w*|roll(?:ed|ing|s)? back"
)


def own_copy(case: Case) -> None:
    """The framework loads its own copy, a second one that the user installed is not looked at."""
    facts = case.facts
    asked = case.first("cudnn-version-asked", "cudnn-version")
    if asked is None or case.statuses() or case.seen("version-refused", "missing-library"):
        return
    own = [c for c in facts.copies if c.kind in ("wheel", "bundled", "conda") and c.version]
    other = [
        c for c in facts.copies if c.kind not in ("wheel", "bundled") and c.version and c not in own
    ]
    differ = [
        (a, b) for a in own for b in other if numbers(a.version)[:3] != numbers(b.version)[:3]
    ]
    installed = case.first("cudnn-install-command")
    by_hand = installed is not None or facts.says(f"{_UPGRADED}[^\n]{{0,60}}cudnn|{_NOT_TAKEN}")
    if differ and by_hand:
        mine, theirs = differ[0]
        case.vote(
            "bundled-copy-wins",
            0.88,
            f"the framework loads {mine.version}, {theirs.folder or 'the other'} has "
            f"{theirs.version}",
            culprit=_own_label(case, mine),
            line=asked,
        )
    elif installed is not None and case.seen("cudnn-version-asked"):
        label = "the copy that comes with the framework (bundled, or its wheel)"
        case.vote("bundled-copy-wins", 0.5, culprit=label, line=asked)


def _own_label(case: Case, copy: CudnnCopy) -> str:
    name = next((f.name for f in case.facts.machine.frameworks), "the framework")
    where = f" in {copy.folder}" if copy.folder else ""
    return f"{name}'s bundled cuDNN {copy.version}{where}"


def worked_before(case: Case) -> None:
    """The same work ran with another release of cuDNN."""
    failed = next(iter(case.statuses().values()), None) or case.first(
        "no-algorithm", "feature-unsupported", "crash"
    )
    told = case.first("worked-before")
    named = case.facts.says("cudnn") or case.facts.copies or case.facts.cudnn_wheels
    regressed = bool(named) and case.facts.says(_WORKED)
    if failed is None or not (told or regressed):
        return
    case.vote(
        "cudnn-version-regression",
        0.85 if regressed else 0.7,
        "the same work ran with another release of cuDNN" if regressed else "",
        culprit=_version_label(case),
        line=told or failed,
    )
    for vague in ("out-of-memory-masked", "cudnn-feature-unsupported-on-gpu"):
        case.doubt(vague, 0.5)


def _version_label(case: Case) -> str:
    wheels = " ".join(next(iter(case.facts.cudnn_wheels.items()), ()))
    versions = [c.version for c in case.facts.copies if c.version]
    told = [o.get("version") or o.get("number") for o in case.seen("cudnn-version")]
    return wheels or f"cuDNN {next(iter([*versions, *told]), '')}".strip()


def slow_engine(case: Case) -> None:
    """Slow by default, fast in benchmark mode: the heuristic chose a bad engine."""
    slow = case.first("slow-convolution")
    mode = case.first("benchmark-mode")
    said = case.facts.says(r"\bslow")
    ours = slow is not None or case.facts.says(r"cudnn|conv")
    if not ((slow or said) and ours) or case.seen("slow-fallback"):
        return
    if mode is not None or case.facts.says("benchmark|autotun|exhaustive"):
        _heuristic(case, 0.85 if said else 0.7, mode or slow)
    elif case.seen("worked-before") or case.facts.says(r"cudnn[^\n]*\d|regress|faster with"):
        _heuristic(case, 0.5, slow)
        case.vote("cudnn-version-performance", 0.45, culprit=_version_label(case), line=slow)


def _heuristic(case: Case, weight: float, line: Observation | None) -> None:
    case.vote(
        "cudnn-heuristic-regression",
        weight,
        "slow as it is, fast once engines are measured" if weight > 0.5 else "",
        culprit=f"the heuristic of {_version_label(case)} for this shape",
        line=line,
    )


def irreproducible(case: Case) -> None:
    """Runs differ: some engines are not deterministic."""
    seen = case.first("nondeterminism")
    said = case.facts.says(_VARIES) and case.facts.says(r"cudnn|conv|seed|backward|gpu")
    if seen is None and not said:
        return
    case.vote(
        "known-nondeterminism",
        0.3 if seen else 0.7,
        "results differ from run to run" if said else "",
        culprit=seen.get("what") if seen else "an engine that is not deterministic",
        line=seen,
    )


BEHAVIOUR_RULES = (own_copy, worked_before, slow_engine, irreproducible)
