"""Recipes for wheels in images: pinned by hash, and carried out word for word in bare roots."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support import dockerfile, fakewheels, redist, wheelworld
from support.cli import Cli
from support.wheelindex import WheelIndex

BUILD = "9.10.2.21"
IMAGES = ("dockerfile", "apptainer", "ansible-tasks")


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
def cli(tmp_path: Path, index: WheelIndex) -> Cli:
    cli = Cli(tmp_path)
    cli.environ.update(wheelworld.environ_for(index, "uv", tmp_path))
    wheel = next(index.folder.glob(f"nvidia_cudnn_cu12-{BUILD}-*"))
    redist.write_matrix(tmp_path / "matrix.yaml", {}, wheels={(BUILD, "12"): wheel})
    return cli


def recipe(cli: Cli, format: str, *more: str | Path) -> str:
    options = ("--method", "wheel", "--version", "9.10.2", "--cuda", "12", "--no-gpu")
    matrix = ("--matrix", cli.base / "matrix.yaml", "--arch", "x86_64")
    return cli("install", *options, *matrix, "--dry-run", "--format", format, *more).stdout


@pytest.mark.parametrize("format", IMAGES)
def test_cudnn_and_its_companions_are_pinned_by_hash(
    cli: Cli, index: WheelIndex, format: str
) -> None:
    text = recipe(cli, format)
    for name in (f"cudnn_cu12-{BUILD}", "cublas_cu12-12.9.1.4", "cuda_nvrtc_cu12-12.8.4.1"):
        file = next(index.folder.glob(f"nvidia_{name}-*"))
        assert f"sha256:{redist.sha256(file)}" in text
    assert "not pinned" not in text
    assert text.count("--require-hashes") == 2


@pytest.mark.parametrize("format", IMAGES)
def test_without_an_index_it_says_that_they_are_not_pinned(
    cli: Cli, index: WheelIndex, format: str
) -> None:
    index.failing = True
    cli.environ["UV_DEFAULT_INDEX"] = index.url.replace("//", "//user:sesame@")
    text = recipe(cli, format)
    assert "# mind: nvidia-cublas-cu12, nvidia-cuda-nvrtc-cu12 not pinned: " in text
    assert text.count("--require-hashes") == 1
    assert "503" in text and "sesame" not in text


def test_pip_can_pin_for_another_architecture(cli: Cli, index: WheelIndex, tmp_path: Path) -> None:
    (tmp_path / "programs/uv").unlink()
    for arch in ("x86_64", "aarch64"):
        fakewheels.build_wheel(
            tmp_path / "more", "nvidia-cublas-cu12", "12.9.9.9", {f"nvidia/{arch}": ""},
            tag=f"py3-none-manylinux_2_27_{arch}",
        )  # fmt: skip
    shutil.copytree(index.folder, tmp_path / "more", dirs_exist_ok=True)
    index.folder = tmp_path / "more"
    text = recipe(cli, "dockerfile")
    for arch, there in (("x86_64", True), ("aarch64", False)):
        file = next(index.folder.glob(f"nvidia_cublas_cu12-12.9.9.9-*{arch}.whl"))
        assert (redist.sha256(file) in text) is there


def test_a_lock_pins_the_recipe_of_next_year(cli: Cli, index: WheelIndex, tmp_path: Path) -> None:
    lock = tmp_path / "cudnn.lock"
    first = recipe(cli, "dockerfile", "--lock", lock)
    newer = tmp_path / "newer"
    shutil.copytree(index.folder, newer)
    names = ["libcublas.so.12", "libcublasLt.so.12"]
    fakewheels.cuda_wheel(newer, "nvidia-cublas-cu12", "12.9.9.9", "nvidia/cublas/lib", names)
    index.folder = newer
    shutil.rmtree(tmp_path / "uv-cache")
    assert recipe(cli, "dockerfile", "--lock", lock, "--frozen") == first
    assert "12.9.9.9" in recipe(cli, "dockerfile")


def test_a_lock_is_not_written_where_the_index_does_not_answer(
    cli: Cli, index: WheelIndex, tmp_path: Path
) -> None:
    index.failing = True
    options = ("--method", "wheel", "--version", "9.10.2", "--cuda", "12", "--no-gpu", "--dry-run")
    more = ("--format", "dockerfile", "--matrix", tmp_path / "matrix.yaml")
    refused = cli("install", *options, *more, "--lock", tmp_path / "lock", code=5)
    assert "cannot resolve nvidia-cublas-cu12" in refused.stderr
    assert not (tmp_path / "lock").exists()


def test_an_interpreter_that_is_named_is_used_as_it_is(cli: Cli) -> None:
    text = recipe(cli, "dockerfile", "--python", "/opt/conda/bin/python3")
    assert "venv" not in text and "break-system-packages" not in text
    assert "/opt/conda/bin/python3 -m pip install" in text


def test_a_folder_that_is_named_is_made_and_activated(cli: Cli) -> None:
    text = recipe(cli, "apptainer", "--python", "/srv/env")
    assert "python3 -m venv /srv/env" in text
    assert text.partition("%environment")[2].split() == [
        *("export", "VIRTUAL_ENV=/srv/env"),
        *("export", "PATH=/srv/env/bin:$PATH"),
    ]


def test_ansible_becomes_root_for_the_environment(cli: Cli) -> None:
    (block,) = yaml.safe_load(recipe(cli, "ansible-tasks"))
    tasks = [task for task in block["block"] if "ansible.builtin.shell" in task]
    assert len(tasks) == 3 and all(task["become"] for task in tasks)


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_a_script_for_a_prefix_names_programs_as_any_machine_has_them(
    cli: Cli, tmp_path: Path, tool: str
) -> None:
    if tool == "pip":
        (tmp_path / "programs/uv").unlink()
        (tmp_path / "programs/pip3").symlink_to(Path(sys.executable).with_name("pip"))
    prefix = tmp_path / "prefix"
    options = ("--method", "tarball", "--source", "wheel", "--version", "9.10.2", "--cuda", "12")
    more = (
        "--arch",
        "x86_64",
        "--no-gpu",
        "--prefix",
        prefix,
        "--matrix",
        tmp_path / "matrix.yaml",
    )
    script = cli("install", *options, *more, "--dry-run", "--format", "shell").stdout
    assert sys.executable not in script
    assert str(tmp_path / "programs") not in script
    subprocess.run(["sh", "-c", script], env=cli.environ, cwd=tmp_path, check=True)
    assert (prefix / "lib/libcudnn.so.9").exists()


# -- images without a Docker engine


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A minimal Debian: no Python, no curl, no certificates."""
    root = tmp_path_factory.mktemp("bare") / "root"
    if kept := os.environ.get("CUDNN_DOCTOR_TEST_DEBIAN"):
        subprocess.run(["cp", "-a", kept, root], check=True)
    elif program := shutil.which("debootstrap"):
        command = [program, "--variant=minbase", "bookworm", str(root)]
        subprocess.run(command, check=True, capture_output=True, timeout=900)
    else:
        pytest.skip("debootstrap is not installed")
    yield root
    shutil.rmtree(root)


@pytest.fixture
def image(bare: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", bare, tmp_path / "root"], check=True)
    return tmp_path / "root"


def versions(image: Path, environ: dict[str, str]) -> dict[str, str]:
    listed = dockerfile.run(
        "python -m pip list --format json --disable-pip-version-check", image, environ
    )
    return {entry["name"]: entry["version"] for entry in json.loads(listed)}


@pytest.mark.root
@pytest.mark.parametrize("before", ["", "python3 python3-pip"])
def test_the_lines_work_as_they_are_on_what_base_images_have(
    cli: Cli, index: WheelIndex, image: Path, before: str
) -> None:
    """None at all (nvidia/cuda, debian), or a Python that belongs to the system (PEP 668)."""
    if before:
        apt = "apt-get update -qq && apt-get install -qq -y --no-install-recommends"
        dockerfile.run(f"{apt} {before}", image, {"PATH": os.defpath, "LC_ALL": "C"})
    text = recipe(cli, "dockerfile")
    environ, _ = dockerfile.build(text, image, {"PIP_INDEX_URL": index.url})
    assert versions(image, environ).items() >= {
        ("nvidia-cudnn-cu12", BUILD),
        ("nvidia-cublas-cu12", "12.9.1.4"),
        ("nvidia-cuda-nvrtc-cu12", "12.8.4.1"),
    }
    assert not list(image.glob("var/lib/apt/lists/*Packages*")) or before
    assert not (image / "root/.cache/pip").exists()
    asked = len(index.asked)
    dockerfile.build(text, image, {"PIP_INDEX_URL": index.url})
    assert not [path for path in index.asked[asked:] if path.startswith("/files/")]
    report = cli.json("check", "--root", image, "--no-gpu", "--python", "/opt/venv")
    assert [copy["version"] for copy in report["machine"]["copies"]] == [BUILD]


@pytest.mark.root
def test_a_python_of_the_system_that_is_named_refuses_by_itself(
    cli: Cli, index: WheelIndex, image: Path
) -> None:
    apt = "apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-pip"
    dockerfile.run(apt, image, {"PATH": os.defpath, "LC_ALL": "C"})
    text = recipe(cli, "dockerfile", "--python", "python3")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        dockerfile.build(text, image, {"PIP_INDEX_URL": index.url})
    assert "externally-managed-environment" in caught.value.output
