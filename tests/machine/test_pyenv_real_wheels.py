"""Small real wheels from the index, installed by real uv: what we read of them is the truth."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import fakewheels

from cudnn_doctor.machine.catalogue import scheme_for
from cudnn_doctor.machine.environments import probe_environments
from cudnn_doctor.machine.frameworks import probe_frameworks
from cudnn_doctor.machine.host import Host

WHEELS = (
    "ctranslate2==4.6.2",
    "nvidia-cudnn-frontend==1.28.0",
    "nvidia-cuda-runtime-cu12==12.8.90",
)


@pytest.mark.wheels
def test_real_wheels(tmp_path: Path) -> None:
    uv = pytest.importorskip("uv").find_uv_bin()
    prefix = tmp_path / "venv"
    site = fakewheels.make_venv(prefix)
    command = [uv, "pip", "install", "-q", "--no-deps", "--python", str(prefix), *WHEELS]
    subprocess.run(command, check=True)
    host = Host("/", {"HOME": str(tmp_path), "PATH": f"{prefix}/bin"})
    (environment, *_) = probe_environments(host, hashes=True)
    assert (environment.prefix, environment.active) == (str(prefix), True)
    assert environment.python == ".".join(map(str, sys.version_info[:3]))
    for distribution in environment.distributions:
        assert distribution.record_checked, distribution.name
        assert distribution.record_problems == (), distribution.name
    found = {f.name: f for f in probe_frameworks(host, [environment])}
    assert set(found) == {"ctranslate2", "nvidia-cudnn-frontend"}
    ct2 = found["ctranslate2"]
    assert ct2.cudnn_built == "9.1.0"
    assert f"{site}/ctranslate2.libs/libcudnn-74a4c495.so.9.1.0" in ct2.binaries
    assert scheme_for(ct2.name, ct2.version, ct2.cuda) == "ct2-bundled-shim"
    assert len(found["nvidia-cudnn-frontend"].binaries) == 1
