"""Options that describe what a cuDNN is wanted for, shared by ``resolve`` and ``install``."""

from __future__ import annotations

import functools
import os
import re
from enum import Enum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cudnn_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from cudnn_doctor.machine.model import Machine
    from cudnn_doctor.matrix.model import Matrix
    from cudnn_doctor.matrix.target import FrameworkRequest, Target, TargetGpu


class MethodName(str, Enum):
    """Ways to install."""

    wheel = "wheel"
    tarball = "tarball"
    package = "package"


class FlavourName(str, Enum):
    """Flavours of cuDNN."""

    full = "full"
    jit = "jit"


Gpu = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        metavar="CC|NAME",
        help="Compute capability (8.6) or name (RTX 3090). Repeatable; all count.",
    ),
]
Driver = Annotated[
    str | None,
    typer.Option(
        "--driver", metavar="VERSION", help="Driver version (535.104.05) or branch (535)."
    ),
]
Cuda = Annotated[
    str | None, typer.Option("--cuda", metavar="VERSION", help="CUDA wanted: 12, or 12.4.")
]
Arch = Annotated[
    str | None,
    typer.Option("--arch", metavar="ARCH", help="x86_64, aarch64 (server), jetson, ppc64le."),
]
Glibc = Annotated[
    str | None, typer.Option("--glibc", metavar="VERSION", help="glibc version (2.31), or musl.")
]
Wanted = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        metavar="REQUIREMENT",
        help=r'Framework that must work: "torch==2.6.*", "jax\[cuda12]". Repeatable.',
    ),
]
Project = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="DIR",
        help="Frameworks that this folder's lock and requirement files ask for, as if by --for.",
    ),
]
Version = Annotated[
    str | None,
    typer.Option(
        "--version",
        metavar="VERSION",
        help='cuDNN wanted: 9.10, "9.10.*", 9.10.2.21, ">=9.5,<9.11".',
    ),
]
Flavour = Annotated[
    FlavourName, typer.Option("--flavour", help="jit: small, compiles kernels at first use.")
]
NoGpu = Annotated[bool, typer.Option("--no-gpu", help="Leave this machine's GPUs and driver out.")]
Snapshot = Annotated[
    str | None,
    typer.Option(
        "--snapshot", metavar="FILE", help="Judge a saved snapshot instead of this machine."
    ),
]
MatrixFile = Annotated[
    str | None, typer.Option("--matrix", metavar="FILE", help="Use this compat_matrix.yaml.")
]


class TargetOptions(NamedTuple):
    """The values of these options, as given."""

    gpu: list[str] | None = None
    driver: str | None = None
    cuda: str | None = None
    arch: str | None = None
    glibc: str | None = None
    wanted: list[str] | None = None
    method: str | None = None
    version: str | None = None
    flavour: str = "full"
    no_gpu: bool = False
    snapshot: str | None = None
    project: str | None = None
    python: str | None = None


def build_target(options: TargetOptions, facts: Matrix) -> Target:
    """The target that the options describe; raises DoctorError (USAGE) for nonsense.

    Any of GPU, driver, architecture and glibc describes another machine, and nothing is read here;
    after a snapshot they override what it says. The frameworks in a named Python environment count
    in any case.
    """
    import msgspec

    gpus = tuple(_gpu(text, facts) for text in options.gpu or ())
    described = bool(gpus or options.driver or options.arch or options.glibc)
    target = _base(options.snapshot, options.python, described=described)
    if options.no_gpu:
        target = msgspec.structs.replace(target, gpus=(), driver=None, driver_cuda=None)
    if options.python:
        target = _in_environment(target, options.python)
    target = _described(
        target, facts, gpus, driver=options.driver, arch=options.arch, glibc=options.glibc
    )
    return msgspec.structs.replace(
        target,
        cuda=_number("--cuda", options.cuda, r"\d{1,2}(\.\d{1,2})?", "12 or 12.4"),
        frameworks=_requests(
            target.frameworks, [*(options.wanted or []), *_asked_in(options.project, facts)]
        ),
        method=options.method,
        version=_specifier(options.version),
        flavour=options.flavour,
    )


def _base(snapshot: str | None, python: str | None, *, described: bool) -> Target:
    from cudnn_doctor.matrix.target import Target

    if snapshot:
        from cudnn_doctor.machine.snapshot import load_snapshot

        return Target.from_machine(load_snapshot(snapshot))
    if described:
        return Target()
    return Target.from_machine(this_machine(python))


def _in_environment(target: Target, python: str) -> Target:
    """The target for an environment of this machine; unchanged where there is no such one."""
    from cudnn_doctor.machine.host import Host
    from cudnn_doctor.machine.places import prefix_of

    machine = this_machine(python)
    real = os.path.realpath(prefix_of(Host(), python) or os.devnull)
    for environment in machine.environments:
        if os.path.realpath(environment.prefix) == real:
            return target.in_environment(machine, environment)
    return target


@functools.cache
def this_machine(python: str | None = None) -> Machine:
    """The facts of this machine, probed once a run, with one more Python environment if told."""
    from cudnn_doctor.machine.probe import ProbeOptions, probe_machine

    return probe_machine(ProbeOptions(python=(python,) if python else ()))


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


def _asked_in(folder: str | None, facts: Matrix) -> list[str]:
    """Requirements on frameworks in a folder's files, locked ones first, each framework once."""
    if not folder:
        return []
    from cudnn_doctor.machine.host import Host
    from cudnn_doctor.machine.project import probe_project

    if not os.path.isdir(folder):
        raise _usage(f"--project {folder!r} is no folder")
    known = {name for need in facts.frameworks for name in (need.framework, need.distribution)}
    asked = sorted(probe_project(Host(), folder).requirements, key=lambda r: r.kind != "lock")
    found: dict[str, str] = {}
    for requirement in asked:
        if requirement.name in known and requirement.kind != "image":
            found.setdefault(requirement.name, f"{requirement.name}{requirement.wanted}")
    return list(found.values())


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
