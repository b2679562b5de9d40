"""Logs of real failures (benchmarks/real_failures.py): explained as they were recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudnn_doctor.explain import explain_text
from cudnn_doctor.machine.described import describe

REAL = Path(__file__).parent / "real"
INDEX: dict[str, dict[str, Any]] = yaml.safe_load((REAL / "index.yaml").read_text())


@pytest.mark.parametrize("name", INDEX)
def test_a_real_log_is_explained(name: str) -> None:
    log = (REAL / f"{name}.log").read_text()
    facts = INDEX[name].get("facts")
    first = explain_text(log, describe(facts) if facts is not None else None).diagnoses[0]
    assert first.id in (INDEX[name]["wants"], *INDEX[name].get("alone", ()))
    assert first.remedies


@pytest.mark.parametrize("name", [name for name, entry in INDEX.items() if "facts" in entry])
def test_by_the_log_alone_it_is_among_the_first_or_what_is_missing_is_said(name: str) -> None:
    found = explain_text((REAL / f"{name}.log").read_text()).diagnoses
    asked = found[0].id == "insufficient-evidence" and found[0].ask
    assert asked or INDEX[name]["wants"] in [d.id for d in found[:3]]


def test_the_logs_name_no_path_of_the_machine_that_made_them() -> None:
    usual = {
        "home",
        "data",
        "usr",
        "lib",
        "lib64",
        "tmp",
        "bin",
        "etc",
        "pytorch",
        "onnxruntime_src",
        "simple",
    }
    for path in REAL.glob("*.log"):
        heads = re.findall(r"(?:^|[\s\"'(])/([a-z]\w*)/", path.read_text())
        assert set(heads) <= usual, path.name
