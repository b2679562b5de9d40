"""What was seen: every category, every copy, every environment, folded away."""

from __future__ import annotations

from collections.abc import Iterable

from cudnn_doctor.checks.model import CheckResult
from cudnn_doctor.checks.registry import CATEGORIES
from cudnn_doctor.report.outcomes import Run
from cudnn_doctor.report.page.html import Html, el
from cudnn_doctor.report.summary import facts_of

_SIGNS = {"pass": "✓", "warn": "!", "fail": "✕", "skip": "\N{EN DASH}", "crash": "!"}


def categories(run: Run) -> Html | None:
    """A line a category, its rules under it."""
    if not run.report.results:
        return None
    rows = [
        _category(category, own, facts_of(run.machine, category))
        for category in CATEGORIES
        if (own := [result for result in run.report.results if result.category == category])
    ]
    return el("section", el("h2", "All checks"), el("div", rows, class_="card plain"), id="checks")


def _category(name: str, results: list[CheckResult], facts: str) -> Html:
    statuses = [result.status for result in results]
    worst = next(s for s in ("fail", "crash", "warn", "pass", "skip") if s in statuses)
    wrong = [f.id for r in results for f in r.findings if f.severity != "info"]
    said = ", ".join(dict.fromkeys(wrong)) or facts
    rules = [
        el("li", f"{_SIGNS[r.status]} {r.rule}", f": {r.reason}" if r.reason else None)
        for r in results
    ]
    return el(
        "details",
        el(
            "summary",
            el("span", _SIGNS[worst], class_=f"sign {worst}", aria_hidden="true"),
            el("strong", name),
            el("span", said, class_="dim"),
        ),
        el("ul", rules, class_="rules"),
    )


def copies(run: Run) -> Html | None:
    """The table of all copies."""
    found = run.machine.copies or ()
    if not found:
        return None
    rows = [
        (copy.version or f"{copy.major or '?'}.x", copy.cuda or "", copy.kind, copy.folder)
        for copy in found
    ]
    return _table("Every copy of cuDNN", ("version", "CUDA", "from", "folder"), rows)


def frameworks(run: Run) -> Html | None:
    """The table of all frameworks."""
    found = run.machine.frameworks
    if not found:
        return None
    rows = [(x.name, x.version, x.cuda or "", x.environment) for x in found]
    return _table("Frameworks", ("name", "version", "CUDA", "environment"), rows)


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Html:
    return el(
        "details",
        el("summary", title),
        el(
            "div",
            el(
                "table",
                el("thead", el("tr", [el("th", name) for name in head])),
                el("tbody", [el("tr", [el("td", cell) for cell in row]) for row in rows]),
            ),
            class_="scroll",
        ),
    )
