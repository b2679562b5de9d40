"""kill -9 at every line of the journal, with real pip and real uv: the old wheels or the new."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import fakewheels, wheelworld
from support.wheelworld import World

from cudnn_doctor.install import executor
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import exclusive

KILLER = """
import os, signal, sys
from pathlib import Path
import msgspec
from cudnn_doctor.install import executor
from cudnn_doctor.install.journal import Journal
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import State
file, state, cache, at = sys.argv[1:]
real, count = Journal.note, 0
def note(self, line):
    global count
    count += 1
    if count == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
    real(self, line)
    if line == "commit" and count + 1 == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
Journal.note = note
plan = msgspec.json.decode(Path(file).read_bytes(), type=Plan)
executor.execute(plan, State(Path(state), Path(cache)), Silent())
"""
LINES = 7
"""Begin and end of three steps, and the commit."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheelworld.build_wheels(folder)
    return folder


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    prefix = wheelworld.make_template(tmp_path_factory.mktemp("venv") / "template")
    names = ("cudnn_cu12-9.1.0.70", "cublas_cu12-12.8.4.1", "cuda_nvrtc_cu12-12.8.4.1")
    fakewheels.install(prefix, *(next(wheels.glob(f"nvidia_{name}-*")) for name in names))
    return prefix


@pytest.mark.parametrize("world", ["pip", "uv"], indirect=True)
@pytest.mark.parametrize("at", range(1, LINES + 2))
def test_a_kill_before_any_line_of_the_journal(world: World, at: int) -> None:
    before = world.tree()
    plan = world.plan("9.10.2.21")
    assert len(plan.steps) * 2 + 1 == LINES
    (world.base / "plan.json").write_text(wheelworld.encode(plan))
    state = (str(world.state.folder), str(world.state.cache))
    argv = [sys.executable, "-c", KILLER, str(world.base / "plan.json"), *state, str(at)]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    with exclusive(world.state, wait=10):
        executor.recover(world.state, Silent())
        assert not executor.recover(world.state, Silent())
    kept = sorted(world.site.glob(".cudnn-doctor-*"))
    if at <= LINES:
        assert world.tree() == before
        assert kept == [] and not [*world.site.glob("~*")]
    else:
        assert world.versions()["nvidia-cudnn-cu12"] == "9.10.2.21"
        assert [path.name for path in kept] == [
            f".cudnn-doctor-kept-{path.name}" for path in world.state.receipts.iterdir()
        ]
