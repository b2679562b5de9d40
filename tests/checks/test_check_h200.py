"""Verdicts on real machines' facts: an H200 server, healthy and with LD_LIBRARY_PATH set.

Snapshots were taken there by ``check --redact --snapshot-out``. PyTorch was seen to refuse its
cuDNN in the second state, JAX to compute.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from check_builders import finding, judge, problems

from cudnn_doctor.checks.verdict import exit_code, verdict
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.machine.snapshot import load_snapshot
from cudnn_doctor.report.style import Style
from cudnn_doctor.report.terminal import render

FIXTURES = Path(__file__).parents[1] / "fixtures"
WHEEL = "/opt/torch/.venv/lib/python3.12/site-packages/nvidia/cudnn/lib"
SYSTEM = "/usr/lib/x86_64-linux-gnu"


def snapshot(name: str) -> Machine:
    return load_snapshot(str(FIXTURES / f"h200_{name}.json"))


def test_healthy_is_one_green_screen() -> None:
    machine = snapshot("healthy")
    report = judge(machine)
    assert [f.id for f in report.findings if f.severity != "info"] == []
    assert sorted(f.id for f in report.findings) == ["cpu-only-wheel", "package-layout-change"]
    assert exit_code(verdict(report, machine), "warning") == 0
    shown = render(report, machine, Style())
    assert len(shown.splitlines()) < 24
    assert shown.splitlines()[-1].startswith("✓ healthy")


def test_healthy_has_both_copies_with_versions_and_owners() -> None:
    machine = snapshot("healthy")
    found = {copy.folder: copy for copy in machine.copies or ()}
    assert {folder: copy.version for folder, copy in found.items()} == {
        SYSTEM: "9.14.0",
        WHEEL: "9.19.0.56",
    }
    assert found[WHEEL].owners[0].name == "nvidia-cudnn-cu13"
    assert {owner.kind for owner in found[SYSTEM].owners} == {"dpkg"}


def test_healthy_frameworks_get_their_wheel() -> None:
    loads = {load.framework: load for load in judge(snapshot("healthy")).loads}
    assert {name: load.cudnn for name, load in loads.items()} == {
        "torch": "9.19.0.56",
        "jax": "9.19.0.56",
    }


def test_shadowed_is_one_error_that_names_both_releases() -> None:
    machine = snapshot("shadowed")
    report = judge(machine)
    assert problems(machine) == ["ld-library-path-shadow"]
    assert exit_code(verdict(report, machine), "error") == 1
    error = next(f for f in report.findings if f.severity == "error")
    seen = " ".join(f"{e.what} {e.where}" for e in error.seen)
    assert "torch" in error.title and "9.14.0" in error.title and SYSTEM in error.title
    assert f"9.19.0.56 {WHEEL}" in seen
    assert "libcudnn_graph.so.9" in seen
    assert error.remedies[0].commands == ("unset LD_LIBRARY_PATH",)


def test_shadowed_jax_is_a_note() -> None:
    report = judge(snapshot("shadowed"))
    notes = [f for f in report.findings if f.id == "ld-library-path-shadow"]
    assert [(f.severity, "jax" in f.title) for f in notes] == [("error", False), ("info", True)]
    assert "refuses" not in notes[1].why


@pytest.mark.parametrize(("release", "severity"), [("9.12.0", "info"), ("9.5.0", "error")])
def test_jax_refuses_parts_older_than_it_asks_for(
    release: str, severity: str, tmp_path: Path
) -> None:
    text = (FIXTURES / "h200_shadowed.json").read_text(encoding="utf-8")
    changed = tmp_path / "machine.json"
    changed.write_text(text.replace("9.14.0", release), encoding="utf-8")
    notes = [
        f for f in judge(load_snapshot(str(changed))).findings if f.id == "ld-library-path-shadow"
    ]
    assert [f.severity for f in notes if "jax" in f.title] == [severity]


def test_redacted_snapshot_tells_no_names() -> None:
    for path in FIXTURES.glob("h200_*.json"):
        text = path.read_text(encoding="utf-8")
        assert "hostname" not in text
        assert text.count("GPU-") == text.count("GPU-00000000-0000-0000-0000-")
    assert finding(snapshot("healthy"), "cpu-only-wheel").severity == "info"
