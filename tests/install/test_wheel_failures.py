"""What goes wrong on the way to a wheel, by real pip and real uv: told clearly, nothing changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from support import fakewheels, redist, wheelworld
from support.cli import Cli
from support.wheelindex import WheelIndex
from support.wheelworld import World

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.state import State, exclusive

both = pytest.mark.parametrize("world", ["pip", "uv"], indirect=True)
WHEELS = ("cudnn_cu12-9.10.2.21", "cublas_cu12-12.9.1.4", "cuda_nvrtc_cu12-12.8.4.1")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheelworld.build_wheels(folder)
    return folder


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    """An environment with twins: the first command takes one of them away."""
    prefix = wheelworld.make_template(tmp_path_factory.mktemp("venv") / "template")
    names = ("cudnn_cu12-9.1.0.70", "cudnn_cu11-9.10.2.21")
    fakewheels.install(prefix, *(next(wheels.glob(f"nvidia_{name}-*")) for name in names))
    return prefix


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """With little patience."""
    for name in ("PIP_DEFAULT_TIMEOUT", "UV_HTTP_TIMEOUT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("NO_PROXY", "")
    return world


def refused(world: World) -> str:
    """The installation fails, says what is next and leaves all as it was; what it said."""
    before = world.tree()
    with pytest.raises(DoctorError) as caught:
        world.install("9.10.2.21")
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert caught.value.next_step
    assert world.tree() == before
    assert not [*world.site.glob(".cudnn-doctor-*"), *world.site.glob("~*")]
    assert not world.state.journal.exists()
    return caught.value.what


@both
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("404", "404"),
        ("403", "403"),
        ("truncated", "incomplete|hash|end of file|truncated|body|download"),
        ("redirects", "redirect"),
        ("stalls", "time|download"),
    ],
)
def test_a_bad_server(world: World, fault: str, says: str) -> None:
    world.index.fault = fault
    assert any(word in refused(world).lower() for word in says.split("|"))


@both
def test_no_network(world: World) -> None:
    world.index.close()
    refused(world)


@both
def test_a_proxy_that_refuses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = WheelIndex(world.base)
    proxy.failing = True
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url.removesuffix("simple/"))
    refused(world)
    proxy.close()
    assert world.index.asked == []


@pytest.mark.root
@both
def test_no_space_that_was_not_foreseen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up while the installer writes."""
    disk = world.base / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", disk], check=True)
    try:
        shutil.move(world.prefix, disk / "env")
        world.prefix, world.site = disk / "env", disk / "env" / wheelworld.SITE
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        (disk / "ballast").write_bytes(bytes(free - (40 << 10)))
        monkeypatch.setattr("cudnn_doctor.install.executor._check_space", lambda plan: None)
        assert "no space left" in refused(world).lower()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.root
@both
def test_a_read_only_environment(world: World) -> None:
    mount = ("mount", "--bind", world.prefix, world.prefix)
    subprocess.run(mount, check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", world.prefix], check=True)
    try:
        assert "may not write" in refused(world)
    finally:
        subprocess.run(["umount", "-l", world.prefix], check=True)


# -- by the command line


@pytest.fixture
def ask(cli: Cli, world: World) -> list[str | Path]:
    wheel = next(world.index.folder.glob("nvidia_cudnn_cu12-9.10.2.21-*"))
    redist.write_matrix(cli.base / "matrix.yaml", {}, wheels={("9.10.2.21", "12"): wheel})
    names = (n for n in os.environ if n.startswith(("PIP_", "UV_")) or n == "PATH")
    cli.environ |= {name: os.environ[name] for name in names}
    cli.environ["VIRTUAL_ENV"] = str(world.prefix)
    options = ("--method", "wheel", "--version", "9.10.2", "--cuda", "12", "--no-gpu")
    return ["install", *options, "--matrix", cli.base / "matrix.yaml"]


@pytest.mark.parametrize("world", ["uv"], indirect=True)
def test_two_runs_at_once(cli: Cli, world: World, ask: list[str | Path]) -> None:
    state = State(cli.base / "state", cli.base / "cache")
    before = world.tree()
    with exclusive(state):
        told = cli(*ask, "--yes", code=ExitCode.NOTHING_CHANGED).stderr
        assert "another cudnn-doctor (process" in told and "--wait" in told
        assert world.tree() == before
        waiting = threading.Thread(target=lambda: cli(*ask, "--yes", "--wait", "60"))
        waiting.start()
    waiting.join()
    assert world.versions()["nvidia-cudnn-cu12"] == "9.10.2.21"


@pytest.mark.parametrize("world", ["pip", "uv"], indirect=True)
def test_the_space_of_companions_counts_before_anything_is_begun(
    cli: Cli, world: World, ask: list[str | Path], tmp_path: Path
) -> None:
    (tmp_path / "tmp").mkdir()
    cli.environ["TMPDIR"] = str(tmp_path / "tmp")
    needs = cli.json(*ask, "--dry-run")["plan"]["space_needed"]
    sizes = [next(world.index.folder.glob(f"nvidia_{n}-*")).stat().st_size for n in WHEELS]
    if "uv" in os.listdir(tmp_path / "programs"):
        assert needs == {str(tmp_path / "uv-cache"): 2 * sum(sizes)}
        cli.environ["UV_LINK_MODE"] = "copy"
        needs = cli.json(*ask, "--dry-run")["plan"]["space_needed"]
        assert needs[str(world.site)] == needs[str(tmp_path / "uv-cache")]
    else:
        total = sizes[0] + 690_000_000
        caches = {str(tmp_path / "tmp"): total, str(tmp_path / "pip-cache"): total}
        assert needs == {str(world.site): 2 * total, **caches}
