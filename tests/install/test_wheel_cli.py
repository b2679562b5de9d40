"""Wheels by the command line: into the active environment, shown first, and back again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import fakewheels, redist, wheelworld
from support.cli import Cli
from support.wheelindex import WheelIndex

from cudnn_doctor.errors import ExitCode


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheelworld.build_wheels(folder)
    return folder


@pytest.fixture
def index(wheels: Path) -> Iterator[WheelIndex]:
    index = WheelIndex(wheels)
    yield index
    index.close()


@pytest.fixture
def prefix(tmp_path: Path, cli: Cli, index: WheelIndex, wheels: Path) -> Path:
    """A new environment, activated, and a matrix that knows the index's wheels."""
    fakewheels.make_venv(tmp_path / "env")
    cli.environ.update(wheelworld.environ_for(index, "uv", tmp_path))
    cli.environ["VIRTUAL_ENV"] = str(tmp_path / "env")
    known = {
        (build, "12"): next(wheels.glob(f"nvidia_cudnn_cu12-{build}-*"))
        for build in wheelworld.BUILDS
    }
    redist.write_matrix(tmp_path / "matrix.yaml", {}, wheels=known)
    return tmp_path / "env"


def ask(cli: Cli, version: str) -> list[str | Path]:
    matrix = cli.base / "matrix.yaml"
    return ["install", "--version", version, "--cuda", "12", "--no-gpu", "--matrix", matrix]


def cudnn(prefix: Path) -> list[str]:
    return sorted(path.name for path in (prefix / wheelworld.SITE).glob("nvidia_cudnn*"))


def test_it_is_shown_done_and_taken_back(cli: Cli, prefix: Path) -> None:
    shown = cli(*ask(cli, "9.10.2"), "--dry-run").stdout
    assert "nvidia-cudnn-cu12 9.10.2.21" in shown
    assert cudnn(prefix) == []
    cli(*ask(cli, "9.1.0"), "--yes")
    assert cudnn(prefix) == ["nvidia_cudnn_cu12-9.1.0.70.dist-info"]
    cli(*ask(cli, "9.10.2"), "--yes")
    assert cudnn(prefix) == ["nvidia_cudnn_cu12-9.10.2.21.dist-info"]
    cli("rollback", "--yes")
    assert cudnn(prefix) == ["nvidia_cudnn_cu12-9.1.0.70.dist-info"]
    cli("rollback", "--yes")
    assert cudnn(prefix) == []


def test_a_framework_pin_is_broken_only_when_asked(cli: Cli, prefix: Path) -> None:
    fakewheels.install(prefix, fakewheels.torch_wheel(cli.base))
    refused = cli(*ask(cli, "9.12.0"), "--yes", code=ExitCode.NO_COMPATIBLE_VERSION)
    assert "torch==2.9.1 requires cuDNN ==9.10.2.21" in refused.stderr
    assert "--break-pins" in refused.stderr
    assert "Traceback" not in refused.stderr
    done = cli(*ask(cli, "9.12.0"), "--break-pins", "--yes")
    assert "breaks a requirement of torch 2.9.1" in done.stdout
    assert cudnn(prefix) == ["nvidia_cudnn_cu12-9.12.0.46.dist-info"]


def test_the_shell_script_names_the_hash(cli: Cli, prefix: Path) -> None:
    script = cli(*ask(cli, "9.10.2"), "--dry-run", "--format", "shell").stdout
    assert "--require-hashes" in script
    assert "sha256:" in script
