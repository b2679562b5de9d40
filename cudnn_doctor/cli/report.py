"""``cudnn-doctor report``: one HTML page about a machine, for people."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cudnn_doctor.cli import output as out
from cudnn_doctor.cli.check import NoGpuOption, ProjectOption, PythonOption
from cudnn_doctor.errors import BadInput

if TYPE_CHECKING:
    from cudnn_doctor.verify.model import Verdict

EPILOG = """\
[bold]Examples[/bold]

  cudnn-doctor report
  cudnn-doctor report --snapshot machine.json -o machine.html
  cudnn-doctor verify --json > verify.json
  cudnn-doctor report --verify verify.json

[bold]Exit codes[/bold]

0 the page was written, whatever it says; 2 wrong usage; 3 it cannot be
written; 7 a file cannot be used.
"""


def report(
    *,
    snapshot: Annotated[
        str | None, typer.Option(metavar="FILE", help="A saved or described machine; - is stdin.")
    ] = None,
    verify: Annotated[
        str | None, typer.Option(metavar="FILE", help="What verify --json printed, to be drawn.")
    ] = None,
    no_gpu: NoGpuOption = False,
    python: PythonOption = None,
    project: ProjectOption = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The page; - is stdout.")
    ] = "report.html",
    redact: Annotated[
        bool, typer.Option("--redact", help="Take names of users, hosts and GPUs' ids out.")
    ] = False,
    matrix: Annotated[
        str | None, typer.Option(metavar="FILE", help="Use this compat_matrix.yaml.")
    ] = None,
) -> None:
    """Write one HTML page: what is wrong and how to mend it, who loads which cuDNN, how fast."""
    from cudnn_doctor.checks.context import Options
    from cudnn_doctor.checks.run import run_checks
    from cudnn_doctor.machine.probe import ProbeOptions, probe_machine
    from cudnn_doctor.machine.redact import hide_secrets
    from cudnn_doctor.machine.redact import redact as redacted
    from cudnn_doctor.machine.snapshot import load_snapshot
    from cudnn_doctor.matrix.load import load
    from cudnn_doctor.report import formats
    from cudnn_doctor.report.outcomes import of_check

    if snapshot and (python or project):
        raise typer.BadParameter("--snapshot draws saved facts: it excludes --python and --project")
    table = load(matrix)
    verdicts = _verdicts(verify) if verify else ()
    probing = ProbeOptions(python=tuple(python or ()), project=project)
    machine = load_snapshot(snapshot) if snapshot else probe_machine(probing)
    machine = redacted(machine) if redact else hide_secrets(machine)
    judged = run_checks(machine, table, Options(no_gpu=no_gpu))
    page = formats.render("html", of_check(judged, machine, matrix=table, verdicts=verdicts))
    if output == "-":
        print(page, end="")
        return
    out.write(output, page)
    print(f"wrote {output}", file=sys.stderr)


def _verdicts(path: str) -> tuple[Verdict, ...]:
    """A saved verification. Raises BadInput."""
    import msgspec

    from cudnn_doctor.machine.redact import hide_secrets
    from cudnn_doctor.report.verify import VerifyDocument

    try:
        with open(path, "rb") as file:
            document = msgspec.json.decode(file.read(), type=VerifyDocument)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(
            f"not a saved verification: {reason}",
            where=path,
            next_step="save one with `cudnn-doctor verify --json > verify.json`",
        ) from None
    return hide_secrets(document).verdicts
