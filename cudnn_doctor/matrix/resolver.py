"""The resolver: the newest cuDNN that a target allows, or the smallest set of demands that clash.

The rule, in full. A candidate is one artefact (wheel, archive, package) of one release build for
one CUDA flavour; a constraint judges it *ok*, *ruled out* or *unknown*. Of the candidates that
nothing rules out, those that are *ok* throughout go before those with something unknown; then those
that suit the newest build of each requested framework; then the newest release; then the newest
CUDA major. Nothing is decided by nvcc. With no driver known the driver rules nothing out, and the
answer says which driver it needs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.matrix.candidates import Candidate, candidates
from cudnn_doctor.matrix.conflict import allowed, relaxations, smallest_conflict
from cudnn_doctor.matrix.constraints import constraints
from cudnn_doctor.matrix.frameworks import find_builds, records_of
from cudnn_doctor.matrix.gpus import is_blackwell, is_data_centre
from cudnn_doctor.matrix.judgement import Judgement
from cudnn_doctor.matrix.machine_constraints import DriverConstraint, driver_floor
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.matrix.packages import ways
from cudnn_doctor.matrix.query import gpu_by_cc
from cudnn_doctor.matrix.resolution import Conflict, Reason, Relaxation, Resolution, RuledOut
from cudnn_doctor.matrix.specs import version_key
from cudnn_doctor.matrix.target import FrameworkRequest, Target
from cudnn_doctor.matrix.wish_constraints import FrameworkConstraint

__all__ = ["Conflict", "Resolution", "resolve"]


def resolve(target: Target, matrix: Matrix) -> Resolution | Conflict:
    """Resolve a target. Deterministic: the same target and matrix give the same answer.

    Raises DoctorError when a requested framework is not in the matrix (exit code CANNOT_TELL).
    """
    return _Resolver(target, matrix).run()


class _Resolver:
    def __init__(self, target: Target, matrix: Matrix) -> None:
        self.target = target
        self.matrix = matrix
        frameworks, self.notes = _frameworks(target, matrix)
        self.candidates = candidates(matrix)
        self.judged = Judgement(self.candidates, constraints(target, matrix, frameworks))

    def run(self) -> Resolution | Conflict:
        best = self.judged.best()
        return self._conflict() if best is None else self._resolution(best)

    def _resolution(self, best: int) -> Resolution:
        chosen, judged = self.candidates[best], self.judged
        same = [i for i in judged.left() if self.candidates[i].group == chosen.group]
        same.sort(key=lambda index: (len(judged.unknowns(index)), index != best, index))
        found = ways((self.candidates[index] for index in same), self.matrix)
        return Resolution(
            version=chosen.release.version,
            build=chosen.build,
            cuda=chosen.cuda,
            flavour=chosen.flavour,
            certain=not judged.unknowns(best),
            driver=self._driver(chosen),
            packages=found.packages,
            archive=found.archive,
            commands=found.commands,
            frameworks={c.request.text: c.build_for(chosen) for c in judged.frameworks},
            reasons=tuple(self._reasons(best)),
            notes=(*self.notes, *self._advice(best)),
            newer=tuple(self._newer(chosen)),
        )

    def _driver(self, candidate: Candidate) -> str | None:
        blackwell = any(map(is_blackwell, self.target.gpus))
        return driver_floor(candidate, self.matrix, blackwell=blackwell)

    def _reasons(self, best: int) -> Iterable[str]:
        for name, row in self.judged.rows.items():
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
        if target.toolkit and not target.cuda and target.toolkit.split(".")[0] != chosen.cuda:
            yield (
                f"the active CUDA toolkit is {target.toolkit}: to build programs with it, ask with "
                f"--cuda {target.toolkit}"
            )
        yield from self._forward_compatibility(chosen)
        for gpu in target.gpus:
            if gpu.cc is None:
                yield f"{gpu.label}: compute capability not known, so it was not considered"
            model = gpu_by_cc(self.matrix, gpu.cc or "")
            last = model.last_driver_branch if model else None
            if last and version_key(target.driver)[:1] > version_key(last):
                yield f"{gpu.label}: driver branch {last} is the last that drives it"
        if unknown := self.judged.unknowns(best):
            yield f"no release is known to satisfy {', '.join(unknown)}; verify it after installing"

    def _forward_compatibility(self, chosen: Candidate) -> Iterable[str]:
        """What a cuda-compat package would allow where the driver alone holds a newer CUDA back."""
        driver = next(
            (c for c in self.judged.constraints.values() if isinstance(c, DriverConstraint)), None
        )
        gpus = self.target.gpus
        if driver is None or not gpus or not all(map(is_data_centre, gpus)):
            return
        best = self.judged.without([driver.name]).best()
        if best is not None and self.candidates[best].age[:2] > chosen.age[:2]:
            better = self.candidates[best]
            yield (
                f"on data-centre GPUs the cuda-compat package for CUDA {better.cuda} (forward "
                f"compatibility) would allow cuDNN {better.build} without a newer driver"
            )

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
            for name, row in self.judged.rows.items()
        }
        whole = [name for name, hit in out.items() if len(hit) == len(members)]
        some = whole or [name for name, hit in out.items() if hit]
        open_members = [i for i in members if all(i not in hit for hit in out.values())]
        if open_members:
            for name in self.judged.unknowns(open_members[0]):
                why = self.judged.rows[name][open_members[0]].why
                yield Reason(constraint=name, why=f"not known: {why}")
            if not self.judged.unknowns(open_members[0]):
                for c in self.judged.frameworks:
                    yield Reason(constraint=c.name, why="suits an older framework build only")
            return
        for name in some:
            yield Reason(constraint=name, why=self.judged.rows[name][out[name][0]].why)

    def _conflict(self) -> Conflict:
        masks, everything = self.judged.masks, self.judged.everything
        names = smallest_conflict(masks, everything)
        found = (self._relaxation(lifted) for lifted, _ in relaxations(masks, everything))
        options = [option for option in found if option is not None]
        options.sort(
            key=lambda option: (version_key(option.build), option.cuda, option.constraints),
            reverse=True,
        )
        return Conflict(
            constraints=names,
            why=tuple(Reason(constraint=name, why=self._why(name, names)) for name in names),
            relax=tuple(options),
            notes=self.notes,
        )

    def _why(self, name: str, names: tuple[str, ...]) -> str:
        """Why the constraint rules out the newest of the releases that the others would allow."""
        masks, row = self.judged.masks, self.judged.rows[name]
        others = allowed(masks, [n for n in names if n != name], self.judged.everything)
        left = [i for i in range(len(row)) if others >> i & 1]
        return row[max(left, key=lambda i: (self.candidates[i].age, -i))].why if left else ""

    def _relaxation(self, lifted: tuple[str, ...]) -> Relaxation | None:
        """What lifting gives; of a framework another version is taken before none at all."""
        loose = self._any_version(lifted)
        judged = self.judged.without(lifted, *loose)
        best = judged.best()
        if best is None and loose:
            loose, judged = (), self.judged.without(lifted)
            best = judged.best()
        if best is None:
            return None
        answer = self.candidates[best]
        others = {c.request.name: c.build_for(answer) for c in loose}
        return Relaxation(
            constraints=lifted,
            how=tuple(self._how(name, answer, others) for name in lifted),
            version=answer.release.version,
            build=answer.build,
            cuda=answer.cuda,
        )

    def _any_version(self, lifted: tuple[str, ...]) -> tuple[FrameworkConstraint, ...]:
        asked = [c.request for c in self.judged.frameworks if c.name in lifted]
        loose = [FrameworkRequest(text=r.name, name=r.name, extras=r.extras) for r in asked]
        found = ((r, find_builds(r, self.target, self.matrix)) for r in loose)
        return tuple(FrameworkConstraint(request, builds) for request, builds in found if builds)

    def _how(self, name: str, answer: Candidate, others: dict[str, str]) -> str:
        constraint = self.judged.constraints[name]
        if isinstance(constraint, FrameworkConstraint) and constraint.request.name in others:
            return f"use {others[constraint.request.name]}"
        if isinstance(constraint, DriverConstraint) and (floor := self._driver(answer)):
            return constraint.relax.replace("the driver", f"the driver to {floor} or newer", 1)
        return constraint.relax


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
            raise _unknown_framework(request, matrix)
    return tuple(found), tuple(notes)


def _unknown_framework(request: FrameworkRequest, matrix: Matrix) -> DoctorError:
    versions = dict.fromkeys(need.versions for need in records_of(request.name, matrix))
    names = {name for need in matrix.frameworks for name in (need.framework, need.distribution)}
    close = difflib.get_close_matches(request.name, sorted(names), n=3)
    if versions:
        hint = f"versions of {request.name} that are known: {', '.join(filter(None, versions))}"
    elif close:
        hint = f"did you mean {' or '.join(close)}?"
    else:
        known = sorted({need.framework for need in matrix.frameworks})
        hint = f"frameworks that are known: {', '.join(known)}"
    return DoctorError(
        f"the matrix knows nothing about {request.text}",
        next_step=hint,
        exit_code=ExitCode.CANNOT_TELL,
    )
