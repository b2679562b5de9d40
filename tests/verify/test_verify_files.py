"""Rung 1 against a wheel's RECORD, and the step of the ext library, without any GPU."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path

import msgspec
import pytest
from support.fakecudnn import fake_copy, fake_driver

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Library
from cudnn_doctor.machine.recorded import compare_folder
from cudnn_doctor.matrix.load import load
from cudnn_doctor.verify import files
from cudnn_doctor.verify.model import Copy, Job, StepResult
from cudnn_doctor.verify.parent import run_child
from cudnn_doctor.verify.prove import flavour_of

LIBRARY = "nvidia/cudnn/lib/libcudnn_ops.so.9"


def installed(
    site: Path, name: str = "nvidia_cudnn_cu13-9.19.0.56", installer: str = "pip"
) -> Path:
    """A site-packages folder with one library of a wheel; the library's path."""
    library = site / LIBRARY
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(name.encode() * 50)
    digest = base64.urlsafe_b64encode(hashlib.sha256(library.read_bytes()).digest()).decode()
    info = site / f"{name}.dist-info"
    info.mkdir()
    (info / "INSTALLER").write_text(installer)
    size = library.stat().st_size
    lines = [f"{LIBRARY},sha256={digest.rstrip('=')},{size}", f"{info.name}/RECORD,,"]
    (info / "RECORD").write_text("\n".join(lines))
    return library


def said(folder: Path) -> StepResult:
    return files.as_installed(compare_folder(Host(), str(folder)))


def test_files_as_in_the_wheel_pass(tmp_path: Path) -> None:
    step = said(installed(tmp_path).parent)
    assert (step.status, step.detail) == (
        "pass",
        "1 files as in RECORD of nvidia_cudnn_cu13-9.19.0.56",
    )


def test_one_flipped_bit_is_found_and_its_file_and_wheel_named(tmp_path: Path) -> None:
    library = installed(tmp_path)
    contents = bytearray(library.read_bytes())
    contents[100] ^= 16
    library.write_bytes(contents)
    step = said(library.parent)
    assert step.status == "fail"
    assert "libcudnn_ops.so.9 has other contents" in step.detail
    assert "nvidia_cudnn_cu13-9.19.0.56" in step.detail


@pytest.mark.parametrize(("damage", "word"), [("shorter", "another size"), ("gone", "is missing")])
def test_a_file_of_another_size_or_none_is_told(tmp_path: Path, damage: str, word: str) -> None:
    library = installed(tmp_path)
    if damage == "gone":
        library.unlink()
    else:
        os.truncate(library, 9)
    assert word in said(library.parent).detail


def test_of_two_wheels_over_one_another_the_one_that_is_there_counts(tmp_path: Path) -> None:
    installed(tmp_path, "nvidia_cudnn_cu12-9.10.2.21")
    library = installed(tmp_path)
    assert said(library.parent).detail == "1 files as in RECORD of nvidia_cudnn_cu13-9.19.0.56"


@pytest.mark.parametrize("damaged", [False, True])
def test_a_prefix_of_our_own_is_compared_with_its_manifest(tmp_path: Path, damaged: bool) -> None:
    library = tmp_path / "9.19.0-cuda13/lib/libcudnn_ops.so.9"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"code" * 99)
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    manifest = {"lib/libcudnn_ops.so.9": {"size": 396, "sha256": digest}}
    (library.parents[1] / ".cudnn-doctor.json").write_text(json.dumps(manifest))
    if damaged:
        library.write_bytes(b"code" * 98 + b"codf")
    step = said(library.parent)
    assert step.status == ("fail" if damaged else "pass"), step.detail


def test_a_manifest_that_is_none_is_no_record(tmp_path: Path) -> None:
    library = tmp_path / "lib/libcudnn_ops.so.9"
    library.parent.mkdir()
    library.write_bytes(b"code")
    for text in ("[]", '{"lib/libcudnn_ops.so.9": {"sha256": "zz"}}', "\xff"):
        (tmp_path / ".cudnn-doctor.json").write_text(text)
        assert said(library.parent).status == "skip"


def test_a_copy_without_a_record_and_one_of_conda_are_not_compared(tmp_path: Path) -> None:
    library = installed(tmp_path, installer="conda")
    for folder in (library.parent, tmp_path):
        step = said(folder)
        assert (step.status, step.detail) == ("skip", "not compared: no record of its files")


@pytest.mark.parametrize(("fault", "status"), [("", "pass"), ("causal", "fail")])
def test_the_ext_library_is_put_to_work_and_checked(
    tmp_path: Path, fault: str, status: str
) -> None:
    folder = fake_copy(tmp_path / "lib")
    driver = fake_driver(tmp_path / "driver")
    libraries = tuple(sorted(path.name for path in folder.iterdir()))
    job = Job(
        copy=Copy(folder=str(folder), shim="libcudnn.so.9", libraries=libraries),
        rungs=("library",), references="numpy",
    )  # fmt: skip
    environ = {**os.environ, "LD_LIBRARY_PATH": str(driver), "FAKE_CUDNN": fault}
    outcome = run_child(job, environ=environ, timeout=60)
    steps = {step.step: step for step in outcome.steps}
    assert steps["causal convolution fp32"].status == status, outcome
    assert "causal convolution bf16" not in steps  # it compiles for seconds: --full alone


JIT = ("libcudnn.so.9", "libcudnn_engines_runtime_compiled.so.9", "libcudnn_graph.so.9")


def test_a_jit_copy_is_known_by_its_few_libraries() -> None:
    matrix = load(None)
    copy = Copy(folder="/c", shim="libcudnn.so.9", libraries=JIT, version="9.14.0", cuda="12")
    assert flavour_of(matrix, copy) == "jit"
    full = (*JIT, "libcudnn_ops.so.9")
    assert flavour_of(matrix, msgspec.structs.replace(copy, libraries=full)) == "full"


@pytest.mark.parametrize(("exact", "status"), [(True, "fail"), (False, "pass")])
def test_a_library_that_the_release_does_not_ship_is_of_another(exact: bool, status: str) -> None:
    copy = Copy(
        folder="/c", shim="libcudnn.so.9", libraries=(*JIT, "libcudnn_ext.so.9"), version="9.14.0"
    )
    graph = "libcudnn_graph.so.9"
    entry = Library(path=f"/c/{graph}", real=f"/c/{graph}", soname=graph, version="9.14.0")
    steps = {s.step: s for s in files.judge(copy, (entry,), JIT, exact=exact)}
    assert steps["one release"].status == status
    assert ("libcudnn_ext.so.9 is no part of 9.14.0" in steps["one release"].detail) is exact
