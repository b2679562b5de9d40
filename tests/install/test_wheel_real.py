"""The smallest full cuDNN wheel of the real index, by the real matrix, then back again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import wheelworld

from cudnn_doctor.install import executor
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.state import State
from cudnn_doctor.install.wheels.planning import plan_wheel
from cudnn_doctor.machine.environments import probe_environments
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.matrix import load


class Remembers:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def step(self, number: int, total: int, step: object) -> None: ...
    def bytes(self, done: int, total: int | None) -> None: ...

    def ended(self) -> None: ...
    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.wheels
def test_a_real_full_wheel_loads_after_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = load.load()
    full = [
        wheel
        for release in matrix.releases
        for wheel in release.wheels
        if wheel.arch == "x86_64" and wheel.package == "nvidia-cudnn-cu13" and not wheel.yanked
    ]
    smallest = min(full, key=lambda wheel: wheel.size or 1 << 60)
    prefix = wheelworld.make_template(tmp_path / "env")
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    host = Host("/", {"HOME": str(tmp_path), "PATH": "/no-programs"})
    machine = Machine(environments=probe_environments(host, [str(prefix)]))
    request = InstallRequest(
        method="wheel", version=smallest.version, cuda="13", python=str(prefix)
    )
    progress = Remembers()
    plan = plan_wheel(request, machine, matrix)
    executor.execute(plan, State(tmp_path / "state", tmp_path / "cache"), progress)
    assert any(text.startswith("loaded") for text in progress.said)
    (after,) = (e for e in probe_environments(host, [str(prefix)]) if e.prefix == str(prefix))
    found = {d.name: d for d in after.distributions}
    assert found["nvidia-cudnn-cu13"].version == smallest.version
    assert not any(d.record_problems for d in found.values())
    assert found["nvidia-cublas"].version.startswith("13.")
