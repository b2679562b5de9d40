"""What a requested framework asks of cuDNN: the builds that satisfy the request, best first."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudnn_doctor.matrix.candidates import Candidate
from cudnn_doctor.matrix.model import FrameworkNeed, Matrix
from cudnn_doctor.matrix.specs import matches, names_build, parse_version, version_key
from cudnn_doctor.matrix.target import FrameworkRequest, Target

_TAG = re.compile(r"cu\d+")
_CUDNN_WHEEL = re.compile(r"nvidia-cudnn-cu(\d+)")
_CUDA_NAME = re.compile(r".*\bcuda(\d{2})")
_NUMBERS = re.compile(r"\d[\w.]*")
_BUNDLERS = ("bundled", "container")


@dataclasses.dataclass(frozen=True)
class FrameworkBuild:
    """One build of a framework and the cuDNN that it accepts."""

    label: str
    """``torch 2.6.0 (pypi, CUDA 12.4)``."""
    cuda_major: str | None = None
    cudnn: str | None = None
    """PEP 440 on the cuDNN release or build; None: not known, or none needed."""
    cudnn_from: str = ""
    """``pins``, ``accepts`` ..., the verb of the sentence."""
    uses_cudnn: bool = True
    bundles: bool = False
    """It brings its own copy along."""
    known_bad: str = ""
    how: str = "measured"
    """How this is known: documented, measured or inferred."""

    def refuses(self, candidate: Candidate) -> str:
        """Why this build cannot use the candidate, empty when it can (or nothing is known)."""
        if not self.uses_cudnn:
            return ""
        faults = []
        if self.cuda_major not in (None, candidate.cuda):
            faults.append(f"is a CUDA {self.cuda_major} build")
        if self.cudnn and not matches(self.cudnn, candidate.release.version, candidate.build):
            faults.append(f"{self.cudnn_from} cuDNN {self.cudnn}")
        return f"{self.label} {' and '.join(faults)}" if faults else ""

    def exact(self, candidate: Candidate) -> bool:
        """Whether the framework pins exactly this build."""
        return bool(self.cudnn) and names_build(
            self.cudnn or "", candidate.release.version, candidate.build
        )


def find_builds(
    request: FrameworkRequest, target: Target, matrix: Matrix
) -> tuple[FrameworkBuild, ...]:
    """The builds that satisfy the request: newest framework version first, the index's own first.

    Empty when nothing is known about such a version.
    """
    if request.local == "cpu":
        return (FrameworkBuild(label=f"{request.name} (CPU build)", uses_cudnn=False),)
    if pinned := _from_metadata(request):
        return (pinned,)
    found = []
    needs = records_of(request.name, matrix)
    probes = _probe_versions(needs, request)
    for need in needs:
        version = _newest(need, request, probes)
        if version is None or not _fits(need, request, target):
            continue
        order = (
            not need.known_bad,
            version,
            need.channel.startswith("pypi"),
            version_key(need.cuda_built),
        )
        found.append((order, _build(need, version)))
    builds = [build for _, build in sorted(found, key=lambda pair: pair[0], reverse=True)]
    # A build of which nobody knows what cuDNN it needs counts only where there is no other.
    known = [build for build in builds if build.cudnn or not build.uses_cudnn]
    return tuple(known or builds)


def records_of(name: str, matrix: Matrix) -> tuple[FrameworkNeed, ...]:
    """Records of a distribution or, if there is none of that name, of a framework.

    A name that is both (``jax``) means the framework: its CUDA builds are other distributions.
    """
    by_framework = tuple(
        need for need in matrix.frameworks if canonicalize_name(need.framework) == name
    )
    if by_framework:
        return by_framework
    return tuple(need for need in matrix.frameworks if _canonical(need.distribution) == name)


def _canonical(distribution: str) -> str:
    return canonicalize_name(distribution.split("[", maxsplit=1)[0])


def _from_metadata(request: FrameworkRequest) -> FrameworkBuild | None:
    """The build that an installed framework's own metadata describes."""
    for line in request.pins:
        try:
            pin = Requirement(line.split(";")[0])
        except InvalidRequirement:
            continue
        wheel = _CUDNN_WHEEL.fullmatch(canonicalize_name(pin.name))
        if wheel:
            return FrameworkBuild(
                label=f"installed {request.text}",
                cuda_major=wheel[1],
                cudnn=str(pin.specifier) or None,
                cudnn_from="requires",
            )
    return None


def _probe_versions(
    needs: Iterable[FrameworkNeed], request: FrameworkRequest
) -> tuple[Version, ...]:
    """Versions that the records and the request name, newest first: ranges are tried at these."""
    texts = {text for need in needs for text in _NUMBERS.findall(need.versions or "")}
    texts |= set(_NUMBERS.findall(request.specifier))
    # Of equal versions (2.6 and 2.6.0) the longest spelling is kept.
    known: dict[Version, Version] = {}
    for text in sorted(texts, key=lambda text: (len(text), text)):
        if version := parse_version(text.removesuffix(".*").rstrip(".")):
            known[version] = version
    return tuple(sorted(known.values(), reverse=True))


def _newest(
    need: FrameworkNeed, request: FrameworkRequest, probes: tuple[Version, ...]
) -> Version | None:
    try:
        known = SpecifierSet(need.versions or "")
        wanted = SpecifierSet(request.specifier)
    except InvalidSpecifier:
        return None
    for version in probes:
        if version.is_prerelease and not wanted.prereleases:
            continue
        if known.contains(version, prereleases=True) and wanted.contains(version, prereleases=True):
            return version
    return Version("0") if not need.versions and not request.specifier else None


def _fits(need: FrameworkNeed, request: FrameworkRequest, target: Target) -> bool:
    """Whether the record is about the asked CUDA build, this Python and this architecture."""
    tag = _TAG.search(need.channel)
    built = tag[0] if tag else "cu" + (need.cuda_built or "").replace(".", "")
    if request.local and request.local != built:
        return False
    extra = next((m[1] for m in map(_CUDA_NAME.match, request.extras) if m), None)
    if extra and _cuda_major(need) not in (None, extra):
        return False
    if need.python and target.python and not _python_ok(need.python, target.python):
        return False
    arch = {"linux-x86_64": "x86_64", "linux-ppc64le": "ppc64le"}.get(target.platform, "aarch64")
    return not need.archs or arch in need.archs


def _cuda_major(need: FrameworkNeed) -> str | None:
    """CUDA major that it was built for: as recorded, else as its distribution is named."""
    if need.cuda_major is not None:
        return str(need.cuda_major)
    named = _CUDA_NAME.match(need.distribution)
    return named[1] if named else None


def _python_ok(specifier: str, python: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(python, prereleases=True)
    except InvalidSpecifier:
        return True


def _build(need: FrameworkNeed, version: Version) -> FrameworkBuild:
    cuda = f", CUDA {need.cuda_built}" if need.cuda_built else ""
    label = f"{need.distribution} {version} ({need.channel}{cuda})"
    kind = need.cudnn_install_kind
    inherits = kind.startswith("inherits") and not (need.cudnn_install or need.cudnn_runtime)
    if kind == "none" or (need.loader in ("none", "inherits-torch") and inherits):
        return FrameworkBuild(label=label, uses_cudnn=False, known_bad=need.known_bad)
    wanted, verb = need.cudnn_install, "pins" if kind == "pinned" else "asks for"
    if wanted is None:
        wanted, verb = need.cudnn_runtime, "accepts"
    if wanted is None and need.cudnn_major is not None:
        wanted, verb = f"=={need.cudnn_major}.*", "needs"
    return FrameworkBuild(
        label=label,
        cuda_major=_cuda_major(need),
        cudnn=wanted,
        cudnn_from=verb,
        bundles=any(word in need.loader for word in _BUNDLERS),
        known_bad=need.known_bad,
        how=need.how,
    )
