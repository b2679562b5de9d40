"""The tool installed by real uv, isolated: it never puts a cuDNN into its own environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
ASK = ("install", "--method", "wheel", "--version", "9.10.2", "--cuda", "12", "--no-gpu")


@pytest.mark.wheels
@pytest.mark.parametrize("how", [("uv tool", "tool", "run"), ("uvx", "tool", "run", "--isolated")])
def test_its_own_environment_is_refused(tmp_path: Path, how: tuple[str, ...]) -> None:
    uv = pytest.importorskip("uv").find_uv_bin()
    owner, *run = how
    environ = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    environ |= {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    environ |= {"PATH": "/usr/bin:/bin", "CUDNN_DOCTOR_STATE": str(tmp_path / "state")}
    if owner == "uv tool":
        subprocess.run([uv, "tool", "install", "-q", str(PROJECT)], env=environ, check=True)
    command = [uv, *run, "-q", "--from", str(PROJECT), "cudnn-doctor", *ASK, "--dry-run"]
    done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)
    assert done.returncode == 5, done.stderr
    assert f"the one that {owner} made" in done.stderr
