"""A kill at any journal line of the commands that change a prefix: the old state or the new one."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from conftest import NEW, OLD, Redist
from support.cli import Cli, tree
from test_install_failures import run_and_die

from cudnn_doctor.install.executor import recover
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import State, exclusive

COMMANDS = {
    "use": ("use", "9.1.0"),
    "uninstall": ("uninstall", "9.10.2"),
    "repair": ("repair",),
    "rollback": ("rollback",),
}


@pytest.fixture
def world(cli: Cli, redist_tree: Redist, tmp_path: Path) -> Path:
    """A prefix of two versions, the current one damaged, and a copy of all to begin anew from."""
    base = tmp_path / "world"
    here = Cli(base)
    for version in (OLD, NEW):
        archive = redist_tree.archives[version, "12"]
        where = ("--prefix", base / "p", "--matrix", redist_tree.matrix)
        here("install", "--archive", archive, *where, "--yes")
    shutil.copytree(base, tmp_path / "template", symlinks=True)
    return base


def begin_anew(world: Path) -> dict[str, str]:
    shutil.rmtree(world)
    shutil.copytree(world.with_name("template"), world, symlinks=True)
    return tree(world / "p")


@pytest.mark.parametrize("command", COMMANDS)
def test_old_or_new(world: Path, command: str) -> None:
    args = [*COMMANDS[command], "--yes"]
    if command != "rollback":
        args += ["--prefix", str(world / "p")]
    if command == "repair":
        (world.with_name("template") / "p/9.10.2-cuda12/include/cudnn.h").write_text("damage")
    old = begin_anew(world)
    Cli(world)(*args)
    new = tree(world / "p")
    assert new != old
    outcomes = []
    for at in range(1, 60):
        assert begin_anew(world) == old
        status = run_and_die(Cli(world), args, at, before=False)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        state = State(world / "state", world / "cache")
        with exclusive(state):
            recover(state, Silent())
        now = tree(world / "p")
        assert now in (old, new), f"between, after journal line {at}"
        outcomes.append(now == new)
    assert len(outcomes) >= 3
    assert outcomes == sorted(outcomes)
