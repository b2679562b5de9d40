"""Runs of check and verify for the tests of output formats."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
from support.hostile import evil_report

from cudnn_doctor.errors import BadInput
from cudnn_doctor.machine.model import Machine, Project, Requirement, Setting
from cudnn_doctor.report.failure import of_error
from cudnn_doctor.report.outcomes import Run, of_check, of_verify
from cudnn_doctor.verify.model import Copy, Death, Rung, StepResult, Verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "checks"))
from check_builders import SYSTEM, healthy, judge, with_copy

PROJECT = Project(
    folder="/work",
    files=("requirements.txt", "Dockerfile"),
    requirements=(Requirement(name="torch", wanted="==2.8", file="requirements.txt", line=3),),
    settings=(
        Setting(variable="LD_LIBRARY_PATH", value="/other", file="/etc/environment", line=1),
        Setting(variable="LD_LIBRARY_PATH", value=f"{SYSTEM}:$X", file="Dockerfile", line=7),
    ),
)


def shadowed(**more: Any) -> Machine:
    """torch gets parts of the system's cuDNN by way of LD_LIBRARY_PATH, which a Dockerfile sets."""
    machine = with_copy(healthy("9.19.0"), SYSTEM, "9.14.0", cached=True, kind="system")
    fields = {"environ": {"LD_LIBRARY_PATH": SYSTEM}, "project": PROJECT, **more}
    return msgspec.structs.replace(machine, **fields)


VERDICT = Verdict(
    copy=Copy(folder="/opt/cudnn/lib", shim="libcudnn.so.9", version="9.10.2"),
    gpu="NVIDIA H200",
    rungs=(
        Rung(name="files", status="pass"),
        Rung(name="convolve", status="fail", why="the child process died"),
        Rung(name="speed", status="skip", why="convolve failed"),
    ),
    steps=(
        StepResult(rung="convolve", step="fp16 3x3", status="fail", detail="wrong", seconds=0.5),
        StepResult(
            rung="speed",
            step="bf16",
            status="pass",
            data={"ratio": 0.97, "tflops": 700, "gemm_tflops": 721},
        ),
    ),
    deaths=(Death(how="SIGBUS", rung="convolve", step="fp16 3x3", cause="truncated file"),),
)


def check_run(machine: Machine | None = None) -> Run:
    machine = shadowed() if machine is None else machine
    return of_check(judge(machine), machine)


RUNS = {
    "healthy": check_run(healthy()),
    "shadowed": check_run(),
    "nothing known": check_run(Machine(partial=True)),
    "hostile": of_check(evil_report(), shadowed(), "warning"),
    "verified": of_verify([VERDICT], 6),
    "nothing to verify": of_verify([], 3),
    "could not run": of_error("verify", BadInput("no such folder", where="/x", next_step="look")),
}
