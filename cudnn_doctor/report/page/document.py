"""The whole page: one file that needs nothing else, closed by a content security policy."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from cudnn_doctor import __version__
from cudnn_doctor.machine.loads import LoadPlan
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.report.outcomes import WORDS, Run
from cudnn_doctor.report.page import facts
from cudnn_doctor.report.page.against_matrix import against_matrix
from cudnn_doctor.report.page.html import Html, el
from cudnn_doctor.report.page.picture import picture
from cudnn_doctor.report.page.problems import notes, problems
from cudnn_doctor.report.page.rates import rates
from cudnn_doctor.report.summary import header

_MOODS = {
    "healthy": ("good", "✓"),
    "passed": ("good", "✓"),
    "warnings": ("fair", "!"),
    "cannot-tell": ("fair", "?"),
    "not-run": ("fair", "?"),
    "problems": ("bad", "✕"),
    "failed": ("bad", "✕"),
}


def page(run: Run, plans: tuple[LoadPlan, ...], matrix: Matrix) -> str:
    """The HTML text, with its final newline."""
    sections = [
        problems(run),
        picture(plans, run.report.loads),
        against_matrix(run.machine, matrix) if run.command == "check" else None,
        rates(run.verdicts),
        facts.categories(run),
        _more(run),
    ]
    body = el("body", el("main", _hero(run), sections, _foot(run)), Html(_script()))
    return f"<!DOCTYPE html>\n{el('html', _head(run), body, lang='en')}\n"


def _asset(name: str) -> str:
    return (files("cudnn_doctor.report.page") / name).read_text(encoding="utf-8")


def _script() -> str:
    return f"<script>{_asset('script.js')}</script>"


def _head(run: Run) -> Html:
    digest = base64.b64encode(hashlib.sha256(_asset("script.js").encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    return el(
        "head",
        el("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("link", rel="icon", href="data:,"),
        el("title", f"cudnn-doctor: {WORDS[run.verdict]}"),
        Html(f"<style>{_asset('style.css')}</style>"),
    )


def _hero(run: Run) -> Html:
    mood, sign = _MOODS[run.verdict]
    counts = {s: sum(o.severity == s for o in run.problems) for s in ("error", "warning")}
    told = [f"{n} {word}{'s' if n > 1 else ''}" for word, n in counts.items() if n]
    words = WORDS[run.verdict]
    return el(
        "header",
        el("p", f"cudnn-doctor {run.command}", class_="product"),
        el(
            "h1",
            el("span", sign, class_="sign", aria_hidden="true"),
            words[:1].upper() + words[1:],
        ),
        el("p", ", ".join(told), class_="counts") if told else None,
        el("p", [el("span", part) for part in header(run.machine)], class_="machine")
        if run.command == "check"
        else None,
        class_=f"hero {mood}",
    )


def _more(run: Run) -> Html | None:
    parts = [part for part in (facts.copies(run), facts.frameworks(run), notes(run)) if part]
    if not parts:
        return None
    return el("section", el("h2", "More"), el("div", parts, class_="card plain more"), id="more")


def _foot(run: Run) -> Html:
    taken = f", facts taken {run.machine.taken}" if run.machine.taken else ""
    return el("footer", el("p", f"cudnn-doctor {__version__}{taken}"))
