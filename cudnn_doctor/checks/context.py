"""What a rule gets to see: the machine's facts, the matrix and how libraries would be loaded."""

from __future__ import annotations

import functools
from typing import NamedTuple

from cudnn_doctor.checks.registry import Skip
from cudnn_doctor.machine.loads import Consumer, LoadPlan
from cudnn_doctor.machine.model import (
    CudnnCopy,
    Distribution,
    Environment,
    Framework,
    Library,
    Machine,
)
from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.model import FrameworkNeed, Matrix, Release, Variant
from cudnn_doctor.versions import CudnnVersion

BY_PATH = "a program that opens the wheel"
"""Name of the consumer that opens an environment's wheel by its path, where no framework does."""


class Options(NamedTuple):
    """What the user told about the machine and about the judgement."""

    no_gpu: bool = False
    """No GPU is meant to be there (image build, login node): judge the rest."""
    only: tuple[str, ...] = ()
    """Run only the rules with these ids."""
    skip: tuple[str, ...] = ()


class Context:
    """Facts and look-ups shared by the rules; everything derived is computed once, on demand."""

    def __init__(
        self,
        machine: Machine,
        matrix: Matrix,
        options: Options | None = None,
        plans: tuple[LoadPlan, ...] | None = None,
    ) -> None:
        self.machine = machine
        self.matrix = matrix
        self.options = options or Options()
        self._plans = plans

    @functools.cached_property
    def plans(self) -> tuple[LoadPlan, ...]:
        """What each consumer of cuDNN on this machine would load."""
        if self._plans is not None:
            return self._plans
        from cudnn_doctor.machine.assumed import known_files
        from cudnn_doctor.machine.loader import simulate, simulate_all

        files = known_files(self.machine)
        plans = simulate_all(self.machine, files=files)
        users = {plan.consumer.environment for plan in plans if plan.uses_cudnn}
        by_path = (
            Consumer(
                name=BY_PATH,
                environment=copy.environment,
                scheme="wheel-by-path",
                major=copy.major,
                cuda=copy.cuda,
            )
            for copy in self.machine.copies or ()
            if copy.kind == "wheel" and copy.environment and copy.environment not in users
        )
        return (*plans, *(simulate(self.machine, c, files=files) for c in by_path))

    @functools.cached_property
    def copies(self) -> tuple[CudnnCopy, ...]:
        """All copies of cuDNN. Raises Skip where nobody looked for them."""
        if self.machine.copies is None:
            raise Skip("the copies of cuDNN are not known")
        return self.machine.copies

    @functools.cached_property
    def libraries(self) -> dict[str, Library]:
        """Library by path."""
        return {library.path: library for library in self.machine.libraries}

    @functools.cached_property
    def by_name(self) -> dict[str, list[Library]]:
        """Libraries by file name."""
        found: dict[str, list[Library]] = {}
        for library in self.machine.libraries:
            found.setdefault(file_of(library.path), []).append(library)
        return found

    @functools.cached_property
    def search_path(self) -> tuple[str, ...]:
        """Folders of LD_LIBRARY_PATH."""
        value = self.machine.environ.get("LD_LIBRARY_PATH", "")
        return tuple(folder.rstrip("/") or "/" for folder in value.split(":") if folder)

    def release(self, version: str | None) -> Release | None:
        """The matrix's record of a version."""
        return query.release(self.matrix, version) if version else None

    def variant(self, version: str | None, cuda: str | None) -> Variant | None:
        """The CUDA flavour of a release; its only one where the flavour is not known."""
        return query.variant(self.matrix, version, cuda) if version else None

    def need(self, framework: Framework) -> FrameworkNeed | None:
        """The matrix's record of a framework's version and CUDA build."""
        cuda = framework.cuda if numbers(framework.cuda) else None
        name, version = framework.name, framework.version
        by_distribution = framework.distribution or None
        return query.framework_need(
            self.matrix, name, by_distribution, version, cuda
        ) or query.framework_need(self.matrix, name, None, version, cuda)

    def environment(self, prefix: str | None) -> Environment | None:
        """Python environment by its prefix."""
        return next((e for e in self.machine.environments if e.prefix == prefix), None)

    def copy_at(self, folder: str | None) -> CudnnCopy | None:
        """The copy in a folder."""
        return next((c for c in self.machine.copies or () if c.folder == folder), None)

    def used_folders(self) -> frozenset[str]:
        """Folders from which some consumer would load a part of cuDNN."""
        loads = [x for p in self.plans for x in (p.shim, *p.sublibraries) if x and x.path]
        return frozenset(folder_of(x.path) for x in loads if x.path)


def parse(version: str | None) -> CudnnVersion | None:
    """A cuDNN version, None where the text is none."""
    try:
        return CudnnVersion.parse(version) if version else None
    except ValueError:
        return None


def same_release(one: str | None, other: str | None) -> bool | None:
    """Whether two versions are of one release (builds do not count); None where one is unknown."""
    first, second = parse(one), parse(other)
    return None if first is None or second is None else first.release == second.release


def matches(version: str, specifier: str) -> bool:
    """Whether a PEP 440 version satisfies a specifier; False where either is malformed."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


def numbers(version: str | None) -> tuple[int, ...]:
    """The leading numbers of a dotted version, ``"525.60.13"`` -> (525, 60, 13)."""
    found: list[int] = []
    for part in (version or "").split("."):
        if not part.isdecimal():
            break
        found.append(int(part))
    return tuple(found)


def folder_of(path: str) -> str:
    """The folder part of a path."""
    return path.rpartition("/")[0] or "/"


def file_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def distribution(environment: Environment, name: str) -> Distribution | None:
    """An installed distribution by its normalised name."""
    return next((d for d in environment.distributions if d.name == name), None)


def cudnn_wheels(environment: Environment) -> list[Distribution]:
    """The installed ``nvidia-cudnn-cuNN`` distributions (full flavour)."""
    return [d for d in environment.distributions if d.name.startswith("nvidia-cudnn-cu")]
