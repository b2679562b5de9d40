"""``check`` as a user runs it, over a libnvidia-ml that plays the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from check_builders import change, healthy, problems
from support.nvml import NvmlStub

GIB = 1 << 30
GENERATIONS = ("3.7", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")


class Checked(NamedTuple):
    """What a run said: exit code, ids of errors, the GPUs' names and the report."""

    code: int
    errors: list[str]
    gpus: list[str]
    driver: dict[str, Any]


def gpu(name: str, cc: str, **more: object) -> dict[str, object]:
    return {"name": name, "cc": cc, "memory": 16 * GIB, "free": 15 * GIB, "mode": 0, **more}


def check(environ: dict[str, str], home: Path) -> Checked:
    hidden = ("CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")
    clean = {k: v for k, v in os.environ.items() if k not in hidden}
    done = subprocess.run(
        [sys.executable, "-m", "cudnn_doctor", "check", "--json", "--only", "gpu"],
        env={**clean, "HOME": str(home), **environ},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    said = json.loads(done.stdout)
    errors = [f["id"] for f in said["findings"] if f["severity"] == "error"]
    names = [found["name"] for found in said["machine"].get("gpus") or ()]
    assert done.returncode == (1 if errors else 0) == said["exit_code"]
    return Checked(done.returncode, errors, names, said["machine"].get("driver", {}))


def test_every_generation_in_one_machine(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    machine = nvml_stub([gpu(f"GPU {cc}", cc) for cc in GENERATIONS])
    said = check(machine, tmp_path)
    assert said.gpus == [f"GPU {cc}" for cc in GENERATIONS]
    assert not {"no-nvidia-gpu", "driver-not-installed", "gpu-hidden"} & set(said.errors)


def test_two_unlike_gpus_and_an_r610_driver(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    pair = [gpu("NVIDIA H200", "9.0"), gpu("NVIDIA GeForce RTX 5090", "12.0")]
    machine = nvml_stub(pair, driver="610.43.02", cuda="13.3", r610=True)
    said = check(machine, tmp_path)
    assert said.gpus == ["NVIDIA H200", "NVIDIA GeForce RTX 5090"]
    assert (said.driver["version"], said.driver["cuda"]) == ("610.43.02", "13.3")
    assert "no-nvidia-gpu" not in said.errors


def test_mig_with_and_without_an_instance(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    instance = {"name": "A100 MIG 1g.5gb", "memory": 5 * GIB, "free": 4 * GIB}
    split = nvml_stub([gpu("A100", "8.0", mig_mode=1, mig=[instance])])
    assert "mig-one-instance" not in check(split, tmp_path).errors
    bare = nvml_stub([gpu("A100", "8.0", mig_mode=1, mig=[])])
    assert "mig-one-instance" in check(bare, tmp_path).errors


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "driver-user-kernel-mismatch"),
        ("NVML_ERROR_NO_PERMISSION", "permission-denied"),
        ("NVML_ERROR_GPU_IS_LOST", "uvm-module-wedged"),
    ],
)
def test_a_driver_that_refuses(
    error: str, wanted: str, nvml_stub: NvmlStub, tmp_path: Path
) -> None:
    said = check(nvml_stub(error=error), tmp_path)
    assert said.errors == [wanted]


def test_a_working_driver_without_a_gpu(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    said = check(nvml_stub([]), tmp_path)
    assert (said.code, said.gpus) == (1, [])
    assert said.errors[0] in ("no-nvidia-gpu", "container-without-gpu", "driver-not-installed")


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        ("NVML_ERROR_UNKNOWN", "uvm-module-wedged"),
        ("NVML_ERROR_TIMEOUT", "uvm-module-wedged"),
        ("NVML_ERROR_NO_PERMISSION", "permission-denied"),
        ("NVML_ERROR_LIBRARY_NOT_FOUND", "driver-not-installed"),
        ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "driver-user-kernel-mismatch"),
    ],
)
def test_no_answer_where_all_else_is_fine_is_never_healthy(error: str, wanted: str) -> None:
    silent = msgspec.structs.replace(healthy(), gpus=None)
    assert problems(change(silent, "driver", nvml_error=error)) == [wanted]
