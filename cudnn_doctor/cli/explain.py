"""``cudnn-doctor explain``: an error message or a log in, ranked diagnoses out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from cudnn_doctor.errors import BadInput, DoctorError, ExitCode

if TYPE_CHECKING:
    from cudnn_doctor.checks.model import Finding
    from cudnn_doctor.explain.model import Explanation
    from cudnn_doctor.machine.model import Machine

EPILOG = """\
[bold]Examples[/bold]

  python train.py 2>&1 | cudnn-doctor explain
  cudnn-doctor explain job.log --snapshot machine.json
  cudnn-doctor explain --no-machine --json < error.txt
  cudnn-doctor explain --about ld-library-path-shadow

[bold]Exit codes[/bold]

0 nothing wrong found, 1 a diagnosis was made, 2 wrong usage,
3 the evidence does not decide, 7 a file cannot be used.
"""


def explain(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="The log; - (the usual) is stdin.")
    ] = "-",
    *,
    snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Facts of the failing machine (snapshot or description)."
        ),
    ] = None,
    no_machine: Annotated[
        bool, typer.Option("--no-machine", help="The log alone: look at no machine.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="All diagnoses in full.")
    ] = False,
    about: Annotated[
        str | None, typer.Option(metavar="ID", help="Tell all about one diagnosis and stop.")
    ] = None,
) -> None:
    """Say what an error message or log means here, and what to do."""
    if about is not None:
        print(about_text(about))
        return
    if snapshot is not None and no_machine:
        raise DoctorError(
            "--snapshot and --no-machine exclude each other", exit_code=ExitCode.USAGE
        )
    if snapshot == "-" and file == "-":
        raise DoctorError("log and snapshot cannot both be stdin", exit_code=ExitCode.USAGE)
    with open_log(file) as stream:
        machine = None if no_machine else known_machine(snapshot)
        from cudnn_doctor.explain import explain as explain_log

        try:
            explanation = explain_log(stream, machine, findings_of(machine))
        except OSError as error:
            raise BadInput(f"cannot read the log: {error.strerror}", where=file) from error
    show(explanation, as_json=json, verbose=verbose)
    code = verdict(explanation)
    if code is not ExitCode.OK:
        raise typer.Exit(int(code))


def open_log(file: str) -> BinaryIO:
    if file == "-":
        if sys.stdin.isatty():
            print("paste the error message, then Ctrl-D:", file=sys.stderr)
        return sys.stdin.buffer
    try:
        return open(file, "rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"cannot read the log: {reason}", where=file, next_step="name a file, or - for stdin"
        ) from error


def known_machine(snapshot: str | None) -> Machine:
    """The machine of a snapshot, or this one now."""
    if snapshot is not None:
        from cudnn_doctor.machine.snapshot import load_snapshot

        return load_snapshot(snapshot)
    from cudnn_doctor.machine.probe import probe_machine

    return probe_machine()


def findings_of(machine: Machine | None) -> tuple[Finding, ...]:
    """What the checks say of a machine that was probed; a description is not judged by them."""
    if machine is None or machine.partial:
        return ()
    from cudnn_doctor.checks.run import run_checks
    from cudnn_doctor.matrix.load import load

    return run_checks(machine, load(None)).findings


def show(
    explanation: Explanation, *, as_json: bool, verbose: bool, to_stderr: bool = False
) -> None:
    """Print an explanation."""
    from cudnn_doctor.report import explain as report
    from cudnn_doctor.report.style import Style

    stream = sys.stderr if to_stderr else sys.stdout
    text = (
        report.as_json(explanation) + "\n"
        if as_json
        else report.as_text(explanation, Style.of(stream), verbose=verbose)
    )
    stream.write(text)


def verdict(explanation: Explanation) -> ExitCode:
    """The exit code that an explanation stands for."""
    if not explanation.diagnoses or explanation.diagnoses[0].id == "benign-noise":
        return ExitCode.OK
    if explanation.diagnoses[0].id == "insufficient-evidence":
        return ExitCode.CANNOT_TELL
    return ExitCode.PROBLEMS


def about_text(diagnosis: str) -> str:
    """The page of a diagnosis."""
    import difflib

    from cudnn_doctor.explain.about import page, page_ids

    text = page(diagnosis)
    if text is not None:
        return text
    near = difflib.get_close_matches(diagnosis, page_ids(), n=3)
    raise DoctorError(
        f"no diagnosis is called {diagnosis!r}",
        next_step=f"did you mean {', '.join(near)}?" if near else "see `cudnn-doctor check --list`",
        exit_code=ExitCode.USAGE,
    )
