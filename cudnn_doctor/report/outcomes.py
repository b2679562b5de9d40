"""One run of ``check`` or ``verify`` as a list of outcomes, whatever the output format."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from cudnn_doctor.checks.model import CheckResult, Evidence, Finding, Remedy, Report, Severity
from cudnn_doctor.checks.verdict import FailOn, exit_code, verdict
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.report.places import Place, place_of
from cudnn_doctor.report.style import Style
from cudnn_doctor.verify.model import Copy, Rung, StepResult, Verdict

Status = Literal["pass", "fail", "skip", "crash"]
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
"""Characters that steer a terminal and say nothing to a reader."""
WORDS = {
    "healthy": "healthy",
    "warnings": "warnings",
    "problems": "problems found",
    "cannot-tell": "cannot tell: too little is known",
    "passed": "verification passed",
    "failed": "verification failed",
    "not-run": "verification could not be run",
}
"""Verdict -> what a reader is told."""
_KNOWN = "verify-known-fault"


class Outcome(NamedTuple):
    """What one rule or rung said; a rule with several findings makes several."""

    rule: str
    """Rule of a check, or rung of a verification: stable across runs."""
    id: str
    """Id of the finding, or the rule's where there is none."""
    group: str
    """Category of the rule, or copy and GPU."""
    status: Status
    """``fail`` for every finding, whatever its severity."""
    severity: Severity | None = None
    title: str = ""
    why: str = ""
    seen: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    place: Place | None = None
    culprit: str = ""
    caused_by: str = ""
    suppressed: str = ""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """Cause and cure in plain lines, the title left out."""
        lines = [*self.seen, *([self.why] if self.why else [])]
        for remedy in self.remedies:
            lines += [f"mend: {remedy.title}", *(f"    {command}" for command in remedy.commands)]
        return "\n".join(lines)


class Run(NamedTuple):
    """What every renderer gets."""

    command: Literal["check", "verify"]
    verdict: str
    """A key of `WORDS`."""
    exit_code: int
    outcomes: tuple[Outcome, ...]
    fail_on: FailOn = "error"
    machine: Machine = Machine()
    report: Report = Report()
    verdicts: tuple[Verdict, ...] = ()
    matrix: Matrix | None = None
    """What the machine was judged by; None: the one that is shipped."""
    style: Style = Style()
    verbose: bool = False
    error: str = ""
    """Why the command could not do its job at all."""

    @property
    def problems(self) -> tuple[Outcome, ...]:
        """Errors, then warnings, root causes first; suppressed ones left out."""
        order = {"error": 0, "warning": 1}
        found = [o for o in self.outcomes if o.severity in order and not o.suppressed]
        return tuple(sorted(found, key=lambda o: (order[o.severity or ""], bool(o.caused_by))))

    def fails(self, outcome: Outcome) -> bool:
        """Whether this one counts as a failure, by ``--fail-on``."""
        if outcome.suppressed:
            return False
        return outcome.severity == "error" or (
            outcome.severity == "warning" and self.fail_on == "warning"
        )


def of_check(
    report: Report,
    machine: Machine,
    fail_on: FailOn = "error",
    *,
    matrix: Matrix | None = None,
    verdicts: tuple[Verdict, ...] = (),
    style: Style | None = None,
    verbose: bool = False,
) -> Run:
    """The run of a check; of a verification beside it, what failed counts as a problem."""
    said = verdict(report, machine)
    checked = tuple(o for result in report.results for o in _of_result(result, machine))
    disproved = tuple(o for v in verdicts for o in _of_verdict(v) if o.status == "fail")
    return Run(
        command="check",
        verdict="failed" if disproved and said != "problems" else said,
        exit_code=int(exit_code(said, fail_on)),
        outcomes=(*checked, *disproved),
        fail_on=fail_on,
        machine=machine,
        report=report,
        verdicts=verdicts,
        matrix=matrix,
        style=style or Style(),
        verbose=verbose,
    )


def _of_result(result: CheckResult, machine: Machine) -> Iterable[Outcome]:
    status: Status = "fail" if result.findings else "pass"
    if result.status in ("skip", "crash"):
        status = "skip" if result.status == "skip" else "crash"
    if not result.findings:
        yield Outcome(result.rule, result.rule, result.category, status, title=result.reason)
    for finding in result.findings:
        yield _of_finding(finding, result, machine)


def _of_finding(finding: Finding, result: CheckResult, machine: Machine) -> Outcome:
    return Outcome(
        rule=result.rule,
        id=finding.id,
        group=result.category,
        status="fail",
        severity=finding.severity,
        title=finding.title,
        why=finding.why,
        seen=tuple(map(_seen, finding.seen)),
        remedies=finding.remedies,
        place=place_of(finding, machine),
        culprit=finding.culprit,
        caused_by=finding.caused_by,
        suppressed=finding.suppressed,
    )


def _seen(evidence: Evidence) -> str:
    where = f" ({evidence.where})" if evidence.where and evidence.where not in evidence.what else ""
    return f"{evidence.what}{where}" + (f", {evidence.how}" if evidence.how else "")


def of_verify(
    verdicts: Sequence[Verdict],
    code: int,
    *,
    machine: Machine | None = None,
    style: Style | None = None,
    verbose: bool = False,
) -> Run:
    """The run of a verification that ended with exit code ``code``."""
    said = {0: "passed", 1: "problems", 6: "failed"}.get(code, "not-run")
    return Run(
        command="verify",
        verdict=said,
        exit_code=code,
        outcomes=tuple(o for v in verdicts for o in _of_verdict(v)),
        machine=machine or Machine(),
        verdicts=tuple(verdicts),
        style=style or Style(),
        verbose=verbose,
    )


def _of_verdict(verdict: Verdict) -> Iterable[Outcome]:
    yield from (_of_rung(verdict, rung) for rung in verdict.rungs)
    copy = verdict.copy
    for fault in verdict.known:
        if fault.confirmed:
            yield Outcome(
                rule="known-faults",
                id=_KNOWN,
                group=f"cuDNN {copy.version or '?'} on {verdict.gpu or 'no GPU'}",
                status="fail",
                severity="error",
                title=f"cuDNN {copy.version or '?'} in {copy.folder} has {fault.issue}",
                why=fault.title,
                seen=(fault.why,),
                remedies=_cures(verdict, "known-faults"),
                place=Place(f"{copy.folder}/{copy.shim}"),
                culprit=copy.folder,
            )


def _of_rung(verdict: Verdict, rung: Rung) -> Outcome:
    copy = verdict.copy
    steps = [step for step in verdict.steps if step.rung == rung.name]
    failed = rung.status == "fail"
    seen = tuple(_failures(verdict, rung, steps)) if failed else ()
    title = f"cuDNN {copy.version or '?'} in {copy.folder}: {rung.name} failed" if failed else ""
    return Outcome(
        rule=rung.name,
        id=f"verify-{rung.name}",
        group=f"cuDNN {copy.version or '?'} on {verdict.gpu or 'no GPU'}",
        status=rung.status,
        severity="error" if failed else None,
        title=title or rung.why,
        why=rung.why if failed and not any(rung.why in line for line in seen) else "",
        seen=seen,
        remedies=_cures(verdict, rung.name) if failed else (),
        place=_library(copy, (rung.why, *seen)) if failed else None,
        culprit=copy.folder,
        caused_by=_KNOWN if failed and _only_known(verdict, steps) else "",
        seconds=sum(step.seconds for step in steps),
    )


def _only_known(verdict: Verdict, steps: Iterable[StepResult]) -> bool:
    """Whether nothing failed but probes of faults that the release is known for."""
    known = {f"known fault {fault.issue}" for fault in verdict.known if fault.confirmed}
    failed = {step.step for step in steps if step.status == "fail"}
    return bool(failed) and failed <= known and not verdict.deaths


def _library(copy: Copy, told: Iterable[str]) -> Place:
    """The library that the failure names, else the shim."""
    text = " ".join(told)
    named = (name for name in copy.libraries if re.search(rf"\b{re.escape(name)}(?![\w.])", text))
    return Place(f"{copy.folder}/{next(named, copy.shim)}")


def _cures(verdict: Verdict, rung: str) -> tuple[Remedy, ...]:
    if rung == "speed":
        first = Remedy(
            title="see who else uses the GPU, and how hot it is", commands=("nvidia-smi",)
        )
    elif rung in ("files", "load", "initialise"):
        first = Remedy(
            title="have the file or setting at fault named, with its cure",
            commands=("cudnn-doctor check",),
        )
    else:
        first = Remedy(
            title="see which release suits this machine, and install it",
            commands=("cudnn-doctor resolve", "cudnn-doctor install"),
        )
    again = f"cudnn-doctor verify --lib {shlex.quote(verdict.copy.folder)} --seed {verdict.seed} -v"
    return (first, Remedy(title="do the same work again, every step told", commands=(again,)))


def _failures(verdict: Verdict, rung: Rung, steps: Iterable[StepResult]) -> Iterable[str]:
    for step in steps:
        if step.status == "fail":
            yield f"{step.step}: {step.detail}"
    for death in verdict.deaths:
        if death.rung in ("", rung.name):
            cause = f", {death.cause}" if death.cause else ""
            yield f"the child process ended ({death.how}) at {death.step or 'its start'}{cause}"
