"""Failures that no command foresees end with their own codes and a message."""

from __future__ import annotations

import sys

import pytest

import cudnn_doctor.machine.probe
from cudnn_doctor.cli import app
from cudnn_doctor.errors import ExitCode


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (RuntimeError("unforeseen"), ExitCode.INTERNAL, "a bug in cudnn-doctor"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, ""),
    ],
)
def test_unforeseen_ends(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failure: BaseException,
    code: ExitCode,
    said: str,
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(cudnn_doctor.machine.probe, "probe_machine", fail)
    monkeypatch.setattr(sys, "argv", ["cudnn-doctor", "which"])
    with pytest.raises(SystemExit) as ended:
        app.run()
    assert ended.value.code == code
    assert said in capsys.readouterr().err
