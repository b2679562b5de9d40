"""``cudnn-doctor fix``: carry out the remedies that are safe, and look again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from cudnn_doctor.cli import apply as ap
from cudnn_doctor.errors import ExitCode

if TYPE_CHECKING:
    from cudnn_doctor.checks.model import Finding, SearchPath
    from cudnn_doctor.machine.model import Machine
    from cudnn_doctor.matrix.model import Matrix

EPILOG = """\
[bold]Examples[/bold]

  cudnn-doctor fix --dry-run
  cudnn-doctor fix --yes --only wheel-files-missing
  cudnn-doctor fix --log error.txt

Without --only, errors are mended; warnings only where named or where the log shows them.
What needs a person's judgement (the driver, system packages) is printed with its commands.

[bold]Exit codes[/bold]

0 nothing is wrong any more, 1 something is left, 2 wrong usage,
5 refused or failed and nothing changed, 7 a file cannot be used, 8 interrupted, not undone yet.
"""

_SURE = 0.5
"""Confidence from which a diagnosis of the log is acted on."""


def fix(
    *,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Mend only these. Repeatable.")
    ] = None,
    log: Annotated[
        str | None, typer.Option(metavar="FILE", help="Mend what this log complains of as well.")
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Look into this Python environment as well. Repeatable."),
    ] = None,
    no_gpu: Annotated[bool, typer.Option("--no-gpu", help="No GPU is meant to be here.")] = False,
    hashes: Annotated[
        bool, typer.Option("--hashes", help="Compare wheels' files with RECORD by SHA-256.")
    ] = False,
    yes: ap.Yes = False,
    dry_run: ap.DryRun = False,
    wait: ap.Wait = 0.0,
    sudo: ap.Sudo = False,
    matrix: Annotated[
        str | None, typer.Option(metavar="FILE", help="Use this compat_matrix.yaml.")
    ] = None,
    as_json: ap.AsJson = False,
) -> None:
    """Mend what can be mended safely: shows the plan, asks, does it, checks again, can undo."""
    from cudnn_doctor.install.wheels.mend import plan_mending
    from cudnn_doctor.matrix.load import load
    from cudnn_doctor.report import fix as report

    table = load(matrix)
    looked = _Looked(tuple(python or ()), hashes, no_gpu, table)
    how = ap.How(yes=yes, dry_run=dry_run, wait=wait, sudo=sudo, as_json=as_json)
    with ap.alone(how):
        machine, findings = looked.now()
        wanted = _wanted(findings, only, _told_by(log, machine, findings))
        mending = plan_mending(wanted, machine, table)
        if dry_run:
            typer.echo(report.planned(mending, as_json=as_json))
            return
        receipt = ap.carry_out(mending.plan, how)
    after: tuple[Finding, ...] = findings
    if receipt:
        _activate(mending.path)
        after = looked.now()[1]
    outcome = report.outcome(mending, wanted, after, receipt)
    typer.echo(report.told(outcome, as_json=as_json))
    if outcome.left or outcome.unmended:
        raise typer.Exit(int(ExitCode.PROBLEMS))


class _Looked:
    """How to look at this machine, before and after."""

    def __init__(self, python: tuple[str, ...], hashes: bool, no_gpu: bool, matrix: Matrix) -> None:
        self.python, self.hashes, self.no_gpu, self.matrix = python, hashes, no_gpu, matrix

    def now(self) -> tuple[Machine, tuple[Finding, ...]]:
        """The facts as they are now, and what the checks say of them."""
        from cudnn_doctor.checks.context import Options
        from cudnn_doctor.checks.run import run_checks
        from cudnn_doctor.machine.probe import ProbeOptions, probe_machine

        machine = probe_machine(ProbeOptions(python=self.python, hashes=self.hashes))
        report = run_checks(machine, self.matrix, Options(no_gpu=self.no_gpu))
        return machine, report.findings


def _wanted(
    findings: tuple[Finding, ...], only: list[str] | None, told: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    """The findings to act on, those of the log first."""
    if not only:
        errors = (f for f in findings if f.severity == "error" and f not in told)
        return (*told, *errors)
    from cudnn_doctor.checks.suppress import check_id

    names = {name for value in only for name in value.split(",") if name}
    for name in names:
        check_id(name)
    return tuple(f for f in dict.fromkeys((*told, *findings)) if f.id in names)


def _told_by(
    log: str | None, machine: Machine, findings: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    """What a log complains of: the machine's own findings where it shows the same."""
    if log is None:
        return ()
    from cudnn_doctor.checks.model import Finding
    from cudnn_doctor.cli.explain import open_log
    from cudnn_doctor.explain import explain

    with open_log(log) as stream:
        explanation = explain(stream, machine, findings)
    known = {finding.id for finding in findings}
    told = [d for d in explanation.diagnoses if d.confidence >= _SURE]
    mine = [f for d in told for f in findings if f.id == d.id]
    foreign = [
        Finding(id=d.id, severity="error", title=d.title, culprit=d.culprit, remedies=d.remedies)
        for d in told[:1]
        if d.id not in known
    ]
    return (*mine, *foreign)


def _activate(path: SearchPath) -> None:
    """Look again as a shell does in which the environment was activated anew."""
    if path.drop or path.add:
        from cudnn_doctor.install.wheels.searchpath import path_with

        value = path_with(os.environ.get("LD_LIBRARY_PATH", ""), path)
        os.environ["LD_LIBRARY_PATH"] = value
        if not value:
            del os.environ["LD_LIBRARY_PATH"]
