"""A small redist tree with its matrix and server, built once a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import fakewheels, redist
from support.cli import Cli
from support.redist_server import RedistServer, serving

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
