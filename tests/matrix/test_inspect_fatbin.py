"""The reader of fat binaries: on hand-made ones, on nvcc's own, and on garbage."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fatbin import Code, build_gpu_library, container

from cudnn_doctor.machine.elf import section_range
from cudnn_doctor.machine.fatbin import read_gpu_code

MIXED = [
    Code("sass", 75),
    Code("sass", 90),
    Code("sass", 90, "a"),
    Code("sass", 100, "f"),
    Code("ptx", 120, "f", isa=(9, 5)),
    Code("ptx", 75, isa=(8, 10)),
    Code("lto", 80),
]


def _nvcc() -> str | None:
    for folder in (os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr/local/cuda-13.0"):
        if folder and Path(folder, "bin/nvcc").exists():
            return str(Path(folder, "bin/nvcc"))
    return shutil.which("nvcc")


def test_kinds_suffixes_and_counts(tmp_path: Path) -> None:
    path = build_gpu_library(tmp_path / "lib.so", container(MIXED) + container([Code("sass", 75)]))
    code = read_gpu_code(str(path))
    assert code.sass == {"sm_75": 2, "sm_90": 1, "sm_90a": 1, "sm_100": 1}
    assert code.ptx == {"sm_120f": 1, "sm_75": 1}
    assert code.ptx_isa == "9.5"
    assert code.whole


def test_longer_headers_padding_and_relocatable_code(tmp_path: Path) -> None:
    section = container([Code("sass", 103)], options=b"-O3 -lineinfo".ljust(56, b"\0"))
    section += b"\0" * 40 + container([Code("sass", 121, "a")])
    path = build_gpu_library(tmp_path / "lib.so", section, name="__nv_relfatbin")
    code = read_gpu_code(str(path))
    assert code.sass == {"sm_103": 1, "sm_121a": 1}
    assert code.whole


def test_a_library_without_gpu_code(tmp_path: Path) -> None:
    path = build_gpu_library(tmp_path / "lib.so", b"host only", name=".rodata.other")
    assert read_gpu_code(str(path)) == ({}, {}, None, True)
    other = tmp_path / "text.so"
    other.write_text("no ELF file")
    assert read_gpu_code(str(other)).sass == {}


def test_a_magic_number_inside_a_payload_is_no_container(tmp_path: Path) -> None:
    inner = container([Code("sass", 52)])
    path = build_gpu_library(tmp_path / "lib.so", container([Code("sass", 86, payload=inner)]))
    assert read_gpu_code(str(path)).sass == {"sm_86": 1}


@pytest.mark.parametrize("cut", [8, 60, 150])
def test_a_container_cut_short_is_said_to_be(tmp_path: Path, cut: int) -> None:
    whole = container([Code("sass", 80), Code("sass", 86)])
    code = read_gpu_code(str(build_gpu_library(tmp_path / "lib.so", whole[:-cut])))
    assert not code.whole


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    return build_gpu_library(folder / "lib.so", container(MIXED) * 3)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 60))
def test_garbage_never_raises(library: Path, seed: int, changes: int) -> None:
    data = bytearray(library.read_bytes())
    where = section_range(str(library), ".nv_fatbin")
    assert where is not None
    dice = random.Random(seed)
    for _ in range(changes):
        spot = where[0] + dice.randrange(where[1]) if dice.random() < 0.8 else dice.randrange(64)
        data[spot] = dice.choice((0, 1, 0x7F, 0xFF, dice.randrange(256)))
    damaged = library.with_name("damaged.so")
    damaged.write_bytes(data[: dice.randrange(len(data))] if dice.random() < 0.2 else data)
    code = read_gpu_code(str(damaged))
    assert sum(code.sass.values()) + sum(code.ptx.values()) <= len(data) // 64


@pytest.mark.skipif(_nvcc() is None, reason="no nvcc on this machine")
def test_what_nvcc_compiles(tmp_path: Path) -> None:
    nvcc = _nvcc()
    assert nvcc is not None
    kernel = tmp_path / "kernel.cu"
    kernel.write_text("__global__ void twice(float *x) { x[threadIdx.x] *= 2.f; }\n")
    known = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True)
    if not {"sm_75", "sm_90", "sm_100"} <= set(known.stdout.split()):
        pytest.skip("this nvcc does not target the architectures of the test")
    targets = ["arch=compute_75,code=[sm_75,compute_75]", "arch=compute_90a,code=sm_90a"]
    targets += ["arch=compute_90,code=sm_90", "arch=compute_100f,code=[sm_100f,compute_100f]"]
    output = tmp_path / "lib.so"
    command = [nvcc, "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-o", str(output)]
    command += [f"-gencode={target}" for target in targets]
    subprocess.run([*command, str(kernel)], check=True, capture_output=True)
    code = read_gpu_code(str(output))
    assert code.sass == {"sm_75": 1, "sm_90": 1, "sm_90a": 1, "sm_100": 1}
    assert code.ptx == {"sm_75": 1, "sm_100f": 1}
    assert code.whole
