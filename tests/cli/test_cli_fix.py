"""`fix` on real environments with small wheels: mended, looked at again, taken back."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.cli import Cli, tree
from support.fakewheels import (
    cuda_wheel,
    cudnn_folder,
    cudnn_wheel,
    install,
    make_venv,
    torch_wheel,
)

BUILD = "9.10.2.77"
"""Of a real release, and no build that the matrix knows by its hash."""
pytestmark = pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not here")


@pytest.fixture
def world(tmp_path: Path) -> tuple[Cli, Path]:
    """A healthy environment with torch, and a folder of wheels that uv installs from."""
    wheels, env = tmp_path / "wheels", tmp_path / "env"
    wheels.mkdir()
    make_venv(env)
    found = [
        cudnn_wheel(wheels, BUILD),
        cuda_wheel(
            wheels,
            "nvidia-cublas-cu12",
            "12.8.4.1",
            "nvidia/cublas/lib",
            ["libcublas.so.12", "libcublasLt.so.12"],
        ),
        cuda_wheel(
            wheels, "nvidia-cuda-nvrtc-cu12", "12.8.93", "nvidia/cuda_nvrtc/lib", ["libnvrtc.so.12"]
        ),
        torch_wheel(wheels, cudnn=BUILD),
    ]
    install(env, *found)
    cli = Cli(tmp_path)
    cli.environ |= {
        "VIRTUAL_ENV": str(env),
        "UV_NO_INDEX": "1",
        "UV_OFFLINE": "1",
        "UV_FIND_LINKS": str(wheels),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "PATH": f"{env / 'bin'}:{os.environ['PATH']}",
    }
    cli.environ.pop("LD_LIBRARY_PATH", None)
    return cli, env


def cudnn(env: Path) -> Path:
    return next((env / "lib").glob("python3*/site-packages")) / "nvidia/cudnn/lib"


def test_nothing_wrong_changes_nothing(world: tuple[Cli, Path]) -> None:
    cli, env = world
    before = tree(env)
    result = cli.json("fix", "--yes", "--no-gpu")
    assert not result["changed"] and not result["plan"].get("steps")
    assert tree(env) == before


def test_a_lost_library_comes_back_and_the_fix_can_be_undone(world: tuple[Cli, Path]) -> None:
    cli, env = world
    (cudnn(env) / "libcudnn_graph.so.9").unlink()
    cli("check", "--no-gpu", code=1)
    result = cli.json("fix", "--yes", "--no-gpu")
    assert result["changed"] and result["mended"] and not result["left"]
    assert (cudnn(env) / "libcudnn_graph.so.9").is_file()
    cli("check", "--no-gpu")
    cli("rollback", "--yes", result["receipt"])


def test_a_dry_run_and_a_refusal_change_nothing(world: tuple[Cli, Path]) -> None:
    cli, env = world
    (cudnn(env) / "libcudnn.so.9").unlink()
    before = tree(env)
    assert "reinstall nvidia-cudnn-cu12" in cli("fix", "--no-gpu", "--dry-run").stdout
    cli("fix", "--no-gpu", code=2)  # no terminal to ask at
    assert tree(env) == before


def test_what_the_package_index_lacks_leaves_everything_as_it_was(world: tuple[Cli, Path]) -> None:
    cli, env = world
    (cudnn(env) / "libcudnn.so.9").unlink()
    next((env.parent / "wheels").glob("nvidia_cudnn*")).unlink()
    (env / ".lock").touch()  # uv's own
    before = tree(env)
    cli("fix", "--yes", "--no-gpu", code=5)
    assert tree(env) == before


def test_a_missing_wheel_is_installed_and_taken_back(world: tuple[Cli, Path]) -> None:
    cli, env = world
    subprocess.run(
        ["uv", "pip", "uninstall", "-q", "--python", str(env / "bin/python"), "nvidia-cudnn-cu12"],
        check=True,
        env=cli.environ,
    )
    result = cli.json("fix", "--yes", "--no-gpu")
    assert (cudnn(env) / "libcudnn.so.9").is_file() and result["mended"]
    cli("rollback", "--yes", result["receipt"])
    assert not cudnn(env).exists()


def test_a_shadowing_folder_is_taken_off_the_path_by_the_activation(
    world: tuple[Cli, Path],
) -> None:
    cli, env = world
    folder = cudnn_folder(env.parent / "other copy", "9.1.0.70")
    (env.parent / "plain").mkdir()
    cli.environ["LD_LIBRARY_PATH"] = f"{folder}:{env.parent / 'plain'}"
    script = (env / "bin/activate").read_bytes()
    result = cli.json("fix", "--yes", "--no-gpu")
    assert result["reactivate"] and any("LD_LIBRARY_PATH" in title for title in result["mended"])
    told = subprocess.run(
        ["bash", "-c", f'. "{env}/bin/activate"; . "{env}/bin/activate"; echo "$LD_LIBRARY_PATH"'],
        env=cli.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == str(env.parent / "plain")
    cli("rollback", "--yes", result["receipt"])
    assert (env / "bin/activate").read_bytes() == script


def test_only_what_is_named(world: tuple[Cli, Path]) -> None:
    cli, env = world
    (cudnn(env) / "libcudnn.so.9").unlink()
    result = cli.json("fix", "--yes", "--no-gpu", "--only", "ld-library-path-shadow")
    assert not result["changed"]
    cli("fix", "--only", "no-such-id", code=2)


def test_what_only_a_log_shows_is_left_to_the_user(world: tuple[Cli, Path]) -> None:
    cli, env = world
    log = env.parent / "log"
    log.write_text("CUDA driver is a stub library\n")
    done = cli("fix", "--yes", "--no-gpu", "--log", log, code=1)
    assert "[libcuda-stub-shadow]" in done.stdout


def test_a_pin_is_not_broken(world: tuple[Cli, Path]) -> None:
    """A wheel of another version than torch pins is replaced by the pinned one, not kept."""
    cli, env = world
    install(env, cudnn_wheel(env.parent / "wheels", "9.8.0.88"))
    result = cli.json("fix", "--yes", "--no-gpu")
    assert result["changed"]
    assert list(cudnn(env).parents[2].glob(f"nvidia_cudnn_cu12-{BUILD}.dist-info"))
