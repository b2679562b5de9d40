"""The whole ladder on a real GPU, on the cuDNN that the loader or the environment gives."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = importlib.util.find_spec("nvidia.cudnn")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        pytest.skip("no cuDNN wheel in this environment")
    return Path(places[0]) / "lib"


def verify(folder: Path, *options: str) -> tuple[int, list[Any]]:
    command = [sys.executable, "-m", "cudnn_doctor", "verify", "--lib", str(folder), "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["verdicts"]


def test_a_healthy_copy_passes_every_rung_and_every_sublibrary_is_used(folder: Path) -> None:
    code, (verdict,) = verify(folder)
    assert code == 0, verdict["rungs"]
    assert {rung["status"] for rung in verdict["rungs"]} == {"pass"}
    used = {Path(path).name for path in verdict["facts"]["used"]}
    assert used >= {Path(path).resolve().name for path in folder.glob("libcudnn*.so.*")}


def test_results_do_not_depend_on_the_seed(folder: Path) -> None:
    for seed in ("1", "2", "3"):
        code, (verdict,) = verify(folder, "--quick", "--seed", seed)
        assert code == 0, verdict["rungs"]


def test_all_gpus_are_verified_side_by_side(folder: Path) -> None:
    code, verdicts = verify(folder, "--quick", "--all-gpus")
    assert code == 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    assert len(verdicts) == listed.stdout.count("UUID: GPU-") or "MIG" in listed.stdout
