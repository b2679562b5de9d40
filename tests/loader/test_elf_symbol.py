"""Data symbols read out of ELF files: the release that a cuDNN library tells of itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_doctor.machine.elf import exported_bytes
from cudnn_doctor.machine.libraries import own_version

SOURCE = """
const unsigned char cudnn_graph_version[4] = {2, 10, 9, 0};
const unsigned char other[4] = {1, 2, 3, 4};
extern int cudnn_ops_infer_version;
int use(void) { return cudnn_ops_infer_version; }
""" + "\n".join(f"int filler{i}(void) {{ return {i}; }}" for i in range(200))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("symbol")
    source, target = folder / "a.c", folder / "libcudnn_graph.so.9"
    source.write_text(SOURCE)
    argv = ["gcc", "-shared", "-fPIC", "-Wl,--hash-style=gnu", "-o", str(target), str(source)]
    try:
        subprocess.run(argv, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no gcc")
    return target


def test_a_library_tells_its_release(library: Path) -> None:
    assert own_version(str(library), "graph") == "9.10.2"
    assert exported_bytes(str(library), "other", 4) == bytes([1, 2, 3, 4])


def test_what_is_only_used_or_absent_is_not_found(library: Path) -> None:
    assert own_version(str(library), "ops") is None
    assert exported_bytes(str(library), "nothing_like_it", 4) is None
    assert own_version(str(library), "heuristic") is None
    assert own_version(str(library.with_name("absent")), "graph") is None


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_files_never_raise(library: Path, data: st.DataObject) -> None:
    whole = bytearray(library.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    damaged = library.with_name("damaged")
    damaged.write_bytes(bytes(whole[:cut]))
    found = exported_bytes(str(damaged), "cudnn_graph_version", 4)
    assert found is None or len(found) == 4
