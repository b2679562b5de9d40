"""Constraints that a person makes: CUDA, frameworks, method, flavour, release, soundness."""

from __future__ import annotations

import dataclasses

from cudnn_doctor.matrix.candidates import Candidate
from cudnn_doctor.matrix.frameworks import FrameworkBuild
from cudnn_doctor.matrix.model import Issue
from cudnn_doctor.matrix.specs import matches, names_build, version_key
from cudnn_doctor.matrix.target import Flavour, FrameworkRequest, Method, TargetGpu
from cudnn_doctor.matrix.verdict import METHOD_WORDS, Verdict


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

    def build_for(self, candidate: Candidate) -> str:
        """Label of that build, empty when none accepts it."""
        best = self.chosen(candidate)
        return self.builds[best].label if best is not None else ""

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
        why = f"a {METHOD_WORDS[candidate.method]}, asked for {METHOD_WORDS[self.method]}"
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
