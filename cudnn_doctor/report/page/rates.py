"""A saved verification: its rungs, and its rates as bars against the GPU's own ceiling."""

from __future__ import annotations

from collections.abc import Iterable

from cudnn_doctor.report.page.html import Html, el
from cudnn_doctor.verify.model import StepResult, Verdict

_UNITS = (
    ("tflops", "gemm_tflops", "TFLOP/s (GEMM)"),
    ("relu_gbs", "copy_gbs", "GB/s (copying)"),
)
"""Field of the rate, field of the ceiling that was measured beside it, unit."""
_LEAST_SCALE, _MOST_SCALE = 1.2, 3.0
"""What the whole width of a bar is worth, as a share of the ceiling."""
_WORDS = {"pass": "pass", "fail": "failed", "skip": "not run"}


def rates(verdicts: tuple[Verdict, ...]) -> Html | None:
    """The section; None where nothing was verified."""
    if not verdicts:
        return None
    cards = [_card(verdict) for verdict in verdicts]
    return el("section", el("h2", "Verification on the GPU"), cards, id="verification")


def _card(verdict: Verdict) -> Html:
    copy = verdict.copy
    failed = any(rung.status == "fail" for rung in verdict.rungs)
    return el(
        "article",
        el(
            "header",
            el("h3", f"cuDNN {copy.version or '?'} on {verdict.gpu or 'no GPU'}"),
        ),
        el("p", el("code", copy.folder), class_="labels"),
        el(
            "ul",
            [_rung(rung.name, rung.status, rung.why) for rung in verdict.rungs],
            class_="rungs",
        ),
        _bars(verdict.steps),
        _failures(verdict),
        class_=f"card {'error' if failed else 'plain'}",
    )


def _rung(name: str, status: str, why: str) -> Html:
    return el(
        "li",
        el("strong", name),
        el("span", _WORDS[status], class_=f"chip {status}"),
        el("span", why, class_="dim") if why else None,
        class_=status,
    )


def _bars(steps: Iterable[StepResult]) -> Html | None:
    found = [step for step in steps if step.rung == "speed" and "ratio" in step.data]
    if not found:
        return None
    highest = max(_ratio(step) for step in found)
    scale = max(_LEAST_SCALE, min(highest, _MOST_SCALE) * 1.04)
    above = " A bar beyond it: an algorithm with fewer multiplications." if highest > 1.1 else ""
    return el(
        "div",
        el(
            "p",
            f"Rates. The line is the GPU's own ceiling, measured beside them.{above}",
            class_="dim",
        ),
        [_bar(step, scale) for step in found],
        class_="bars",
    )


def _ratio(step: StepResult) -> float:
    return max(0.0, float(step.data["ratio"]))


def _bar(step: StepResult, scale: float) -> Html:
    data, ratio = step.data, _ratio(step)
    told = ""
    for own, reference, unit in _UNITS:
        if own in data and reference in data:
            told = f"{data[own]:,.0f} of {data[reference]:,.0f} {unit}"
    state = "bad" if step.status == "fail" else "good"
    width = min(ratio / scale, 1.0) * 100
    return el(
        "div",
        el(
            "p",
            el("span", step.step),
            el("span", f"{told} ", el("strong", f"{ratio:.0%}"), class_="value"),
        ),
        el(
            "div",
            el("div", class_=f"fill {state}", style=f"width:{width:.1f}%"),
            el("div", class_="ceiling", style=f"left:{100 / scale:.1f}%"),
            class_="track",
        ),
        class_="bar",
    )


def _failures(verdict: Verdict) -> Iterable[Html]:
    told = " ".join(rung.why for rung in verdict.rungs)
    for step in verdict.steps:
        if step.status == "fail" and step.detail not in told:
            yield el("p", el("code", step.step), " ", step.detail)
    for death in verdict.deaths:
        where = f" at {death.step}" if death.step else ""
        cause = f": {death.cause}" if death.cause else ""
        yield el("p", f"The child process ended ({death.how}){where}{cause}")
