"""Findings that the user has lowered to notes, each with a reason and an expiry date."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import date
from typing import NamedTuple

import msgspec

from cudnn_doctor.checks.model import CheckResult, Finding, Report
from cudnn_doctor.checks.registry import known_ids
from cudnn_doctor.errors import DoctorError, ExitCode

_FORM = re.compile(r"([a-z0-9-]+)=(.+)@(\d{4}-\d{2}-\d{2})")
STALE = "suppression-stale"
"""Id of the finding about an entry that is past its date or matches nothing."""


class Suppression(NamedTuple):
    """One entry: ``ID=REASON@YYYY-MM-DD``."""

    id: str
    reason: str
    until: date


def parse_suppression(text: str) -> Suppression:
    """Read one entry. Raises DoctorError (usage) on another form or an unknown id."""
    match = _FORM.fullmatch(text.strip())
    try:
        until = date.fromisoformat(match[3]) if match else None
    except ValueError:
        until = None
    if match is None or until is None:
        raise DoctorError(
            f"cannot read the suppression {text!r}",
            next_step="write ID=REASON@YYYY-MM-DD, with the last day on which it holds",
            exit_code=ExitCode.USAGE,
        )
    check_id(match[1])
    return Suppression(match[1], match[2].strip(), until)


def check_id(id: str) -> None:
    """Raises DoctorError (usage) where no rule makes such a diagnosis."""
    known = known_ids()
    if id in known:
        return
    near = difflib.get_close_matches(id, sorted(known), n=1)
    raise DoctorError(
        f"unknown diagnosis {id!r}" + (f", did you mean {near[0]!r}?" if near else ""),
        next_step="`cudnn-doctor check --list` names all of them",
        exit_code=ExitCode.USAGE,
    )


def suppress(report: Report, entries: Iterable[Suppression], today: date) -> Report:
    """Lower the findings that valid entries name to notes; warn about stale entries."""
    entries = tuple(entries)
    valid = {entry.id: entry for entry in entries if entry.until >= today}
    results = tuple(_lowered(result, valid) for result in report.results)
    found = {finding.id for finding in report.findings}
    stale = [e for e in entries if e.until < today or (e.id in valid and e.id not in found)]
    if stale:
        notes = tuple(_stale(entry, today) for entry in stale)
        results += (CheckResult(rule=STALE, category="system", status="warn", findings=notes),)
    return msgspec.structs.replace(report, results=results)


def _lowered(result: CheckResult, valid: dict[str, Suppression]) -> CheckResult:
    if not any(finding.id in valid for finding in result.findings):
        return result
    findings = tuple(
        _as_note(finding, valid[finding.id]) if finding.id in valid else finding
        for finding in result.findings
    )
    severities = {finding.severity for finding in findings}
    status = "fail" if "error" in severities else "warn" if "warning" in severities else "pass"
    return msgspec.structs.replace(result, findings=findings, status=status)


def _as_note(finding: Finding, entry: Suppression) -> Finding:
    why = f"{entry.reason} (until {entry.until.isoformat()})"
    return msgspec.structs.replace(finding, severity="info", suppressed=why)


def _stale(entry: Suppression, today: date) -> Finding:
    expired = entry.until < today
    said = f"ended on {entry.until.isoformat()}" if expired else "matches nothing that was found"
    return Finding(
        id=STALE,
        severity="warning",
        title=f"the suppression of {entry.id} {said}",
        culprit=entry.id,
        why=f"its reason was: {entry.reason}",
    )
