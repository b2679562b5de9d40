"""GitLab's code quality report (its subset of the Code Climate format)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from cudnn_doctor.report.outcomes import Outcome, Run

_SEVERITIES = {"error": "critical", "warning": "minor"}


def render(run: Run) -> str:
    """A list of problems; a problem of the machine itself is reported in the path ``machine``."""
    taken: set[str] = set()
    return json.dumps([_issue(outcome, taken) for outcome in run.problems], indent=2) + "\n"


def _issue(outcome: Outcome, taken: set[str]) -> dict[str, Any]:
    place = outcome.place
    return {
        "description": "\n".join(filter(None, (outcome.title, outcome.text))),
        "check_name": outcome.id,
        "fingerprint": _fingerprint(outcome, taken),
        "severity": _SEVERITIES[outcome.severity or "warning"],
        "location": {
            "path": place.path if place else "machine",
            "lines": {"begin": (place.line if place else None) or 1},
        },
    }


def _fingerprint(outcome: Outcome, taken: set[str]) -> str:
    """Unique in the report; the same in the next one for the same fault."""
    parts = [outcome.id, outcome.culprit, outcome.place.path if outcome.place else ""]
    while (digest := _digest(parts)) in taken:
        parts.append("again")
    taken.add(digest)
    return digest


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]
