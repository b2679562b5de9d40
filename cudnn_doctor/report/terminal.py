"""The report of a check as text: short by default, at most 80 columns, commands on own lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from cudnn_doctor.checks.model import CheckResult, Evidence, Finding, FrameworkLoad, Report
from cudnn_doctor.checks.registry import CATEGORIES
from cudnn_doctor.checks.verdict import Verdict, verdict
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.report.style import Style
from cudnn_doctor.report.summary import facts_of, header

WIDTH = 80
_LABEL = 8
_COLOURS = {"error": "red", "warning": "yellow", "info": "blue"}


def render(report: Report, machine: Machine, style: Style, *, verbose: bool = False) -> str:
    """The whole text, with its final newline."""
    said = verdict(report, machine)
    blocks = [
        list(_header(machine, style)),
        list(_categories(report, machine, style, verbose)),
        *(list(block) for block in _problems(report, style, verbose)),
        list(_loads(report.loads, style, verbose)),
        list(_verdict(report, said, style, verbose)),
    ]
    return style.plain("\n\n".join("\n".join(block) for block in blocks if block) + "\n")


def _header(machine: Machine, style: Style) -> Iterator[str]:
    line = ""
    dot = style.sign("dot")
    for part in header(machine):
        longer = f"{line}{dot}{part}" if line else part
        if len(longer) > WIDTH and line:
            yield style.paint(line, "bold")
            longer = part
        line = longer
    yield style.paint(line, "bold")


def _categories(report: Report, machine: Machine, style: Style, verbose: bool) -> Iterator[str]:
    """One line a category; with ``verbose`` one a rule under it."""
    for category in CATEGORIES:
        results = [result for result in report.results if result.category == category]
        if not results:
            continue
        mark, colour, said = _state(results, facts_of(machine, category))
        line = f"{style.sign(mark)} {category:<11} {said}"
        yield style.paint(_cut(line, style), colour)
        if verbose:
            for result in results:
                reason = f" ({result.reason})" if result.reason else ""
                yield f"    {result.status:<5} {result.rule}{reason}"


def _state(results: list[CheckResult], facts: str) -> tuple[str, str, str]:
    findings = [finding for result in results for finding in result.findings]
    errors = [f for f in findings if f.severity == "error"]
    warnings = [f for f in findings if f.severity == "warning"]
    crashes = [result.rule for result in results if result.status == "crash"]
    if errors:
        return "error", "red", _names(errors)
    if crashes:
        return "warning", "yellow", f"a bug of cudnn-doctor in {', '.join(crashes)}"
    if warnings:
        return "warning", "yellow", _names(warnings)
    if all(result.status == "skip" for result in results):
        return "skip", "dim", f"not judged: {results[0].reason}"
    return "ok", "green", facts


def _names(findings: list[Finding]) -> str:
    return ", ".join(dict.fromkeys(finding.id for finding in findings))


def _problems(report: Report, style: Style, verbose: bool) -> Iterator[Iterator[str]]:
    """Root causes in order, each with its consequences under it."""
    findings = [f for f in report.findings if verbose or f.severity != "info" or f.suppressed]
    ids = {finding.id for finding in findings}
    children = [f for f in findings if f.caused_by in ids]
    for finding in findings:
        if finding in children:
            continue
        own = [child for child in children if child.caused_by == finding.id]
        if verbose:
            own, rest = [], own
            yield _finding(finding, own, style)
            yield from (_finding(child, [], style) for child in rest)
        else:
            yield _finding(finding, own, style)


def _finding(finding: Finding, children: list[Finding], style: Style) -> Iterator[str]:
    colour = _COLOURS[finding.severity]
    after = f"  (because of {finding.caused_by})" if finding.caused_by else ""
    head = f"{style.sign(finding.severity)} {finding.severity} {finding.id}"
    yield style.paint(head, colour, "bold") + after
    yield from _wrapped(finding.title, "  ")
    if finding.suppressed:
        yield from _labelled("note", f"suppressed: {finding.suppressed}")
        return
    yield from _seen(finding.seen)
    if finding.why:
        yield from _labelled("why", finding.why)
    for remedy in finding.remedies:
        yield from _labelled("mend", remedy.title)
        for command in remedy.commands:
            yield style.paint(f"      {command}", "bold")
    for folly in finding.avoid:
        yield from _labelled("avoid", folly)
    for child in children:
        yield from _wrapped(
            f"{style.sign('child')} causes {child.id}: {child.title}", "  ", hanging="    "
        )


def _seen(seen: tuple[Evidence, ...]) -> Iterator[str]:
    """What was seen: the value, then its place and how it was read, paths never broken."""
    label = "seen"
    for evidence in seen:
        how = f" ({evidence.how})" if evidence.how else ""
        where = evidence.where if evidence.where and evidence.where not in evidence.what else ""
        line = f"{evidence.what}{f'  {where}' if where else ''}{how}"
        if len(line) + _LABEL + 2 <= WIDTH:
            yield f"  {label:<{_LABEL - 2}}{line}"
        else:
            yield from _labelled(label, evidence.what)
            yield from _labelled("", f"{where}{how}".strip()) if where or how else ()
        label = ""


def _labelled(label: str, text: str) -> Iterator[str]:
    yield from _wrapped(text, f"  {label:<{_LABEL - 2}}", hanging=" " * _LABEL)


def _wrapped(text: str, indent: str, hanging: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _loads(loads: tuple[FrameworkLoad, ...], style: Style, verbose: bool) -> Iterator[str]:
    """The cuDNN that each framework gets."""
    if not loads:
        return
    yield style.paint("cuDNN that each framework loads", "bold")
    names = [f"{load.framework} {load.version}".rstrip() for load in loads]
    width = min(max(len(name) for name in names), 28)
    for name, load in zip(names, loads, strict=True):
        version = load.cudnn or ("version not known" if load.folder else "none found")
        version = " + ".join((version, *load.mixed_with))
        line = f"  {name:<{width}}  {version:<10} {load.folder or ''}".rstrip()
        yield line if verbose else _cut(line, style)
        if verbose and load.because:
            yield from _wrapped(load.because, " " * (width + 4))


def _cut(line: str, style: Style) -> str:
    """At most 80 columns: the middle of a long line gives way, its end tells more."""
    if len(line) <= WIDTH:
        return line
    mark = style.sign("cut")
    keep = WIDTH - len(mark)
    return f"{line[: keep // 2]}{mark}{line[-(keep - keep // 2) :]}"


def _verdict(report: Report, said: Verdict, style: Style, verbose: bool) -> Iterator[str]:
    counts = {
        severity: sum(f.severity == severity for f in report.findings)
        for severity in ("error", "warning", "info")
    }
    notes = ""
    if counts["info"] and not verbose:
        notes = f" ({_count(counts['info'], 'note')}: -v shows)"
    if said == "healthy":
        yield style.paint(f"{style.sign('ok')} healthy{notes}", "green", "bold")
    elif said == "cannot-tell":
        yield style.paint("? cannot tell: too little is known", "yellow", "bold") + notes
    else:
        found = [_count(counts[s], s) for s in ("error", "warning") if counts[s]]
        mark, colour = ("error", "red") if counts["error"] else ("warning", "yellow")
        yield style.paint(f"{style.sign(mark)} {', '.join(found)}{notes}", colour, "bold")
        yield f"  more: cudnn-doctor explain --about {_first(report)}"


def _first(report: Report) -> str:
    """The id to read about first: of the gravest kind, a root cause before a consequence."""
    order = ("error", "warning", "info")
    return min(report.findings, key=lambda f: (order.index(f.severity), bool(f.caused_by))).id


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
