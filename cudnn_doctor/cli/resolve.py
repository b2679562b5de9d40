"""``cudnn-doctor resolve``: the right cuDNN for this machine, or for a described one."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cudnn_doctor.cli import target_options as opts
from cudnn_doctor.errors import ExitCode

EPILOG = """\
[bold]Examples[/bold]

  cudnn-doctor resolve
  cudnn-doctor resolve --for "torch==2.6.*" --for "jax\\[cuda12]"
  cudnn-doctor resolve --gpu "GTX 1080" --driver 580
  cudnn-doctor resolve --gpu 12.0 --gpu 7.0 --explain
  cudnn-doctor resolve --gpu 8.6 --driver 535 --method wheel --json
  cudnn-doctor resolve --snapshot m.json --driver 535

[bold]How it chooses[/bold]

The newest release that nothing rules out. Every GPU must find native
code; the driver must be new enough for the CUDA flavour (all of a CUDA
major run on its lowest driver); each framework must accept it; it must
exist for this architecture and glibc; and it must be neither yanked nor
known to be bad. Then the newest CUDA major. nvcc decides nothing. Where
support is not known, a release that is known to work goes first. Of the
builds that a framework request admits, the newest on the index goes first.

[bold]Exit codes[/bold]

0 an answer, 4 the demands clash (the smallest clash is told), 2 wrong
usage, 3 nothing is known about a framework, 7 a file cannot be used.
"""


def resolve(
    *,
    gpu: opts.Gpu = None,
    driver: opts.Driver = None,
    cuda: opts.Cuda = None,
    arch: opts.Arch = None,
    glibc: opts.Glibc = None,
    wanted: opts.Wanted = None,
    project: opts.Project = None,
    method: Annotated[
        opts.MethodName | None, typer.Option(help="Only this way to install.")
    ] = None,
    version: opts.Version = None,
    flavour: opts.Flavour = opts.FlavourName.full,
    no_gpu: opts.NoGpu = False,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="PATH", help="Count the frameworks in this Python environment."
        ),
    ] = None,
    snapshot: opts.Snapshot = None,
    matrix: opts.MatrixFile = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Tell for each newer release what ruled it out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Name the right cuDNN, with its reasons.

    Without options it looks at this machine. Any of --gpu, --driver, --arch
    and --glibc describes another machine, and nothing is read here; after
    --snapshot they override what the snapshot says.
    """
    from cudnn_doctor.matrix.load import load
    from cudnn_doctor.matrix.resolver import Conflict
    from cudnn_doctor.matrix.resolver import resolve as find
    from cudnn_doctor.report.resolution import to_json, to_text

    facts = load(matrix)
    options = opts.TargetOptions(
        gpu=gpu,
        driver=driver,
        cuda=cuda,
        arch=arch,
        glibc=glibc,
        wanted=wanted,
        project=project,
        method=method.value if method else None,
        version=version,
        flavour=flavour.value,
        no_gpu=no_gpu,
        snapshot=snapshot,
        python=python,
    )
    result = find(opts.build_target(options, facts), facts)
    if as_json:
        typer.echo(json.dumps(to_json(result, explain=explain), indent=2))
    else:
        typer.echo(to_text(result, explain=explain))
    if isinstance(result, Conflict):
        raise typer.Exit(int(ExitCode.NO_COMPATIBLE_VERSION))
