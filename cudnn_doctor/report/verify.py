"""Verdicts of ``verify`` as text (80 columns) and as JSON."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from cudnn_doctor import __version__
from cudnn_doctor.report.style import Style
from cudnn_doctor.verify.model import Death, KnownFault, Rung, StepResult, Verdict

SCHEMA: Literal[1] = 1
_WIDTH = 80
_SIGN = {"pass": ("ok", "green"), "fail": ("error", "red"), "skip": ("skip", "dim")}
_TITLES = {
    "files": "files",
    "load": "load",
    "initialise": "initialise",
    "convolve": "convolve",
    "library": "the rest of the library",
    "speed": "speed",
}


class VerifyDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ``verify --json`` prints."""

    schema: Literal[1]
    tool: str
    """Version of cudnn-doctor."""
    verdicts: tuple[Verdict, ...]
    """One a copy and GPU."""
    error: str = ""
    """Why nothing could be verified; absent otherwise."""


def as_json(verdicts: Sequence[Verdict], error: str = "") -> bytes:
    """The report as one JSON document."""
    document = VerifyDocument(
        schema=SCHEMA, tool=__version__, verdicts=tuple(verdicts), error=error
    )
    return msgspec.json.format(msgspec.json.encode(document))


def as_text(verdicts: Sequence[Verdict], style: Style, *, verbose: bool = False) -> str:
    """One block a copy and GPU, then the comparison where two copies did the same work."""
    blocks = ["\n".join(_verdict(v, style, verbose)) for v in verdicts]
    if len({v.copy.folder for v in verdicts}) == 2 and len(verdicts) == 2:
        blocks.append("\n".join(_comparison(verdicts[0], verdicts[1])))
    return "\n\n".join(blocks) + "\n"


def _verdict(verdict: Verdict, style: Style, verbose: bool) -> Iterable[str]:
    copy = verdict.copy
    yield style.paint(f"cuDNN {copy.version or '?'} in {copy.folder}", "bold")
    label = f" ({copy.label})" if copy.label and copy.folder not in copy.label else ""
    yield f"  on {verdict.gpu}, seed {verdict.seed}, {verdict.seconds:.1f} s{label}"
    for rung in verdict.rungs:
        yield _rung(rung, style)
        for step in verdict.steps:
            if step.rung == rung.name and (verbose or step.status == "fail"):
                yield from _step(step, style)
    if enable := verdict.facts.get("enable"):
        yield "    without NumPy or CuPy only one small convolution is checked; for the rest:"
        yield f"      {enable}"
    for death in verdict.deaths:
        yield from _death(death)
    yield from _known(verdict.known, verbose)
    yield from _speed(verdict.steps)
    yield from _used(verdict)


def _rung(rung: Rung, style: Style) -> str:
    sign, colour = _SIGN[rung.status]
    word = {"pass": "pass", "fail": "fail", "skip": "not run"}[rung.status]
    line = f"{_TITLES[rung.name]:24}{word:9}{rung.why}"
    return f"  {style.paint(style.sign(sign), colour)} {_cut(line, _WIDTH - 4)}"


def _step(step: StepResult, style: Style) -> Iterable[str]:
    sign, colour = _SIGN[step.status]
    told = step.detail or ", ".join(
        str(step.data[key]) for key in ("algorithm", "engine") if key in step.data
    )
    if "worst" in step.data:
        told += f", {step.data['worst']:.2f} of bound"
    if step.data.get("repeatable") is False:
        told += ", not repeatable"
    if "reduced" in step.data:
        told += f", {step.data['reduced']}"
    first, *more = textwrap.wrap(f"{step.step}: {told}", _WIDTH - 8)
    yield f"      {style.paint(style.sign(sign), colour)} {first}"
    yield from (f"        {line}" for line in more)


def _known(known: Iterable[KnownFault], verbose: bool) -> Iterable[str]:
    """What was probed and is listed, or is found; with ``verbose`` also what was not."""
    told = [k for k in known if verbose or k.found == "has" or (k.listed and k.found == "has not")]
    if told:
        yield "  known wrong results of releases"
    for fault in told:
        listed = "listed for this release" if fault.listed else "not listed for this release"
        said = {"has": "this copy HAS it here", "has not": "this copy does not have it here"}
        answer = said.get(fault.found, f"not tried: {fault.why}")
        yield f"    {_cut(f'{fault.issue}  {listed}; {answer}', _WIDTH - 4)}"


def _death(death: Death) -> Iterable[str]:
    where = f" at {death.rung}: {death.step}" if death.step else ""
    yield f"    the child process ended ({death.how}){where}"
    if death.cause:
        yield from textwrap.wrap(f"cause: {death.cause}", _WIDTH, **_indent(6))
    for line in death.log.splitlines()[-5:]:
        yield f"      | {_cut(line, _WIDTH - 8)}"


def _speed(steps: Iterable[StepResult]) -> Iterable[str]:
    rates = [s for s in steps if s.rung == "speed" and "ratio" in s.data]
    if not rates:
        return
    yield f"  {'rate':36}{'this':>12}{'reference':>14}{'ratio':>8}"
    for step in rates:
        this, reference = _rates(step.data)
        yield f"    {_cut(step.step, 33):34}{this:>12}{reference:>14}{step.data['ratio']:>8.0%}"
    gpu: dict[str, Any] = rates[0].data.get("gpu", {})
    told = []
    for key, unit, scale in (("sm_mhz", "MHz", 1), ("milliwatt", "W", 1000), ("celsius", "C", 1)):
        if key in gpu:
            low, high = gpu[key]["min"] / scale, gpu[key]["max"] / scale
            told.append(f"{low:.0f}-{high:.0f} {unit}")
    throttled = {reason for s in rates for reason in s.data.get("gpu", {}).get("throttled", ())}
    told.append("slowed by " + ", ".join(sorted(throttled)) if throttled else "not throttled")
    yield "    GPU meanwhile: " + ", ".join(told)


def _rates(data: dict[str, Any]) -> tuple[str, str]:
    if "tflops" in data:
        return f"{data['tflops']:.0f} TFLOP/s", f"{data['gemm_tflops']:.0f} (GEMM)"
    return f"{data['relu_gbs']:.0f} GB/s", f"{data['copy_gbs']:.0f} (copy)"


def _used(verdict: Verdict) -> Iterable[str]:
    used = verdict.facts.get("used", {})
    names = {os.path.basename(path): step for path, step in used.items()}
    idle = [n for n in verdict.copy.libraries if n not in names and _real(verdict, n) not in names]
    if not used:
        return
    yield f"  libraries that the work made cuDNN load: {len(names)}"
    for name, step in sorted(names.items()):
        yield f"    {_cut(f'{name}  by {step}', _WIDTH - 4)}"
    if idle:
        yield from textwrap.wrap("not used by any step: " + ", ".join(idle), _WIDTH, **_indent(4))


def _real(verdict: Verdict, name: str) -> str:
    path = os.path.join(verdict.copy.folder, name)
    return os.path.basename(os.path.realpath(path))


def _comparison(one: Verdict, two: Verdict) -> Iterable[str]:
    """Rates, then the steps whose results differ: their error as a share of its bound."""
    theirs = {(s.rung, s.step): s for s in two.steps}
    first, second = one.copy.version or "first", two.copy.version or "second"
    yield f"{'the same work':40}{_cut(first, 19):>20}{_cut(second, 19):>20}"
    pairs = [(s, theirs[s.rung, s.step]) for s in one.steps if (s.rung, s.step) in theirs]
    same = 0
    for step, other in sorted(pairs, key=lambda pair: pair[0].rung != "speed"):
        if step.rung not in ("convolve", "library", "speed") or step.step == "mapped files":
            continue
        mine, its = _told(step), _told(other)
        if step.rung != "speed" and mine == its:
            same += 1
        else:
            yield f"{_cut(step.step, 39):40}{mine:>20}{its:>20}"
    yield f"{same} operations gave the same: result checked, largest error alike"


def _told(step: StepResult) -> str:
    if step.status != "pass":
        return {"fail": "FAIL", "skip": "not supported"}.get(step.status, "")
    if "ratio" in step.data:
        return f"{_rates(step.data)[0]} {step.data['ratio']:.0%}"
    if "worst" in step.data:
        return f"{step.data['worst']:.4f} of bound"
    return step.status


def _indent(columns: int) -> dict[str, Any]:
    """Options of textwrap for indented paragraphs."""
    return {
        "initial_indent": " " * columns,
        "subsequent_indent": " " * (columns + 2),
        "break_on_hyphens": False,
    }


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
