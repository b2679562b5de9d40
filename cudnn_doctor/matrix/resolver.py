"""The resolver: the newest cuDNN that a target allows, or the smallest set of demands that clash.

The rule, in full. A candidate is one artefact (wheel, archive, package) of one release build for
one CUDA flavour; a constraint judges it *ok*, *ruled out* or *unknown*. Of the candidates that
nothing rules out, those that are *ok* throughout go before those with something unknown; then those
that suit the newest build of each requested framework; then the newest release; then the newest
CUDA major. Nothing is decided by nvcc. With no driver known the driver rules nothing out, and the
answer says which driver it needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.matrix.candidates import Candidate, candidates
from cudnn_doctor.matrix.conflict import allowed, relaxations, smallest_conflict
from cudnn_doctor.matrix.constraints import constraints
from cudnn_doctor.matrix.frameworks import find_builds, records_of
from cudnn_doctor.matrix.gpus import is_blackwell
from cudnn_doctor.matrix.machine_constraints import driver_floor
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.matrix.packages import ArchiveAnswer, ways
from cudnn_doctor.matrix.query import gpu_by_cc
from cudnn_doctor.matrix.specs import version_key
from cudnn_doctor.matrix.target import Target
from cudnn_doctor.matrix.verdict import Constraint, Verdict
from cudnn_doctor.matrix.wish_constraints import (
    FrameworkConstraint,
    SoundConstraint,
    VersionConstraint,
)


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """What one constraint said."""

    constraint: str
    why: str


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    """A release newer than the answer and what ruled it out."""

    version: str
    cuda: str
    by: tuple[Reason, ...]


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    version: str
    build: str
    cuda: str
    """CUDA major."""
    flavour: str
    certain: bool
    """False when something that the target demands is not known of this release."""
    driver: str | None
    """Lowest driver that it needs."""
    packages: dict[str, list[str]]
    archive: ArchiveAnswer | None
    commands: dict[str, list[str]]
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    newer: tuple[RuledOut, ...] = ()
    """Newest first."""


class Relaxation(msgspec.Struct, frozen=True, kw_only=True):
    """Constraints to lift together, and the answer that this would give."""

    constraints: tuple[str, ...]
    how: tuple[str, ...]
    version: str
    build: str
    cuda: str


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """No answer: the smallest set of constraints that clash, and what lifting them would give."""

    constraints: tuple[str, ...]
    why: tuple[Reason, ...]
    relax: tuple[Relaxation, ...]
    notes: tuple[str, ...] = ()


def resolve(target: Target, matrix: Matrix) -> Resolution | Conflict:
    """Resolve a target. Deterministic: the same target and matrix give the same answer.

    Raises DoctorError when a requested framework is not in the matrix (exit code CANNOT_TELL).
    """
    return _Resolver(target, matrix).run()


class _Resolver:
    def __init__(self, target: Target, matrix: Matrix) -> None:
        self.target = target
        self.matrix = matrix
        self.frameworks, self.notes = _frameworks(target, matrix)
        self.constraints: dict[str, Constraint] = {
            c.name: c for c in constraints(target, matrix, self.frameworks)
        }
        self.candidates = candidates(matrix)
        self.verdicts: dict[str, list[Verdict]] = {
            name: [constraint.judge(candidate) for candidate in self.candidates]
            for name, constraint in self.constraints.items()
        }
        self.everything = (1 << len(self.candidates)) - 1
        self.masks = {
            name: sum(1 << i for i, verdict in enumerate(row) if verdict.state != "out")
            for name, row in self.verdicts.items()
        }

    def run(self) -> Resolution | Conflict:
        left = allowed(self.masks, list(self.masks), self.everything)
        return self._resolution(left) if left else self._conflict()

    def best(self, left: int) -> int:
        """Index of the best candidate of a bit set."""
        return max(_bits(left), key=lambda index: (self._rank(index), -index))

    def _rank(self, index: int) -> tuple[Any, ...]:
        candidate = self.candidates[index]
        chosen = (c.chosen(candidate) for c in self.frameworks)
        # A lifted framework constraint chooses nothing: it ranks last.
        suits = tuple(-position if position is not None else -999 for position in chosen)
        return not self._unknowns(index), suits, candidate.age

    def _unknowns(self, index: int) -> list[str]:
        return [name for name, row in self.verdicts.items() if row[index].state == "unknown"]

    def _resolution(self, left: int) -> Resolution:
        best = self.best(left)
        chosen = self.candidates[best]
        same = [i for i in _bits(left) if self.candidates[i].group == chosen.group]
        same.sort(key=lambda index: (len(self._unknowns(index)), index != best, index))
        found = ways((self.candidates[index] for index in same), self.matrix)
        return Resolution(
            version=chosen.release.version,
            build=chosen.build,
            cuda=chosen.cuda,
            flavour=chosen.flavour,
            certain=not self._unknowns(best),
            driver=self._driver(chosen),
            packages=found.packages,
            archive=found.archive,
            commands=found.commands,
            reasons=tuple(self._reasons(best)),
            notes=(*self.target.notes, *self.notes, *self._advice(best)),
            newer=tuple(self._newer(chosen)),
        )

    def _driver(self, candidate: Candidate) -> str | None:
        blackwell = any(map(is_blackwell, self.target.gpus))
        return driver_floor(candidate, self.matrix, blackwell=blackwell)

    def _reasons(self, best: int) -> Iterable[str]:
        for name, row in self.verdicts.items():
            verdict = row[best]
            if verdict.why:
                prefix = "not known: " if verdict.state == "unknown" else ""
                yield f"{name}: {prefix}{verdict.why}"
        newest = self.candidates[best]
        yield f"newest release that all of this allows: {newest.release.version}" + (
            f" (source: {self._source(newest)})" if self._source(newest) else ""
        )

    def _source(self, candidate: Candidate) -> str:
        row = candidate.variant if candidate.variant.source else candidate.release
        source = self.matrix.sources.get(row.source)
        return f"{source.how}, {source.title}" if source else row.source

    def _advice(self, best: int) -> Iterable[str]:
        chosen, target = self.candidates[best], self.target
        floor = self._driver(chosen)
        if not (target.driver or target.driver_cuda) and floor:
            yield f"no driver is known: this needs {floor} or newer; --driver or --cuda narrows it"
        for gpu in target.gpus:
            if gpu.cc is None:
                yield f"{gpu.label}: compute capability not known, so it was not considered"
            model = gpu_by_cc(self.matrix, gpu.cc or "")
            last = model.last_driver_branch if model else None
            if last and version_key(target.driver)[:1] > version_key(last):
                yield f"{gpu.label}: driver branch {last} is the last that drives it"
        if unknown := self._unknowns(best):
            yield f"no release is known to satisfy {', '.join(unknown)}; verify it after installing"

    def _newer(self, chosen: Candidate) -> Iterable[RuledOut]:
        groups: dict[tuple[str, str], list[int]] = {}
        for index, candidate in enumerate(self.candidates):
            same_kind = candidate.flavour == self.target.flavour
            if same_kind and candidate.age[:2] > chosen.age[:2]:
                key = candidate.release.version, candidate.variant.cuda
                groups.setdefault(key, []).append(index)
        for (version, cuda), members in sorted(
            groups.items(), key=lambda item: self.candidates[item[1][0]].age, reverse=True
        ):
            yield RuledOut(version=version, cuda=cuda, by=tuple(self._against(members)))

    def _against(self, members: Sequence[int]) -> Iterable[Reason]:
        """The constraints that rule out all of a release's artefacts, else all that rule out any.

        Where nothing rules it out, what is unknown or which framework build it does not suit.
        """
        out = {
            name: [i for i in members if row[i].state == "out"]
            for name, row in self.verdicts.items()
        }
        whole = [name for name, hit in out.items() if len(hit) == len(members)]
        some = whole or [name for name, hit in out.items() if hit]
        open_members = [i for i in members if all(i not in hit for hit in out.values())]
        if open_members:
            for name in self._unknowns(open_members[0]):
                why = self.verdicts[name][open_members[0]].why
                yield Reason(constraint=name, why=f"not known: {why}")
            if not self._unknowns(open_members[0]):
                for c in self.frameworks:
                    yield Reason(constraint=c.name, why="suits an older framework build only")
            return
        for name in some:
            yield Reason(constraint=name, why=self.verdicts[name][out[name][0]].why)

    def _conflict(self) -> Conflict:
        names = smallest_conflict(self.masks, self.everything)
        return Conflict(
            constraints=names,
            why=tuple(Reason(constraint=name, why=self._typical(name)) for name in names),
            relax=tuple(self._relaxation(lifted, left) for lifted, left in self._lifts()),
            notes=(*self.target.notes, *self.notes),
        )

    def _lifts(self) -> list[tuple[tuple[str, ...], int]]:
        found = [
            (lifted, sound)
            for lifted, left in relaxations(self.masks, self.everything)
            if (sound := self._still_sound(left, lifted))
        ]
        found.sort(key=lambda pair: (self._rank(self.best(pair[1])), pair[0]), reverse=True)
        return found

    def _still_sound(self, left: int, lifted: tuple[str, ...]) -> int:
        """Drop faulty releases that only a lifted constraint had asked for by number."""
        rest = [c for name, c in self.constraints.items() if name not in lifted]
        sound = next((c for c in rest if isinstance(c, SoundConstraint)), None)
        if sound is None:
            return left
        asked = dataclasses.replace(
            sound,
            version=sound.version if any(isinstance(c, VersionConstraint) for c in rest) else None,
            frameworks=tuple(c for c in rest if isinstance(c, FrameworkConstraint)),
        )
        good = [i for i in _bits(left) if asked.judge(self.candidates[i]).state != "out"]
        return sum(1 << i for i in good)

    def _typical(self, name: str) -> str:
        """Why the constraint rules out the newest of the releases that it rules out."""
        row = self.verdicts[name]
        out = [i for i, verdict in enumerate(row) if verdict.state == "out"]
        return row[max(out, key=lambda i: (self.candidates[i].age, -i))].why if out else ""

    def _relaxation(self, lifted: tuple[str, ...], left: int) -> Relaxation:
        answer = self.candidates[self.best(left)]
        return Relaxation(
            constraints=lifted,
            how=tuple(self.constraints[name].relax for name in lifted),
            version=answer.release.version,
            build=answer.build,
            cuda=answer.cuda,
        )


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _frameworks(
    target: Target, matrix: Matrix
) -> tuple[tuple[FrameworkConstraint, ...], tuple[str, ...]]:
    """Constraints of the requested frameworks; notes about installed ones that nobody knows."""
    found, notes = [], []
    for request in dict.fromkeys(target.frameworks):
        builds = find_builds(request, target, matrix)
        if builds:
            found.append(FrameworkConstraint(request, builds))
            notes += [
                f"{build.label}: {build.known_bad}" for build in builds[:1] if build.known_bad
            ]
        elif request.installed:
            notes.append(f"nothing is known about installed {request.text}: not considered")
        else:
            known = sorted({need.versions for need in records_of(request.name, matrix)})
            raise DoctorError(
                f"the matrix knows nothing about {request.text}",
                where=f"known versions of {request.name}: {', '.join(known)}" if known else "",
                next_step="cudnn-doctor matrix show lists what is known; --version pins a release",
                exit_code=ExitCode.CANNOT_TELL,
            )
    return tuple(found), tuple(notes)
