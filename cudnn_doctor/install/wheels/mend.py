"""From findings to one plan: the remedies that need no judgement of a person, in one go.

For each root cause the first remedy that can be carried out here is taken; what cannot is told with
the reason. Remedies of one environment are joined, so that its packages are kept aside once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cudnn_doctor.checks.model import Finding, Links, Remedy, SearchPath, Wheels
from cudnn_doctor.errors import DoctorError, NothingChanged
from cudnn_doctor.install.plan import AnyStep, GuardPackages, Plan, Run, SwitchLink
from cudnn_doctor.install.wheels import environment as environments
from cudnn_doctor.install.wheels import searchpath
from cudnn_doctor.install.wheels.pins import requirements_of
from cudnn_doctor.install.wheels.planning import hashed_again, with_rollback
from cudnn_doctor.machine.model import Distribution, Environment, Machine
from cudnn_doctor.matrix.model import Matrix


class Chosen(NamedTuple):
    """A finding and the remedy that will be carried out for it."""

    finding: Finding
    remedy: Remedy


class Left(NamedTuple):
    """A finding that `fix` leaves to the user, and why."""

    finding: Finding
    reason: str


class Mending(NamedTuple):
    """What will be done about the findings, and what will not."""

    plan: Plan
    chosen: tuple[Chosen, ...]
    left: tuple[Left, ...]
    path: SearchPath
    """What the plan changes in LD_LIBRARY_PATH once an environment is activated again."""


def plan_mending(findings: Iterable[Finding], machine: Machine, matrix: Matrix) -> Mending:
    """One plan for all findings that can be mended without a person's judgement."""
    wanted = list(findings)
    ids = {finding.id for finding in wanted}
    chosen: list[Chosen] = []
    left: list[Left] = []
    for finding in wanted:
        if finding.caused_by in ids:
            continue
        picked = _pick(finding, machine)
        if isinstance(picked, Remedy):
            chosen.append(Chosen(finding, picked))
        else:
            left.append(Left(finding, picked))
    steps = [*_wheel_steps(chosen, machine, matrix), *_path_steps(chosen, machine)]
    steps += [step for c in chosen for step in _link_steps(c.remedy)]
    targets = {_target(c, machine) for c in chosen}
    plan = Plan(
        action="fix",
        method="wheel",
        version="",
        cuda="",
        target=targets.pop() if len(targets) == 1 else "this machine",
        steps=_unique(steps),
        reasons=tuple(f"{c.finding.title}: {c.remedy.title}" for c in chosen),
    )
    return Mending(plan, tuple(chosen), tuple(left), _whole_path(chosen))


def _unique(steps: Iterable[AnyStep]) -> tuple[AnyStep, ...]:
    found: list[AnyStep] = []
    for step in steps:
        if step not in found:
            found.append(step)
    return tuple(found)


# -- which remedy


def _pick(finding: Finding, machine: Machine) -> Remedy | str:
    """The first remedy that can be carried out here, or why none can."""
    reason = "no remedy of it is safe to be carried out by a program"
    for remedy in finding.remedies:
        if not remedy.automatic or remedy.safety == "destructive" or remedy.action is None:
            continue
        try:
            _feasible(finding, remedy, machine)
        except DoctorError as error:
            reason = error.what
            continue
        return remedy
    return reason


def _feasible(finding: Finding, remedy: Remedy, machine: Machine) -> None:
    """Raises DoctorError with the reason where the remedy cannot be carried out."""
    action = remedy.action
    if isinstance(action, Wheels):
        environment = environments.choose(action.environment, machine)
        for line in action.put:
            _keeps_pins(Requirement(line), environment)
    elif isinstance(action, SearchPath):
        environment = _environment_of(finding, machine)
        if foreign := [f for f in action.add if not f.startswith(f"{environment.prefix}/")]:
            what = f"{foreign[0]} is not of this environment: it would hide others' cuDNN as well"
            raise NothingChanged(what, where=environment.prefix)
        searchpath.plan_path(environment, action)
    elif isinstance(action, Links):
        for path in action.links:
            if not os.access(os.path.dirname(path), os.W_OK):
                raise NothingChanged(
                    "you may not write into that folder", where=os.path.dirname(path)
                )


def _keeps_pins(wanted: Requirement, environment: Environment) -> None:
    """An exact version must satisfy whoever requires the package; a range must allow theirs."""
    exact = _exact(wanted)
    for pin in requirements_of(environment, canonicalize_name(wanted.name)):
        allowed = pin.requirement.specifier
        broken = [v for v in exact if not allowed.contains(v, prereleases=True)]
        if not exact:
            broken = [v for v in _exact(pin.requirement) if not wanted.specifier.contains(v)]
        if broken:
            raise NothingChanged(
                f"{wanted} would break what {pin.owner.name} {pin.owner.version} requires:"
                f" {pin.requirement.name}{allowed}",
                where=environment.prefix,
            )


def _exact(requirement: Requirement) -> list[str]:
    versions = (s.version for s in requirement.specifier if s.operator == "==")
    return [version for version in versions if "*" not in version]


def _environment_of(finding: Finding, machine: Machine) -> Environment:
    """The environment that a finding is about, else the active one."""
    inside = [
        e
        for e in machine.environments
        if f"{finding.subject}/".startswith(f"{e.prefix.rstrip('/')}/")
    ]
    if inside:
        return max(inside, key=lambda e: len(e.prefix))
    active = next((e for e in machine.environments if e.active), None)
    if active is None:
        raise NothingChanged("no Python environment is active whose activation could set the path")
    return active


def _target(chosen: Chosen, machine: Machine) -> str:
    action = chosen.remedy.action
    if isinstance(action, Wheels):
        return action.environment
    if isinstance(action, SearchPath):
        return _environment_of(chosen.finding, machine).prefix
    return chosen.finding.subject


# -- steps


def _wheel_steps(chosen: Iterable[Chosen], machine: Machine, matrix: Matrix) -> Iterator[AnyStep]:
    actions = [c.remedy.action for c in chosen if isinstance(c.remedy.action, Wheels)]
    for prefix in dict.fromkeys(a.environment for a in actions):
        environment = environments.choose(prefix, machine)
        joined = _join([a for a in actions if a.environment == prefix])
        yield from _one_environment(joined, environment, matrix)


class _Joined(NamedTuple):
    drop: list[str]
    again: list[str]
    put: list[str]


def _join(actions: list[Wheels]) -> _Joined:
    """All of them, each package once: what is reinstalled whole goes before what is added."""
    drop = list(dict.fromkeys(name for action in actions for name in action.drop))
    found: dict[str, tuple[str, bool]] = {}
    for action in sorted(actions, key=lambda a: not a.again):
        for line in action.put:
            found.setdefault(canonicalize_name(Requirement(line).name), (line, action.again))
    again = [line for line, whole in found.values() if whole]
    return _Joined(drop, again, [line for line, whole in found.values() if not whole])


def _one_environment(
    joined: _Joined, environment: Environment, matrix: Matrix
) -> Iterator[AnyStep]:
    installer = environments.installer_for(environment)
    present = {d.name: d for d in environment.distributions if d.installer != "conda"}
    guard = GuardPackages(
        title="keep what is replaced for a rollback (until the next change here)",
        site_packages=environments.site_of(environment),
        names=tuple(sorted({"nvidia", *map(_top, _others(joined))})),
    )
    runs: list[Run] = []
    drop = [name for name in joined.drop if name in present]
    if drop:
        runs.append(installer.uninstall(drop, f"uninstall {', '.join(drop)}"))
    known = [line for name in joined.again if (line := _hashed(name, matrix))]
    plain = [line for line in joined.again if not _hashed(line, matrix)]
    for lines in (known, plain):
        if lines:
            shown = ", ".join(line.split()[0] for line in lines)
            runs.append(installer.install(lines, f"reinstall {shown}", again=True))
    if joined.put:
        runs.append(installer.install(joined.put, f"install {', '.join(joined.put)}", deps=True))
    yield guard
    yield from with_rollback(runs, guard, present, installer, matrix)


def _others(joined: _Joined) -> list[str]:
    names = [canonicalize_name(Requirement(line).name) for line in (*joined.again, *joined.put)]
    return [name for name in (*names, *joined.drop) if not name.startswith("nvidia-")]


def _top(name: str) -> str:
    """The folder of a framework's package: ``onnxruntime-gpu`` -> ``onnxruntime``."""
    return name.removesuffix("-gpu").removesuffix("-cpu").replace("-", "_")


def _hashed(line: str, matrix: Matrix) -> str | None:
    """The requirement with the matrix's hashes, for an exact cuDNN wheel."""
    name, exact, version = line.partition("==")
    if not exact or "*" in version:
        return None
    return hashed_again(Distribution(name=canonicalize_name(name), version=version), matrix)


def _path_steps(chosen: Iterable[Chosen], machine: Machine) -> Iterator[AnyStep]:
    wanted: dict[str, list[Chosen]] = {}
    for c in chosen:
        if isinstance(c.remedy.action, SearchPath):
            wanted.setdefault(_environment_of(c.finding, machine).prefix, []).append(c)
    for group in wanted.values():
        yield from searchpath.plan_path(
            _environment_of(group[0].finding, machine), _whole_path(group)
        )


def _whole_path(chosen: Iterable[Chosen]) -> SearchPath:
    actions = [c.remedy.action for c in chosen if isinstance(c.remedy.action, SearchPath)]
    drop = dict.fromkeys(folder for action in actions for folder in action.drop)
    add = dict.fromkeys(folder for action in actions for folder in action.add)
    return SearchPath(drop=tuple(f for f in drop if f not in add), add=tuple(add))


def _link_steps(remedy: Remedy) -> Iterator[AnyStep]:
    if not isinstance(remedy.action, Links):
        return
    for path, target in remedy.action.links.items():
        title = f"link {path} to {target}" if target else f"remove the link {path}"
        yield SwitchLink(title=title, path=path, target=target)
