"""What installed distributions require of others, and which of it a plan would break."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from cudnn_doctor.errors import DoctorError, NothingChanged
from cudnn_doctor.machine.model import Distribution, Environment
from cudnn_doctor.matrix.model import Wheel


class Pin(NamedTuple):
    """A requirement of an installed distribution."""

    owner: Distribution
    requirement: Requirement

    def __str__(self) -> str:
        return f"{self.requirement.name}{self.requirement.specifier}"


def name_of(line: str) -> str:
    """The distribution that a line of a requirements file is about."""
    return canonicalize_name(Requirement(line.partition(" --hash")[0]).name)


def hashed(wheel: Wheel) -> str:
    """The line of a requirements file for exactly this wheel."""
    return f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}"


def requirements_of(environment: Environment, name: str) -> Iterator[Pin]:
    """What installed distributions require of ``name``, markers judged for this environment."""
    facts = {"extra": ""}
    if environment.python:
        facts["python_version"] = ".".join(environment.python.split(".")[:2])
    for dist in environment.distributions:
        if dist.installer == "conda":
            continue
        for line in dist.requires:
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            if canonicalize_name(requirement.name) != name:
                continue
            if requirement.marker is None or requirement.marker.evaluate(facts):
                yield Pin(dist, requirement)


def broken_by(environment: Environment, wheel: Wheel, drop: list[Distribution]) -> Iterator[Pin]:
    """Requirements that the wheel, or the removal of ``drop``, would leave unsatisfied."""
    for pin in requirements_of(environment, wheel.package):
        if not pin.requirement.specifier.contains(wheel.version, prereleases=True):
            yield pin
    gone = {dist.name for dist in drop}
    for name in sorted(gone):
        yield from (p for p in requirements_of(environment, name) if p.owner.name not in gone)


def refusal(broken: list[Pin], wheel: Wheel, environment: Environment) -> DoctorError:
    """The error that names all broken requirements and the way out."""
    first = broken[0]
    told = "; ".join(f"{p.owner.name} {p.owner.version} requires {p}" for p in broken)
    if canonicalize_name(first.requirement.name) == wheel.package:
        advice = f"install what it asks for: `--version '{first.requirement.specifier}'`"
    else:
        advice = "make a second environment for it"
    return NothingChanged(
        f"{wheel.package} {wheel.version} would break a requirement: {told}",
        where=environment.prefix,
        next_step=f"{advice}; or accept the risk with --break-pins",
    )
