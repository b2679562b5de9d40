"""Workflow commands of GitHub Actions: annotations with cause and cure; a step summary besides."""

from __future__ import annotations

from collections.abc import Mapping

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.report.formats import markdown
from cudnn_doctor.report.outcomes import CONTROL, WORDS, Outcome, Run


def render(run: Run) -> str:
    """One annotation a problem, then the verdict."""
    crashes = [outcome for outcome in run.outcomes if outcome.status == "crash"]
    lines = [_command(outcome, outcome.severity or "warning") for outcome in run.problems]
    lines += [_command(outcome, "warning") for outcome in crashes]
    return "\n".join([*lines, f"cudnn-doctor {run.command}: {WORDS[run.verdict]}"]) + "\n"


def afterwards(run: Run, environ: Mapping[str, str]) -> None:
    """Append the Markdown report to the file that GITHUB_STEP_SUMMARY names, if it does.

    Raises DoctorError when it cannot be written.
    """
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8", errors="replace") as file:
            file.write(markdown.render(run))
    except OSError as error:
        raise DoctorError(
            f"cannot write the step summary: {error.strerror or error}",
            where=path,
            exit_code=ExitCode.CANNOT_TELL,
        ) from error


def _command(outcome: Outcome, level: str) -> str:
    properties = {"title": f"{outcome.id}: {outcome.title}"}
    if outcome.place:
        properties = {"file": outcome.place.path, **properties}
        if outcome.place.line:
            properties["line"] = str(outcome.place.line)
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{level} {told}::{_data(outcome.text or outcome.title)}"


def _data(text: str) -> str:
    return CONTROL.sub("", text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
