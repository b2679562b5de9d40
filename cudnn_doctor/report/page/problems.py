"""What is wrong, why, and what to type."""

from __future__ import annotations

from collections.abc import Iterable

from cudnn_doctor.checks.model import Remedy
from cudnn_doctor.report.outcomes import Outcome, Run
from cudnn_doctor.report.page.html import Html, el

_MARKS = {"error": "✕", "warning": "!", "info": "i"}
_SAFETY = {"safe": None, "caution": "with caution", "destructive": "destructive"}


def problems(run: Run) -> Html | None:
    """A card a root cause, its consequences in it; None for a healthy run."""
    found = run.problems
    ids = {outcome.id for outcome in found}
    roots = [o for o in found if o.caused_by not in ids or o.caused_by == o.id]
    cards = [_card(o, [c for c in found if c not in roots and c.caused_by == o.id]) for o in roots]
    crashes = [
        el("p", f"A bug of cudnn-doctor in {o.rule}: {o.title}", class_="crash")
        for o in run.outcomes
        if o.status == "crash"
    ]
    if not cards and not crashes:
        return None
    return el("section", el("h2", "What is wrong"), cards, crashes, id="problems")


def notes(run: Run) -> Html | None:
    """Findings that are no problem, folded away."""
    found = [o for o in run.outcomes if o.severity == "info" or (o.severity and o.suppressed)]
    if not found:
        return None
    title = f"{len(found)} note{'s' if len(found) > 1 else ''}"
    return el("details", el("summary", title), [_card(o, []) for o in found])


def _card(outcome: Outcome, consequences: list[Outcome]) -> Html:
    severity = outcome.severity or "info"
    return el(
        "article",
        el(
            "header",
            el("span", _MARKS[severity], class_="mark", aria_hidden="true"),
            el("h3", outcome.title),
        ),
        el("p", _labels(outcome), class_="labels"),
        el("p", f"Suppressed: {outcome.suppressed}") if outcome.suppressed else None,
        el("p", _capital(outcome.why), class_="why") if outcome.why else None,
        [_remedy(remedy, number) for number, remedy in enumerate(outcome.remedies)],
        _seen(outcome.seen),
        _consequences(consequences),
        class_=f"card {severity}",
    )


def _labels(outcome: Outcome) -> Iterable[Html]:
    yield el("span", outcome.severity or "", class_="chip severity")
    yield el("code", outcome.id)
    if outcome.place:
        yield el("span", "in ", el("code", str(outcome.place)), class_="place")


def _remedy(remedy: Remedy, number: int) -> Html:
    chips = [
        el("span", word, class_="chip")
        for word in ("as root" if remedy.needs_root else None, _SAFETY[remedy.safety])
        if word
    ]
    title = remedy.title.removeprefix("or ")
    return el(
        "div",
        el("p", el("strong", "Or: " if number else "Mend: "), _capital(title), " ", chips),
        el("p", f"Changes {remedy.changes}", class_="dim") if remedy.changes else None,
        _commands(remedy.commands),
        class_="remedy",
    )


def _capital(text: str) -> str:
    """A sentence's beginning; names such as cuDNN stay as they are."""
    word = text.split(" ", maxsplit=1)[0]
    return text[:1].upper() + text[1:] if word.isalpha() and word.islower() else text


def _commands(commands: tuple[str, ...]) -> Html | None:
    if not commands:
        return None
    return el(
        "div",
        el("pre", el("code", "\n".join(commands)), tabindex="0"),
        el("button", "Copy", type="button", class_="copy"),
        class_="commands",
    )


def _seen(lines: tuple[str, ...]) -> Html | None:
    if not lines:
        return None
    items = [el("li", line) for line in lines]
    return el("details", el("summary", "What was seen"), el("ul", items), open=True, class_="seen")


def _consequences(found: list[Outcome]) -> Html | None:
    if not found:
        return None
    items = [el("li", el("code", outcome.id), " ", outcome.title) for outcome in found]
    return el("div", el("p", "It also causes:"), el("ul", items), class_="consequences")
