"""Prove copies on GPUs: rung 1 here, the others in child processes, then the verdict."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import msgspec

from cudnn_doctor.machine.recorded import Recorded
from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.verify import files
from cudnn_doctor.verify.choose import Chosen
from cudnn_doctor.verify.model import (
    RUNGS,
    Copy,
    Death,
    Job,
    KnownFault,
    Level,
    Rung,
    Status,
    StepResult,
    Target,
    Verdict,
)
from cudnn_doctor.verify.parent import Outcome, Progress, run_child
from cudnn_doctor.verify.probes import PREFIX, PROBES
from cudnn_doctor.versions import CudnnVersion

TIMEOUTS: dict[Level, float] = {"quick": 60.0, "default": 180.0, "full": 600.0}
"""Seconds for one child."""
_RUNGS_OF: dict[Level, tuple[str, ...]] = {
    "quick": ("initialise", "convolve"),
    "default": ("initialise", "convolve", "library", "speed"),
    "full": ("initialise", "convolve", "library", "speed"),
}


_WORK = ("convolve", "library", "speed")
_LIVES = 4
LEFT_OUT = "not part of --quick"
"""Why a rung was not run that was not asked for."""
_NO_WORK = frozenset({"mapped files"})
"""Steps that prove something about the others and nothing when they are alone."""


class Options(NamedTuple):
    """How to prove."""

    level: Level = "default"
    seed: int = 0
    timeout: float | None = None
    """Seconds a child; None is the level's own."""
    references: str = "auto"
    cudnn_log: str | None = None
    progress: Progress | None = None
    compare: Callable[[str], Recorded | None] | None = None
    """Compares the files of a folder with what was installed; None: not to be done."""
    expected: tuple[str, ...] | None = None
    """SONAMEs that must be there; None: what the matrix says of the release."""


def prove(
    chosen: Chosen, target: Target, options: Options, matrix: Matrix, environ: Mapping[str, str]
) -> Verdict:
    """All rungs of one copy on one GPU; never raises for what the copy does."""
    start = time.perf_counter()
    flavour = flavour_of(matrix, chosen.copy)
    copy = msgspec.structs.replace(chosen.copy, flavour=flavour)
    child_environ = _environ(environ, copy.folder, target, options.cudnn_log)

    def child(rungs: tuple[str, ...], done: tuple[str, ...] = ()) -> Outcome:
        job = Job(
            copy=copy,
            rungs=rungs,
            level=options.level,
            seed=options.seed,
            references=options.references,  # type: ignore[arg-type]
            uuid=target.uuid,
            done=done,
        )
        return run_child(
            job,
            environ=child_environ,
            timeout=options.timeout or TIMEOUTS[options.level],
            progress=options.progress,
        )

    with ThreadPoolExecutor(3) as pool:  # rung 2 opens everything, the work opens what it uses
        comparing = pool.submit(options.compare, copy.folder) if options.compare else None
        loading = pool.submit(child, ("load",))
        working = pool.submit(_persist, partial(child, _RUNGS_OF[options.level]))
        loaded, worked = loading.result(), working.result()
        compared = (files.as_installed(comparing.result()),) if comparing else ()
    facts = worked.facts | loaded.facts | {"used": _used(worked)}
    if "mapped" in worked.facts:
        facts |= {key: worked.facts[key] for key in ("mapped", "companions")}
    version = copy.version or _release(facts)
    cuda = copy.cuda or _cuda(facts)
    copy = msgspec.structs.replace(copy, version=version, cuda=cuda)
    shipped = options.expected
    if shipped is None and version:
        shipped = query.sublibraries(matrix, _short(version), cuda, flavour)
    expected = _core(matrix, copy.shim) if shipped is None else shipped
    steps = (
        *files.judge(copy, chosen.libraries, expected, exact=shipped is not None),
        *compared,
        *loaded.steps,
        *worked.steps,
    )
    deaths = (*((loaded.death,) if loaded.death else ()), *worked.deaths)
    known = known_faults(matrix, copy, facts.get("cc"), steps) if worked.steps else ()
    rungs = judge_rungs(steps, deaths, known, options.level)
    return Verdict(
        copy=copy,
        gpu=facts.get("gpu") or target.label,
        facts=facts,
        rungs=rungs,
        steps=steps,
        deaths=deaths,
        known=known,
        failed=any(rung.status == "fail" for rung in rungs),
        seed=options.seed,
        seconds=round(time.perf_counter() - start, 3),
    )


class Work(NamedTuple):
    """What the children gave together."""

    steps: tuple[StepResult, ...]
    facts: dict[str, Any]
    deaths: tuple[Death, ...]


def _persist(child: Callable[[tuple[str, ...]], Outcome]) -> Work:
    """Do the work; after a crash, or a fault that took the GPU's context along, go on behind that
    step in a new child, `_LIVES` in all.

    Not after a hang (which took all the time there was), nor without a context or handle.
    """
    steps: dict[str, StepResult] = {}
    facts: dict[str, Any] = {}
    deaths: list[Death] = []
    for _ in range(_LIVES):
        crashed = (f"{d.rung}: {d.step}" for d in deaths)
        outcome = child((*steps, *crashed))
        for step in outcome.steps:
            steps.setdefault(f"{step.rung}: {step.step}", step)
        facts |= outcome.facts
        death = outcome.death
        if death is None and facts.pop("lost", False):
            continue
        if death is None:
            break
        deaths.append(death)
        if death.rung not in _WORK or not death.how.startswith("SIG"):
            break
    return Work(tuple(steps.values()), facts, tuple(deaths))


def known_faults(
    matrix: Matrix, copy: Copy, cc: str | None, steps: Sequence[StepResult]
) -> tuple[KnownFault, ...]:
    """Wrong results that the matrix lists for this release, and all that were probed."""
    results = {s.step.removeprefix(PREFIX): s for s in steps if s.step.startswith(PREFIX)}
    version = copy.version or ""
    listed = {
        issue.id
        for issue in (query.issues_for(matrix, version, copy.cuda, cc) if version else ())
        if issue.kind == "wrong-results" and not issue.packages
    }
    return tuple(
        KnownFault(
            issue=issue.id,
            title=issue.title,
            listed=issue.id in listed,
            **_said(issue.id, results.get(issue.id)),
        )
        for issue in matrix.issues
        if issue.id in listed or issue.id in results
    )


def judge_rungs(
    steps: Sequence[StepResult],
    deaths: Sequence[Death],
    known: Sequence[KnownFault],
    level: Level,
) -> tuple[Rung, ...]:
    """The verdict of each rung. A fault that the release is known to have, and has here, is told
    as that and fails no rung."""
    confirmed = {PREFIX + fault.issue for fault in known if fault.confirmed}
    judged = [step for step in steps if step.step not in confirmed]
    return tuple(_rung(name, judged, deaths, level) for name in RUNGS)


def _said(issue: str, step: StepResult | None) -> dict[str, Any]:
    if step is None:
        probed = any(probe.issue == issue for probe in PROBES)
        why = (
            "its probe was not reached, or is not part of this level"
            if probed
            else "no probe of it"
        )
        return {"found": "not run", "why": why}
    if step.status == "pass":
        return {"found": "has not"}
    return {"found": "has" if step.data.get("wrong") else "not run", "why": step.detail}


def prove_all(
    pairs: Sequence[tuple[Chosen, Target]],
    options: Options,
    matrix: Matrix,
    environ: Mapping[str, str],
) -> tuple[Verdict, ...]:
    """Copies on one GPU after another, GPUs side by side; in the order of ``pairs``."""
    lanes: dict[str, list[int]] = {}
    for at, (_, target) in enumerate(pairs):
        lanes.setdefault(target.visible or target.label, []).append(at)
    found: dict[int, Verdict] = {}

    def lane(numbers: list[int]) -> None:
        for at in numbers:
            found[at] = prove(*pairs[at], options, matrix, environ)

    with ThreadPoolExecutor(max(len(lanes), 1)) as pool:
        list(pool.map(lane, lanes.values()))
    return tuple(found[at] for at in range(len(pairs)))


def _environ(
    environ: Mapping[str, str], folder: str, target: Target, log: str | None
) -> dict[str, str]:
    """The child's environment: the copy's folder is searched first, so that a shim with a RUNPATH
    cannot pick up another copy's sublibraries."""
    made = dict(environ)
    rest = made.get("LD_LIBRARY_PATH")
    made["LD_LIBRARY_PATH"] = f"{folder}:{rest}" if rest else folder
    made["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    made["OPENBLAS_NUM_THREADS"] = str(min(8, os.cpu_count() or 1))
    if target.visible is not None:
        made["CUDA_VISIBLE_DEVICES"] = target.visible
    if log:
        path = os.path.abspath(log)
        made |= {
            "CUDNN_LOGLEVEL_DBG": "3",
            "CUDNN_LOGDEST_DBG": path,
            "CUDNN_LOGINFO_DBG": "1",
            "CUDNN_LOGWARN_DBG": "1",
            "CUDNN_LOGERR_DBG": "1",
        }
    return made


def flavour_of(matrix: Matrix, copy: Copy) -> query.Flavour:
    """``jit`` for a copy that has no more libraries than that flavour of its release."""
    small = (
        query.sublibraries(matrix, _short(copy.version), copy.cuda, "jit") if copy.version else None
    )
    return "jit" if small and set(copy.libraries) <= set(small) else "full"


def _release(facts: Mapping[str, Any]) -> str | None:
    number = facts.get("cudnn")
    return CudnnVersion.decode(number).short if number else None


def _core(matrix: Matrix, shim: str) -> tuple[str, ...] | None:
    """Libraries that every known release of the shim's major ships."""
    shipped = [r.libraries for r in matrix.releases if r.libraries and shim in r.libraries]
    if not shipped:
        return None
    common = set(shipped[0]).intersection(*shipped)
    return tuple(name for name in shipped[0] if name in common)


def _short(version: str) -> str:
    return CudnnVersion.parse(version).short


def _cuda(facts: Mapping[str, Any]) -> str | None:
    return str(facts["cudart"] // 1000) if facts.get("cudart") else None


def _used(worked: Work) -> dict[str, str]:
    """For each library file that the work mapped, the step that first made cuDNN map it."""
    return {
        path: f"{step.rung}: {step.step}"
        for step in worked.steps
        for path in step.data.get("mapped", ())
    }


def _rung(name: str, steps: Sequence[StepResult], deaths: Sequence[Death], level: Level) -> Rung:
    own = [s for s in steps if s.rung == name]
    failed = [s for s in own if s.status == "fail"]
    died = [d for d in deaths if d.rung == name]
    if failed or died:
        causes = [f"{d.step}: the process ended ({d.how}); {d.cause}".rstrip("; ") for d in died]
        causes += [f"{s.step}: {s.detail}" for s in failed]
        more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
        return Rung(name=name, status="fail", why=causes[0] + more)
    passed = [s for s in own if s.status == "pass" and s.step not in _NO_WORK]
    skipped = [s for s in own if s.status == "skip"]
    status: Status = "pass" if passed else "skip"
    return Rung(name=name, status=status, why=_why(name, passed, skipped, level))


def _why(
    name: str, passed: Sequence[StepResult], skipped: Sequence[StepResult], level: Level
) -> str:
    if not passed and not skipped:
        left_out = level == "quick" and name in ("library", "speed")
        return LEFT_OUT if left_out else "an earlier rung did not pass"
    if not passed:
        return skipped[0].detail
    more = f", {len(skipped)} not run" if skipped else ""
    return f"{len(passed)} steps{more}"
