"""From a wish to a request: method, version and source, each with the reason why."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import Literal

import msgspec

from cudnn_doctor.errors import DoctorError, ExitCode, NothingChanged
from cudnn_doctor.install.plan import Method, Plan
from cudnn_doctor.install.prefixes.brought import Known, identify
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.machine.model import Environment, Machine
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.matrix.query import repository_for
from cudnn_doctor.matrix.resolver import Conflict, Resolution, resolve
from cudnn_doctor.matrix.specs import matches
from cudnn_doctor.matrix.target import FrameworkRequest, Target


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for beside the target; None and empty mean: choose."""

    method: Method | None = None
    prefix: str | None = None
    source: Literal["auto", "archive", "wheel"] = "auto"
    mirrors: tuple[str, ...] = ()
    archive: str | None = None
    static: bool = False
    python: str | None = None
    break_pins: bool = False
    hold: bool = False
    sudo: bool = False
    fresh: bool = False
    frameworks_asked: bool = False


Facts = Callable[[], Machine]
"""Gives the facts of this machine, when they are needed."""


def choose_method(wish: Wish, target: Target, matrix: Matrix, machine: Facts) -> tuple[Method, str]:
    """The method and why: what was said, else what the machine is for."""
    if wish.method:
        return wish.method, f"method {wish.method}: as asked"
    if wish.archive or wish.prefix or wish.mirrors or wish.static or wish.source != "auto":
        return "tarball", "method tarball: a prefix, archive, mirror or source was named"
    if wish.python or wish.frameworks_asked:
        return "wheel", "method wheel: it is for a Python environment"
    if not wish.fresh and (environment := active_environment(machine())):
        return "wheel", f"method wheel: a Python environment is active ({environment})"
    distro_id, _, version_id = (target.distro or "").partition(" ")
    if not wish.fresh and os.geteuid() == 0 and repository_for(matrix, distro_id, version_id):
        return "package", f"method package: NVIDIA has a repository for {target.distro}"
    return "tarball", "method tarball: it suits any machine and needs no package manager"


def active_environment(machine: Machine) -> str | None:
    """Prefix of the active environment, unless it is the system's Python or closed to wheels."""
    from cudnn_doctor.install.wheels import environment as environments

    try:
        found = environments.choose(None, machine)
    except DoctorError:
        return None
    return None if found.kind in ("system", "user") else found.prefix


def settle(wish: Wish, target: Target, matrix: Matrix, machine: Facts) -> InstallRequest:
    """Choose version and method.

    Raises DoctorError: NO_COMPATIBLE_VERSION when nothing satisfies the target, NOTHING_CHANGED
    when the archive brought is not what was asked for, USAGE when the method takes none.
    """
    method, why = choose_method(wish, target, matrix, machine)
    if wish.archive:
        if method != "tarball":
            raise DoctorError(
                f"--archive fills a prefix, --method {method} would leave that file aside",
                next_step="give --prefix in place of --method; pip and uv take a wheel's file "
                "where PIP_FIND_LINKS or UV_FIND_LINKS names its folder",
                exit_code=ExitCode.USAGE,
            )
        known = identify(wish.archive, matrix)
        name = os.path.basename(wish.archive)
        reason = f"{name} is {known}, by its SHA-256"
        if not _is_asked(known, target):
            raise NothingChanged(
                f"{reason}; that is not what was asked for, or not for this machine",
                next_step="leave --version and --cuda out and name its machine with --arch, or "
                "bring the other file",
            )
        reasons: tuple[str, ...] = (reason, why)
    else:
        answer = _resolve(wish, method, target, matrix)
        flavour: Literal["full", "jit"] = "jit" if answer.flavour == "jit" else "full"
        known = Known(answer.build, answer.cuda, target.platform, flavour)
        told = [r for r in answer.reasons if not r.startswith("method ")]
        reasons = (*told, *answer.notes, why)
    return InstallRequest(
        method=method,
        version=known.version,
        cuda=known.cuda,
        flavour=known.flavour,
        platform=known.platform,
        reasons=reasons,
        fresh=wish.fresh,
        prefix=wish.prefix,
        source=wish.source,
        mirrors=wish.mirrors,
        archive=wish.archive,
        static=wish.static,
        python=wish.python,
        break_pins=wish.break_pins,
        hold=wish.hold,
        sudo=wish.sudo,
    )


def with_absent_frameworks(plan: Plan, target: Target, machine: Machine) -> Plan:
    """The plan for an environment, with a warning for each framework that was asked for and is not
    in it: no plan installs one, and its own installation brings its own cuDNN."""
    environment = next((e for e in machine.environments if e.prefix == plan.target), None)
    if environment is None:
        return plan
    there = {d.name for d in environment.distributions}
    there |= {f.name for f in machine.frameworks if f.environment == plan.target}
    absent = [f for f in target.frameworks if f.name not in there]
    return msgspec.structs.replace(
        plan, warnings=(*plan.warnings, *(_absent(f, environment) for f in absent))
    )


def _absent(framework: FrameworkRequest, environment: Environment) -> str:
    said = (
        f"{framework.name} is not in this environment, and this installs no framework; installed "
        "first, it brings the cuDNN and cuBLAS that it pins"
    )
    if framework.local:
        return said
    pip = f"{environment.executable or 'python3'} -m pip install"
    return f"{said}:\n{pip} {shlex.quote(framework.text)}"


def _is_asked(known: Known, target: Target) -> bool:
    cuda = (target.cuda or known.cuda).partition(".")[0]
    release = ".".join(known.version.split(".")[:3])
    right_version = not target.version or matches(target.version, release, known.version)
    return cuda == known.cuda and target.platform == known.platform and right_version


def _resolve(wish: Wish, method: Method, target: Target, matrix: Matrix) -> Resolution:
    """A prefix can be filled from an archive or a wheel: then both kinds of artefact count. Who
    breaks pins for a version asks nothing of the frameworks that are there."""
    wanted: Method | None = method
    if wish.break_pins and target.version:
        asked = tuple(f for f in target.frameworks if not f.installed)
        target = msgspec.structs.replace(target, frameworks=asked)
    if method == "tarball" and wish.source == "wheel":
        wanted = "wheel"
    elif method == "tarball" and wish.source == "auto" and not (wish.static or wish.mirrors):
        wanted = None
    answer = resolve(msgspec.structs.replace(target, method=wanted), matrix)
    if isinstance(answer, Conflict):
        clash = "\n".join(f"  {reason.constraint}: {reason.why}" for reason in answer.why)
        pinned = method == "wheel" and any(f.installed for f in target.frameworks)
        risk = "; or accept that a framework's pin breaks, with --break-pins" if pinned else ""
        raise DoctorError(
            f"no cuDNN satisfies all of this:\n{clash}",
            next_step=f"see `cudnn-doctor resolve` with the same options for what would help{risk}",
            exit_code=ExitCode.NO_COMPATIBLE_VERSION,
        )
    return answer
