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
    """Append the Markdown report and, of a check, the step's outputs to the files that
    GITHUB_STEP_SUMMARY and GITHUB_OUTPUT name. Raises DoctorError when they cannot be written."""
    _append(environ.get("GITHUB_STEP_SUMMARY"), markdown.render(run))
    if run.command == "check":
        told = {"verdict": run.verdict, **_loaded(run)}
        lines = [f"{name}={' '.join(CONTROL.sub('', v).split())}\n" for name, v in told.items()]
        _append(environ.get("GITHUB_OUTPUT"), "".join(lines))


def of_error(error: DoctorError) -> str:
    """The annotation for a command that could not do its job."""
    told = "\n".join(filter(None, (error.where, error.next_step)))
    return f"::error title={_property(f'cudnn-doctor: {error.what}')}::{_data(told or error.what)}"


def _loaded(run: Run) -> dict[str, str]:
    """The cuDNN of the first framework that gets one, else the first copy that is there."""
    for load in run.report.loads:
        if load.cudnn and load.folder:
            return {"version": load.cudnn, "lib-path": load.folder}
    for copy in run.machine.copies or ():
        if copy.version and not copy.private:
            return {"version": copy.version, "lib-path": copy.folder}
    return {"version": "", "lib-path": ""}


def _append(path: str | None, text: str) -> None:
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise DoctorError(
            f"cannot write for the workflow: {error.strerror or error}",
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
