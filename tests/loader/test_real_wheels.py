"""The simulation, the flavour and the trace against real cuDNN wheels (downloads some 700 MB)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cudnn_doctor.machine import opens
from cudnn_doctor.machine.copies import probe_copies
from cudnn_doctor.machine.elf import read_elf
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.libraries import probe_libraries
from cudnn_doctor.machine.loader import simulate
from cudnn_doctor.machine.loaderconfig import probe_loader
from cudnn_doctor.machine.loads import Consumer
from cudnn_doctor.machine.model import Machine, System
from cudnn_doctor.machine.names import parse_cudnn
from cudnn_doctor.machine.trace import ask_version, trace_library
from cudnn_doctor.versions import CudnnVersion

pytestmark = pytest.mark.wheels


@pytest.mark.parametrize(
    ("package", "version", "cuda"),
    [("nvidia-cudnn-cu12", "9.10.2.21", "12"), ("nvidia-cudnn-cu13", "9.24.0.43", "13")],
)
def test_a_real_wheel(tmp_path: Path, package: str, version: str, cuda: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir"]
    subprocess.run([*command, "--target", tmp_path, f"{package}=={version}"], check=True)
    folder = tmp_path / "nvidia/cudnn/lib"
    release = CudnnVersion.parse(version).release

    for name in os.listdir(folder):
        parsed, elf = parse_cudnn(name), read_elf(str(folder / name))
        assert parsed is not None
        assert elf.status == "ok"
        assert (elf.rpath, elf.runpath) == opens.tags(parsed.part, release, cuda)
        assert set(opens.needed(parsed.part, release)) <= set(elf.needed)

    host = Host(environ={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(folder)})
    loader = probe_loader(host)
    libraries = probe_libraries(host, (), (), (), loader)
    (copy,) = [
        c for c in probe_copies(host, libraries, (), (), ()) if c.folder == os.path.realpath(folder)
    ]
    assert copy.cuda == cuda
    assert set(copy.files) == {
        "libcudnn.so.9",
        *(f"libcudnn_{part}.so.9" for part in opens.shipped(release)),
    }
    assert ask_version(host, str(folder / "libcudnn.so.9")) == CudnnVersion.parse(version).short

    machine = Machine(
        system=System(arch=os.uname().machine),
        loader=loader,
        libraries=libraries,
        copies=(copy,),
        environ=host.environ,
    )
    plan = simulate(machine, Consumer(name="dlopen", scheme="dlopen", major=9))
    predicted = {x.real for x in plan.sublibraries} | {plan.shim.real if plan.shim else None}
    traced = trace_library(host, str(folder / "libcudnn.so.9"))
    assert traced.ok, traced.error
    assert {os.path.basename(p) for p in traced.mapped} >= {
        f"libcudnn{part}.so.9" for part in ("", "_graph", "_ops", "_cnn", "_adv")
    }
    assert set(traced.mapped) <= predicted
