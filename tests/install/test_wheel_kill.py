"""kill -9 in the middle of real pip and real uv; the next command brings the old files back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import fakewheels, wheelworld
from support.wheelworld import World

from cudnn_doctor.errors import DoctorError
from cudnn_doctor.install import executor
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import exclusive

HEADERS = 3000
RUNNER = """
import sys
from pathlib import Path
import msgspec
from cudnn_doctor.errors import DoctorError
from cudnn_doctor.install import executor
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import State
plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
executor.execute(plan, State(Path(sys.argv[2]), Path(sys.argv[3])), Silent())
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of many files, so that a kill can meet an installer in the middle."""
    folder = tmp_path_factory.mktemp("wheels")
    wheelworld.build_wheels(folder)
    for build in wheelworld.BUILDS[:2]:
        files: dict[str, str | bytes | Path] = {
            f"nvidia/cudnn/include/part_{n}.h": f"// {build} {n}\n" for n in range(HEADERS)
        }
        libraries = fakewheels.cudnn_libraries(build)
        files |= {f"nvidia/cudnn/lib/{name}": path for name, path in libraries.items()}
        fakewheels.build_wheel(folder, "nvidia-cudnn-cu12", build, files)
    return folder


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    """An environment with the older release and its companions."""
    prefix = wheelworld.make_template(tmp_path_factory.mktemp("venv") / "template")
    names = ("cudnn_cu12-9.1.0.70", "cublas_cu12-12.8.4.1", "cuda_nvrtc_cu12-12.8.4.1")
    fakewheels.install(prefix, *(next(wheels.glob(f"nvidia_{name}-*")) for name in names))
    return prefix


def old_is_going(world: World) -> bool:
    """The installer has begun to take the old release away."""
    count = len(os.listdir(world.site / "nvidia/cudnn/include")) if _there(world) else 0
    return count < HEADERS or not list(
        world.site.glob("nvidia_cudnn_cu12-9.1.0.70.dist-info/RECORD")
    )


def new_is_coming(world: World) -> bool:
    """The installer has written a part of the new release."""
    try:
        part = world.site / "nvidia/cudnn/include/part_100.h"
        return "9.10.2.21" in part.read_text()
    except OSError:
        return False


def _there(world: World) -> bool:
    return (world.site / "nvidia/cudnn/include").is_dir()


def kill_when(
    moment: Callable[[World], bool], world: World, plan: Plan, *, children: bool = True
) -> int:
    """Carry the plan out in another process; kill it, and all its children, at the moment."""
    file = world.base / "plan.json"
    file.write_text(wheelworld.encode(plan))
    argv = [
        sys.executable,
        "-c",
        RUNNER,
        str(file),
        str(world.state.folder),
        str(world.state.cache),
    ]
    child = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL)
    while child.poll() is None and not moment(world):
        time.sleep(0.0005)
    if child.poll() is None:
        (os.killpg if children else os.kill)(child.pid, signal.SIGKILL)
    return child.wait()


@pytest.mark.parametrize("moment", [old_is_going, new_is_coming])
@pytest.mark.parametrize("world", ["pip", "uv"], indirect=True)
def test_a_kill_in_the_middle_is_undone_by_the_next_command(
    world: World, moment: Callable[[World], bool]
) -> None:
    before = world.tree()
    code = kill_when(moment, world, world.plan("9.10.2.21"))
    assert code == -signal.SIGKILL
    assert world.tree() != before
    with exclusive(world.state, wait=10):
        assert executor.recover(world.state, Silent())
    assert world.tree() == before
    assert world.versions()["nvidia-cudnn-cu12"] == "9.1.0.70"
    assert not [path.name for path in world.site.iterdir() if path.name.startswith(("~", "."))]
    world.install("9.10.2.21")
    assert world.versions()["nvidia-cudnn-cu12"] == "9.10.2.21"


@pytest.mark.parametrize("world", ["uv"], indirect=True)
def test_a_first_installation_that_was_killed_leaves_nothing(world: World) -> None:
    names = ["nvidia-cudnn-cu12", "nvidia-cublas-cu12", "nvidia-cuda-nvrtc-cu12"]
    command = [sys.executable, "-m", "pip", "--python", str(world.prefix), "uninstall", "-qy"]
    subprocess.run([*command, *names], check=True)
    before = world.tree()
    emptied = sorted((world.site / "nvidia").rglob("*"))
    assert kill_when(new_is_coming, world, world.plan("9.10.2.21")) == -signal.SIGKILL
    with exclusive(world.state, wait=10):
        executor.recover(world.state, Silent())
    assert world.tree() == before
    assert sorted((world.site / "nvidia").rglob("*")) == emptied


@pytest.mark.parametrize("world", ["pip"], indirect=True)
def test_nothing_is_undone_while_an_orphaned_pip_is_at_work(world: World) -> None:
    before = world.tree()
    kill_when(old_is_going, world, world.plan("9.10.2.21"), children=False)
    with pytest.raises(DoctorError, match="a program that it started"), exclusive(world.state):
        pass
    with exclusive(world.state, wait=60):
        assert executor.recover(world.state, Silent())
    assert world.tree() == before
