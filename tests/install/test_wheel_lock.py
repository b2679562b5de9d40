"""A lock of a wheel names everything that came with it, by hash, and brings the same next year."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import fakewheels, redist, wheelworld
from support.cli import Cli
from support.wheelindex import WheelIndex


@pytest.fixture
def index(tmp_path: Path) -> Iterator[WheelIndex]:
    wheelworld.build_wheels(tmp_path / "wheels")
    index = WheelIndex(tmp_path / "wheels")
    yield index
    index.close()


def versions(prefix: Path) -> set[str]:
    return {path.name for path in (prefix / wheelworld.SITE).glob("nvidia_*.dist-info")}


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_the_same_companions_come_again(
    cli: Cli, index: WheelIndex, tmp_path: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.environ.update(wheelworld.environ_for(index, tool, tmp_path))
    wheel = next(index.folder.glob("nvidia_cudnn_cu12-9.10.2.21-*"))
    redist.write_matrix(tmp_path / "matrix.yaml", {}, wheels={("9.10.2.21", "12"): wheel})
    for name in ("now", "later"):
        if tool == "pip":
            subprocess.run([sys.executable, "-m", "venv", tmp_path / name], check=True)
        else:
            fakewheels.make_venv(tmp_path / name)
    (tmp_path / "pip.py").write_text("raise SystemExit('somebody else wrote this')")
    monkeypatch.chdir(tmp_path)
    lock = tmp_path / "cudnn.lock"
    base = ("install", "--method", "wheel", "--cuda", "12", "--no-gpu", "--yes", "--lock", lock)
    base = (*base, "--matrix", tmp_path / "matrix.yaml")
    cli(*base, "--version", "9.10.2", "--python", tmp_path / "now")
    names = ["libcublas.so.12", "libcublasLt.so.12"]
    fakewheels.cuda_wheel(
        index.folder, "nvidia-cublas-cu12", "12.9.9.9", "nvidia/cublas/lib", names
    )
    cli(*base, "--frozen", "--python", tmp_path / "later")
    assert versions(tmp_path / "later") == versions(tmp_path / "now")
    companions = json.loads(lock.read_text())["companions"]
    assert [line.split("==")[0] for line in companions] == [
        "nvidia-cublas-cu12",
        "nvidia-cuda-nvrtc-cu12",
    ]
    assert all("--hash=sha256:" in line for line in companions)


def test_where_all_is_there_already_the_lock_is_the_same(
    cli: Cli, index: WheelIndex, tmp_path: Path
) -> None:
    cli.environ.update(wheelworld.environ_for(index, "uv", tmp_path))
    wheel = next(index.folder.glob("nvidia_cudnn_cu12-9.10.2.21-*"))
    redist.write_matrix(tmp_path / "matrix.yaml", {}, wheels={("9.10.2.21", "12"): wheel})
    fakewheels.make_venv(tmp_path / "env")
    base = ("install", "--method", "wheel", "--cuda", "12", "--no-gpu", "--yes")
    base = (*base, "--matrix", tmp_path / "matrix.yaml", "--python", tmp_path / "env")
    locks = [tmp_path / name for name in ("first.lock", "second.lock")]
    for lock in locks:
        cli(*base, "--version", "9.10.2", "--lock", lock)
    first, second = (json.loads(lock.read_text()) for lock in locks)
    assert first == second
    assert len(first["pinned"]) == 6  # three wheels, three hashes


def test_a_companion_that_was_changed_is_refused(
    cli: Cli, index: WheelIndex, tmp_path: Path
) -> None:
    cli.environ.update(wheelworld.environ_for(index, "uv", tmp_path))
    wheel = next(index.folder.glob("nvidia_cudnn_cu12-9.10.2.21-*"))
    redist.write_matrix(tmp_path / "matrix.yaml", {}, wheels={("9.10.2.21", "12"): wheel})
    fakewheels.make_venv(tmp_path / "env")
    lock = tmp_path / "cudnn.lock"
    base = ("install", "--method", "wheel", "--cuda", "12", "--no-gpu", "--yes", "--lock", lock)
    base = (*base, "--matrix", tmp_path / "matrix.yaml", "--python", tmp_path / "env")
    cli(*base, "--version", "9.10.2")
    cli("rollback", "--yes")
    text = lock.read_text()
    known = json.loads(text)["companions"][0].partition("sha256:")[2]
    lock.write_text(text.replace(known, "0" * 64))
    assert "ash" in cli(*base, "--frozen", code=5).stderr
    assert versions(tmp_path / "env") == set()


@pytest.mark.parametrize(
    "change",
    [
        {"companions": ["evil @ file:///tmp/evil"]},
        {"companions": ["--index-url http://127.0.0.1/"]},
        {"companions": ["evil==1 --hash=sha256:" + "0" * 64]},
        {"companions": ["nvidia-cublas-cu12==12.9.1.4"]},
        {"pinned": ["--option=1"]},
        {"version": "9.10.2; x"},
        {"version": "9" * 5000},
        {"cuda": ""},
        {"cuda": "12.9"},
        {"platform": "../x"},
    ],
)
def test_a_lock_is_no_code(cli: Cli, tmp_path: Path, change: dict[str, object]) -> None:
    lock = {
        **{"schema": 1, "method": "wheel", "version": "9.10.2.21", "cuda": "12"},
        **{"flavour": "full", "platform": "linux-x86_64", "source": "auto", "static": False},
        **{"pinned": [], "companions": [], **change},
    }
    (tmp_path / "cudnn.lock").write_text(json.dumps(lock))
    args = ("--frozen", "--lock", tmp_path / "cudnn.lock", "--python", tmp_path, "--yes")
    assert "not a lock file" in cli("install", *args, code=7).stderr
