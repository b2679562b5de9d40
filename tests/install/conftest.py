"""A small redist tree with its matrix and server, built once a session; a world of wheels."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import fakewheels, redist, wheelworld
from support.cli import Cli
from support.redist_server import RedistServer, serving
from support.wheelindex import WheelIndex
from support.wheelworld import World

NEW, OLD, LEGACY = "9.10.2.21", "9.1.0.70", "8.2.4.15"


class Redist(NamedTuple):
    """Archives of three releases (one in the old layout) and one wheel."""

    root: Path
    matrix: Path
    archives: dict[tuple[str, str], Path]
    wheel: Path


@pytest.fixture(scope="session")
def redist_tree(tmp_path_factory: pytest.TempPathFactory) -> Redist:
    root = tmp_path_factory.mktemp("redist")
    archives = {
        (NEW, "12"): redist.build_archive(root, NEW, blocks=True),
        (OLD, "12"): redist.build_archive(root, OLD),
        (LEGACY, "11.4"): redist.build_archive(root, LEGACY, "11.4"),
    }
    wheel = fakewheels.cudnn_wheel(root, NEW)
    matrix = root / "matrix.yaml"
    redist.write_matrix(matrix, archives, wheels={(NEW, "12"): wheel})
    return Redist(root, matrix, archives, wheel)


@pytest.fixture
def server(redist_tree: Redist) -> Iterator[RedistServer]:
    with serving(redist_tree.root) as running:
        yield running


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    wheels: Path,
    template: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    """A copy of the module's ``template`` with an index of its ``wheels``; the parameter names the
    installer, ``uv`` or ``pip``."""
    index = WheelIndex(wheels)
    prefix = tmp_path / "env"
    shutil.copytree(template, prefix, symlinks=True)
    installer = getattr(request, "param", "uv")
    for name, value in wheelworld.environ_for(index, installer, tmp_path).items():
        monkeypatch.setenv(name, value)
    yield World(tmp_path, prefix, index, wheelworld.matrix_of(wheels))
    index.close()
