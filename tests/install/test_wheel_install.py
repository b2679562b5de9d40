"""Wheels by real pip and real uv, from a loopback index, into fresh virtual environments."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support import fakewheels, wheelworld
from support.wheelworld import World

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install import executor, files
from cudnn_doctor.install.journal import Journal
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.wheels import companions


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheelworld.build_wheels(folder)
    return folder


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheelworld.make_template(tmp_path_factory.mktemp("venv") / "template")


both = pytest.mark.parametrize("world", ["pip", "uv"], indirect=True)


def roll_back(world: World, receipt: Path) -> None:
    """What a rollback does: the inverse of each step, backwards."""
    done = Journal.open(receipt)
    numbered = [*enumerate(done.plan.steps)]
    steps = [s for n, step in reversed(numbered) for s in files.inverse(step, done.saved(n))]
    plan = Plan(
        action="rollback", method="wheel", version="", cuda="", target="", steps=tuple(steps)
    )
    executor.execute(plan, world.state, Silent())


@both
def test_a_fresh_environment_gets_cudnn_and_its_companions(world: World) -> None:
    receipt = world.install("9.10.2.21")
    assert world.versions() == {
        "nvidia-cudnn-cu12": "9.10.2.21",
        "nvidia-cublas-cu12": "12.9.1.4",
        "nvidia-cuda-nvrtc-cu12": "12.8.4.1",
    }
    assert not [name for name in world.tree() if "cudnn-doctor" in name]
    assert world.plan("9.10.2.21").steps[0].title == "check the files and load them"
    roll_back(world, receipt)
    assert world.versions() == {}


def test_cuda_13_brings_companions_of_its_own_major(world: World) -> None:
    world.install("9.12.0.46", cuda="13")
    assert world.versions() == {
        "nvidia-cudnn-cu13": "9.12.0.46",
        "nvidia-cublas": "13.1.0.3",
        "nvidia-cuda-nvrtc": "13.1.0.3",
    }


@both
def test_an_upgrade_can_be_rolled_back_to_the_exact_version(world: World) -> None:
    world.put("nvidia_cudnn_cu12-9.1.0.70", "nvidia_cublas_cu12-12.8.4.1")
    world.put("nvidia_cuda_nvrtc_cu12-12.8.4.1")
    before = world.versions()
    receipt = world.install("9.10.2.21")
    assert world.versions() == {**before, "nvidia-cudnn-cu12": "9.10.2.21"}
    roll_back(world, receipt)
    assert world.versions() == before


def test_companions_come_as_the_framework_pins_them(world: World) -> None:
    requires = ["nvidia-cublas-cu12==12.8.4.1", "nvidia-cudnn-cu12==9.10.2.21"]
    torch = fakewheels.build_wheel(world.base, "torch", "2.9.1", {"torch/x.py": ""}, requires)
    fakewheels.install(world.prefix, torch)
    world.install("9.10.2.21")
    assert world.versions()["nvidia-cublas-cu12"] == "12.8.4.1"


def test_a_pin_is_not_broken_unasked(world: World) -> None:
    world.put("nvidia_cudnn_cu12-9.10.2.21")
    torch = fakewheels.torch_wheel(world.base)
    fakewheels.install(world.prefix, torch)
    with pytest.raises(DoctorError, match=r"torch 2\.9\.1 requires nvidia-cudnn-cu12==9") as caught:
        world.plan("9.12.0.46")
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert "--break-pins" in caught.value.next_step
    world.install("9.12.0.46", break_pins=True)
    assert world.versions()["nvidia-cudnn-cu12"] == "9.12.0.46"
    assert any("torch" in warning for warning in world.plan("9.1.0.70", break_pins=True).warnings)


def test_a_twin_that_a_framework_requires_is_not_removed_unasked(world: World) -> None:
    world.put("nvidia_cudnn_cu12-9.10.2.21")
    fakewheels.install(world.prefix, fakewheels.torch_wheel(world.base))
    with pytest.raises(DoctorError, match="torch") as caught:
        world.plan("9.12.0.46", cuda="13")
    assert "second environment" in caught.value.next_step


@both
def test_twins_are_mended(world: World) -> None:
    world.put("nvidia_cudnn_cu12-9.10.2.21", "nvidia_cudnn_cu11-9.10.2.21")
    library = world.site / "nvidia/cudnn/lib/libcudnn.so.9"
    assert b"cudnn 9.10.2.21 cuda 11" in library.read_bytes()
    receipt = world.install("9.10.2.21")
    assert b"cudnn 9.10.2.21 cuda 12" in library.read_bytes()
    assert "nvidia-cudnn-cu11" not in world.versions()
    roll_back(world, receipt)
    assert {"nvidia-cudnn-cu12", "nvidia-cudnn-cu11"} <= world.versions().keys()


def test_the_placeholder_goes(world: World) -> None:
    world.put("nvidia_cudnn-0.0.1.dev5")
    world.install("9.10.2.21")
    assert "nvidia-cudnn" not in world.versions()


@both
@pytest.mark.parametrize("wheel", ["nvidia_cudnn_cu12-9.10.2.21", "nvidia_cublas_cu12-12.8.4.1"])
def test_half_installed_wheels_are_mended(world: World, wheel: str) -> None:
    world.put("nvidia_cudnn_cu12-9.10.2.21", "nvidia_cublas_cu12-12.8.4.1")
    name = wheel.split("_")[1]
    for library in sorted((world.site / "nvidia" / name / "lib").glob("*.so.*"))[1:]:
        library.unlink()
    assert any("damaged" in version for version in world.versions().values())
    world.install("9.10.2.21")
    assert not any("damaged" in version for version in world.versions().values())
    assert world.versions()["nvidia-cublas-cu12"] == "12.8.4.1"


@both
def test_a_wheel_altered_on_the_index_is_refused(world: World, tmp_path: Path) -> None:
    altered = tmp_path / "altered"
    shutil.copytree(world.index.folder, altered)
    fakewheels.cudnn_wheel(altered, "9.10.2.21", without=["libcudnn_adv.so.9"])
    world.index.folder = altered
    before = world.tree()
    with pytest.raises(DoctorError, match=r"(?i)hash"):
        world.install("9.10.2.21")
    assert world.tree() == before


@both
def test_an_index_that_is_down_changes_nothing(world: World) -> None:
    world.put("nvidia_cudnn_cu12-9.10.2.21", "nvidia_cudnn_cu11-9.10.2.21")
    before = world.tree()
    world.index.failing = True
    with pytest.raises(DoctorError) as caught:
        world.install("9.10.2.21")
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert world.tree() == before


def test_a_companion_that_cannot_be_had_takes_all_back(world: World, tmp_path: Path) -> None:
    world.put("nvidia_cudnn_cu12-9.1.0.70")
    (world.site / "nvidia/cudnn/lib/libcudnn.so").symlink_to("libcudnn.so.9")
    before = world.tree()
    poor = tmp_path / "poor"
    poor.mkdir()
    for wheel in world.index.folder.glob("nvidia_cudnn*"):
        shutil.copy(wheel, poor)
    world.index.folder = poor
    with pytest.raises(DoctorError, match="cublas"):
        world.install("9.10.2.21")
    assert world.tree() == before


@pytest.mark.parametrize("mode", ["hardlink", "copy", "clone"])
def test_a_file_of_nobody_comes_back_even_if_it_is_written_into(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("UV_LINK_MODE", mode)
    stray = world.site / "nvidia/cudnn/lib/libcudnn.so.9"
    stray.parent.mkdir(parents=True)
    stray.write_text("mine")
    before = world.tree()
    poor = tmp_path / "poor"
    poor.mkdir()
    shutil.copy(next(world.index.folder.glob("nvidia_cudnn_cu12-9.10.2.21-*")), poor)
    world.index.folder = poor
    with pytest.raises(DoctorError, match="cublas"):
        world.install("9.10.2.21")
    assert world.tree() == before


def test_a_release_that_does_not_load_is_taken_back(world: World, tmp_path: Path) -> None:
    world.put("nvidia_cudnn_cu12-9.1.0.70", "nvidia_cublas_cu12-12.8.4.1")
    world.put("nvidia_cuda_nvrtc_cu12-12.8.4.1")
    before = world.tree()
    broken = tmp_path / "broken"
    shutil.copytree(world.index.folder, broken)
    fakewheels.cudnn_wheel(broken, "9.10.2.21", without=["libcudnn_graph.so.9"])
    world.index.folder, world.matrix = broken, wheelworld.matrix_of(broken)
    with pytest.raises(DoctorError) as caught:
        world.install("9.10.2.21")
    assert caught.value.exit_code == ExitCode.VERIFICATION_FAILED
    assert world.tree() == before


@both
def test_no_program_of_the_index_is_run(world: World, tmp_path: Path) -> None:
    """A source distribution would be built, by what it brings itself: even the newest is left."""
    ran, project = tmp_path / "ran", tmp_path / "nvidia_cublas_cu12-99.0"
    project.mkdir()
    (project / "PKG-INFO").write_text(
        "Metadata-Version: 2.1\nName: nvidia-cublas-cu12\nVersion: 99.0\n"
    )
    backend = '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n'
    (project / "pyproject.toml").write_text(backend)
    (project / "b.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    folder = shutil.copytree(world.index.folder, tmp_path / "also")
    shutil.make_archive(str(folder / project.name), "gztar", tmp_path, project.name)
    world.index.folder = folder
    request = InstallRequest(
        method="wheel", version="9.10.2.21", cuda="12", python=str(world.prefix)
    )
    pinned = companions.pin(request, world.machine()).companions
    newest = "12.9.1.4"
    assert pinned[0].startswith(f"nvidia-cublas-cu12=={newest} ")
    world.install("9.10.2.21")
    assert world.versions()["nvidia-cublas-cu12"] == newest
    assert not ran.exists()


@both
def test_pip_agrees_that_nothing_is_broken(world: World) -> None:
    world.install("9.10.2.21")
    command = [str(world.prefix / "bin/python"), "-m", "pip", "check"]
    assert subprocess.run(command, check=False).returncode == 0
