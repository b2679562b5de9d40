"""Publicly reported faults: what the facts of their machines show, and what they must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cudnn_doctor.checks.run import run_checks
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.matrix.load import load

CASES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "cases" / "machines.yaml").read_text(encoding="utf-8")
)


def machine_of(case: dict[str, Any]) -> Machine:
    return msgspec.convert({"partial": True, **case["machine"]}, Machine, strict=False)


@pytest.mark.parametrize("name", CASES)
def test_case_gives_the_wanted_diagnosis_first(name: str) -> None:
    case = CASES[name]
    report = run_checks(machine_of(case), load())
    found = report.findings
    assert [result for result in report.results if result.status == "crash"] == []
    assert found, "nothing was found"
    assert found[0].id == case["want"], [(f.severity, f.id, f.title) for f in found]
    told = {finding.id for finding in found if finding.severity != "info"}
    assert not told & set(case.get("traps", ()))
