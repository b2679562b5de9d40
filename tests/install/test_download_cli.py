"""`download` for a machine without a network, and the cache carried over to it."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import NEW, OLD, Redist
from support import fakewheels, redist, wheelworld
from support.cli import Cli
from support.redist_server import RedistServer
from support.wheelindex import WheelIndex

from cudnn_doctor.install.state import locate


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wanted(redist: Redist, version: str, *more: str | Path) -> list[str | Path]:
    what = ["--version", version, "--cuda", "12", "--arch", "x86_64"]
    return ["download", *what, "--matrix", redist.matrix, *more]


@pytest.fixture
def index(tmp_path: Path, cli: Cli, redist_tree: Redist) -> Iterator[WheelIndex]:
    """A package index with the wheel, and the variables by which pip finds it."""
    (tmp_path / "index").mkdir()
    shutil.copy(redist_tree.wheel, tmp_path / "index")
    index = WheelIndex(tmp_path / "index")
    cli.environ |= {"PIP_INDEX_URL": index.url, "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
    cli.environ |= {"PIP_NO_CACHE_DIR": "1"}
    yield index
    index.close()


# -- the wheel, from the index


def test_the_right_wheel_comes_from_the_index(
    cli: Cli, redist_tree: Redist, index: WheelIndex, tmp_path: Path
) -> None:
    args = wanted(redist_tree, "9.10.2", "--source", "wheel", "--dest", tmp_path / "stick")
    found = cli.json(*args)
    path = Path(found["file"])
    assert path.parent == tmp_path / "stick" and found["version"] == NEW
    assert sha256(path) == sha256(redist_tree.wheel)
    done = cli(*args)
    assert f"install --archive {path.name}" in done.stdout
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_wheel_of_the_index_with_another_hash_is_refused(
    cli: Cli, redist_tree: Redist, index: WheelIndex, tmp_path: Path
) -> None:
    fakewheels.build_wheel(index.folder, "nvidia-cudnn-cu12", NEW, {"nvidia/x": "x"})
    args = wanted(redist_tree, "9.10.2", "--source", "wheel", "--dest", tmp_path / "stick")
    errors = cli(*args, code=5).stderr
    assert "hash" in errors.lower() and "next: " in errors
    assert not list((tmp_path / "stick").glob("*"))


def test_an_index_that_does_not_answer_is_told(
    cli: Cli, redist_tree: Redist, index: WheelIndex, tmp_path: Path
) -> None:
    index.close()
    args = wanted(redist_tree, "9.10.2", "--source", "wheel", "--dest", tmp_path / "stick")
    errors = cli(*args, code=5).stderr
    assert "could not fetch the wheel" in errors and "--source archive" in errors
    assert not list((tmp_path / "stick").glob("*"))


def test_a_release_without_a_wheel_is_told(cli: Cli, redist_tree: Redist) -> None:
    errors = cli(*wanted(redist_tree, "9.1.0", "--source", "wheel"), code=4).stderr
    assert "Traceback" not in errors and "wheel" in errors


# -- the wheel, from a mirror


def test_a_mirrors_wheel_is_taken_up_where_it_broke_off(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path
) -> None:
    data = redist_tree.wheel.read_bytes()
    part = tmp_path / "cache" / "files" / f"{hashlib.sha256(data).hexdigest()}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"?" * len(data))  # shorter than what may have holes: begun anew
    args = wanted(redist_tree, "9.10.2", "--source", "wheel", "--mirror", server.url)
    found = cli.json(*args, "--dest", tmp_path / "stick")
    assert Path(found["file"]).read_bytes() == data
    server.requests.clear()
    assert cli.json(*args, "--dest", tmp_path / "other")["file"] != found["file"]
    assert server.requests == []


@pytest.mark.parametrize(
    ("fault", "says"), [("corrupt", "not the file that NVIDIA published"), ("404", "HTTP 404")]
)
def test_a_bad_mirror_leaves_nothing(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path, fault: str, says: str
) -> None:
    server.fault = fault
    args = wanted(redist_tree, "9.10.2", "--source", "wheel", "--mirror", server.url)
    errors = cli(*args, "--dest", tmp_path / "stick", code=5).stderr
    assert says in errors and "next: " in errors
    assert not (tmp_path / "stick").exists()


def test_a_folder_that_cannot_be_written_is_told(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path
) -> None:
    (tmp_path / "stick").write_text("a file")
    args = wanted(redist_tree, "9.1.0", "--mirror", server.url, "--dest", tmp_path / "stick")
    assert "cannot write" in cli(*args, code=5).stderr


# -- what a lock names


def test_a_lock_brings_its_archive(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path
) -> None:
    lock, archive = tmp_path / "cudnn.lock", redist_tree.archives[OLD, "12"]
    where = ("--matrix", redist_tree.matrix, "--mirror", server.url)
    what = ("--version", "9.1.0", "--cuda", "12", "--source", "archive", "--no-gpu")
    cli("install", *what, *where, "--prefix", tmp_path / "p", "--lock", lock, "--yes")
    ahead = ("download", "--lock", lock, *where, "--dest", tmp_path / "stick")
    assert "leave --version" in cli(*ahead, "--version", "9.1.0", code=2).stderr
    assert Path(cli.json(*ahead)["file"]).read_bytes() == archive.read_bytes()
    lock.write_text(lock.read_text().replace(sha256(archive), "0" * 64))
    assert "the lock file does not name" in cli(*ahead, code=5).stderr
    lock.write_text("no lock")
    assert "not a lock file" in cli(*ahead, code=7).stderr


def test_a_lock_of_a_wheel_brings_all_that_an_environment_needs(cli: Cli, tmp_path: Path) -> None:
    """Then uv installs it from that folder, and asks no index."""
    wheelworld.build_wheels(tmp_path / "wheels")
    index = WheelIndex(tmp_path / "wheels")
    cli.environ |= wheelworld.environ_for(index, "uv", tmp_path) | {"PIP_NO_CACHE_DIR": "1"}
    wheel = next(index.folder.glob("nvidia_cudnn_cu12-9.10.2.21-*"))
    matrix = redist.write_matrix(tmp_path / "m.yaml", {}, wheels={(NEW, "12"): wheel})
    for name in ("here", "there"):
        fakewheels.make_venv(tmp_path / name)
    lock, stick = tmp_path / "cudnn.lock", tmp_path / "stick"
    base = ("install", "--method", "wheel", "--cuda", "12", "--no-gpu", "--yes", "--lock", lock)
    cli(*base, "--matrix", matrix, "--python", tmp_path / "here")
    cli("download", "--lock", lock, "--matrix", matrix, "--dest", stick)
    index.close()
    assert {path.name.split("-")[0] for path in stick.iterdir()} == {
        "nvidia_cudnn_cu12",
        "nvidia_cublas_cu12",
        "nvidia_cuda_nvrtc_cu12",
    }
    del cli.environ["UV_DEFAULT_INDEX"]
    cli.environ |= {"UV_FIND_LINKS": str(stick), "UV_NO_INDEX": "1"}
    cli.environ["UV_CACHE_DIR"] = str(tmp_path / "another")
    cli(*base, "--frozen", "--matrix", matrix, "--python", tmp_path / "there")
    found = (tmp_path / "there").glob("lib/python3*/site-packages/nvidia/cudnn/lib/libcudnn.so.9")
    assert list(found)


# -- the cache, carried to a host without a network


def offline(cli: Cli, root: str, *args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line where there is no network, not even the loopback one.

    ``root``: a folder that stands for /var; then it believes to be root, else an ordinary user.
    """
    command = shlex.join(cli.command(*args))
    if root:
        mounts = "".join(f"mkdir -p {root}/{n}; mount --bind {root}/{n} /var/{n}; "
                         for n in ("cache", "lib"))  # fmt: skip
        command = mounts + command
    namespaces = ["unshare", "-rnm" if root else "-Un", "sh", "-ec"]
    if subprocess.run([*namespaces, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine makes no user namespaces")
    own = ("CUDNN_DOCTOR_STATE", "CUDNN_DOCTOR_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME")
    environ = {name: value for name, value in cli.environ.items() if name not in own}
    return subprocess.run(
        [*namespaces, command], env=environ, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("source", ["archive", "wheel"])
@pytest.mark.parametrize("as_root", [True, False])
def test_a_carried_cache_needs_no_network(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path, source: str, as_root: bool
) -> None:
    """`install` says nothing of sources or mirrors: what is at hand is taken."""
    cli(*wanted(redist_tree, "9.10.2", "--source", source, "--mirror", server.url, "--dest",
                tmp_path / "stick"))  # fmt: skip
    there = Cli(tmp_path / "there")
    home = tmp_path / "there" / "home"
    root = tmp_path / "there" / "var" if as_root else None
    carried = root / "cache" / "cudnn-doctor" if root else home / ".cache" / "cudnn-doctor"
    shutil.copytree(tmp_path / "cache", carried)
    what = ("--version", "9.10.2", "--cuda", "12", "--arch", "x86_64", "--no-gpu")
    args = ("install", *what, "--prefix", tmp_path / "p", "--matrix", redist_tree.matrix, "--yes")
    done = offline(there, str(root or ""), *args)
    assert done.returncode == 0, done.stderr
    assert "from the cache" in " ".join(done.stdout.split())
    assert (tmp_path / "p" / "lib" / "libcudnn.so").resolve().is_file()
    assert carried.joinpath("files").is_dir()


def test_an_empty_cache_without_a_network_is_told(
    cli: Cli, redist_tree: Redist, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    what = ("--version", "9.1.0", "--cuda", "12", "--arch", "x86_64", "--no-gpu")
    args = ("install", *what, "--prefix", tmp_path / "p", "--matrix", redist_tree.matrix, "--yes")
    done = offline(cli, "", *args)
    assert done.returncode == 5
    assert "cannot download" in done.stderr and "--archive" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "p").exists()


def test_the_cache_lies_where_xdg_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CUDNN_DOCTOR_CACHE", "CUDNN_DOCTOR_STATE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert str(locate().cache) == "/var/cache/cudnn-doctor"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert locate().cache == tmp_path / ".cache/cudnn-doctor"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert str(locate().cache) == "/xdg/cudnn-doctor"
    monkeypatch.setenv("CUDNN_DOCTOR_CACHE", "/own")
    assert str(locate().cache) == "/own"


def test_the_archive_of_the_cache_is_cleared_with_it(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path
) -> None:
    cli(*wanted(redist_tree, "9.1.0", "--mirror", server.url, "--dest", tmp_path))
    files = cli.json("cache", "list")["files"]
    assert [f["file"] for f in files] == [sha256(redist_tree.archives[OLD, "12"])]
    cli("cache", "clear")
    assert cli.json("cache", "list")["files"] == []
