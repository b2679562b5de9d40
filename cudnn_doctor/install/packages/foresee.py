"""What could go wrong with packages, looked for before anything is changed."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cudnn_doctor.checks.remedies import release_command
from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install.packages.manager import ENVIRON, Choice, Target
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.machine.model import Machine, Package
from cudnn_doctor.machine.repositories import DEFAULT_PRIORITY

_SECONDS = 120.0
_STALE = ("Unable to locate", "was not found", "No match for", "not found in package names")
"""What managers say of a version that only a fresh index will show."""
_DEVELOPMENT = re.compile(r"^libcudnn\d+-dev")
_ALTERNATIVES = Path("/var/lib/dpkg/alternatives/libcudnn")
_FOREIGN_OK = ("wsl-ubuntu", "cross-linux-sbsa")


class Foreseen(NamedTuple):
    """What is known of an installation before anything is changed."""

    drop: tuple[str, ...] = ()
    """Installed packages that have to go."""
    going: tuple[str, ...] = ()
    """Installed packages that go or of which another version may come: kept for an undo."""
    warnings: tuple[str, ...] = ()


def foresee(
    choice: Choice, request: InstallRequest, machine: Machine, *, configured: bool
) -> Foreseen:
    """Look for all that could go wrong; raises DoctorError (NOTHING_CHANGED) where it would.

    The manager is asked only where the right repository is ``configured``.
    """
    manager, targets = choice.manager, choice.targets
    installed = {p.name: p for p in machine.packages}
    refuse_foreign_repositories(choice, machine)
    if request.hold and (reason := manager.cannot_hold()):
        raise NothingChanged(
            f"the packages cannot be held: {reason}", next_step="or leave --hold out"
        )
    drop = in_the_way(choice, request, installed)
    refuse_held(targets, installed, drop)
    warnings = [f"removes {name}: it excludes what is asked for" for name in drop]
    warnings += shared_names(choice, installed)
    warnings += preferred_to_nvidias(choice, machine)
    replaced, also = rehearse(choice, drop) if configured else ([], [])
    going = _going(targets, installed, (*drop, *replaced))
    if going and (reason := manager.cannot_keep()):
        told = ", ".join(going)
        warnings.append(
            f"{told} cannot be kept ({reason}): an undo needs a repository that still has that"
        )
        going = ()
    return Foreseen(tuple(drop), going, tuple(dict.fromkeys((*warnings, *also))))


def _going(
    targets: list[Target], installed: dict[str, Package], foreseen: Iterable[str]
) -> tuple[str, ...]:
    """Those foreseen, and all of cuDNN's, because a rehearsal tells nothing before the repository
    is known."""
    wanted = {target.name: target.version for target in targets}
    going = [
        name
        for name, package in installed.items()
        if "cudnn" in name and not fnmatch.fnmatch(package.version, wanted.get(name, "-"))
    ]
    return tuple(sorted({*going, *foreseen}))


def refuse_held(targets: list[Target], installed: dict[str, Package], drop: Sequence[str]) -> None:
    """Held packages that would have to go or whose version would have to change."""
    wanted = {target.name: target.version or "*" for target in targets}
    series = [_series(name) for name in wanted]
    held = [
        package
        for name, package in installed.items()
        if package.held and (name in drop or _series(name) in series)
        if not fnmatch.fnmatch(package.version, wanted.get(name, targets[0].version or "*"))
    ]
    if held:
        told = ", ".join(f"{p.name} {p.version}" for p in held)
        raise NothingChanged(
            f"held, so that their version must not change: {told}",
            next_step=f"release them first: {'; '.join(dict.fromkeys(map(_release, held)))}",
            where=", ".join(dict.fromkeys(f"{p.held_by}: {p.lock}" for p in held if p.held_by)),
        )


def _series(name: str) -> list[str]:
    """What packages have in common that are of one version: cuDNN's and CUDA's majors."""
    return re.findall(r"cudnn\d*|-cuda-\d+", name)


def _release(package: Package) -> str:
    """What takes a lock away."""
    if command := release_command(package):
        return f"`{command}`"
    return f"take {package.lock} out of IgnorePkg or IgnoreGroup in {package.held_by}"


def refuse_foreign_repositories(choice: Choice, machine: Machine) -> None:
    """NVIDIA's repository of another distribution: its packages would mix with the right ones."""
    if choice.repository is None:
        return
    for known in machine.repositories:
        if not known.enabled or known.manager != choice.manager.name or not known.distro:
            continue
        if known.distro not in (choice.repository.distro, *_FOREIGN_OK):
            raise NothingChanged(
                f"NVIDIA's repository for {known.distro} is configured, but this is "
                f"{machine.system.distro_id} {machine.system.distro_version}",
                next_step=f"change it to {choice.repository.distro} in {known.file}, or disable it",
                where=known.file or known.url,
            )


def in_the_way(choice: Choice, request: InstallRequest, installed: dict[str, Package]) -> list[str]:
    """Installed packages that exclude the targets: the other flavour, the distribution's own."""
    wanted = {target.name for target in choice.targets}
    others = set()
    if request.flavour == "jit":
        others |= {*choice.row.runtime, *choice.row.dev, *choice.row.static}
    else:
        others |= {*choice.row.jit}
    if choice.row.repo == "nvidia":
        others |= {"nvidia-cudnn"}
    return sorted((others & installed.keys()) - wanted)


def shared_names(choice: Choice, installed: dict[str, Package]) -> Iterator[str]:
    """Warnings of development packages of another major, which offer the same unversioned names;
    raises where the list of who offers them is damaged, at which their scripts would fail."""
    dev = next((t.name for t in choice.targets if _DEVELOPMENT.search(t.name)), None)
    if dev is None:
        return
    if _ALTERNATIVES.is_file() and not _ALTERNATIVES.stat().st_size:
        raise NothingChanged(
            "the list of alternatives of libcudnn is empty, so that no development package can be "
            "set up",
            next_step=f"remove it: `rm {_ALTERNATIVES}`",
            where=str(_ALTERNATIVES),
        )
    for name in installed:
        if _DEVELOPMENT.search(name) and _series(name)[:1] != _series(dev)[:1]:
            yield (
                f"{name} is there too: cudnn.h and libcudnn.so are those of one of both; "
                "see and choose with `update-alternatives --config libcudnn`"
            )


def preferred_to_nvidias(choice: Choice, machine: Machine) -> Iterator[str]:
    """Warnings of repositories whose packages go before NVIDIA's, by their priority."""
    if choice.repository is None:
        return
    manager, distro = choice.manager.name, choice.repository.distro
    ours = [r for r in machine.repositories if r.manager == manager and r.distro == distro]
    told = [r.priority for r in ours if r.enabled and r.priority is not None]
    priority = min(told, default=DEFAULT_PRIORITY)
    for other in machine.preferred:
        if other.manager == manager and (other.priority or 0) < priority:
            yield (
                f"{manager} prefers {other.name} (priority {other.priority}, in {other.file}) to "
                f"NVIDIA's repository ({priority}): what cuDNN needs, such as cuBLAS, comes from "
                "there where it has packages of that name; cuDNN itself does not"
            )


def rehearse(choice: Choice, drop: Sequence[str]) -> tuple[list[str], list[str]]:
    """Installed packages that would be replaced, and warnings, both by the manager's rehearsal.

    Raises where it fails or removes what is not cuDNN's. A manager that is not here, or does not
    know the version yet, foresees nothing.
    """
    with tempfile.TemporaryDirectory(prefix="cudnn-doctor-") as scratch:
        argv = choice.manager.rehearse(choice.targets, drop, scratch)
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C", **ENVIRON},
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return [], []
    output = done.stdout.decode("utf-8", "replace").strip()
    if objection := choice.manager.objection(done.returncode, output, choice.targets):
        if choice.repository and any(sign in objection for sign in _STALE):
            return [], []
        tail = "\n".join(objection.splitlines()[-12:])
        raise NothingChanged(
            f"{choice.manager.name} foresees that it cannot do this:\n{tail}",
            next_step="mend what it names (pins, held or broken packages), or use --method tarball",
            where=" ".join(argv),
        )
    removed = choice.manager.removed(output)
    foreign = [name for name in removed if "cudnn" not in name]
    if foreign:
        raise NothingChanged(
            f"{choice.manager.name} would remove packages that are not cuDNN's: "
            f"{', '.join(foreign)}",
            next_step="mend the conflict first, or use --method tarball",
        )
    warnings = [f"removes {name}" for name in removed if name not in drop]
    return [*choice.manager.replaced(output), *removed], warnings
