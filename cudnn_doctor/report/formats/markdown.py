"""Markdown for a step summary, a merge request or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudnn_doctor.report.outcomes import CONTROL, WORDS, Outcome, Run
from cudnn_doctor.report.summary import header

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~-])")
_SIGNS = {"error": "\N{CROSS MARK}", "warning": "\N{WARNING SIGN}\N{VARIATION SELECTOR-16}"}


def render(run: Run) -> str:
    """Verdict, problems with cause and cure, what each framework loads."""
    sign = _SIGNS["error"] if any(map(run.fails, run.outcomes)) else "\N{WHITE HEAVY CHECK MARK}"
    if run.verdict in ("warnings", "cannot-tell", "not-run"):
        sign = _SIGNS["warning"]
    lines = [f"## {sign} cudnn-doctor {run.command}: {WORDS[run.verdict]}", ""]
    if run.command == "check":
        lines += [_plain(" \N{MIDDLE DOT} ".join(header(run.machine))), ""]
    for outcome in run.problems:
        lines += _problem(outcome)
    lines += _loads(run)
    lines += _rungs(run)
    return "\n".join(lines).rstrip("\n") + "\n\n"


def _problem(outcome: Outcome) -> Iterable[str]:
    yield f"### {_SIGNS[outcome.severity or 'warning']} {_plain(outcome.title)}"
    yield ""
    place = f" in {_code(str(outcome.place))}" if outcome.place else ""
    because = f", because of {_code(outcome.caused_by)}" if outcome.caused_by else ""
    yield f"{_code(outcome.id)}{place}{because}"
    yield ""
    for seen in outcome.seen:
        yield f"- {_plain(seen)}"
    if outcome.why:
        yield from ("", _plain(outcome.why))
    for remedy in outcome.remedies:
        yield from ("", f"**Mend:** {_plain(remedy.title)}")
        if remedy.commands:
            yield from ("", *_fenced(remedy.commands))
    yield ""


def _loads(run: Run) -> Iterable[str]:
    if not run.report.loads:
        return
    yield from ("| framework | cuDNN | from |", "| --- | --- | --- |")
    for load in run.report.loads:
        version = " + ".join((load.cudnn or "none found", *load.mixed_with))
        folder = _code(load.folder) if load.folder else ""
        yield f"| {_plain(f'{load.framework} {load.version}')} | {_plain(version)} | {folder} |"
    yield ""


def _rungs(run: Run) -> Iterable[str]:
    if run.command != "verify":
        return
    yield from ("| copy and GPU | rung | outcome |", "| --- | --- | --- |")
    for outcome in run.outcomes:
        why = f": {_plain(outcome.title)}" if outcome.title else ""
        yield f"| {_plain(outcome.group)} | {outcome.rule} | {outcome.status}{why} |"
    yield ""


def _plain(text: str) -> str:
    """Text that Markdown takes literally, on one line."""
    flat = (
        " ".join(CONTROL.sub("", text).split())
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
    )
    return _SPECIAL.sub(r"\\\1", flat)


def _code(text: str) -> str:
    flat = " ".join(CONTROL.sub("", text).split()).replace("|", "\\|")
    fence = _fence(flat, 1)
    pad = " " if "`" in flat else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def _fenced(commands: Iterable[str]) -> list[str]:
    text = CONTROL.sub("", "\n".join(commands))
    fence = _fence(text, 3)
    return [f"{fence}sh", text, fence]


def _fence(text: str, least: int) -> str:
    """Backticks, more of them in a row than the text has."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
