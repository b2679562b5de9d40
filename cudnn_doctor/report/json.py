"""The report of a check as JSON: one versioned document, see ``schemas/check.json``."""

from __future__ import annotations

from typing import Literal

import msgspec

from cudnn_doctor import __version__
from cudnn_doctor.checks.model import CheckResult, Finding, FrameworkLoad, Report
from cudnn_doctor.checks.verdict import FailOn, Verdict, exit_code, verdict
from cudnn_doctor.machine.model import Machine

SCHEMA: Literal[1] = 1


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of findings by severity and of rules by outcome."""

    errors: int = 0
    warnings: int = 0
    notes: int = 0
    passed: int = 0
    skipped: int = 0
    crashed: int = 0


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ``check --json`` prints."""

    schema: Literal[1]
    tool: str
    """Version of cudnn-doctor."""
    verdict: Verdict
    exit_code: int
    summary: Summary
    findings: tuple[Finding, ...]
    """Errors first, root causes before their consequences."""
    results: tuple[CheckResult, ...]
    """Every rule with its outcome, passes and skips included, in declared order."""
    loads: tuple[FrameworkLoad, ...]
    """Which cuDNN each framework gets."""
    machine: Machine
    durations: dict[str, float]
    """Seconds that each probe and the rules took."""
    error: str = ""
    """Why the machine could not be judged; absent otherwise."""


def document(report: Report, machine: Machine, fail_on: FailOn = "error") -> CheckDocument:
    """The document of one run."""
    said = verdict(report, machine)
    return CheckDocument(
        schema=SCHEMA,
        tool=__version__,
        verdict=said,
        exit_code=int(exit_code(said, fail_on)),
        summary=summarise(report),
        findings=report.findings,
        results=report.results,
        loads=report.loads,
        machine=machine,
        durations={**machine.durations, "rules": report.seconds},
    )


def summarise(report: Report) -> Summary:
    """Count findings and outcomes."""
    severities = [finding.severity for finding in report.findings]
    statuses = [result.status for result in report.results]
    return Summary(
        errors=severities.count("error"),
        warnings=severities.count("warning"),
        notes=severities.count("info"),
        passed=statuses.count("pass"),
        skipped=statuses.count("skip"),
        crashed=statuses.count("crash"),
    )


def render(report: Report, machine: Machine, fail_on: FailOn = "error") -> str:
    """The JSON text, indented, with its final newline."""
    return _text(document(report, machine, fail_on))


def of_error(error: str, code: int) -> str:
    """The JSON text for a machine that could not be judged."""
    empty = document(Report(), Machine(partial=True))
    return _text(msgspec.structs.replace(empty, error=error, exit_code=code))


def _text(found: CheckDocument) -> str:
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
