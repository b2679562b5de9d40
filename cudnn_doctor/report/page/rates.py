"""A saved verification: its rungs, and its rates as bars against the GPU's own ceiling."""

from __future__ import annotations

from collections.abc import Iterable

from cudnn_doctor.report.page.html import Html, el
from cudnn_doctor.verify.model import StepResult, Verdict

_UNITS = (
    ("tflops", "gemm_tflops", "TFLOP/s (GEMM)"),
    ("relu_gbs", "copy_gbs", "GB/s (copy)"),
)
"""Field of the rate, field of the ceiling that was measured beside it, unit."""
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
    )


def _bars(steps: Iterable[StepResult]) -> Html | None:
    found = [step for step in steps if step.rung == "speed" and "ratio" in step.data]
    if not found:
        return None
    return el(
        "div",
        el("p", "Rates; the line is the GPU's own ceiling, measured beside them", class_="dim"),
        [_bar(step) for step in found],
        class_="bars",
    )


def _bar(step: StepResult) -> Html:
    data = step.data
    ratio = max(0.0, float(data["ratio"]))
    told = ""
    for own, reference, unit in _UNITS:
        if own in data and reference in data:
            told = f"{data[own]:.0f} of {data[reference]:.0f} {unit}"
    state = "bad" if step.status == "fail" else "good" if ratio >= 0.8 else "fair"
    width = min(ratio, 1.15) / 1.2 * 100
    return el(
        "div",
        el("p", el("span", step.step), el("span", f"{told}  {ratio:.0%}", class_="value")),
        el(
            "div",
            el("div", class_=f"fill {state}", style=f"width:{width:.1f}%"),
            el("div", class_="ceiling", style=f"left:{100 / 1.2:.1f}%"),
            class_="track",
        ),
        class_="bar",
    )


def _failures(verdict: Verdict) -> Iterable[Html]:
    for step in verdict.steps:
        if step.status == "fail":
            yield el("p", el("code", step.step), " ", step.detail)
    for death in verdict.deaths:
        where = f" at {death.step}" if death.step else ""
        cause = f": {death.cause}" if death.cause else ""
        yield el("p", f"The child process ended ({death.how}){where}{cause}")
