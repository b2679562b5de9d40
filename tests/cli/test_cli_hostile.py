"""Surroundings that a program cannot choose: closed streams, full disks, odd bytes, wrong paths."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

SNAPSHOT = Path(__file__).parents[1] / "fixtures/h200_healthy.json"
CHECK = (sys.executable, "-m", "cudnn_doctor", "check")


@pytest.fixture
def environ(tmp_path: Path) -> dict[bytes, bytes]:
    keep = {b"PATH": b"/usr/bin:/bin", b"HOME": os.fsencode(tmp_path)}
    return {**keep, b"PYTHONPATH": os.environb.get(b"PYTHONPATH", b"")}


def run(
    *argv: str, environ: dict[bytes, bytes], cwd: Path, **streams: object
) -> tuple[int, str, str]:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    done = subprocess.run(  # type: ignore[call-overload]
        argv, env=environ, cwd=cwd, stdin=subprocess.DEVNULL, check=False, timeout=120, **options
    )
    out, err = (os.fsdecode(text or b"") for text in (done.stdout, done.stderr))
    assert "Traceback" not in err
    return done.returncode, out, err


def test_a_device_or_pipe_is_never_replaced_by_a_snapshot(
    tmp_path: Path, environ: dict[bytes, bytes]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    copy = tmp_path / "copy.json"
    reader = subprocess.Popen(["sh", "-c", 'cat "$0" > "$1"', str(pipe), str(copy)])
    argv = (*CHECK, "-q", "--snapshot", str(SNAPSHOT), "--snapshot-out", str(pipe))
    code, _, _ = run(*argv, environ=environ, cwd=tmp_path)
    assert reader.wait(timeout=60) == 0
    assert code == 0
    assert json.loads(copy.read_text())["gpus"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_is_followed_by_a_snapshot(tmp_path: Path, environ: dict[bytes, bytes]) -> None:
    link = tmp_path / "link.json"
    link.symlink_to("real.json")
    argv = (*CHECK, "-q", "--snapshot", str(SNAPSHOT), "--snapshot-out", str(link))
    assert run(*argv, environ=environ, cwd=tmp_path)[0] == 0
    assert link.is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["gpus"]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full")
def test_a_full_disk_under_the_output(tmp_path: Path, environ: dict[bytes, bytes]) -> None:
    with open("/dev/full", "w") as full:
        argv = (*CHECK, "--snapshot", str(SNAPSHOT))
        code, _, err = run(*argv, environ=environ, cwd=tmp_path, stdout=full)
    assert code == 3
    assert "cannot write the output" in err


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_keep_the_verdict(
    closed: str, tmp_path: Path, environ: dict[bytes, bytes]
) -> None:
    line = f'exec "$@" {closed}'
    argv = ("sh", "-c", line, "sh", *CHECK, "--snapshot", str(SNAPSHOT))
    assert run(*argv, environ=environ, cwd=tmp_path)[0] == 0


@pytest.mark.parametrize("format", [(), ("--json",)])
def test_names_that_are_no_utf8(
    format: tuple[str, ...], tmp_path: Path, environ: dict[bytes, bytes]
) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff\xfe"
    os.mkdir(folder)
    environ[b"LD_LIBRARY_PATH"] = folder
    environ[b"LC_ALL"] = b"C"
    code, out, _ = run(*CHECK, "--no-gpu", *format, environ=environ, cwd=tmp_path)
    assert code == 0
    assert not format or json.loads(out)["machine"]["environ"]["LD_LIBRARY_PATH"].endswith(
        r"\xff\xfe"
    )


@pytest.mark.parametrize("option", ["--root", "--python"])
def test_a_path_that_leads_nowhere_is_wrong_usage(
    option: str, tmp_path: Path, environ: dict[bytes, bytes]
) -> None:
    code, _, err = run(*CHECK, option, "/no/such", environ=environ, cwd=tmp_path)
    assert code == 2
    assert "/no/such" in err and "next:" in err


def test_ctrl_c_ends_it_at_once(tmp_path: Path, environ: dict[bytes, bytes]) -> None:
    argv = (*CHECK, "--no-gpu", "--deep")
    child = subprocess.Popen(argv, env=environ, cwd=tmp_path, stderr=subprocess.PIPE)
    time.sleep(0.7)
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=15)
        assert child.returncode == 130
        assert b"Traceback" not in err
