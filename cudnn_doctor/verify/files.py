"""Rung 1: the copy's files, judged without opening them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cudnn_doctor.machine.model import Library
from cudnn_doctor.machine.recorded import Recorded
from cudnn_doctor.verify.model import Copy, StepResult
from cudnn_doctor.versions import CudnnVersion

RUNG = "files"


def judge(
    copy: Copy,
    libraries: Sequence[Library],
    expected: Sequence[str] | None,
    *,
    exact: bool = True,
) -> list[StepResult]:
    """Complete for its release, one release throughout, links sound, files whole.

    ``libraries`` are the entries of its folder, ``expected`` the SONAMEs that the release ships
    (None where that is not known; not ``exact`` where it may ship more).
    """
    return [
        _complete(copy, libraries, expected),
        _one_release(copy, libraries, expected if exact else None),
        _sound(libraries),
    ]


def as_installed(recorded: Recorded | None) -> StepResult:
    """Whether every file is, by SHA-256, what was installed."""
    if recorded is None:
        return _result("as installed", [], "", skip="not compared: no record of its files")
    problems = [
        f"{problem.path.rpartition('/')[2]} {_DIFFERS[problem.problem]}"
        for problem in recorded.problems
    ]
    if problems:
        problems[-1] += f" ({recorded.source})"
    return _result("as installed", problems, f"{recorded.checked} files as in {recorded.source}")


_DIFFERS = {
    "missing": "is missing",
    "size": "has another size than when it was installed",
    "hash": "has other contents than when it was installed: changed or damaged",
    "unreadable": "cannot be read",
}


def _result(step: str, problems: Sequence[str], good: str, skip: str = "") -> StepResult:
    if problems:
        return StepResult(rung=RUNG, step=step, status="fail", detail="; ".join(problems))
    if skip:
        return StepResult(rung=RUNG, step=step, status="skip", detail=skip)
    return StepResult(rung=RUNG, step=step, status="pass", detail=good)


def _complete(
    copy: Copy, libraries: Sequence[Library], expected: Sequence[str] | None
) -> StepResult:
    there = {library.path.rsplit("/", 1)[-1] for library in libraries if library.real}
    if expected is None:
        why = f"what {copy.version or 'this release'} ships is not known"
        return _result("complete", [], "", skip=why)
    missing = [f"{name} is missing" for name in expected if name not in there]
    return _result(
        "complete", missing, f"all {len(expected)} libraries of {copy.version or 'its major'}"
    )


def _one_release(
    copy: Copy, libraries: Sequence[Library], expected: Sequence[str] | None
) -> StepResult:
    versions = _versions(libraries)
    if not versions:
        return _result("one release", [], "", skip="no file tells its release")
    strays = [name for name in copy.libraries if copy.version and name not in (expected or [name])]
    if strays:
        left = [f"{name} is no part of {copy.version}: of another release" for name in strays]
        return _result("one release", left, "")
    releases = {CudnnVersion.parse(v).release for v in versions.values()}
    if len(releases) == 1:
        return _result("one release", [], f"{next(iter(versions.values()))} throughout")
    common, _ = Counter(versions.values()).most_common(1)[0]
    odd = [f"{name} is of {v}" for name, v in sorted(versions.items()) if v != common]
    return _result("one release", [*odd, f"the others are of {common}"], "")


def _versions(libraries: Sequence[Library]) -> Mapping[str, str]:
    found = {}
    for library in libraries:
        if library.version and library.soname:
            found[library.soname] = library.version
    return found


def _sound(libraries: Sequence[Library]) -> StepResult:
    problems = []
    for library in libraries:
        name = library.path.rsplit("/", 1)[-1]
        if library.status == "dangling" or library.real is None:
            problems.append(f"{name} is a link to nothing ({library.link})")
        elif library.status not in ("ok", "unknown"):
            problems.append(f"{name} is {library.status}")
    return _result("sound", problems, f"{len(libraries)} files and links")
