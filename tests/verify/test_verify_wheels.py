"""Rungs 1 and 2 on real wheels, on machines with and without a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cudnn_doctor.matrix.load import load
from cudnn_doctor.matrix.query import newest

pytestmark = pytest.mark.wheels
NEWEST = newest(load(None), "13")


def _newest() -> tuple[str, str]:
    assert NEWEST is not None
    wheel = next(w for w in NEWEST.wheels if w.package == "nvidia-cudnn-cu13")
    return "nvidia-cudnn-cu13", wheel.version


@pytest.fixture(
    params=[
        ("nvidia-cudnn-cu12", "8.9.7.29"),
        ("nvidia-cudnn-cu12", "9.1.0.70"),
        ("nvidia-cudnn-cu12", "9.10.2.21"),
        _newest(),
    ],
    ids=lambda p: p[1],
)
def wheel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Folder of the libraries and the version; the wheel is deleted again: it is a gigabyte."""
    package, version = request.param
    command = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*command, f"{package}=={version}"], check=True)
    yield tmp_path / "nvidia" / "cudnn" / "lib", version
    shutil.rmtree(tmp_path, ignore_errors=True)


def verify(folder: Path) -> tuple[int, dict[str, Any]]:
    """Without any driver, as on a machine without a GPU."""
    environ = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-m", "cudnn_doctor", "verify", "--lib", str(folder), "--json"],
        capture_output=True, text=True, check=False, env=environ,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["verdicts"][0]


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="is about machines without a GPU")
def test_rungs_1_and_2_pass_and_the_exit_code_says_that_the_others_were_not_run(
    wheel: tuple[Path, str],
) -> None:
    folder, version = wheel
    code, verdict = verify(folder)
    rungs = {rung["name"]: rung["status"] for rung in verdict["rungs"]}
    assert (code, rungs["files"], rungs["load"]) == (3, "pass", "pass"), verdict["rungs"]
    assert {rungs[name] for name in ("initialise", "convolve", "library", "speed")} == {"skip"}
    major, minor, patch, *_ = (int(n) for n in version.split("."))
    assert verdict["facts"]["cudnn"] in (
        major * 10000 + minor * 100 + patch,
        major * 1000 + minor * 100 + patch,
    )
    mapped = set(verdict["facts"]["mapped"])
    shipped = {str(path) for path in folder.glob("libcudnn*.so.*")}
    skipped = [s["step"] for s in verdict["steps"] if s["rung"] == "load" and s["status"] == "skip"]
    assert shipped - mapped == {str(folder / name) for name in skipped}
    assert len(skipped) <= 1  # from 9.27.0 one sublibrary needs the driver
    foreign = folder / "libcudnn.so.8"
    if major == 9:
        assert not foreign.exists()
