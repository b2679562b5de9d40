"""RECORD and METADATA: parsers that never raise, and the comparison with real files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import fakewheels

from cudnn_doctor.machine.distributions import parse_metadata, read_distributions
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Distribution
from cudnn_doctor.machine.records import Comparer, RecordEntry, parse_libraries, parse_record

LIB = "nvidia/cudnn/lib"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    fakewheels.make_venv(folder / "venv")
    fakewheels.install(folder / "venv", fakewheels.cudnn_wheel(folder, "9.10.2.21"))
    return folder / "venv"


@pytest.fixture
def site(installed: Path, tmp_path: Path) -> Path:
    shutil.copytree(installed, tmp_path / "venv", symlinks=True)
    return next((tmp_path / "venv").glob("lib/python*/site-packages"))


def read(site: Path, hashes: bool = False) -> Distribution:
    host = Host("/", {})
    (found,) = read_distributions(host, str(site), Comparer(host, hashes))
    return found


def problems(site: Path, hashes: bool = False) -> dict[str, str]:
    return {p.path.rpartition("/")[2]: p.problem for p in read(site, hashes).record_problems}


def test_an_untouched_wheel_has_no_problems(site: Path) -> None:
    found = read(site, hashes=True)
    assert (found.name, found.version, found.installer) == ("nvidia-cudnn-cu12", "9.10.2.21", "pip")
    assert found.requires == ("nvidia-cublas-cu12",)
    assert (found.record_checked, found.record_problems) == (9, ())
    assert f"{LIB}/libcudnn.so.9" in found.files
    assert "nvidia/cudnn/include/cudnn_version.h" in found.files


def test_size_always_hash_on_demand(site: Path) -> None:
    lib = site / LIB
    (lib / "libcudnn_ops.so.9").unlink()
    with (lib / "libcudnn_cnn.so.9").open("r+b") as file:
        file.truncate(4096)
    flipped = bytearray((lib / "libcudnn_adv.so.9").read_bytes())
    flipped[-1] ^= 1
    (lib / "libcudnn_adv.so.9").write_bytes(flipped)
    (lib / "libcudnn.so.9").unlink()
    (lib / "libcudnn.so.9").symlink_to("nowhere")
    (lib / "libcudnn_graph.so.9").unlink()
    (lib / "libcudnn_graph.so.9").mkdir()
    by_size = {
        "libcudnn_ops.so.9": "missing",
        "libcudnn_cnn.so.9": "size",
        "libcudnn.so.9": "missing",
        "libcudnn_graph.so.9": "unreadable",
    }
    assert problems(site) == by_size
    assert problems(site, hashes=True) == {**by_size, "libcudnn_adv.so.9": "hash"}


def test_two_wheels_over_the_same_files_both_own_them(site: Path, tmp_path: Path) -> None:
    fakewheels.install(tmp_path / "venv", fakewheels.cudnn_wheel(tmp_path, "9.14.0.64", "13"))
    host = Host("/", {})
    twelve, thirteen = read_distributions(host, str(site), Comparer(host, hashes=True))
    assert set(twelve.files) == set(thirteen.files)
    assert twelve.record_problems and not thirteen.record_problems


def test_links_into_a_store_are_followed(site: Path, tmp_path: Path) -> None:
    """uv with link-mode=symlink leaves links to its cache."""
    for path in (site / LIB).iterdir():
        stored = tmp_path / path.name
        os.rename(path, stored)
        path.symlink_to(stored)
    assert problems(site, hashes=True) == {}


def test_without_record_nothing_is_said(site: Path) -> None:
    next(site.glob("*.dist-info/RECORD")).unlink()
    found = read(site)
    assert (found.record_checked, found.record_problems, found.files) == (None, (), ())


def test_garbage_metadata_falls_back_to_the_folder_name(site: Path) -> None:
    info = next(site.glob("*.dist-info"))
    (info / "METADATA").write_bytes(b"\xff\xfe\x00garbage")
    (info / "RECORD").write_bytes(b'"\x00,,,\n\xff,sha256=,x\n,,\n')
    found = read(site)
    assert (found.name, found.version) == ("nvidia-cudnn-cu12", "9.10.2.21")
    assert found.record_problems == ()


def test_record_lines() -> None:
    text = (
        "a/lib.so.1,sha256=abc,12\n"
        '"with,comma.so",sha256=d,3\n'
        "no-size.so,sha256=e,\n"
        "__pycache__/x.cpython-311.pyc,,\n"
        "../../../bin/tool,sha256=f,4\n"
        "/etc/passwd.so,sha256=f,4\n"
        "nvidia/../../../up.so,,1\n"
        "not a record\n"
        "huge.so,,99999999999999999999999999\n"
        "negative.so,,-5\n"
    )
    assert parse_record(text) == [
        RecordEntry("a/lib.so.1", "sha256=abc", 12),
        RecordEntry("with,comma.so", "sha256=d", 3),
        RecordEntry("no-size.so", "sha256=e", None),
        RecordEntry("__pycache__/x.cpython-311.pyc", "", None),
        RecordEntry("huge.so", "", None),
        RecordEntry("negative.so", "", None),
    ]


def test_metadata_headers_end_at_the_description() -> None:
    text = (
        "Metadata-Version: 2.1\nName: Torch\nVersion: 2.9.1\n"
        "Requires-Dist: filelock\nRequires-Dist: nvidia_cudnn.cu12==9.10.2.21; extra == 'x'\n"
        "\nVersion: 1\nRequires-Dist: nvidia-cublas-cu12\n"
    )
    requires = ("nvidia_cudnn.cu12==9.10.2.21; extra == 'x'",)
    assert parse_metadata(text) == ("Torch", "2.9.1", requires)


@given(st.text(st.characters()) | st.text('",\n\0a.so/'))
def test_parsers_never_raise(text: str) -> None:
    parse_metadata(text)
    entries = parse_record(text)
    for entry in entries:
        assert not entry.path.startswith("/") and ".." not in entry.path.split("/")
    assert parse_libraries(text) == [e for e in entries if e.is_library or e.is_cudnn]


@given(st.binary())
def test_any_record_bytes_can_be_compared(data: bytes) -> None:
    entries = parse_record(data.decode("utf-8", "replace"))
    host = Host("/", {})
    assert len(Comparer(host, hashes=True).compare("/nonexistent", entries)) == len(entries)
