"""The rows that `matrix inspect` derives, against the matrix, on records of real wheels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from cudnn_doctor.machine.inspection import Inspection, LibraryContent, inspect
from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.load import default_path, from_yaml, load, mistakes
from cudnn_doctor.matrix.measured import capabilities, release_of
from cudnn_doctor.matrix.model import Release
from cudnn_doctor.report.inspection import table, yaml_row

RECORDS = msgspec.json.decode(
    Path(__file__).with_name("inspected_wheels.json").read_bytes(), type=tuple[Inspection, ...]
)
"""What was measured on whole wheels on both sides of every change of support."""
MEASURED = {"wheel-scan", "sibling", "inspected"}
FIELDS = ("cc_min", "cc_max", "cc", "cc_partial", "ptx", "shim_search", "needs_driver")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.file[:28])
def test_a_row_equals_the_matrix(record: Inspection) -> None:
    row = release_of(record)
    known = query.release(load(default_path()), row.version)
    assert known is not None
    assert row.build == known.build
    assert row.libraries == known.libraries
    flavour = query.variant_of(known, record.cuda)
    assert flavour is not None
    (mine,) = row.variants
    for field in FIELDS:
        assert getattr(mine, field) == getattr(flavour, field), field
    if flavour.sources.get("glibc") == "wheel-index":
        assert mine.glibc == flavour.glibc
    assert row.wheels[0] in known.wheels


def test_records_stand_on_both_sides_of_each_change() -> None:
    seen = {(record.release, record.cuda) for record in RECORDS}
    sides = {("9.10.2", "12"), ("9.11.0", "12"), ("9.6.0", "12"), ("9.7.0", "12")}
    sides |= {("9.20.0", "13"), ("9.21.0", "13"), ("9.21.1", "13"), ("9.26.0", "12")}
    sides |= {("8.7.0", "11"), ("8.8.0", "12"), ("8.9.7", "12"), ("9.1.0", "12")}
    assert sides | {("9.27.0", "12"), ("9.28.1", "13"), ("9.10.2", "11")} <= seen


def _libraries(**sass: list[str]) -> dict[str, LibraryContent]:
    return {
        f"libcudnn_{name}.so.9": LibraryContent(size=1, sass=dict.fromkeys(archs, 5))
        for name, archs in sass.items()
    }


def test_older_code_of_the_major_serves_newer_minors() -> None:
    """ops has nothing for 8.6, but its code for 8.0 runs there."""
    found = capabilities(_libraries(ops=["sm_80"], cnn=["sm_80", "sm_86"], adv=["sm_80", "sm_86"]))
    assert found is not None
    assert found.cc == ("8.0", "8.6")


def test_a_few_kernels_are_partial() -> None:
    plain = ["sm_90a", "sm_100"]
    found = capabilities(_libraries(ops=plain, cnn=plain, adv=[*plain, "sm_103"]))
    assert found is not None
    assert (found.cc, found.cc_partial) == (("9.0", "10.0"), ("10.3",))


def test_specific_code_serves_no_newer_minor() -> None:
    found = capabilities(_libraries(ops=["sm_100a"], cnn=["sm_100a", "sm_103"]))
    assert found is not None
    assert (found.cc, found.cc_partial) == (("10.0",), ("10.3",))


def test_one_library_without_code_is_no_support() -> None:
    found = capabilities(_libraries(ops=["sm_75"], cnn=["sm_70", "sm_75"], adv=["sm_75"]))
    assert found is not None
    assert (found.cc, found.cc_partial) == (("7.5",), ("7.0",))


def test_libraries_without_kernels_tell_nothing() -> None:
    assert capabilities(_libraries(graph=[])) is None


def test_another_architecture_tells_nothing_of_x86_64_builds() -> None:
    (newest,) = (record for record in RECORDS if record.release == "9.28.1")
    libraries = {
        name: msgspec.structs.replace(content, machine="aarch64")
        for name, content in newest.libraries.items()
    }
    (mine,) = release_of(msgspec.structs.replace(newest, libraries=libraries)).variants
    assert mine.cc is None
    assert mine.shim_search == "rpath"


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.file[:28])
def test_the_yaml_can_be_pasted(record: Inspection) -> None:
    row = release_of(record)
    read = yaml.safe_load(yaml_row(row))
    assert msgspec.convert(read, type=list[Release]) == [row]
    assert max(map(len, table(record).splitlines())) <= 80


def test_a_pasted_row_is_a_valid_matrix() -> None:
    (newest,) = (record for record in RECORDS if record.release == "9.28.1")
    new = msgspec.structs.replace(newest, version="9.99.0.1")
    text = default_path().read_text()
    before = text.index("\n# Known faults of releases.")
    text = f"{text[:before]}\n{yaml_row(release_of(new))}\n{text[before:]}"
    assert mistakes(text.encode(), "own.yaml") == ()
    assert from_yaml(text.encode(), "own.yaml").releases[-1] == release_of(new)


@pytest.mark.wheels
def test_a_real_wheel_measures_as_recorded(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-q"]
    command += ["--platform=manylinux_2_27_x86_64", f"--dest={tmp_path}"]
    subprocess.run([*command, "nvidia-cudnn-cu13==9.20.0.48"], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    found = inspect(str(wheel))
    (record,) = (r for r in RECORDS if r.file == wheel.name)
    assert found.sha256 == record.sha256
    for name, content in record.libraries.items():
        own = found.libraries[name]
        assert (own.size, own.sass, own.ptx) == (content.size, content.sass, content.ptx), name
    wheel.unlink()
