"""Files that the user brings with --archive: known by their contents, whatever their name says."""

from __future__ import annotations

import lzma
import os
import shutil
from pathlib import Path

import pytest
import yaml
from conftest import NEW, Redist
from support import redist
from support.cli import Cli

from cudnn_doctor.install.prefixes.brought import identify
from cudnn_doctor.install.prefixes.source import archive_fetch
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.matrix.load import load


@pytest.fixture
def bring(cli: Cli, redist_tree: Redist, tmp_path: Path):  # type: ignore[no-untyped-def]
    def run(archive: Path, *more: str | Path, code: int = 0) -> str:
        where = ("--prefix", tmp_path / "p", "--matrix", redist_tree.matrix, "--yes", "--no-gpu")
        done = cli("install", "--archive", archive, *where, *more, code=code)
        assert "Traceback" not in done.stderr
        assert code == 0 or not (tmp_path / "p").exists()
        return " ".join((done.stdout + done.stderr).split())

    return run


def other_matrix(redist_tree: Redist, path: Path, **changes: str) -> Path:
    """The matrix with the newest release's archive told to be for something else."""
    document = yaml.safe_load(redist_tree.matrix.read_text())
    release = next(r for r in document["releases"] if r["build"] == NEW)
    release["archives"][0].update(changes)
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize("name", ["cudnn.zip", "cudnn.tgz", "download", "cudnn.tar.xz"])
def test_a_wheel_is_taken_under_any_name(
    bring, redist_tree: Redist, tmp_path: Path, name: str
) -> None:
    shutil.copy(redist_tree.wheel, tmp_path / name)
    assert f"{name} is cuDNN {NEW} for CUDA 12 on linux-x86_64" in bring(tmp_path / name)
    assert (tmp_path / "p/lib/libcudnn.so").resolve().is_file()


def test_a_wheel_has_no_static_libraries(bring, redist_tree: Redist) -> None:
    assert "no static libraries" in bring(redist_tree.wheel, "--static", code=5)


@pytest.mark.parametrize("name", ["cudnn.whl", "cudnn.tgz"])
def test_an_archive_is_taken_under_any_name(
    bring, redist_tree: Redist, tmp_path: Path, name: str
) -> None:
    shutil.copy(redist_tree.archives[NEW, "12"], tmp_path / name)
    bring(tmp_path / name)
    assert (tmp_path / "p/lib/libcudnn.so").resolve().is_file()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\n<!DOCTYPE html><title>Log in</title>", "a web page"),
        (b"", "empty"),
        (b"MZ\x90\0 some program", "neither a .tar.xz, a .tgz nor a wheel"),
        (lzma.compress(b"of a newer release"), "matrix update"),
    ],
)
def test_strangers_are_told_by_what_they_are(bring, tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / f"cudnn-linux-x86_64-{NEW}_cuda12-archive.tar.xz"
    path.write_bytes(data)
    said = bring(path, code=5)
    assert says in said and "no archive or wheel of cuDNN that NVIDIA published" in said


def test_a_folder_is_told(bring, tmp_path: Path) -> None:
    (tmp_path / "folder.tar.xz").mkdir()
    assert "cannot read the archive" in bring(tmp_path / "folder.tar.xz", code=5)


def test_a_file_for_another_machine_needs_its_name(
    bring, redist_tree: Redist, tmp_path: Path
) -> None:
    matrix = other_matrix(redist_tree, tmp_path / "m.yaml", platform="linux-sbsa")
    archive = redist_tree.archives[NEW, "12"]
    said = bring(archive, "--matrix", matrix, code=5)
    assert "on linux-sbsa" in said and "--arch" in said
    bring(archive, "--matrix", matrix, "--arch", "sbsa")


def test_a_jit_archive_is_told_from_the_full_one(
    bring, redist_tree: Redist, tmp_path: Path
) -> None:
    matrix = other_matrix(redist_tree, tmp_path / "m.yaml", flavour="jit")
    said = bring(redist_tree.archives[NEW, "12"], "--matrix", matrix)
    assert "cuDNN JIT 9.10.2.21" in said
    assert (tmp_path / "p/9.10.2-cuda12-jit/lib/libcudnn.so").exists()


def test_only_a_file_is_read(bring, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        assert "no regular file" in bring(path, code=5)


@pytest.mark.parametrize("method", ["wheel", "package"])
def test_other_methods_take_no_file(  # type: ignore[no-untyped-def]
    bring, redist_tree: Redist, method: str
) -> None:
    archive = redist_tree.archives[NEW, "12"]
    assert "--archive fills a prefix" in bring(archive, "--method", method, code=2)


def test_a_file_is_hashed_once(redist_tree: Redist, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, matrix = str(redist_tree.archives[NEW, "12"]), load(str(redist_tree.matrix))
    known = identify(archive, matrix)
    assert known.sha256 == redist.sha256(Path(archive))
    monkeypatch.setattr("hashlib.sha256", None)
    assert identify(archive, matrix) == known


def test_every_archive_of_the_matrix_is_fetched_by_its_own_request() -> None:
    """Each architecture, CUDA major and flavour, in both layouts."""
    matrix, layouts, platforms, flavours = load(None), set(), set(), set()
    for release in matrix.releases:
        for archive in (a for a in release.archives if a.sha256):
            request = InstallRequest(
                method="tarball",
                version=archive.version or release.build or release.version,
                cuda=archive.cuda,
                platform=archive.platform,
                flavour=archive.flavour,
            )
            fetch = archive_fetch(request, matrix)
            base = matrix.legacy_base if archive.legacy else matrix.redist_base
            assert fetch.urls == (base + archive.path,)
            assert (fetch.sha256, fetch.size) == (archive.sha256, archive.size)
            layouts.add(archive.path.endswith(".tgz"))
            platforms.add(archive.platform)
            flavours.add(archive.flavour)
    assert layouts == {True, False} and flavours == {"full", "jit"}
    assert platforms >= {"linux-x86_64", "linux-sbsa", "linux-aarch64", "linux-ppc64le"}
