"""JSON Schemas of what we print, generated from the types and shipped in ``schemas/``.

``python -m cudnn_doctor.report.schema`` writes them anew; a test keeps them in step.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from cudnn_doctor.machine.model import Machine
from cudnn_doctor.report.explain import ExplainDocument
from cudnn_doctor.report.fix import Outcome
from cudnn_doctor.report.json import CheckDocument
from cudnn_doctor.report.resolution import ResolveDocument
from cudnn_doctor.report.verify import VerifyDocument
from cudnn_doctor.report.which import WhichDocument

FOLDER = Path(__file__).parent / "schemas"
DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "check": CheckDocument,
    "explain": ExplainDocument,
    "fix": Outcome,
    "machine": Machine,
    "resolve": ResolveDocument,
    "verify": VerifyDocument,
    "which": WhichDocument,
}
"""File name (without ``.json``) -> type."""


def schema_text(name: str) -> str:
    """The schema of one document."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"cudnn-doctor {name}",
        **msgspec.json.schema(DOCUMENTS[name]),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def main() -> None:
    """Write every schema to its file."""
    FOLDER.mkdir(exist_ok=True)
    for name in DOCUMENTS:
        (FOLDER / f"{name}.json").write_text(schema_text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
