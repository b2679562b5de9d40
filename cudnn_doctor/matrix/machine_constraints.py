"""Constraints that the machine makes: GPUs, driver, architecture, C library, distribution."""

from __future__ import annotations

import dataclasses

from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.candidates import Candidate
from cudnn_doctor.matrix.gpus import gpu_verdict, is_blackwell, is_data_centre
from cudnn_doctor.matrix.model import DistroPackage, Matrix
from cudnn_doctor.matrix.specs import version_key
from cudnn_doctor.matrix.target import Target, TargetGpu
from cudnn_doctor.matrix.verdict import METHOD_WORDS, Verdict

_BLACKWELL = "570.26"
"""First driver for Blackwell (cuDNN 9.10.2 support matrix)."""
_GLIBC_BEFORE_9 = "2.17"
"""cuDNN 7 and 8 were built for RHEL 7 too (cuDNN 8.9.1 support matrix)."""


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

    target: Target
    matrix: Matrix

    @property
    def name(self) -> str:
        if not self.target.driver:
            return f"driver for CUDA {self.target.driver_cuda}"
        compat = f" with cuda-compat {self.compat}" if self.compat else ""
        return f"driver {self.target.driver}{compat}" + (
            " with a Blackwell GPU" if self.blackwell else ""
        )

    @property
    def blackwell(self) -> bool:
        """Whether any GPU needs a driver of its generation."""
        return any(map(is_blackwell, self.target.gpus))

    @property
    def compat(self) -> str | None:
        """The cuda-compat libcuda that stands in for the driver's: on data-centre GPUs only."""
        gpus = self.target.gpus
        return self.target.compat_driver if gpus and all(map(is_data_centre, gpus)) else None

    @property
    def relax(self) -> str:
        return (
            "upgrade the driver, or on data-centre GPUs install the cuda-compat package "
            "(CUDA forward compatibility)"
        )

    def judge(self, candidate: Candidate) -> Verdict:
        cuda, target = candidate.variant.cuda, self.target
        if not target.driver:
            fits = version_key(cuda)[:1] <= version_key(target.driver_cuda)[:1]
            why = f"the driver supports CUDA {target.driver_cuda}, this is a CUDA {cuda} build"
            return Verdict("ok" if fits else "out", why)
        floor = driver_floor(candidate, self.matrix, blackwell=self.blackwell)
        if floor is None:
            return Verdict("unknown", f"the lowest driver for CUDA {cuda} is not known")
        here = self.compat or target.driver
        given = version_key(here)
        # A bare branch ("535") stands for its newest driver: only the numbers given are compared.
        fits = given >= version_key(floor)[: len(given)]
        reason = " with a Blackwell GPU" if self.blackwell else ""
        known = query.how(self.matrix, candidate.variant, "driver")
        why = f"CUDA {cuda} builds need driver {floor} or newer{reason}; here {here}"
        why += f" ({known})" if known and candidate.variant.driver else ""
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
        why = f"{METHOD_WORDS[candidate.method]} for {candidate.platform}"
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


def driver_floor(candidate: Candidate, matrix: Matrix, *, blackwell: bool) -> str | None:
    """Lowest Linux driver for the candidate; the CUDA family's where the release tells none."""
    variant = candidate.variant
    family = query.driver_floor(matrix, variant.cuda)
    floor = variant.driver or (family.driver if family else None)
    if blackwell:
        return max(floor or "", variant.blackwell_driver or _BLACKWELL, key=version_key)
    return floor
