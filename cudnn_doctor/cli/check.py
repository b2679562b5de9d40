"""``cudnn-doctor check``: see the machine, judge it, say what to type."""

from __future__ import annotations

import sys
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from cudnn_doctor.cli import output as out
from cudnn_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudnn_doctor.checks.model import Report
    from cudnn_doctor.checks.suppress import Suppression
    from cudnn_doctor.machine.model import Machine
    from cudnn_doctor.matrix.model import Matrix

EPILOG = """\
[bold]Examples[/bold]

  cudnn-doctor check
  cudnn-doctor check --no-gpu --python ./venv
  cudnn-doctor check --json --fail-on warning
  cudnn-doctor check --format github --report sarif=cudnn.sarif
  cudnn-doctor check --snapshot-out machine.json --redact
  cudnn-doctor check --snapshot machine.json
  cudnn-doctor check --suppress "pip-pin-conflict=tested by us@2027-03-31"

[bold]Settings[/bold]

The lists only, skip and suppress may also stand in cudnn-doctor.toml, or in
the table tool.cudnn-doctor of pyproject.toml, here or in a folder above.

[bold]Exit codes[/bold]

0 healthy (warnings included, unless --fail-on warning), 1 problems,
2 wrong usage, 3 too little is known to tell, 7 a file cannot be used.
"""


class FailOnChoice(str, Enum):
    """From which severity on a run fails."""

    error = "error"
    warning = "warning"
    never = "never"


NoGpuOption = Annotated[
    bool,
    typer.Option("--no-gpu", help="No GPU is meant to be here: skip GPU and driver."),
]
PythonOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Look into this Python environment as well. Repeatable."),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(
        "--project", metavar="DIR", help="Folder of the requirement files, Dockerfiles ..."
    ),
]
RootOption = Annotated[
    str, typer.Option(metavar="DIR", help="Look at a mounted root file system instead.")
]
DeepOption = Annotated[bool, typer.Option("--deep", help="Search the whole file system.")]
HashesOption = Annotated[
    bool, typer.Option("--hashes", help="Compare wheels' files with RECORD by SHA-256.")
]
SnapshotOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Judge a saved or described machine; - is stdin."),
]
SnapshotOutOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Save the facts of this machine.")
]
RedactOption = Annotated[
    bool, typer.Option("--redact", help="Take names of users, hosts and GPUs' ids out.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(metavar="ID", help="Only these diagnoses or categories. Repeatable."),
]
SkipOption = Annotated[
    list[str] | None,
    typer.Option(metavar="ID", help="Not these diagnoses or categories. Repeatable."),
]
SuppressOption = Annotated[
    list[str] | None,
    typer.Option(metavar="ID=REASON@DATE", help="Lower a finding to a note until a date."),
]
MatrixOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Use this compat_matrix.yaml.")
]
FailOnOption = Annotated[
    FailOnChoice, typer.Option(help="From which severity on the exit code is 1.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Same as --format json.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Every rule, every note, every path.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing: the exit code tells.")
]
ListRulesOption = Annotated[
    bool, typer.Option("--list", help="Print all diagnoses by category and stop.")
]


def check(
    *,
    no_gpu: NoGpuOption = False,
    python: PythonOption = None,
    root: RootOption = "/",
    project: ProjectOption = None,
    deep: DeepOption = False,
    hashes: HashesOption = False,
    snapshot: SnapshotOption = None,
    snapshot_out: SnapshotOutOption = None,
    redact: RedactOption = False,
    only: OnlyOption = None,
    skip: SkipOption = None,
    suppress: SuppressOption = None,
    matrix: MatrixOption = None,
    fail_on: FailOnOption = FailOnChoice.error,
    format: out.Format = "text",
    reports: out.Reports = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    list_rules: ListRulesOption = False,
) -> None:
    """See the GPU, driver, CUDA and every cuDNN; say what is wrong and what to type."""
    if list_rules:
        print(_catalogue(), end="")
        return
    from concurrent.futures import ThreadPoolExecutor

    from cudnn_doctor.cli.settings import read_settings

    files = out.parse_reports(reports)
    shown = "json" if json else format
    with out.told_on_failure("check", shown, files):
        settings = read_settings()
        only_ids, skip_ids = _ids(only or settings.only), _ids(skip or settings.skip)
        entries = _suppressions(suppress or settings.suppress)
        with ThreadPoolExecutor(1) as pool:  # NVML takes its time: rules and matrix load meanwhile
            loading = pool.submit(_matrix_and_rules, matrix)
            machine = _facts(snapshot, (root, tuple(python or ()), deep, hashes, project), redact)
            table = loading.result()
    from cudnn_doctor.checks.context import Options
    from cudnn_doctor.checks.run import run_checks
    from cudnn_doctor.report.outcomes import of_check
    from cudnn_doctor.report.style import Style

    if snapshot_out:
        from cudnn_doctor.machine.snapshot import save_snapshot

        save_snapshot(machine, snapshot_out)
    chosen = Options(no_gpu=no_gpu, only=only_ids, skip=skip_ids)
    report = _suppressed(run_checks(machine, table, chosen), entries)
    run = of_check(
        report, machine, fail_on.value, matrix=table, style=Style.of(sys.stdout), verbose=verbose
    )
    out.emit(run, shown, files, quiet=quiet)
    code = ExitCode(run.exit_code)
    if code is not ExitCode.OK:
        raise typer.Exit(int(code))


def _matrix_and_rules(path: str | None) -> Matrix:
    from cudnn_doctor.checks.registry import all_rules
    from cudnn_doctor.matrix.load import load

    all_rules()
    return load(path)


def _ids(values: Sequence[str]) -> tuple[str, ...]:
    """Diagnoses and categories given by the user. Raises DoctorError on an unknown one."""
    if not values:
        return ()
    from cudnn_doctor.checks.registry import CATEGORIES
    from cudnn_doctor.checks.suppress import check_id

    names = [name for value in values for name in value.split(",") if name]
    for name in names:
        if name not in CATEGORIES:
            check_id(name)
    return tuple(names)


def _suppressions(values: Sequence[str]) -> tuple[Suppression, ...]:
    if not values:
        return ()
    from cudnn_doctor.checks.suppress import parse_suppression

    return tuple(parse_suppression(value) for value in values)


def _suppressed(report: Report, entries: tuple[Suppression, ...]) -> Report:
    if not entries:
        return report
    from datetime import datetime

    from cudnn_doctor.checks.suppress import suppress

    return suppress(report, entries, datetime.now().astimezone().date())


def _facts(
    snapshot: str | None,
    probing: tuple[str, tuple[str, ...], bool, bool, str | None],
    redact: bool,
) -> Machine:
    """The machine: a saved one, or this one now."""
    if snapshot is not None:
        from cudnn_doctor.machine.snapshot import load_snapshot

        if probing != ("/", (), False, False, None):
            raise DoctorError(
                "--snapshot judges saved facts: --root, --python, --project, --deep and --hashes"
                " need a machine to look at",
                exit_code=ExitCode.USAGE,
            )
        machine = load_snapshot(snapshot)
    else:
        from cudnn_doctor.machine.probe import ProbeOptions, probe_machine

        root, python, deep, hashes, project = probing
        machine = probe_machine(
            ProbeOptions(
                root=root,
                python=python,
                deep=deep,
                hashes=hashes,
                project=project,
                progress=_progress if deep and sys.stderr.isatty() else None,
            )
        )
    from cudnn_doctor.machine.redact import hide_secrets
    from cudnn_doctor.machine.redact import redact as redacted

    return redacted(machine) if redact else hide_secrets(machine)


def _progress(text: str) -> None:
    print(f"\r\x1b[K{text[:78]}", end="", file=sys.stderr, flush=True)


def _catalogue() -> str:
    """All rules by category: what each looks for."""
    from cudnn_doctor.checks.registry import all_rules

    lines: list[str] = []
    category = ""
    for declared in all_rules():
        if declared.category != category:
            category = declared.category
            lines.append(category)
        text = (declared.function.__doc__ or "").strip().splitlines()[0]
        lines += [f"  {', '.join(declared.ids)}", f"      {text}"]
    return "\n".join(lines) + "\n"
