"""SARIF 2.1.0 (OASIS), for code scanning: results point at the file to mend."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from cudnn_doctor import __version__
from cudnn_doctor.report.outcomes import Outcome, Run
from cudnn_doctor.report.places import Place

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_ROOT = "%SRCROOT%"


def render(run: Run) -> str:
    """The log: one run, a rule for each id that has results."""
    found = [outcome for outcome in run.outcomes if outcome.severity]
    ids = list(dict.fromkeys(outcome.id for outcome in found))
    crashed = [outcome for outcome in run.outcomes if outcome.status == "crash"]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "cudnn-doctor",
                        "version": __version__,
                        "rules": [
                            _rule(next(o for o in found if o.id == identity)) for identity in ids
                        ],
                    }
                },
                "automationDetails": {"id": f"cudnn-doctor/{run.command}/"},
                "originalUriBaseIds": {
                    _ROOT: {"description": {"text": "The folder that the command was run in."}}
                },
                "invocations": [
                    {
                        "executionSuccessful": not crashed and not run.error,
                        "exitCode": run.exit_code,
                        "toolExecutionNotifications": [_notification(o) for o in crashed],
                    }
                ],
                "columnKind": "unicodeCodePoints",
                "results": [_result(outcome, ids) for outcome in found],
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _rule(outcome: Outcome) -> dict[str, Any]:
    words = outcome.id.replace("-", " ")
    return {
        "id": outcome.id,
        "name": "".join(word.capitalize() for word in words.split()),
        "shortDescription": {"text": words},
        "help": {"text": outcome.why or words},
        "defaultConfiguration": {"level": _LEVELS[outcome.severity or "info"]},
        "properties": {"tags": [outcome.group]},
    }


def _result(outcome: Outcome, ids: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": outcome.id,
        "ruleIndex": ids.index(outcome.id),
        "level": _LEVELS[outcome.severity or "info"],
        "message": {"text": "\n".join(filter(None, (outcome.title, outcome.text)))},
        "locations": [_location(outcome)],
        "partialFingerprints": {"cudnnDoctor/v1": _fingerprint(outcome)},
    }
    if outcome.suppressed:
        result["suppressions"] = [{"kind": "external", "justification": outcome.suppressed}]
    return result


def _location(outcome: Outcome) -> dict[str, Any]:
    """The file, where there is one; what is at fault by name, always."""
    name = outcome.culprit or outcome.rule
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": name}]}
    if outcome.place:
        location["physicalLocation"] = {"artifactLocation": _artifact(outcome.place)}
        if outcome.place.line:
            location["physicalLocation"]["region"] = {"startLine": outcome.place.line}
    return location


def _artifact(place: Place) -> dict[str, str]:
    if place.path.startswith("/"):
        return {"uri": f"file://{quote(place.path)}"}
    return {"uri": quote(place.path), "uriBaseId": _ROOT}


def _fingerprint(outcome: Outcome) -> str:
    """The same for the same fault at the same place, whatever the line."""
    parts = (outcome.id, outcome.culprit, outcome.place.path if outcome.place else "")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def _notification(outcome: Outcome) -> dict[str, Any]:
    return {"level": "error", "message": {"text": f"{outcome.rule} crashed: {outcome.title}"}}
