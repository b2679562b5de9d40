"""An environment may be named by a folder of the working directory, with or without a slash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.places import prefix_of


@pytest.mark.parametrize("given", ["env", "./env", "env/bin/python", "env/"])
def test_relative_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    monkeypatch.chdir(tmp_path)
    assert prefix_of(Host("/"), given) == str(tmp_path / "env")


def test_what_is_neither_folder_nor_program_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert prefix_of(Host("/"), "no-such-environment") is None
