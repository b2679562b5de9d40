"""Constraints are values: each judges a candidate and says why."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple, Protocol

from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.candidates import Candidate
from cudnn_doctor.matrix.frameworks import FrameworkBuild
from cudnn_doctor.matrix.gpus import gpu_verdict, is_blackwell
from cudnn_doctor.matrix.model import DistroPackage, Issue, Matrix
from cudnn_doctor.matrix.specs import matches, names_build, version_key
from cudnn_doctor.matrix.target import Flavour, FrameworkRequest, Method, Target, TargetGpu

State = Literal["ok", "out", "unknown"]
_BLACKWELL = "570.26"
"""First driver for Blackwell (cuDNN 9.10.2 support matrix)."""
_GLIBC_BEFORE_9 = "2.17"
"""cuDNN 7 and 8 were built for RHEL 7 too (cuDNN 8.9.1 support matrix)."""
_METHOD_WORDS = {"wheel": "wheel", "tarball": "archive", "package": "distribution package"}


class Verdict(NamedTuple):
    """``ok``, ``out`` (ruled out) or ``unknown``, and why; unknown is never taken for yes."""

    state: State
    why: str = ""


class Constraint(Protocol):
    """One named demand that the target makes."""

    @property
    def name(self) -> str:
        """Stable within one resolution; what a conflict is told in."""
        ...

    @property
    def relax(self) -> str:
        """What a person could do to lift it."""
        ...

    def judge(self, candidate: Candidate) -> Verdict:
        """Judge one candidate."""
        ...


@dataclasses.dataclass(frozen=True)
class GpuConstraint:
    """Every GPU must find code that it can run."""

    gpu: TargetGpu
    matrix: Matrix

    @property
    def name(self) -> str:
        return f"gpu {self.gpu.label.removeprefix('GPU ')}"

    @property
    def relax(self) -> str:
        return f"leave {self.gpu.label} out (CUDA_VISIBLE_DEVICES) or replace it"

    def judge(self, candidate: Candidate) -> Verdict:
        return Verdict(*gpu_verdict(self.gpu, candidate.variant, self.matrix, candidate.platform))


@dataclasses.dataclass(frozen=True)
class DriverConstraint:
    """The driver must be new enough for the CUDA flavour, by CUDA minor-version compatibility."""

    driver: str | None
    driver_cuda: str | None
    blackwell: bool
    matrix: Matrix

    @property
    def name(self) -> str:
        if not self.driver:
            return f"driver for CUDA {self.driver_cuda}"
        return f"driver {self.driver}" + (" with a Blackwell GPU" if self.blackwell else "")

    @property
    def relax(self) -> str:
        return (
            "upgrade the driver (on data-centre GPUs the cuda-compat package can do instead: "
            "CUDA forward compatibility)"
        )

    def judge(self, candidate: Candidate) -> Verdict:
        cuda = candidate.variant.cuda
        if not self.driver:
            fits = version_key(cuda)[:1] <= version_key(self.driver_cuda)[:1]
            why = f"the driver supports CUDA {self.driver_cuda}, this is a CUDA {cuda} build"
            return Verdict("ok" if fits else "out", why)
        floor = driver_floor(candidate, self.matrix, blackwell=self.blackwell)
        if floor is None:
            return Verdict("unknown", f"the lowest driver for CUDA {cuda} is not known")
        given = version_key(self.driver)
        # A bare branch ("535") stands for its newest driver: only the numbers given are compared.
        fits = given >= version_key(floor)[: len(given)]
        reason = " with a Blackwell GPU" if self.blackwell else ""
        known = query.how(self.matrix, candidate.variant, "driver")
        why = f"CUDA {cuda} builds need driver {floor} or newer{reason}; here {self.driver}"
        why += f" ({known})" if known and candidate.variant.driver else ""
        return Verdict("ok" if fits else "out", why)


@dataclasses.dataclass(frozen=True)
class CudaConstraint:
    """The CUDA that was asked for: the major counts (minor-version compatibility)."""

    cuda: str

    @property
    def name(self) -> str:
        return f"cuda {self.cuda}"

    @property
    def relax(self) -> str:
        return "accept another CUDA major (--cuda)"

    def judge(self, candidate: Candidate) -> Verdict:
        wanted, built = version_key(self.cuda), version_key(candidate.variant.cuda)
        # Before CUDA 11 there was no minor-version compatibility: 10.1 and 10.2 are strangers.
        depth = min(len(wanted), len(built)) if built[0] < 11 else 1
        fits = wanted[:depth] == built[:depth]
        why = f"built for CUDA {candidate.variant.cuda}, asked for {self.cuda}"
        toolkits = candidate.variant.toolkits
        if fits and toolkits and len(wanted) > 1 and self.cuda not in toolkits:
            why += f" (documented toolkits: {toolkits[0]} to {toolkits[-1]})"
        return Verdict("ok" if fits else "out", why)


@dataclasses.dataclass(frozen=True)
class PlatformConstraint:
    """An artefact for this CPU architecture must exist."""

    platform: str

    @property
    def name(self) -> str:
        return f"arch {self.platform.removeprefix('linux-')}"

    @property
    def relax(self) -> str:
        return "use a machine of another architecture"

    def judge(self, candidate: Candidate) -> Verdict:
        fits = candidate.platform == self.platform
        why = f"{_METHOD_WORDS[candidate.method]} for {candidate.platform}"
        return Verdict("ok" if fits else "out", why)


@dataclasses.dataclass(frozen=True)
class LibcConstraint:
    """glibc new enough; NVIDIA builds nothing for musl."""

    libc: str
    glibc: str | None

    @property
    def name(self) -> str:
        return self.libc if self.libc == "musl" else f"glibc {self.glibc}"

    @property
    def relax(self) -> str:
        return "use a glibc distribution (a newer one, or a container)"

    def judge(self, candidate: Candidate) -> Verdict:
        if self.libc == "musl":
            return Verdict("out", "cuDNN is built for glibc only; this system has musl")
        artefact = candidate.artefact
        floor = getattr(artefact, "glibc", None) or candidate.variant.glibc
        if floor is None and version_key(candidate.release.version) < (9,):
            floor = _GLIBC_BEFORE_9
        if floor is None:
            return Verdict("unknown", "the glibc that it needs is not known")
        fits = version_key(self.glibc) >= version_key(floor)
        return Verdict("ok" if fits else "out", f"needs glibc {floor}; here {self.glibc}")


@dataclasses.dataclass(frozen=True)
class DistroConstraint:
    """A distribution package must be one that this distribution can install."""

    distro: str | None
    matrix: Matrix

    @property
    def name(self) -> str:
        return f"distro {self.distro or 'not known'}"

    @property
    def relax(self) -> str:
        return "install a wheel or the archive instead (--method)"

    def judge(self, candidate: Candidate) -> Verdict:
        package = candidate.artefact
        if not isinstance(package, DistroPackage):
            return Verdict("ok")
        why = f"{package.manager} package, not for {self.distro or 'an unknown distribution'}"
        return Verdict("ok") if self._serves(package) else Verdict("out", why)

    def _serves(self, package: DistroPackage) -> bool:
        if self.distro is None:
            return package.repo == "nvidia"
        distro_id, _, version = self.distro.partition(" ")
        if package.repo == "distro":
            return bool({distro_id, self.distro} & set(package.distros))
        repository = query.repository_for(self.matrix, distro_id, version)
        return (
            repository is not None
            and repository.manager == package.manager
            and (not package.distros or repository.distro in package.distros)
        )


@dataclasses.dataclass(frozen=True)
class FrameworkConstraint:
    """At least one build of the framework must accept the candidate."""

    request: FrameworkRequest
    builds: tuple[FrameworkBuild, ...]

    @property
    def name(self) -> str:
        return f"for {self.request.text}"

    @property
    def relax(self) -> str:
        return f"use another version or CUDA build of {self.request.name}"

    def judge(self, candidate: Candidate) -> Verdict:
        best = self.chosen(candidate)
        if best is None:
            reasons = dict.fromkeys(build.refuses(candidate) for build in self.builds)
            return Verdict("out", "; ".join(list(reasons)[:3]))
        build = self.builds[best]
        if not build.uses_cudnn:
            return Verdict("ok", f"{build.label} loads no cuDNN itself")
        if build.cudnn is None:
            return Verdict("unknown", f"the cuDNN that {build.label} needs is not known")
        own = "; it brings its own copy" if build.bundles else ""
        return Verdict(
            "ok", f"{build.label} {build.cudnn_from} cuDNN {build.cudnn}{own} ({build.how})"
        )

    def chosen(self, candidate: Candidate) -> int | None:
        """Index of the best build that accepts it."""
        return next(
            (i for i, build in enumerate(self.builds) if not build.refuses(candidate)), None
        )


@dataclasses.dataclass(frozen=True)
class MethodConstraint:
    """It must come by this way: wheel, archive or distribution package."""

    method: Method

    @property
    def name(self) -> str:
        return f"method {self.method}"

    @property
    def relax(self) -> str:
        return "install it another way (--method)"

    def judge(self, candidate: Candidate) -> Verdict:
        fits = candidate.method == self.method
        why = f"a {_METHOD_WORDS[candidate.method]}, asked for {_METHOD_WORDS[self.method]}"
        return Verdict("ok" if fits else "out", why)


@dataclasses.dataclass(frozen=True)
class FlavourConstraint:
    """Full or JIT: JIT only when asked for."""

    flavour: Flavour

    @property
    def name(self) -> str:
        return f"flavour {self.flavour}"

    @property
    def relax(self) -> str:
        return f"accept the {'full' if self.flavour == 'jit' else 'jit'} flavour (--flavour)"

    def judge(self, candidate: Candidate) -> Verdict:
        fits = candidate.flavour == self.flavour
        return Verdict("ok") if fits else Verdict("out", f"{candidate.flavour} flavour")


@dataclasses.dataclass(frozen=True)
class SoundConstraint:
    """No preview, withdrawn, yanked or known-bad release, unless it was asked for by number."""

    gpus: tuple[TargetGpu, ...]
    avoid: tuple[Issue, ...]
    version: str | None
    frameworks: tuple[FrameworkConstraint, ...]

    name = "no yanked or known-bad release"
    relax = "ask for the release by its exact number (--version)"

    def judge(self, candidate: Candidate) -> Verdict:
        fault = self.fault(candidate)
        if not fault:
            return Verdict("ok")
        asked = self.version and names_build(
            self.version, candidate.release.version, candidate.build
        )
        pinned = any(build.exact(candidate) for c in self.frameworks for build in c.builds)
        if asked or pinned:
            return Verdict("ok", f"asked for by number although {fault}")
        return Verdict("out", fault)

    def fault(self, candidate: Candidate) -> str:
        """What is wrong with the release, empty when nothing is known."""
        release = candidate.release
        if release.status != "release":
            return f"{release.version} is {release.status}"
        if candidate.yanked:
            return f"{candidate.build} was yanked from the index: {candidate.yanked}"
        for issue in self.avoid:
            used = {constraint.request.name for constraint in self.frameworks}
            concerned = issue.cc is None or any(gpu.cc in issue.cc for gpu in self.gpus)
            concerned = concerned and (not issue.packages or bool(used & set(issue.packages)))
            same_cuda = issue.cuda in (None, candidate.cuda)
            if concerned and same_cuda and matches(issue.affects, release.version, candidate.build):
                return f"known issue {issue.id}: {issue.title}"
        return ""


@dataclasses.dataclass(frozen=True)
class VersionConstraint:
    """The release that was asked for."""

    specifier: str

    @property
    def name(self) -> str:
        return f"version {self.specifier}"

    @property
    def relax(self) -> str:
        return "ask for another release (--version)"

    def judge(self, candidate: Candidate) -> Verdict:
        fits = matches(self.specifier, candidate.release.version, candidate.build)
        return Verdict("ok" if fits else "out", f"asked for cuDNN {self.specifier}")


def driver_floor(candidate: Candidate, matrix: Matrix, *, blackwell: bool) -> str | None:
    """Lowest Linux driver for the candidate; the CUDA family's where the release tells none."""
    variant = candidate.variant
    family = query.driver_floor(matrix, variant.cuda)
    floor = variant.driver or (family.driver if family else None)
    if blackwell:
        return max(floor or "", variant.blackwell_driver or _BLACKWELL, key=version_key)
    return floor


def constraints(
    target: Target, matrix: Matrix, frameworks: tuple[FrameworkConstraint, ...]
) -> tuple[Constraint, ...]:
    """All constraints of a target, in the order in which they are told."""
    blackwell = any(map(is_blackwell, target.gpus))
    found: list[Constraint] = [
        GpuConstraint(gpu, matrix) for gpu in dict.fromkeys(target.gpus) if gpu.cc
    ]
    if target.driver or target.driver_cuda:
        found.append(DriverConstraint(target.driver, target.driver_cuda, blackwell, matrix))
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
