"""Who loads which cuDNN, and why: one drawing (SVG) a framework, readable on a phone."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from cudnn_doctor.checks.model import FrameworkLoad
from cudnn_doctor.machine.consumers import PLAIN
from cudnn_doctor.machine.loads import Load, LoadPlan
from cudnn_doctor.machine.names import parse_cudnn
from cudnn_doctor.report.page.html import Html, el

_WIDTH = 380
_INDENT = 34
_PADDING = 12
_LINE = 17
_COLUMNS = {"title": 40, "mono": 44, "body": 52}
"""Characters of each kind of line that fit into a box."""


@dataclass
class _Box:
    """A copy (or a gap) that a framework gets libraries from."""

    title: str
    state: str = "ok"
    """``ok``, ``odd`` (another release than the shim's) or ``bad``."""
    lines: list[tuple[str, str]] = field(default_factory=list)
    """Kind of line and text."""

    @property
    def height(self) -> int:
        return 2 * _PADDING + _LINE * (1 + len(self.lines))


def picture(plans: tuple[LoadPlan, ...], loads: tuple[FrameworkLoad, ...]) -> Html | None:
    """The section; from the loads of a description where the files are not known."""
    shown = [plan for plan in plans if plan.uses_cudnn is not False and _worth_showing(plan)]
    drawings = [_drawing(*_planned(plan)) for plan in shown]
    if not any(plan.shim and plan.shim.path for plan in plans):
        drawings = [
            _drawing(_name(load.framework, load.version), "", _told(load)) for load in loads
        ]
    if not drawings:
        return None
    return el(
        "section",
        el("h2", "Who loads which cuDNN"),
        el("div", drawings, class_="pictures"),
        id="picture",
    )


def _worth_showing(plan: LoadPlan) -> bool:
    """A plain program that finds no cuDNN is no fault: nobody may have meant it to."""
    return plan.consumer.name != PLAIN or bool(plan.shim and plan.shim.path)


def _name(name: str, version: str) -> str:
    return f"{name} {version}".rstrip()


def _planned(plan: LoadPlan) -> tuple[str, str, list[_Box]]:
    who = plan.consumer
    title = _name(who.name, who.version)
    if who.name == PLAIN:
        title = f"a plain program (libcudnn.so.{who.major})"
    groups: dict[tuple[str, str, str], list[Load]] = {}
    for load in (*((plan.shim,) if plan.shim else ()), *plan.sublibraries):
        folder = posixpath.dirname(load.path) if load.path else ""
        groups.setdefault((folder, load.version or "", load.problem or ""), []).append(load)
    version = plan.shim.version if plan.shim else None
    return title, who.environment, [_box(key, loads, version) for key, loads in groups.items()]


def _box(key: tuple[str, str, str], loads: list[Load], shim: str | None) -> _Box:
    folder, version, problem = key
    names = ", ".join(_part(load.name) for load in loads)
    if not folder:
        gap = loads[0].via != "unknown"
        box = _Box("not found" if gap else "not known", "bad" if gap else "odd")
        box.lines = [*_wrapped("body", names, 4)]
        return box
    mixed = bool(shim and version and _release(shim) != _release(version))
    box = _Box(f"cuDNN {version or 'of unknown version'}", "bad" if mixed or problem else "ok")
    box.lines = [*_wrapped("mono", folder, 3), *_wrapped("body", names, 6)]
    if problem:
        box.lines += _wrapped("bad", problem, 3)
    because = loads[0].because.replace(f"{folder}/", "\N{HORIZONTAL ELLIPSIS}/")
    box.lines += _wrapped("dim", f"because: {because}", 5) if because else []
    return box


def _told(load: FrameworkLoad) -> list[_Box]:
    if not load.cudnn and not load.folder:
        return [_Box("no cuDNN is found", "bad", [*_wrapped("dim", load.because, 5)])]
    box = _Box(f"cuDNN {load.cudnn or 'of unknown version'}", "bad" if load.mixed_with else "ok")
    box.lines = [*_wrapped("mono", load.folder or "", 3)]
    if load.mixed_with:
        box.lines += _wrapped("bad", f"mixed with parts of {', '.join(load.mixed_with)}", 2)
    box.lines += _wrapped("dim", load.because, 5)
    return [box]


def _release(version: str) -> list[str]:
    return version.split(".")[:3]


def _part(name: str) -> str:
    parsed = parse_cudnn(posixpath.basename(name))
    return (parsed.part or "shim") if parsed else name


def _wrapped(kind: str, text: str, most: int) -> list[tuple[str, str]]:
    """Lines that fit, broken at blanks and before slashes, at most ``most`` of them."""
    width = _COLUMNS.get(kind, _COLUMNS["body"])
    lines = [""]
    for piece in re.findall(rf"\s*/?[^\s/]{{1,{width - 1}}}|/", text):
        if len(lines[-1] + piece) > width:
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    lines = [line for line in lines if line]
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][: width - 1] + "\N{HORIZONTAL ELLIPSIS}"]
    return [(kind, line) for line in lines]


def _drawing(title: str, environment: str, boxes: list[_Box]) -> Html:
    head = _Box(title, "head", [*_wrapped("mono", environment, 2)])
    parts: list[Html] = [_draw(head, 2, 2, _WIDTH - 4)]
    top, wires = 2 + head.height, []
    for box in boxes:
        y = top + 14
        middle = y + 22
        wires.append(
            el("path", d=f"M18 {2 + head.height} V{middle - 8} q0 8 8 8 H{_INDENT}",
               class_=f"wire {box.state}")
        )  # fmt: skip
        parts.append(_draw(box, _INDENT, y, _WIDTH - _INDENT - 2))
        top = y + box.height
    told = "; ".join(f"{box.title}: {' '.join(line for _, line in box.lines)}" for box in boxes)
    return el(
        "svg",
        el("title", f"{title} loads {told}"),
        reversed(wires),
        parts,
        viewBox=f"0 0 {_WIDTH} {top + 2}",
        role="img",
        class_="drawing",
    )


def _draw(box: _Box, x: int, y: int, width: int) -> Html:
    def lines() -> Iterable[Html]:
        at = y + _PADDING + 12
        yield el("text", box.title[: _COLUMNS["title"]], x=x + _PADDING, y=at, class_="title")
        for kind, line in box.lines:
            at += _LINE
            yield el("text", line, x=x + _PADDING, y=at, class_=kind)

    frame = el("rect", x=x, y=y, width=width, height=box.height, rx=8, class_=f"box {box.state}")
    return el("g", frame, lines())
