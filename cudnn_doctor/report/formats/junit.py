"""JUnit XML, as Jenkins and GitLab read it: a suite a category, a test case a rule."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from cudnn_doctor.report.outcomes import Outcome, Run

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold."""


def render(run: Run) -> str:
    """The document; findings below ``--fail-on`` are told in ``system-out`` of a passed case."""
    groups = list(dict.fromkeys(outcome.group for outcome in run.outcomes))
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', _open("testsuites", run, run.outcomes)]
    for group in groups:
        own = [outcome for outcome in run.outcomes if outcome.group == group]
        lines.append("  " + _open("testsuite", run, own, f"{run.command}: {group}"))
        lines += [f"    {line}" for line in _cases(run, own)]
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _open(tag: str, run: Run, outcomes: tuple[Outcome, ...] | list[Outcome], name: str = "") -> str:
    counts = {
        "tests": len(outcomes),
        "failures": sum(run.fails(o) for o in outcomes),
        "errors": sum(o.status == "crash" for o in outcomes),
    }
    if tag == "testsuite":
        counts["skipped"] = sum(o.status == "skip" for o in outcomes)
    told = " ".join(f'{key}="{value}"' for key, value in counts.items())
    seconds = sum(o.seconds for o in outcomes)
    return f'<{tag} name={_attribute(name or "cudnn-doctor")} {told} time="{seconds:.3f}">'


def _cases(run: Run, outcomes: list[Outcome]) -> list[str]:
    lines = []
    seen: dict[str, int] = {}
    for outcome in outcomes:
        seen[outcome.rule] = seen.get(outcome.rule, 0) + 1
        number = f" #{seen[outcome.rule]}" if seen[outcome.rule] > 1 else ""
        place = f"cudnn-doctor.{run.command}.{outcome.group}"
        head = (
            f"<testcase name={_attribute(outcome.rule + number)}"
            f' classname={_attribute(place)} time="{outcome.seconds:.3f}"'
        )
        inside = _inside(run, outcome)
        lines += [f"{head}>", f"  {inside}", "</testcase>"] if inside else [f"{head}/>"]
    return lines


def _inside(run: Run, outcome: Outcome) -> str:
    title = _attribute(outcome.title)
    if outcome.status == "skip":
        return f"<skipped message={title}/>"
    if outcome.status == "crash":
        return f'<error type="bug of cudnn-doctor" message={title}/>'
    if outcome.status == "pass":
        return ""
    place = [f"in {outcome.place}"] if outcome.place else []
    note = [f"suppressed: {outcome.suppressed}"] if outcome.suppressed else []
    if run.fails(outcome):
        body = _text("\n".join([*place, outcome.text]))
        return f"<failure type={_attribute(outcome.id)} message={title}>{body}</failure>"
    told = [f"{outcome.severity} {outcome.id}: {outcome.title}", *place, *note, outcome.text]
    return f"<system-out>{_text(chr(10).join(told))}</system-out>"


def _attribute(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))
