"""All constraints of a target, as values that judge candidates."""

from __future__ import annotations

from cudnn_doctor.matrix.machine_constraints import (
    DistroConstraint,
    DriverConstraint,
    GpuConstraint,
    LibcConstraint,
    PlatformConstraint,
)
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.matrix.target import Target
from cudnn_doctor.matrix.verdict import Constraint
from cudnn_doctor.matrix.wish_constraints import (
    CudaConstraint,
    FlavourConstraint,
    FrameworkConstraint,
    MethodConstraint,
    SoundConstraint,
    VersionConstraint,
)


def constraints(
    target: Target, matrix: Matrix, frameworks: tuple[FrameworkConstraint, ...]
) -> tuple[Constraint, ...]:
    """All constraints of a target, in the order in which they are told."""
    found: list[Constraint] = [
        GpuConstraint(gpu, matrix) for gpu in dict.fromkeys(target.gpus) if gpu.cc
    ]
    if target.driver or target.driver_cuda:
        found.append(DriverConstraint(target, matrix))
    if target.cuda:
        found.append(CudaConstraint(target.cuda))
    found += frameworks
    if target.version:
        found.append(VersionConstraint(target.version))
    found.append(PlatformConstraint(target.platform))
    if target.libc == "musl" or target.glibc:
        found.append(LibcConstraint(target.libc, target.glibc))
    if target.method:
        found.append(MethodConstraint(target.method))
    found.append(DistroConstraint(target.distro, matrix))
    found.append(FlavourConstraint(target.flavour))
    avoid = tuple(issue for issue in matrix.issues if issue.avoid)
    found.append(SoundConstraint(target.gpus, avoid, target.version, frameworks))
    return tuple(found)
