"""`matrix inspect` on wheels, archives and folders made of small real libraries."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.elf import build_library, stub
from support.fatbin import Code, build_gpu_library, container
from typer.testing import CliRunner

from cudnn_doctor.cli.app import app
from cudnn_doctor.errors import BadInput, DoctorError, ExitCode
from cudnn_doctor.machine import members
from cudnn_doctor.machine.inspection import Inspection, inspect

RUN = CliRunner()
HEADER = """\
#define CUDNN_MAJOR 9
#define CUDNN_MINOR 40
#define CUDNN_PATCHLEVEL 1
#define CUDNN_MAX_SM_MAJOR_NUMBER 12
#define CUDNN_MAX_SM_MINOR_NUMBER 1
"""
METADATA = """\
Metadata-Version: 2.1
Name: nvidia-cudnn-cu12
Version: 9.40.1.7
Requires-Dist: nvidia-cublas-cu12

long description
"""
KERNELS = [Code("sass", 80), Code("sass", 90, "a"), Code("sass", 100), Code("ptx", 100)]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release in a folder as NVIDIA's archives have it: ``include/``, ``lib/`` with links."""
    root = tmp_path_factory.mktemp("release")
    folder = root / "lib"
    driver = stub(root / "stubs", "libcuda.so.1")
    shim = folder / "libcudnn.so.9.40.1"
    build_library(shim, soname="libcudnn.so.9", rpath="$ORIGIN", tag="rpath")
    build_gpu_library(
        folder / "libcudnn_ops.so.9.40.1",
        container(KERNELS) + container([Code("sass", 80)]),
        soname="libcudnn_ops.so.9",
        needed=[driver],
        rpath="$ORIGIN",
    )
    for name in ("libcudnn", "libcudnn_ops"):
        (folder / f"{name}.so.9").symlink_to(f"{name}.so.9.40.1")
        (folder / f"{name}.so").symlink_to(f"{name}.so.9")
    (folder / "libcudnn_ops_static.a").write_bytes(b"!<arch>\n")
    (root / "include").mkdir()
    (root / "include/cudnn_version.h").write_text(HEADER)
    (root / "include/cudnn.h").write_text("")
    return root


@pytest.fixture
def make(release: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Build one form of the release, by name."""

    def build(form: str) -> Path:
        if form == "folder":
            return release
        if form == "wheel":
            path = tmp_path / "nvidia_cudnn_cu12-9.40.1.7-py3-none-manylinux_2_27_x86_64.whl"
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
                for name in ("libcudnn.so.9", "libcudnn_ops.so.9"):
                    wheel.write(release / "lib" / name, f"nvidia/cudnn/lib/{name}")
                for name in ("cudnn.h", "cudnn_version.h"):
                    wheel.write(release / "include" / name, f"nvidia/cudnn/include/{name}")
                wheel.writestr("nvidia/__init__.py", "")
                wheel.writestr("nvidia_cudnn_cu12-9.40.1.7.dist-info/METADATA", METADATA)
            return path
        today, old = "cudnn-linux-x86_64-9.40.1.7_cuda12-archive", "cudnn-12.4-linux-x64-v9.40.1.7"
        path = tmp_path / f"{today if form == 'tar.xz' else old}.{form}"
        with tarfile.open(path, "w:xz" if form == "tar.xz" else "w:gz") as archive:
            archive.add(release / "lib", "cudnn/lib")
            archive.add(release / "include", "cudnn/include")
        return path

    return build


@pytest.mark.parametrize("form", ["folder", "wheel", "tar.xz", "tgz"])
def test_every_form_tells_the_same(form: str, make: Callable[[str], Path]) -> None:
    found = inspect(str(make(form)))
    assert list(found.libraries) == ["libcudnn.so.9", "libcudnn_ops.so.9"]
    shim, ops = found.libraries.values()
    assert (shim.rpath, shim.runpath) == ("$ORIGIN", None)
    assert (ops.rpath, ops.runpath) == (None, "$ORIGIN")
    assert "libcuda.so.1" in ops.needed
    assert ops.sass == {"sm_80": 2, "sm_90a": 1, "sm_100": 1}
    assert ops.ptx == {"sm_100": 1}
    assert ops.damage == shim.damage == ""
    assert (found.header_version, found.max_device) == ("9.40.1", "12.1")
    assert found.headers == ("cudnn.h", "cudnn_version.h")
    assert found.release == "9.40.1"
    if form != "folder":
        assert found.cuda == ("12.4" if form == "tgz" else "12")
        assert found.size == make(form).stat().st_size


def test_a_wheel_tells_its_metadata(make: Callable[[str], Path]) -> None:
    found = inspect(str(make("wheel")))
    assert (found.package, found.version) == ("nvidia-cudnn-cu12", "9.40.1.7")
    assert found.requires == ("nvidia-cublas-cu12",)
    assert found.init_files == ("nvidia/__init__.py",)


@pytest.mark.parametrize("form", ["tar.xz", "tgz"])
def test_an_archive_tells_by_its_name(form: str, make: Callable[[str], Path]) -> None:
    found = inspect(str(make(form)))
    assert (found.platform, found.version, found.jit) == ("linux-x86_64", "9.40.1.7", False)


@pytest.mark.parametrize("form", ["wheel", "tar.xz"])
def test_nothing_is_left_in_tmpdir(
    form: str, make: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(form)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(members.tempfile, "tempdir", str(scratch))
    inspect(str(path))
    assert list(scratch.iterdir()) == []
    usage = os.statvfs(scratch)
    monkeypatch.setattr(
        members.shutil, "disk_usage", lambda _: type("U", (), {"free": 100, "stat": usage})
    )
    with pytest.raises(BadInput, match="are free") as caught:
        inspect(str(path))
    assert "TMPDIR" in caught.value.next_step
    assert list(scratch.iterdir()) == []


def test_a_damaged_library_is_named_and_gives_no_row(release: Path, tmp_path: Path) -> None:
    whole = (release / "lib/libcudnn_ops.so.9").read_bytes()
    for name in ("libcudnn.so.9", "libcudnn_ops.so.9"):
        data = (release / "lib" / name).read_bytes()
        (tmp_path / name).write_bytes(data if "ops" not in name else whole[: len(whole) // 2])
    (tmp_path / "cudnn_version.h").write_text(HEADER)
    result = RUN.invoke(app, ["matrix", "inspect", str(tmp_path)])
    assert result.exit_code == 0
    assert "truncated" in result.output
    error = RUN.invoke(app, ["matrix", "inspect", "--yaml", str(tmp_path)]).exception
    assert isinstance(error, BadInput)
    assert "truncated" in error.what


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x1f\x8b\x08 no gzip", b"text"])
def test_another_file_is_bad_input(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cudnn.whl"
    path.write_bytes(content)
    for target in (path, tmp_path / "not-there", tmp_path):
        with pytest.raises(BadInput):
            inspect(str(target))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), form=st.sampled_from(["wheel", "tar.xz", "tgz"]))
def test_damaged_packages_never_give_a_traceback(
    data: st.DataObject, form: str, make: Callable[[str], Path]
) -> None:
    path = make(form)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw)))]
    path.write_bytes(raw)
    try:
        found = inspect(str(path))
    except DoctorError as error:
        assert error.exit_code is ExitCode.BAD_INPUT
    else:
        assert isinstance(found, Inspection)


def test_a_hostile_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.tar"
    info = tarfile.TarInfo("lib/libcudnn.so.9")
    info.size = 1 << 40
    path.write_bytes(info.tobuf() + io.BytesIO(b"x" * 1024).getvalue())
    with pytest.raises(BadInput):
        inspect(str(path))


def test_the_table_fits_80_columns_and_json_has_the_measured_shape(
    make: Callable[[str], Path],
) -> None:
    path = str(make("wheel"))
    lines = RUN.invoke(app, ["matrix", "inspect", path]).output.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split() == ["ops", "2", "1", "1"] for line in lines)
    body = json.loads(RUN.invoke(app, ["matrix", "inspect", path, "--json"]).output)
    record = body["inspected"]["nvidia-cudnn-cu12==9.40.1.7"]
    assert {"file", "headers", "init_files", "libraries"} <= record.keys()
    ops = record["libraries"]["libcudnn_ops.so.9"]
    assert {"size", "soname", "needed", "runpath", "sass", "ptx"} <= ops.keys()
    assert "rpath" not in ops
    both = RUN.invoke(app, ["matrix", "inspect", path, "--json", "--yaml"]).exception
    assert isinstance(both, DoctorError)
    assert both.exit_code is ExitCode.USAGE
