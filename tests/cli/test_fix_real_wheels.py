"""Real failures of real wheels (benchmarks/real_failures.py): explained, and mended by `fix`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from faults import Lab
from real_failures import FAILURES, Failure, judge

pytestmark = [
    pytest.mark.wheels,
    pytest.mark.skipif(not shutil.which("uv") or not shutil.which("gcc"), reason="uv and gcc"),
]
MENDED = [failure for failure in FAILURES if failure.base == "ort" and failure.fix]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """One environment of real wheels, copied for each failure."""
    return Lab(tmp_path_factory.mktemp("lab"))


@pytest.mark.parametrize("failure", MENDED, ids=lambda f: f.name)
def test_the_failing_command_succeeds_after_fix(lab: Lab, failure: Failure) -> None:
    row = judge(failure, lab, None)
    assert row["explained"], row
    assert row["mended"], row


def test_ten_are_mended() -> None:
    assert len(MENDED) >= 10
