"""What needs root: told to an ordinary user, and done over again as root with ``--sudo``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cudnn_doctor.cli import app as application
from cudnn_doctor.cli import apply as ap
from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.plan import MakeFolder, Plan


class Sudo:
    """Stands in for sudo: remembers what it was to run and ends with ``code``."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.argv: list[str] = []

    def __call__(self, argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.argv = argv
        return subprocess.CompletedProcess(argv, self.code)


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda *_: False)


def plan(prefix: Path) -> Plan:
    steps = (MakeFolder(title="create it", path=str(prefix)),)
    place = str(prefix)
    return Plan(
        action="install", method="tarball", version="9", cuda="12", target=place, steps=steps
    )


@pytest.mark.parametrize("words", [["rollback"], ["use", "9.10.2"], ["uninstall", "9.10.2"]])
def test_what_root_did_is_changed_as_root(
    words: list[str], ordinary: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receipts of root's changes are root's: they are not even looked for as another user."""
    sudo = Sudo(5)
    monkeypatch.setattr(subprocess, "run", sudo)
    monkeypatch.setattr(sys, "argv", ["cudnn-doctor", *words, "--sudo", "--yes"])
    monkeypatch.setenv("PATH", "/opt/uv/bin::bin:/usr/bin")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    with pytest.raises(SystemExit) as ended:
        application.run()
    assert ended.value.code == 5
    assert sudo.argv[0] == "sudo"
    (kept,) = (word for word in sudo.argv if word.startswith("--preserve-env="))
    assert "https_proxy" in kept
    assert "HOME" not in kept
    at = sudo.argv.index("--")
    assert sudo.argv[at + 1 : at + 3] == ["env", "PATH=/opt/uv/bin:/usr/bin"]
    assert sudo.argv[-len(words) - 1 :] == [*words, "--yes"]


def test_a_prefix_of_root_is_filled_as_root(
    tmp_path: Path,
    ordinary: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sudo = Sudo(0)
    monkeypatch.setattr(subprocess, "run", sudo)
    monkeypatch.setattr(sys, "argv", ["cudnn-doctor", "install", "--sudo"])
    with pytest.raises(SystemExit):
        ap.apply(plan(tmp_path), ap.How(yes=True, sudo=True))
    assert sudo.argv[-1] == "install"
    assert capsys.readouterr().out == "", "the plan is shown once, by root's run"


def test_a_prefix_of_root_is_refused_before_anything_is_fetched(
    tmp_path: Path, ordinary: None
) -> None:
    with pytest.raises(DoctorError) as refused:
        ap.apply(plan(tmp_path / "new" / "p"), ap.How(yes=True))
    assert refused.value.exit_code == ExitCode.NOTHING_CHANGED
    assert f"you may not write into {tmp_path}" in refused.value.what
    assert "--sudo" in (refused.value.next_step or "")
    assert not list(tmp_path.iterdir())
