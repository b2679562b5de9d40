"""An explanation on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cudnn_doctor import __version__
from cudnn_doctor.explain.model import Diagnosis, Explanation
from cudnn_doctor.report.style import Style

_EVIDENCE = 4


class ExplainDocument(Explanation, frozen=True, kw_only=True):
    """What ``explain --json`` prints."""

    tool: str = __version__


def as_json(explanation: Explanation) -> str:
    """One versioned document; every field of a diagnosis and of a remedy is written out."""
    return msgspec.json.format(msgspec.json.encode(as_data(explanation)), indent=2).decode()


def as_data(explanation: Explanation) -> dict[str, object]:
    """The document as plain data."""
    data = {"tool": __version__, **msgspec.to_builtins(explanation)}
    for diagnosis in data["diagnoses"]:
        diagnosis["remedies"] = [
            {"title": "", "commands": [], "needs_root": False, "automatic": False, **remedy}
            for remedy in diagnosis["remedies"]
        ]
    return data


def as_text(explanation: Explanation, style: Style, *, verbose: bool = False) -> str:
    """For people: the best diagnosis in full, the others in a line each."""
    if not explanation.diagnoses:
        return "Nothing about cuDNN, CUDA or the driver is wrong in this text.\n"
    first, *others = explanation.diagnoses
    parts = list(_full(first, style))
    for other in others if verbose else ():
        parts += ["", *_full(other, style)]
    if others and not verbose:
        parts += ["", style.paint("Also possible", "bold")]
        parts += [
            f"  {other.confidence:4.0%}  {other.id}: {other.title}"
            + (f" ({other.culprit})" if other.culprit else "")
            for other in others
        ]
    if explanation.noise and first.id != "benign-noise":
        numbers = ", ".join(str(n) for n in sorted({e.line or 0 for e in explanation.noise})[:8])
        parts += ["", f"Harmless, whatever it looks like: line {numbers}"]
    return style.plain("\n".join(parts)) + "\n"


def _full(diagnosis: Diagnosis, style: Style) -> Iterator[str]:
    sure = f"{diagnosis.confidence:.0%} sure"
    yield f"{style.paint(diagnosis.title, 'bold', 'red')}  [{diagnosis.id}, {sure}]"
    if diagnosis.culprit:
        yield f"  culprit: {diagnosis.culprit}"
    for seen in diagnosis.evidence[:_EVIDENCE]:
        yield f"  {f'line {seen.line}' if seen.line else 'fact'}: {seen.what}"
    for seen in diagnosis.consequences[:2]:
        yield style.paint(f"  follows from it, line {seen.line}: {seen.what}", "dim")
    if diagnosis.remedies:
        yield style.paint("  What to do", "bold")
    for remedy in diagnosis.remedies:
        yield f"    {remedy.title}{' (as root)' if remedy.needs_root else ''}"
        yield from (f"      {command}" for command in remedy.commands)
    if diagnosis.avoid:
        yield style.paint("  What not to do", "bold")
        yield from (f"    {advice}" for advice in diagnosis.avoid)
    if diagnosis.ask:
        yield style.paint("  What would make it certain", "bold")
        yield from (f"    {command}" for command in diagnosis.ask[:3])
