"""`Candidate`: one way to get one cuDNN build; the resolver chooses among all of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from cudnn_doctor.matrix.model import Archive, DistroPackage, Matrix, Release, Variant, Wheel
from cudnn_doctor.matrix.specs import matches, version_key
from cudnn_doctor.matrix.target import Flavour, Method

_PACKAGE = re.compile(r"nvidia-cudnn-(?P<jit>jit-)?cu(?P<cuda>\d+)")
_POST = re.compile(r"\.post\d+$")
_REPOSITORY_PLATFORMS = ("linux-x86_64", "linux-sbsa")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A release build, for one CUDA flavour, as one artefact for one platform."""

    release: Release
    variant: Variant
    flavour: Flavour
    build: str
    """``"9.10.2.21"``, or the release where the build is not known."""
    method: Method
    platform: str
    artefact: Wheel | Archive | DistroPackage
    yanked: str = ""
    """Why the index withdrew this release for this CUDA, empty when it did not."""

    @property
    def cuda(self) -> str:
        """CUDA major as text."""
        return self.variant.cuda.split(".")[0]

    @property
    def group(self) -> tuple[str, str, str]:
        """What the artefacts of one answer have in common: build, CUDA flavour, full or jit."""
        return self.build, self.variant.cuda, self.flavour

    @property
    def age(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Ordering, newest last: release, then CUDA, then build."""
        return (
            version_key(self.release.version),
            version_key(self.variant.cuda),
            version_key(self.build),
        )


def candidates(matrix: Matrix) -> tuple[Candidate, ...]:
    """Every candidate of the matrix, oldest release first."""
    return tuple(
        candidate
        for release in matrix.releases
        for variant in release.variants
        for candidate in _of_variant(release, variant, matrix)
    )


def _of_variant(release: Release, variant: Variant, matrix: Matrix) -> Iterator[Candidate]:
    found = [*_wheels(release, variant), *_archives(release, variant)]
    yield from found
    yield from _packages(release, variant, matrix, {(c.flavour, c.platform) for c in found})


def _packages(
    release: Release, variant: Variant, matrix: Matrix, built: set[tuple[Flavour, str]]
) -> Iterator[Candidate]:
    """Packages of NVIDIA's repositories: for the platforms that the release was built for."""
    build = release.build or release.version
    for package in matrix.distro_packages:
        same_cuda = package.cuda in (None, variant.cuda, variant.cuda.split(".")[0])
        if not same_cuda or not matches(package.cudnn, release.version, build):
            continue
        for flavour, names in _flavours(package):
            for platform in _REPOSITORY_PLATFORMS:
                if names and (flavour, platform) in built:
                    yanked = _yanked(release, variant.cuda, flavour)
                    yield Candidate(
                        release, variant, flavour, build, "package", platform, package, yanked
                    )


def _flavours(package: DistroPackage) -> tuple[tuple[Flavour, tuple[str, ...]], ...]:
    return ("full", package.runtime), ("jit", package.jit)


def _wheels(release: Release, variant: Variant) -> Iterator[Candidate]:
    for wheel in release.wheels:
        name = _PACKAGE.fullmatch(wheel.package)
        if name is None or name["cuda"] != variant.cuda.split(".")[0]:
            continue
        flavour: Flavour = "jit" if name["jit"] else "full"
        platform = "linux-sbsa" if wheel.arch == "aarch64" else f"linux-{wheel.arch}"
        build = _POST.sub("", wheel.version)
        yield Candidate(release, variant, flavour, build, "wheel", platform, wheel, wheel.yanked)


def _archives(release: Release, variant: Variant) -> Iterator[Candidate]:
    for archive in release.archives:
        same_major = archive.cuda.split(".")[0] == variant.cuda.split(".")[0]
        general = "." not in variant.cuda or "." not in archive.cuda
        if archive.cuda != variant.cuda and not (same_major and general):
            continue
        build = archive.version or release.build or release.version
        yield Candidate(
            release,
            variant,
            archive.flavour,
            build,
            "tarball",
            archive.platform,
            archive,
            _yanked(release, variant.cuda, archive.flavour),
        )


def _yanked(release: Release, cuda: str, flavour: Flavour) -> str:
    """Why the wheels of the same build were withdrawn: the archive holds the same libraries."""
    jit = "jit-" if flavour == "jit" else ""
    package = f"nvidia-cudnn-{jit}cu{cuda.split('.', maxsplit=1)[0]}"
    reasons = [wheel.yanked for wheel in release.wheels if wheel.package == package]
    return reasons[0] if reasons and all(reasons) else ""
