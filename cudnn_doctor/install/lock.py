"""Lock files: what was chosen, so that the same can be installed next year."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from cudnn_doctor import outfile
from cudnn_doctor.errors import BadInput, DoctorError, NothingChanged
from cudnn_doctor.install.choose import Wish
from cudnn_doctor.install.journal import Journal
from cudnn_doctor.install.packages import guard as package_guard
from cudnn_doctor.install.plan import AnyStep, Fetch, FromIndex, Method, Plan, Run, Unpack
from cudnn_doctor.install.prefixes import layout
from cudnn_doctor.install.prefixes.planning import plan_tarball
from cudnn_doctor.install.receipts import puts, receipts
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.state import locate
from cudnn_doctor.install.wheels import companions
from cudnn_doctor.install.wheels.planning import plan_wheel
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.matrix.model import Matrix

SCHEMA = 1
_PINNED = re.compile(r"[A-Za-z0-9._+-]+={1,2}\d[\w.+:~-]*")
_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,5}){2,3}")
_CUDA = re.compile(r"[0-9]{1,2}")
_PLATFORM = re.compile(r"linux-[a-z0-9_]{1,16}")
_ITEM = re.compile(r"sha256:[0-9a-f]+|[A-Za-z0-9][\w.:+-]*={1,2}[\w.:+~^-]+")
_ANEW = "make one with `cudnn-doctor install --lock FILE`"
_HASH = re.compile(r"sha256[:=]([0-9a-f]{64})")


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a lock file (JSON)."""

    schema: int
    method: Method
    version: str
    cuda: str
    flavour: Literal["full", "jit"]
    platform: str
    source: Literal["auto", "archive", "wheel"]
    static: bool
    pinned: tuple[str, ...]
    """Files with their SHA-256 and packages with their versions, sorted."""
    companions: tuple[str, ...] = ()
    """What the wheel needs beside itself: lines of a requirements file, with hashes."""


def write(path: str, request: InstallRequest, plan: Plan, matrix: Matrix) -> None:
    """Write the lock of a plan, atomically: all that a machine needs which has nothing of it yet.

    Raises DoctorError when it cannot be written.
    """
    plan = _from_nothing(request, plan, matrix)
    lock = Lock(
        schema=SCHEMA,
        method=request.method,
        version=request.version,
        cuda=request.cuda,
        flavour=request.flavour,
        platform=request.platform,
        source=_source(request, plan),
        static=request.static,
        pinned=pinned(msgspec.structs.replace(plan, packages=plan.packages | _brought(plan))),
        companions=request.companions,
    )
    try:
        outfile.write_whole(path, msgspec.json.format(msgspec.json.encode(lock), indent=2) + b"\n")
    except OSError as error:
        raise _unwritable(path, error) from error


def try_out(path: str) -> None:
    """Raise DoctorError (NOTHING_CHANGED) where a lock could not be written afterwards."""
    try:
        outfile.try_out(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> DoctorError:
    return NothingChanged(
        f"cannot write the lock file: {error.strerror or error}",
        where=path,
        next_step="name a file in a folder that you may write to",
    )


def read(path: str) -> Lock:
    """Read a lock file; raises BadInput for what is none."""
    try:
        lock = msgspec.json.decode(Path(path).read_bytes(), type=Lock)
    except OSError as error:
        what = f"cannot read the lock file: {error.strerror}"
        raise BadInput(what, where=path, next_step=_ANEW) from error
    except (msgspec.MsgspecError, RecursionError) as error:
        what = f"not a lock file of cudnn-doctor: {error}"
        raise BadInput(what, where=path, next_step=_ANEW) from error
    if lock.schema != SCHEMA:
        raise BadInput(
            f"lock files of schema {lock.schema} are not known here",
            where=path,
            next_step="update cudnn-doctor",
        )
    if fault := _fault(lock):
        what = f"not a lock file that cudnn-doctor wrote: {fault}"
        raise BadInput(what, where=path, next_step=_ANEW)
    return lock


def _fault(lock: Lock) -> str:
    """What in it could be more than a name: its lines go to uv, pip and package managers."""
    if not _VERSION.fullmatch(lock.version):
        return f"version {lock.version[:40]!r}"
    if not _CUDA.fullmatch(lock.cuda):
        return f"cuda {lock.cuda[:40]!r}"
    if not _PLATFORM.fullmatch(lock.platform):
        return f"platform {lock.platform[:40]!r}"
    for line in lock.companions:
        if not companions.LINE.fullmatch(line) or not line.startswith("nvidia-"):
            return f"companion {line[:80]!r}"
    for item in lock.pinned:
        if not _ITEM.fullmatch(item):
            return f"pinned {item[:80]!r}"
    return ""


def request_from(lock: Lock, wish: Wish) -> InstallRequest:
    """The request that a lock makes; place and mirrors are this machine's own."""
    return InstallRequest(
        method=lock.method,
        version=lock.version,
        cuda=lock.cuda,
        flavour=lock.flavour,
        platform=lock.platform,
        source=lock.source,
        static=lock.static,
        reasons=("all as the lock file says",),
        fresh=wish.fresh,
        prefix=wish.prefix,
        mirrors=wish.mirrors,
        archive=wish.archive,
        python=wish.python,
        break_pins=wish.break_pins,
        companions=lock.companions,
        packages=dict(word.split("=", 1) for word in lock.pinned if lock.method == "package"),
        hold=wish.hold,
        sudo=wish.sudo,
    )


def verify(lock: Lock, plan: Plan) -> None:
    """Raise DoctorError (NOTHING_CHANGED) when a plan would bring in what the lock does not name.

    A plan may bring in less: what is installed already stays.
    """
    strangers = sorted(set(pinned(plan)) - set(lock.pinned))
    if strangers:
        raise NothingChanged(
            f"the lock file does not name {', '.join(strangers)}",
            next_step="use the tool and matrix that wrote the lock, or write it anew without "
            "--frozen",
        )


def pinned(plan: Plan) -> tuple[str, ...]:
    """Everything exact that a plan brings in: files by hash, packages by version."""
    if plan.method == "package":
        return tuple(sorted(f"{name}={version}" for name, version in plan.packages.items()))
    return tuple(sorted({item for step in plan.steps for item in _pinned(step)}))


def _from_nothing(request: InstallRequest, plan: Plan, matrix: Matrix) -> Plan:
    """The plan that brings all of it: what is there already needs no step in ``plan``."""
    elsewhere = msgspec.structs.replace(request, fresh=True)
    if plan.method == "wheel":
        return plan_wheel(elsewhere, Machine(), matrix)
    if plan.method == "package" or pinned(plan):
        return plan
    name = layout.folder_name(request.release, request.cuda, request.flavour)
    for receipt in reversed(receipts(locate())):
        if puts(receipt, f"{plan.target}/{name}"):
            return receipt.plan
    return plan_tarball(elsewhere, matrix)


def _brought(plan: Plan) -> dict[str, str]:
    """Distribution packages that came when the plan was carried out."""
    if plan.method != "package":
        return {}
    done = [receipt for receipt in receipts(locate()) if receipt.plan == plan]
    return package_guard.brought(Journal.open(done[-1].folder)) if done else {}


def _pinned(step: AnyStep) -> Iterable[str]:
    if isinstance(step, Unpack):
        yield from _pinned(step.source)
    elif isinstance(step, Fetch):
        yield f"sha256:{step.sha256}"
    elif isinstance(step, FromIndex):
        yield from _pins_in(step.requirement)
    elif isinstance(step, Run):
        for text in (*step.argv, step.stdin):
            yield from _pins_in(text)


def _pins_in(text: str) -> Iterable[str]:
    yield from (f"sha256:{digest}" for digest in _HASH.findall(text))
    for word in text.split():
        if not word.startswith("-") and _PINNED.fullmatch(word):
            yield word


def _source(request: InstallRequest, plan: Plan) -> Literal["auto", "archive", "wheel"]:
    if request.method != "tarball" or not plan.steps:
        return request.source
    wheels = any(
        isinstance(step, FromIndex)
        or (isinstance(step, Unpack) and step.source.name.endswith(".whl"))
        for step in plan.steps
    )
    return "wheel" if wheels else "archive"
