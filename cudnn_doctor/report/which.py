"""What each consumer loads, for the terminal and as JSON (``schemas/which.json``)."""

from __future__ import annotations

import posixpath
from typing import Literal

import msgspec

from cudnn_doctor import __version__
from cudnn_doctor.machine.loads import Load, LoadPlan, Traced
from cudnn_doctor.machine.names import parse_cudnn
from cudnn_doctor.report.style import Style
from cudnn_doctor.versions import CudnnVersion

SCHEMA: Literal[1] = 1
_WIDTH = 80


class WhichDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``which --json`` prints."""

    schema: Literal[1]
    tool: str
    """Version of cudnn-doctor."""
    plans: tuple[LoadPlan, ...]
    """What the loader would do, one plan a consumer."""
    traces: tuple[Traced, ...]
    """What it did, where ``--trace`` was asked for, in the order of the plans."""
    differences: tuple[str, ...]
    """Files that the trace mapped and the plan does not have, or sentences about failures."""


def render_json(plans: tuple[LoadPlan, ...], traces: tuple[Traced, ...]) -> str:
    """The JSON text, indented, with its final newline."""
    pairs = zip(plans, traces, strict=bool(traces)) if traces else ()
    document = WhichDocument(
        schema=SCHEMA,
        tool=__version__,
        plans=plans,
        traces=traces,
        differences=tuple(line for plan, traced in pairs for line in differences(plan, traced)),
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def differences(plan: LoadPlan, traced: Traced) -> tuple[str, ...]:
    """Mapped files that the plan does not predict; empty when the trace proves the plan."""
    loads = (*((plan.shim,) if plan.shim else ()), *plan.sublibraries)
    predicted = {load.real or load.path for load in loads}
    return tuple(path for path in traced.mapped if path not in predicted)


def render(
    plans: tuple[LoadPlan, ...], traces: tuple[Traced, ...], style: Style, *, verbose: bool
) -> str:
    """The text: a paragraph a consumer; with ``verbose`` one line a file and whole paths."""
    page = _Page(style, verbose)
    for index, plan in enumerate(plans):
        page.plan(plan)
        if traces:
            page.trace(plan, traces[index])
    return style.plain("\n".join(page.lines).strip("\n") + "\n")


class _Page:
    def __init__(self, style: Style, verbose: bool) -> None:
        self.style = style
        self.verbose = verbose
        self.lines: list[str] = []

    def plan(self, plan: LoadPlan) -> None:
        who = plan.consumer
        title = "a plain program" if who.name == "dlopen" else f"{who.name} {who.version}".strip()
        if who.name == "dlopen":
            title += f" that opens libcudnn.so.{who.major}"
        self.lines += ["", self.style.paint(title, "bold")]
        if who.environment:
            self._wrapped("in ", who.environment)
        if plan.uses_cudnn is False:
            self.lines.append("  does not use cuDNN")
            return
        if plan.shim is not None:
            self._load(plan.shim.name, plan.shim)
        self._parts(plan)
        for load in plan.companions:
            if self.verbose or not load.path or load.problem:
                self._load(load.name, load)
        for note in plan.notes:
            self._sentence(f"note: {note}")

    def _parts(self, plan: LoadPlan) -> None:
        """Sublibraries, those of one folder and one release together."""
        groups: dict[tuple[object, ...], list[Load]] = {}
        for load in plan.sublibraries:
            folder = posixpath.dirname(load.path) if load.path else None
            alone = load.name if self.verbose or load.problem else ""
            groups.setdefault((folder, load.version, alone), []).append(load)
        for loads in groups.values():
            first = loads[0]
            if len(loads) == 1:
                self._load(first.name, first)
            elif first.path is None:
                self._sentence(f"{', '.join(_short(x.name) for x in loads)}: not found", "red")
            else:
                mark = _mixed(plan.shim, first)
                names = ", ".join(_short(load.name) for load in loads)
                self._head(f"{len(loads)} sublibraries", first, mark)
                self._wrapped("    ", posixpath.dirname(first.path) + "/")
                self._sentence(names, indent="    ")
                self._sentence(first.because, "dim", indent="    ")

    def _load(self, name: str, load: Load) -> None:
        if load.path is None:
            said = "not known" if load.via == "unknown" else "not found"
            colour = ("dim",) if load.via == "unknown" else ("red",)
            self._sentence(f"{name}: {said}", *colour)
            if self.verbose:
                self._sentence(load.because, "dim", indent="    ")
            return
        self._head(name, load, load.problem or "")
        self._wrapped("    ", load.path)
        if self.verbose and load.real and load.real != load.path:
            self._wrapped("    " + self.style.sign("arrow") + " ", load.real)
        self._sentence(load.because, "dim", indent="    ")
        if self.verbose and load.tried:
            self._sentence("tried before: " + ", ".join(load.tried), "dim", indent="    ")

    def _head(self, name: str, load: Load, problem: str) -> None:
        version = f"  {load.version}" if load.version else ""
        tail = f"  ({problem})" if problem else ""
        self.lines.append(f"  {name}{version}{self.style.paint(tail, 'red') if tail else ''}")

    def trace(self, plan: LoadPlan, traced: Traced) -> None:
        """The proof under the plan."""
        unlike = differences(plan, traced)
        if traced.ok:
            version = CudnnVersion.decode(traced.version).short if traced.version else "?"
            said = f"traced: it answers {version}, {len(traced.mapped)} cuDNN files mapped"
            self._sentence(said + ("" if unlike else ", as predicted"), "green")
        else:
            self._sentence(f"traced: {traced.error}", "red")
        for path in traced.mapped if self.verbose else unlike:
            self._wrapped("    ", path)
        if unlike:
            self._sentence("the files above were not predicted", "yellow", indent="    ")

    # -- lines of at most 80 columns

    def _sentence(self, text: str, *colours: str, indent: str = "  ") -> None:
        import textwrap

        lines = textwrap.wrap(
            self._shortened(text),
            _WIDTH - len(indent),
            break_long_words=False,
            break_on_hyphens=False,
            subsequent_indent="  ",
        )
        self.lines += [indent + self.style.paint(line, *colours) for line in lines]

    def _wrapped(self, before: str, path: str) -> None:
        indent = before if before.startswith(" ") else f"  {before}"
        room = _WIDTH - len(indent)
        self.lines.append(indent + (path if self.verbose else self._cut(path, room)))

    def _shortened(self, text: str) -> str:
        if self.verbose:
            return text
        return " ".join(
            self._cut(word, 60) if word.startswith(("/", "(/")) else word for word in text.split()
        )

    def _cut(self, path: str, room: int) -> str:
        """A path without its middle where it is too long: the end tells most."""
        if len(path) <= room:
            return path
        head = path[: max(8, room // 4)]
        return head + self.style.sign("cut") + path[-(room - len(head) - 3) :]


def _short(name: str) -> str:
    parsed = parse_cudnn(name)
    return parsed.part if parsed and parsed.part else name


def _mixed(shim: Load | None, part: Load) -> str:
    if shim is None or not shim.version or not part.version:
        return ""
    try:
        same = CudnnVersion.parse(shim.version).release == CudnnVersion.parse(part.version).release
    except ValueError:
        return ""
    return "" if same else f"the shim is {shim.version}"
