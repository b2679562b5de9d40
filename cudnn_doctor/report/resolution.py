"""What the resolver found, as JSON and as text of at most 80 columns (commands stay whole)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from cudnn_doctor import __version__
from cudnn_doctor.matrix.resolution import Conflict, Resolution
from cudnn_doctor.report.style import visible

_WIDTH = 80


class ResolveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``resolve --json`` prints: ``resolution`` or, with exit code 4, ``conflict``."""

    schema: Literal[1] = 1
    tool: str
    """Version of cudnn-doctor."""
    resolution: Resolution | msgspec.UnsetType = msgspec.UNSET
    conflict: Conflict | msgspec.UnsetType = msgspec.UNSET


def to_json(result: Resolution | Conflict, *, explain: bool) -> dict[str, Any]:
    """The document as plain data; ``newer`` is there only where ``explain`` asks for it."""
    if isinstance(result, Conflict):
        document = ResolveDocument(tool=__version__, conflict=result)
    else:
        document = ResolveDocument(tool=__version__, resolution=result)
    plain: dict[str, Any] = msgspec.to_builtins(document)
    if not explain:
        plain.get("resolution", {}).pop("newer", None)
    return plain


def to_text(result: Resolution | Conflict, *, explain: bool) -> str:
    """The answer for a terminal."""
    lines = _answer(result) if isinstance(result, Resolution) else _clash(result)
    if explain and isinstance(result, Resolution):
        lines = [*lines, *_newer(result)]
    return visible("\n".join(lines))


def _answer(found: Resolution) -> Iterable[str]:
    jit = ", JIT flavour" if found.flavour == "jit" else ""
    sure = "" if found.certain else "  (not certain, see the notes)"
    yield f"cuDNN {found.build} for CUDA {found.cuda}{jit}{sure}"
    if found.driver:
        yield f"  needs NVIDIA driver {found.driver} or newer"
    yield from _section("Why", found.reasons)
    yield ""
    yield "Install it one of these ways"
    for way, commands in found.commands.items():
        yield f"  {way}:"
        yield from (f"    {command}" for command in commands)
    yield from _section("Notes", found.notes)


def _clash(found: Conflict) -> Iterable[str]:
    yield "No cuDNN satisfies all of this"
    yield from _section(
        "These clash", (f"{reason.constraint}: {reason.why}" for reason in found.why)
    )
    options = (
        f"without {' and '.join(map(repr, option.constraints))}: cuDNN {option.build} for CUDA "
        f"{option.cuda}; {'; '.join(option.how)}"
        for option in found.relax
    )
    yield from _section("What would give an answer", options)
    yield from _section("Notes", found.notes)


def _newer(found: Resolution) -> Iterable[str]:
    """One item for the releases that the same constraints ruled out for the same reason."""
    groups: dict[str, list[str]] = {}
    for release in found.newer:
        why = "; ".join(f"{reason.constraint}: {reason.why}" for reason in release.by)
        groups.setdefault(f"for CUDA {release.cuda}: {why}", []).append(release.version)
    lines = (f"{', '.join(versions)} {why}" for why, versions in groups.items())
    yield from _section("Newer releases, and what ruled them out", lines)
    if not found.newer:
        yield from ("", "No newer release is known.")


def _section(title: str, items: Iterable[str]) -> Iterable[str]:
    lines = [
        textwrap.fill(
            item, _WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
        )
        for item in items
    ]
    return ["", title, *lines] if lines else []
