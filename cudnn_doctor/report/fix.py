"""What ``fix`` will do, did, and leaves: for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from cudnn_doctor import __version__
from cudnn_doctor.checks.model import Finding, SearchPath
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.wheels.mend import Left, Mending
from cudnn_doctor.report.plan import to_text

SCHEMA = 1


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One finding that is left, with what a person can do about it."""

    id: str
    title: str
    reason: str = ""
    commands: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a ``fix``; the JSON document of the command."""

    schema: int = SCHEMA
    tool: str = f"cudnn-doctor {__version__}"
    plan: Plan
    changed: bool = False
    receipt: str | None = None
    """For ``rollback``."""
    mended: tuple[str, ...] = ()
    """Titles of the findings that are gone."""
    unmended: tuple[Item, ...] = ()
    """Acted on and still there."""
    left: tuple[Item, ...] = ()
    """Left to the user."""
    reactivate: bool = False
    """Whether the environment must be activated again for it to take effect."""


def planned(mending: Mending, *, as_json: bool) -> str:
    """The dry run."""
    if as_json:
        return _json(Outcome(plan=mending.plan, left=_items(mending.left)))
    return "\n".join([to_text(mending.plan), *_listed("Left to you", _items(mending.left))])


def outcome(
    mending: Mending,
    before: Iterable[Finding],
    after: Iterable[Finding],
    receipt: str | None,
) -> Outcome:
    """Compare what was acted on with what is found now."""
    still = {(f.id, f.subject) for f in after if f.severity == "error"}
    acted = {(c.finding.id, c.finding.subject) for c in mending.chosen}
    gone = [f.title for f in before if receipt and (f.id, f.subject) not in still]
    unmended = [
        Left(c.finding, "it is still there after the remedy")
        for c in mending.chosen
        if receipt and (c.finding.id, c.finding.subject) in still
    ]
    left = [
        item
        for item in mending.left
        if not receipt or (item.finding.id, item.finding.subject) in still
    ]
    known = acted | {(f.id, f.subject) for f in before}
    new = [
        Left(f, "found only after the fix")
        for f in after
        if receipt and f.severity == "error" and not f.caused_by and (f.id, f.subject) not in known
    ]
    return Outcome(
        plan=mending.plan,
        changed=receipt is not None,
        receipt=receipt,
        mended=tuple(gone),
        unmended=_items([*unmended, *new]),
        left=_items(left),
        reactivate=bool(receipt) and mending.path != SearchPath(),
    )


def told(result: Outcome, *, as_json: bool) -> str:
    """The end of the command."""
    if as_json:
        return _json(result)
    lines: list[str] = []
    if result.mended:
        lines += ["Mended", *(f"  {title}" for title in result.mended)]
    lines += _listed("Not mended", result.unmended)
    lines += _listed("Left to you", result.left)
    if result.reactivate:
        lines += ["", "Activate the environment again (or open a new shell) for it to take effect."]
    if result.receipt:
        lines += ["", f"Undo it with: cudnn-doctor rollback {result.receipt}"]
    return "\n".join(lines or ["Nothing is wrong that could be mended."]).lstrip("\n")


def _items(left: Iterable[Left]) -> tuple[Item, ...]:
    return tuple(
        Item(
            id=item.finding.id,
            title=item.finding.title,
            reason=item.reason,
            commands=tuple(c for r in item.finding.remedies[:2] for c in r.commands),
        )
        for item in left
    )


def _listed(title: str, items: tuple[Item, ...]) -> Iterator[str]:
    if items:
        yield from ("", title)
    for item in items:
        yield f"  {item.title}  [{item.id}]"
        yield f"    {item.reason}"
        yield from (f"      {command}" for command in item.commands)


def _json(result: Outcome) -> str:
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode()
