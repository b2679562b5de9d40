"""``cudnn-doctor resolve``: the right cuDNN for this machine, or for a described one."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from cudnn_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from cudnn_doctor.matrix.model import Matrix
    from cudnn_doctor.matrix.target import FrameworkRequest, Target, TargetGpu

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


class MethodName(str, Enum):
    """Ways to install."""

    wheel = "wheel"
    tarball = "tarball"
    package = "package"


class FlavourName(str, Enum):
    """Flavours of cuDNN."""

    full = "full"
    jit = "jit"


def resolve(
    *,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CC|NAME",
            help="Compute capability (8.6) or name (RTX 3090). Repeatable; all count.",
        ),
    ] = None,
    driver: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Driver version (535.104.05) or branch (535)."),
    ] = None,
    cuda: Annotated[
        str | None, typer.Option(metavar="VERSION", help="CUDA wanted: 12, or 12.4.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option(metavar="ARCH", help="x86_64, aarch64 (server), jetson, ppc64le.")
    ] = None,
    glibc: Annotated[
        str | None, typer.Option(metavar="VERSION", help="glibc version (2.31), or musl.")
    ] = None,
    wanted: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="REQUIREMENT",
            help=r'Framework that must work: "torch==2.6.*", "jax\[cuda12]". Repeatable.',
        ),
    ] = None,
    method: Annotated[MethodName | None, typer.Option(help="Only this way to install.")] = None,
    version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help='cuDNN wanted: 9.10, "9.10.*", 9.10.2.21, ">=9.5,<9.11".'
        ),
    ] = None,
    flavour: Annotated[
        FlavourName, typer.Option(help="jit: small, compiles kernels at first use.")
    ] = FlavourName.full,
    no_gpu: Annotated[
        bool, typer.Option("--no-gpu", help="Leave this machine's GPUs and driver out.")
    ] = False,
    snapshot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Judge a saved snapshot instead of this machine."),
    ] = None,
    matrix: Annotated[
        str | None, typer.Option(metavar="FILE", help="Use this compat_matrix.yaml.")
    ] = None,
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
    import msgspec

    from cudnn_doctor.matrix.load import load
    from cudnn_doctor.matrix.resolver import Conflict
    from cudnn_doctor.matrix.resolver import resolve as find
    from cudnn_doctor.report.resolution import to_json, to_text

    facts = load(matrix)
    gpus = tuple(_gpu(text, facts) for text in gpu or ())
    described = bool(gpus or driver or arch or glibc)
    target = _base(snapshot, described=described)
    if no_gpu:
        target = msgspec.structs.replace(target, gpus=(), driver=None, driver_cuda=None)
    target = _described(target, facts, gpus, driver=driver, arch=arch, glibc=glibc)
    target = msgspec.structs.replace(
        target,
        cuda=_number("--cuda", cuda, r"\d{1,2}(\.\d{1,2})?", "12 or 12.4"),
        frameworks=_requests(target.frameworks, wanted or []),
        method=method.value if method else None,
        version=_specifier(version),
        flavour=flavour.value,
    )
    result = find(target, facts)
    if as_json:
        typer.echo(json.dumps(to_json(result, explain=explain), indent=2))
    else:
        typer.echo(to_text(result, explain=explain))
    if isinstance(result, Conflict):
        raise typer.Exit(int(ExitCode.NO_COMPATIBLE_VERSION))


def _base(snapshot: str | None, *, described: bool) -> Target:
    from cudnn_doctor.matrix.target import Target

    if snapshot:
        from cudnn_doctor.machine.snapshot import load_snapshot

        return Target.from_machine(load_snapshot(snapshot))
    if described:
        return Target()
    from cudnn_doctor.machine.probe import probe_machine

    return Target.from_machine(probe_machine())


def _described(
    target: Target,
    matrix: Matrix,
    gpus: tuple[TargetGpu, ...],
    *,
    driver: str | None,
    arch: str | None,
    glibc: str | None,
) -> Target:
    import msgspec

    from cudnn_doctor.matrix.target import platform_for_gpus, platform_of

    changes: dict[str, object] = {}
    if gpus:
        changes["gpus"] = gpus
        changes["platform"] = platform_for_gpus(gpus, matrix) or target.platform
    if driver:
        spelled = _number("--driver", driver.lower().removeprefix("r"), r"\d{3}(\.\d+){0,2}", "535")
        changes |= {"driver": spelled, "driver_cuda": None}
    if arch:
        try:
            changes["platform"] = platform_of(arch)
        except ValueError as error:
            raise _usage(str(error)) from error
    if glibc == "musl":
        changes |= {"libc": "musl", "glibc": None}
    elif glibc:
        number = _number("--glibc", glibc, r"\d(\.\d{1,2}){1,2}", "2.31 or musl")
        changes |= {"libc": "glibc", "glibc": number}
    return msgspec.structs.replace(target, **changes)


def _gpu(text: str, matrix: Matrix) -> TargetGpu:
    from cudnn_doctor.matrix.query import gpu_by_cc, gpu_by_name
    from cudnn_doctor.matrix.target import TargetGpu

    number = re.fullmatch(r"(?:sm_?)?(\d{1,2})\.?(\d)", text.strip().lower())
    if number and gpu_by_cc(matrix, f"{number[1]}.{number[2]}"):
        return TargetGpu(cc=f"{number[1]}.{number[2]}")
    found = gpu_by_name(matrix, text)
    if found is None:
        raise _usage(
            f"no GPU is known as {text!r}",
            "give its compute capability, such as --gpu 8.6 (nvidia-smi --query-gpu=compute_cap)",
        )
    return TargetGpu(cc=found.cc, name=text)


def _requests(
    installed: tuple[FrameworkRequest, ...], wanted: list[str]
) -> tuple[FrameworkRequest, ...]:
    """What was asked for, then what is installed, unless the same framework was asked for."""
    from cudnn_doctor.matrix.target import FrameworkRequest

    try:
        asked = tuple(FrameworkRequest.parse(text) for text in wanted)
    except ValueError as error:
        raise _usage(str(error), 'write it as for pip: --for "torch==2.6.*"') from error
    names = {request.name for request in asked}
    return (*asked, *(request for request in installed if request.name not in names))


def _specifier(version: str | None) -> str | None:
    from cudnn_doctor.matrix.specs import normalise

    try:
        return normalise(version) if version else None
    except ValueError as error:
        raise _usage(str(error), 'write 9.10, "9.10.*" or ">=9.5,<9.11"') from error


def _number(option: str, text: str | None, pattern: str, example: str) -> str | None:
    if text is not None and not re.fullmatch(pattern, text):
        raise _usage(f"{option} {text!r} is not a version", f"write {example}")
    return text


def _usage(what: str, next_step: str = "") -> DoctorError:
    return DoctorError(what, next_step=next_step, exit_code=ExitCode.USAGE)
