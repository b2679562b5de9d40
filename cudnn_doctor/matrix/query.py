"""Look-ups in the matrix: small pure functions that say "not known" by returning None.

Versions may be given with or without the build (``9.10.2`` or ``9.10.2.21``), CUDA as a major or
with its minor (``"12"`` or ``"12.4"``).
"""

from __future__ import annotations

import re
from typing import Literal

from cudnn_doctor.matrix.model import (
    Archive,
    CudaFloor,
    DistroPackage,
    DriverBranch,
    FrameworkNeed,
    GpuModel,
    How,
    Issue,
    Matrix,
    NvidiaRepository,
    Release,
    Sourced,
    Variant,
    Wheel,
)
from cudnn_doctor.matrix.specs import matches, parse_version, version_key

Flavour = Literal["full", "jit"]
_POST = re.compile(r"\.post\d+$")
_SERIES = re.compile(r"\b(rtx|gtx|gt)(\d)")
_SUFFIX = re.compile(r"(\d)(ti|super)\b")
_WORD = re.compile(r"[a-z0-9]+")


def how(matrix: Matrix, record: Sourced, field: str) -> How | None:
    """How the value of a field was got: documented, measured or inferred."""
    source = matrix.sources.get(record.sources.get(field, record.source))
    return source.how if source else None


def release(matrix: Matrix, version: str) -> Release | None:
    """The record of a release, found by release or build number."""
    wanted = (*version_key(version), 0, 0)[:3]
    return next((r for r in matrix.releases if version_key(r.version) == wanted), None)


def newest(matrix: Matrix, cuda: str | None = None) -> Release | None:
    """The newest release, or the newest that has a flavour for a CUDA major."""
    for found in reversed(matrix.releases):
        if found.status == "release" and (cuda is None or variant_of(found, cuda)):
            return found
    return None


def variant_of(found: Release, cuda: str | None) -> Variant | None:
    """The flavour for a CUDA version: the exact build, or the one of the same major.

    Without a CUDA version: the only flavour, None where there are several.
    """
    if not cuda:
        return found.variants[0] if len(found.variants) == 1 else None
    exact = [v for v in found.variants if v.cuda == cuda]
    major = [v for v in found.variants if _major(v.cuda) == _major(cuda)]
    if not exact and len(major) > 1 and "." not in cuda:
        return major[-1]
    fitting = exact or [v for v in major if "." not in v.cuda or "." not in cuda]
    return fitting[0] if fitting else None


def variant(matrix: Matrix, version: str, cuda: str | None) -> Variant | None:
    """The flavour of a release for a CUDA version."""
    found = release(matrix, version)
    return variant_of(found, cuda) if found else None


def sublibraries(
    matrix: Matrix, version: str, cuda: str | None, flavour: Flavour = "full"
) -> tuple[str, ...] | None:
    """SONAMEs that a release ships, shim first; None where that is not known."""
    found = release(matrix, version)
    if found is None:
        return None
    if flavour == "jit":
        return found.jit_libraries
    own = variant_of(found, cuda)
    return (own.libraries if own else None) or found.libraries


def wheels_for(
    matrix: Matrix, version: str, cuda: str, arch: str | None = None, flavour: Flavour = "full"
) -> tuple[Wheel, ...]:
    """Wheels of a release (of a build, where one is named), yanked ones included."""
    found = release(matrix, version)
    package = f"nvidia-cudnn-{'jit-' if flavour == 'jit' else ''}cu{_major(cuda)}"
    build = version if version.count(".") == 3 else None
    return tuple(
        w
        for w in (found.wheels if found else ())
        if w.package == package
        and arch in (None, w.arch)
        and build in (None, w.version, _POST.sub("", w.version))
    )


def wheel_for(
    matrix: Matrix, version: str, cuda: str, arch: str, flavour: Flavour = "full"
) -> Wheel | None:
    """The wheel to install: the newest upload that is not yanked."""
    good = [w for w in wheels_for(matrix, version, cuda, arch, flavour) if not w.yanked]
    return max(good, key=lambda w: (version_key(w.version), w.file), default=None)


def archive_for(
    matrix: Matrix, version: str, cuda: str, platform: str, flavour: Flavour = "full"
) -> Archive | None:
    """The archive of a release for a CUDA version and platform (``linux-x86_64``); newest build."""
    found = release(matrix, version)
    own = variant_of(found, cuda) if found else None
    if found is None or own is None:
        return None
    build = version if version.count(".") == 3 else None
    fitting = [
        a
        for a in found.archives
        if a.platform == platform
        and a.flavour == flavour
        and _same_cuda(a.cuda, own.cuda)
        and build in (None, a.version or found.build)
    ]
    return max(fitting, key=lambda a: version_key(a.version or found.build), default=None)


def archive_url(matrix: Matrix, archive: Archive) -> str:
    """Where the vendor serves an archive."""
    return (matrix.legacy_base if archive.legacy else matrix.redist_base) + archive.path


def gpu_by_cc(matrix: Matrix, cc: str) -> GpuModel | None:
    """The record of a compute capability."""
    return next((g for g in matrix.gpus if g.cc == cc), None)


def gpu_by_name(matrix: Matrix, name: str) -> GpuModel | None:
    """The compute capability of a product: the longest known name whose words are all in ``name``.

    Whole words only, in order: ``RTX 3090`` is in ``NVIDIA GeForce RTX 3090``, ``309`` is not. A
    part of a name will do (``5090``) if it has a number and all products with it are of one
    capability. Where two capabilities fit equally well the answer is None.
    """
    asked = _words(name)
    if not asked:
        return None
    known = [(model, _words(product)) for model in matrix.gpus for product in model.names]
    longest = max((len(words) for _, words in known if _contains(asked, words)), default=0)
    fitting = {m.cc: m for m, words in known if len(words) == longest and _contains(asked, words)}
    if not longest and any(character.isdigit() for character in name):
        fitting = {m.cc: m for m, words in known if _contains(words, asked)}
    return next(iter(fitting.values())) if len(fitting) == 1 else None


def driver_branch(matrix: Matrix, driver: str) -> DriverBranch | None:
    """The branch of a driver version (``535.104.05`` is of 535)."""
    major = _major(driver)
    return next((b for b in matrix.driver_branches if b.branch == major), None)


def driver_floor(matrix: Matrix, cuda: str) -> CudaFloor | None:
    """Lowest driver for a CUDA major under minor-version compatibility, or for an exact minor."""
    exact = [f for f in matrix.cuda_floors if f.cuda == cuda]
    major = [f for f in matrix.cuda_floors if f.cuda == _major(cuda)]
    return next(iter((*exact, *major)), None)


def toolkit_driver(matrix: Matrix, cuda: str) -> str | None:
    """Driver that a CUDA toolkit was first packaged with: needed for its PTX to be compiled."""
    found = [t.driver for t in matrix.toolkit_drivers if t.cuda == cuda and t.driver]
    return min(found, key=version_key, default=None)


def framework_needs(
    matrix: Matrix,
    framework: str,
    distribution: str | None,
    version: str,
    cuda: str | None = None,
) -> tuple[FrameworkNeed, ...]:
    """All records for one version of a framework; a version's own local tag (``+cu126``) counts."""
    parsed = parse_version(version)
    if parsed is None:
        return ()
    tag, public = parsed.local or "", parsed.public
    rows = [
        need
        for need in matrix.frameworks
        if need.distribution == distribution or (not distribution and need.framework == framework)
        if need.versions and matches(need.versions, public, public)
    ]
    if tag.startswith("cu"):
        rows = [r for r in rows if r.channel.endswith(f"/{tag}")] or rows
    else:
        rows = [r for r in rows if r.channel.startswith("pypi")] or rows
    if cuda:
        rows = [r for r in rows if r.cuda_major in (None, int(_major(cuda)))] or rows
    return tuple(rows)


def framework_need(
    matrix: Matrix,
    framework: str,
    distribution: str | None,
    version: str,
    cuda: str | None = None,
) -> FrameworkNeed | None:
    """The record for one version of a framework, the most specific first; None: not known."""
    rows = framework_needs(matrix, framework, distribution, version, cuda)
    exact = [r for r in rows if r.versions.startswith("==") and not r.versions.endswith("*")]
    return (*exact, *rows)[0] if rows else None


def issues_for(
    matrix: Matrix, version: str, cuda: str | None = None, cc: str | None = None
) -> tuple[Issue, ...]:
    """Known issues of a release; None for CUDA or compute capability means any."""
    found = release(matrix, version)
    number = found.version if found else ".".join(map(str, version_key(version)[:3]))
    build = version if version.count(".") == 3 else (found.build if found else None)
    return tuple(
        issue
        for issue in matrix.issues
        if matches(issue.affects, number, build)
        and (not cuda or not issue.cuda or _major(issue.cuda) == _major(cuda))
        and (not cc or not issue.cc or cc in issue.cc)
    )


def repository_for(
    matrix: Matrix, distro_id: str, version_id: str, arch: str | None = None
) -> NvidiaRepository | None:
    """NVIDIA's repository for os-release ``ID`` and ``VERSION_ID`` (``rhel`` ``9.4`` is 9's)."""
    names = {f"{distro_id} {version_id}", f"{distro_id} {_major(version_id)}", f"{distro_id} *"}
    for repository in matrix.repositories:
        if names & set(repository.ids) and (
            not arch or not repository.archs or arch in repository.archs
        ):
            return repository
    return None


def distro_packages_for(
    matrix: Matrix,
    manager: str,
    version: str,
    cuda: str | None = None,
    repo: str | None = None,
) -> tuple[DistroPackage, ...]:
    """Package names of one manager for a release and CUDA, NVIDIA's own first."""
    found = release(matrix, version)
    number, build = (found.version, found.build) if found else (version, None)
    rows = [
        row
        for row in matrix.distro_packages
        if row.manager == manager
        and repo in (None, row.repo)
        and matches(row.cudnn, number, build)
        and (not cuda or not row.cuda or _same_cuda(row.cuda, cuda))
    ]
    return tuple(sorted(rows, key=lambda row: row.repo != "nvidia"))


def _major(text: str) -> str:
    return text.partition(".")[0]


def _same_cuda(one: str, other: str) -> bool:
    """Equal, or of one major where at least one of them names no minor."""
    return one == other or (_major(one) == _major(other) and ("." not in one or "." not in other))


def _words(name: str) -> list[str]:
    """``RTX2080Ti`` and ``RTX 2080 Ti`` are the same words."""
    spaced = _SUFFIX.sub(r"\1 \2", _SERIES.sub(r"\1 \2", name.lower()))
    return _WORD.findall(spaced)


def _contains(words: list[str], part: list[str]) -> bool:
    """Whether ``part`` occurs in ``words`` as a run of whole words."""
    size = len(part)
    return any(words[at : at + size] == part for at in range(len(words) - size + 1))
