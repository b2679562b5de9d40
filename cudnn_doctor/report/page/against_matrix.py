"""The releases that are installed against those that the matrix allows on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cudnn_doctor.errors import DoctorError
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.matrix.query import newest
from cudnn_doctor.matrix.resolver import Conflict, Resolution, resolve
from cudnn_doctor.matrix.specs import version_key
from cudnn_doctor.matrix.target import Target
from cudnn_doctor.report.page.html import Html, el
from cudnn_doctor.versions import CudnnVersion

_WIDTH = 380
_LEFT, _RIGHT = 14, 366
_LETTER = 6.1
"""Width of a letter of the labels, about."""
_KINDS = ("installed", "allowed", "newest")


class _Mark(NamedTuple):
    version: str
    label: str
    kind: str


def against_matrix(machine: Machine, matrix: Matrix) -> Html | None:
    """The section; None where no copy and no GPU is known."""
    installed = sorted(
        {copy.version for copy in machine.copies or () if copy.version},
        key=version_key,
    )
    answer = _answer(machine, matrix)
    if not installed and not machine.gpus:
        return None
    marks = [_Mark(v, "installed", "installed") for v in map(_short, installed) if v]
    if isinstance(answer, Resolution):
        marks.append(_Mark(_short(answer.version), "newest that suits", "allowed"))
    latest = newest(matrix)
    if latest:
        marks.append(_Mark(latest.version, "newest of all", "newest"))
    return el(
        "section",
        el("h2", "Version against the matrix"),
        el("div", _strip(marks, matrix), _said(installed, answer), class_="card plain"),
        id="matrix",
    )


def _answer(machine: Machine, matrix: Matrix) -> Resolution | Conflict | str:
    try:
        return resolve(Target.from_machine(machine), matrix)
    except DoctorError as error:
        return error.what


def _short(version: str) -> str:
    """``9.10.2`` of ``9.10.2.21``; empty for what is no version."""
    try:
        return CudnnVersion.parse(version).short
    except ValueError:
        return ""


def _said(installed: list[str], answer: Resolution | Conflict | str) -> Iterable[Html]:
    yield el("p", el("strong", "Installed: "), ", ".join(installed) or "none")
    if isinstance(answer, str):
        yield el("p", f"What would suit cannot be told: {answer}")
        return
    if isinstance(answer, Conflict):
        yield el("p", el("strong", "No release suits all of this machine's demands:"))
        yield el("ul", [el("li", reason.why) for reason in answer.why])
        return
    yield el(
        "p",
        el("strong", "Newest that suits this machine: "),
        f"{answer.version} for CUDA {answer.cuda}",
    )
    yield el("ul", [el("li", reason) for reason in answer.reasons])
    if answer.newer:
        out = [
            el("li", f"{x.version} for CUDA {x.cuda}: {'; '.join(r.why for r in x.by)}")
            for x in answer.newer[:8]
        ]
        yield el("details", el("summary", "Why none of the newer ones"), el("ul", out))


def _strip(marks: list[_Mark], matrix: Matrix) -> Html:
    """All releases from the oldest mark's major on, evenly spaced, with the marks on them."""
    oldest = min(version_key(mark.version) for mark in marks)[0] if marks else 9
    known = {r.version for r in matrix.releases if r.status == "release"}
    known |= {mark.version for mark in marks}
    versions = sorted((v for v in known if version_key(v)[0] >= oldest), key=version_key)
    step = (_RIGHT - _LEFT) / max(1, len(versions) - 1)
    at = {version: _LEFT + index * step for index, version in enumerate(versions)}
    grouped: dict[str, list[_Mark]] = {}
    for mark in marks:
        grouped.setdefault(mark.version, []).append(mark)
    rows = [
        _label(at[version], 44 + 20 * row, version, own)
        for row, (version, own) in enumerate(sorted(grouped.items(), key=lambda x: at[x[0]]))
    ]
    stems, labels = [stem for stem, _ in rows], [label for _, label in rows]
    height = 44 + 20 * len(rows)
    return el(
        "svg",
        el("title", "; ".join(f"{m.label}: {m.version}" for m in marks)),
        el("path", d=f"M{_LEFT} 20 H{_RIGHT}", class_="axis"),
        [el("circle", cx=f"{x:.1f}", cy=20, r=2, class_="release") for x in at.values()],
        stems,
        labels,
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        class_="strip",
    )


def _label(x: float, y: int, version: str, marks: list[_Mark]) -> tuple[Html, Html]:
    """The line down to the label, to be drawn under all labels; the mark and its label."""
    kinds = [mark.kind for mark in marks]
    both = "installed" in kinds and "allowed" in kinds
    kind = "both" if both else min(kinds, key=_KINDS.index)
    words = f"{version} {', '.join(dict.fromkeys(mark.label for mark in marks))}"
    width = _LETTER * len(words) + 6
    left = x > width or x + width > _WIDTH
    label = el(
        "text",
        words,
        x=f"{x + (-6 if left else 6):.1f}",
        y=y,
        text_anchor="end" if left else "start",
    )
    dot = el("circle", cx=f"{x:.1f}", cy=20, r=6, class_=f"mark {kind}")
    return el("path", d=f"M{x:.1f} 20 V{y - 4}", class_=f"stem {kind}"), el("g", dot, label)
