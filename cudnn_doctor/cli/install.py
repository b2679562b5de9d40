"""``cudnn-doctor install``: the right cuDNN, all of it or none of it."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from cudnn_doctor.cli import apply as ap
from cudnn_doctor.cli import target_options as opts
from cudnn_doctor.cli.oneline import each_one_line, one_line
from cudnn_doctor.errors import DoctorError, ExitCode

EPILOG = """\
[bold]Examples[/bold]

  cudnn-doctor install --for torch --python ./venv
  cudnn-doctor install --prefix /opt/cudnn --sudo
  cudnn-doctor install --dry-run --format dockerfile --gpu 9.0 --cuda 12
  cudnn-doctor install --archive FILE --prefix ~/cudnn
  cudnn-doctor install --yes --lock cudnn.lock
  cudnn-doctor install --yes --lock cudnn.lock --frozen

[bold]Exit codes[/bold]

0 done, or nothing to do; 2 wrong usage; 4 no cuDNN satisfies all demands;
5 refused or failed, nothing changed; 6 the new copy failed verification,
nothing changed; 7 a file cannot be used; 8 interrupted, not undone yet.
"""


class MethodChoice(str, Enum):
    """Ways to install, or to choose one."""

    auto = "auto"
    wheel = "wheel"
    tarball = "tarball"
    package = "package"


class SourceChoice(str, Enum):
    """Where a prefix is filled from."""

    auto = "auto"
    archive = "archive"
    wheel = "wheel"


Mirror = Annotated[
    list[str] | None,
    typer.Option(
        "--mirror",
        metavar="URL|DIR",
        callback=each_one_line,
        help="Redist tree to use instead. Repeatable.",
    ),
]
Source = Annotated[
    SourceChoice, typer.Option("--source", help="Fill a prefix from NVIDIA's archive or a wheel.")
]
Static = Annotated[bool, typer.Option("--static", help="Static libraries as well.")]


def install(
    *,
    method: Annotated[
        MethodChoice,
        typer.Option(metavar="METHOD", help="auto, wheel, tarball (a prefix) or package."),
    ] = MethodChoice.auto,
    version: opts.Version = None,
    cuda: opts.Cuda = None,
    wanted: opts.Wanted = None,
    project: opts.Project = None,
    gpu: opts.Gpu = None,
    driver: opts.Driver = None,
    arch: opts.Arch = None,
    glibc: opts.Glibc = None,
    no_gpu: opts.NoGpu = False,
    flavour: opts.Flavour = opts.FlavourName.full,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="PATH", callback=one_line, help="Python environment (wheel)."
        ),
    ] = None,
    break_pins: Annotated[
        bool, typer.Option("--break-pins", help="Even where a framework's pin forbids it (wheel).")
    ] = False,
    prefix: ap.Prefix = None,
    source: Source = SourceChoice.auto,
    mirror: Mirror = None,
    archive: Annotated[
        str | None,
        typer.Option(
            "--archive",
            metavar="FILE",
            callback=one_line,
            help="NVIDIA's archive or wheel, offline.",
        ),
    ] = None,
    static: Static = False,
    hold: Annotated[bool, typer.Option("--hold", help="Hold the packages (package).")] = False,
    lock: Annotated[
        str | None,
        typer.Option("--lock", metavar="FILE", help="Write what was chosen; a dry run does too."),
    ] = None,
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Install exactly what the --lock file says.")
    ] = False,
    yes: ap.Yes = False,
    dry_run: ap.DryRun = False,
    format: ap.Format = "text",
    wait: ap.Wait = 0.0,
    sudo: ap.Sudo = False,
    matrix: opts.MatrixFile = None,
    as_json: ap.AsJson = False,
) -> None:
    """Install the right cuDNN, or exactly the one you name.

    It resolves, shows the plan, asks, does it, verifies it, and can undo it.
    When a step fails, or the process is killed, the machine ends as it was.
    """
    from cudnn_doctor.install.choose import Wish, settle, with_absent_frameworks
    from cudnn_doctor.install.lock import read, request_from, try_out, verify, write
    from cudnn_doctor.install.planning import plan_install
    from cudnn_doctor.install.wheels.companions import pin, pin_if_told
    from cudnn_doctor.machine.model import Machine
    from cudnn_doctor.matrix.load import load
    from cudnn_doctor.report.plan import FOR_IMAGES

    ap.check_format(format)
    if frozen and not lock:
        raise DoctorError(
            "--frozen needs a lock file", next_step="add --lock FILE", exit_code=ExitCode.USAGE
        )
    if lock and not frozen:
        try_out(lock)
    facts = load(matrix)
    options = opts.TargetOptions(
        gpu=gpu,
        driver=driver,
        cuda=cuda,
        arch=arch,
        glibc=glibc,
        wanted=wanted,
        project=project,
        version=version,
        flavour=flavour.value,
        no_gpu=no_gpu,
        python=None if dry_run and format in FOR_IMAGES else python,
    )
    wish = Wish(
        method=None if method is MethodChoice.auto else method.value,
        prefix=prefix,
        source=source.value,
        mirrors=tuple(mirror or ()),
        archive=archive,
        static=static,
        python=python,
        break_pins=break_pins,
        hold=hold,
        sudo=sudo,
        fresh=dry_run and format in FOR_IMAGES,
        frameworks_asked=bool(wanted or project),
    )
    how = ap.How(yes, dry_run, format, wait, sudo, as_json)
    with ap.alone(how):
        locked = read(lock) if lock and frozen else None
        target = None
        if locked:
            request = request_from(locked, wish)
        else:
            target = opts.build_target(options, facts)
            request = settle(wish, target, facts, lambda: opts.this_machine(python))
        needs_none = request.method == "tarball" or (request.method == "wheel" and request.fresh)
        machine = Machine() if needs_none else opts.this_machine(python)
        if request.method == "wheel" and not locked:
            request = pin(request, machine) if lock else pin_if_told(request, machine)
        plan = plan_install(request, machine, facts)
        if target:
            plan = with_absent_frameworks(plan, target, machine)
        if locked:
            verify(locked, plan)
        ap.apply(plan, how)
        if lock and not frozen:
            write(lock, request, plan, facts)
