"""A change of wheels is taken back without an index: what it replaced stays until the next one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import fakewheels, redist, wheelworld
from support.cli import Cli
from support.wheelindex import WheelIndex

from cudnn_doctor.errors import ExitCode


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheelworld.build_wheels(folder)
    return folder


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheelworld.make_template(tmp_path_factory.mktemp("venv") / "template")


@pytest.fixture
def index(wheels: Path) -> Iterator[WheelIndex]:
    index = WheelIndex(wheels)
    yield index
    index.close()


@pytest.fixture(params=["pip", "uv"])
def site(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    cli: Cli,
    index: WheelIndex,
    wheels: Path,
    template: Path,
) -> Path:
    """Packages of an active environment: cuDNN 9.1.0, a link and a file that nobody recorded."""
    shutil.copytree(template, tmp_path / "env", symlinks=True)
    cli.environ.update(wheelworld.environ_for(index, request.param, tmp_path))
    cli.environ["VIRTUAL_ENV"] = str(tmp_path / "env")
    known = {(b, "12"): next(wheels.glob(f"nvidia_cudnn_cu12-{b}-*")) for b in wheelworld.BUILDS}
    redist.write_matrix(tmp_path / "matrix.yaml", {}, wheels=known)
    site = tmp_path / "env" / wheelworld.SITE
    there = ("cudnn_cu12-9.1.0.70", "cublas_cu12-12.8.4.1", "cuda_nvrtc_cu11-11.11.3.6")
    fakewheels.install(tmp_path / "env", *(next(wheels.glob(f"nvidia_{name}-*")) for name in there))
    (site / "nvidia/cudnn/lib/libcudnn.so").symlink_to("libcudnn.so.9")
    (site / "nvidia/cudnn/notes").write_text("mine")
    return site


def tree(site: Path) -> dict[str, bytes]:
    """All files of the packages but compiled ones; links by their targets."""
    return {
        str(path.relative_to(site)): bytes(path.readlink()) if link else path.read_bytes()
        for path in sorted(site.rglob("*"))
        if ((link := path.is_symlink()) or path.is_file()) and path.suffix != ".pyc"
    }


def install(cli: Cli, version: str) -> None:
    options = ("--version", version, "--cuda", "12", "--no-gpu", "--method", "wheel", "--yes")
    cli("install", *options, "--matrix", cli.base / "matrix.yaml")


def kept(site: Path) -> list[Path]:
    return sorted(site.glob(".cudnn-doctor-*"))


def go_offline(cli: Cli, index: WheelIndex) -> None:
    index.failing = True
    for cache in ("pip-cache", "uv-cache"):
        shutil.rmtree(cli.base / cache, ignore_errors=True)


def test_the_newest_change_is_taken_back_offline(cli: Cli, index: WheelIndex, site: Path) -> None:
    before = tree(site)
    install(cli, "9.10.2")
    (store,) = kept(site)
    assert not (store / "nvidia/cublas").exists(), "what stayed in place needs no keeping"
    go_offline(cli, index)
    asked = len(index.asked)
    shown = cli("rollback", "--dry-run").stdout
    assert f"put the replaced files back from {store}" in " ".join(shown.split())
    cli("rollback", "--yes")
    assert tree(site) == before
    assert kept(site) == [] and len(index.asked) == asked


@pytest.mark.parametrize("empty", [(), ("mine", "cudnn/lib")])
def test_a_rollback_leaves_those_empty_folders_that_were_there(
    cli: Cli, site: Path, empty: tuple[str, ...]
) -> None:
    """pip leaves the folders of what it uninstalls."""
    for path in (site / "nvidia", *site.glob("nvidia_*.dist-info")):
        shutil.rmtree(path)
    for name in empty:
        (site / "nvidia" / name).mkdir(parents=True)
    before = sorted(site.rglob("*"))
    install(cli, "9.10.2")
    assert (site / "nvidia/cudnn/lib/libcudnn.so.9").is_file()
    cli("rollback", "--yes")
    assert [p for p in sorted(site.rglob("*")) if "__pycache__" not in str(p)] == [
        p for p in before if "__pycache__" not in str(p)
    ]


def test_only_the_newest_is_kept_and_list_tells_its_size(
    cli: Cli, index: WheelIndex, site: Path
) -> None:
    install(cli, "9.10.2")
    (first,) = kept(site)
    install(cli, "9.12.0")
    (second,) = kept(site)
    assert first != second
    (told,) = cli.json("list")["set_aside"]
    alone = [path for path in second.rglob("*") if path.lstat().st_nlink == 1]
    assert told == {"path": str(second), "bytes": sum(path.lstat().st_size for path in alone)}
    assert "kept for a rollback" in cli("list").stdout
    report = cli.json("check", "--no-gpu")
    assert [copy["folder"] for copy in report["machine"]["copies"]] == [f"{site}/nvidia/cudnn/lib"]
    cli("rollback", "--yes")
    go_offline(cli, index)
    between = tree(site)
    cli("rollback", "--yes", code=ExitCode.NOTHING_CHANGED)
    assert tree(site) == between
    index.failing = False
    cli("rollback", "--yes")
    assert (site / "nvidia_cudnn_cu12-9.1.0.70.dist-info").is_dir()


def test_what_others_installed_since_stays(cli: Cli, index: WheelIndex, site: Path) -> None:
    install(cli, "9.10.2")
    later = fakewheels.build_wheel(cli.base, "nvidia-nccl-cu12", "2.1", {"nvidia/nccl/x": "x"})
    fakewheels.install(site.parents[2], later)
    (site / "nvidia/cudnn/notes").write_text("changed")
    go_offline(cli, index)
    cli("rollback", "--yes")
    assert (site / "nvidia/nccl/x").read_text() == "x"
    assert (site / "nvidia/cudnn/notes").read_text() == "changed"
    assert (site / "nvidia_nccl_cu12-2.1.dist-info").is_dir()


def test_clearing_the_cache_frees_it_and_the_index_serves_again(
    cli: Cli, index: WheelIndex, site: Path
) -> None:
    install(cli, "9.10.2")
    assert "1 folders" in cli("cache", "clear").stdout
    assert kept(site) == []
    cli("rollback", "--yes")
    assert (site / "nvidia_cudnn_cu12-9.1.0.70.dist-info").is_dir()


def test_a_change_that_fails_lets_the_kept_files_be(
    cli: Cli, index: WheelIndex, site: Path
) -> None:
    before = tree(site)
    install(cli, "9.10.2")
    go_offline(cli, index)
    options = ("--version", "9.12.0", "--cuda", "12", "--no-gpu", "--method", "wheel", "--yes")
    cli("install", *options, "--matrix", cli.base / "matrix.yaml", code=ExitCode.NOTHING_CHANGED)
    cli("rollback", "--yes")
    assert tree(site) == before


def test_a_reinstallation_is_taken_back(cli: Cli, index: WheelIndex, site: Path) -> None:
    (site / "nvidia/cudnn/lib/libcudnn_ops.so.9").unlink()
    before = tree(site)
    install(cli, "9.1.0")
    assert (site / "nvidia/cudnn/lib/libcudnn_ops.so.9").is_file()
    go_offline(cli, index)
    cli("rollback", "--yes")
    assert tree(site) == before


@pytest.mark.parametrize("left", ["nothing", "metadata"])
def test_what_is_no_more_whole_is_fetched(
    cli: Cli, index: WheelIndex, site: Path, left: str
) -> None:
    install(cli, "9.10.2")
    (store,) = kept(site)
    for path in store.iterdir():
        if left == "nothing" or path.name == "nvidia":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    cli("rollback", "--yes")
    assert (site / "nvidia_cudnn_cu12-9.1.0.70.dist-info").is_dir()
    assert (site / "nvidia/cudnn/lib/libcudnn.so.9").is_file()


def test_what_others_put_in_its_place_is_told_before_it_goes(
    cli: Cli, site: Path, wheels: Path
) -> None:
    install(cli, "9.10.2")
    assert "no more" not in cli("rollback", "--dry-run").stdout
    fakewheels.install(site.parents[2], next(wheels.glob("nvidia_cudnn_cu12-9.12.0.46-*")))
    told = " ".join(cli("rollback", "--dry-run").stdout.split())
    assert f"cuDNN 9.10.2.21 is no more in {site}, but nvidia_cudnn_cu12-9.12.0.46" in told


def test_a_change_is_taken_back_once(cli: Cli, site: Path) -> None:
    install(cli, "9.10.2")
    (receipt,) = (cli.base / "state/receipts").iterdir()
    cli("rollback", "--yes")
    said = cli("rollback", receipt.name, "--yes", code=ExitCode.USAGE).stderr
    assert f"{receipt.name} was taken back" in " ".join(said.split())
