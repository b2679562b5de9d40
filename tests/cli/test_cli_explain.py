"""`explain` and `run` at the terminal: contract, exit codes, signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\n"


def _doctor(
    *arguments: str, text: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cudnn_doctor", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_json_contract() -> None:
    done = _doctor("explain", "--no-machine", "--json", text=MISMATCH)
    assert done.returncode == 1 and done.stderr == ""
    (first, *_) = json.loads(done.stdout)["diagnoses"]
    assert {"id", "confidence", "culprit", "evidence", "remedies", "avoid"} <= first.keys()
    assert first["id"] == "driver-user-kernel-mismatch" and 0 <= first["confidence"] <= 1
    assert first["evidence"][0]["line"] == 1
    assert {"title", "commands", "needs_root", "automatic"} <= first["remedies"][0].keys()


def test_exit_codes(tmp_path: Path) -> None:
    assert _doctor("explain", "--no-machine", text="all is well\n").returncode == 0
    missing = (
        "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory"
    )
    assert _doctor("explain", "--no-machine", text=missing).returncode == 3
    assert _doctor("explain", "--no-machine", str(tmp_path / "none")).returncode == 7
    assert _doctor("explain", "--no-machine", str(tmp_path)).returncode == 7
    assert _doctor("explain", "--about", "no-such-thing").returncode == 2
    assert _doctor("explain", "--snapshot", "-").returncode == 2


def test_snapshot_decides(tmp_path: Path) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text("cudnn_copies: [/opt/cudnn/lib 9.8.0]\nenv: {LD_LIBRARY_PATH: unset}\n")
    missing = (
        "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory"
    )
    done = _doctor("explain", "--snapshot", str(machine), text=missing)
    assert done.returncode == 1 and "/opt/cudnn/lib" in done.stdout


def test_about_tells_of_every_id() -> None:
    done = _doctor("explain", "--about", "cudnn-wheel-clobbered")
    assert done.returncode == 0 and "cudnn-wheel-clobbered" in done.stdout.lower()


def test_run_keeps_output_and_exit_code() -> None:
    program = f"import sys; print('out'); sys.stderr.write({MISMATCH!r}); sys.exit(9)"
    done = _doctor("run", "--no-machine", "--", sys.executable, "-c", program)
    assert done.returncode == 9
    assert done.stdout == "out\n"
    assert done.stderr.startswith(MISMATCH)
    assert "driver-user-kernel-mismatch" in done.stderr


def test_run_keeps_the_signal() -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    done = _doctor("run", "--no-machine", "--", sys.executable, "-c", program)
    assert done.returncode == -signal.SIGSEGV


def test_run_says_nothing_of_a_healthy_program() -> None:
    done = _doctor("run", "--no-machine", "--", "echo", "--json", "fine")
    assert (done.returncode, done.stdout, done.stderr) == (0, "--json fine\n", "")


def test_run_of_what_is_not_there() -> None:
    assert _doctor("run", "--no-machine", "--", "/no/such/program").returncode == 127
    assert _doctor("run", "--no-machine").returncode == 2
