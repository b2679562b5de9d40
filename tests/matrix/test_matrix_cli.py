"""The matrix commands at the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cudnn_doctor.cli.app import app
from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.matrix.load import VARIABLE, default_path

RUN = CliRunner()


def test_overview_fits_80_columns() -> None:
    lines = RUN.invoke(app, ["matrix", "show"]).output.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("9.28.1 ")
    assert "yanked" in next(line for line in lines if line.startswith("9.25.0 "))


def test_one_release_tells_provenance() -> None:
    text = RUN.invoke(app, ["matrix", "show", "9.10.2.21"]).output
    assert "[documented: matrix-9.10.2]" in text
    assert "[measured: wheel-scan]" in text
    assert "cudnn-linux-x86_64-9.10.2.21_cuda12-archive.tar.xz" in text
    assert "conv3d-lowprec" in text


def test_json_of_one_release_brings_its_sources() -> None:
    body = json.loads(RUN.invoke(app, ["matrix", "show", "9.19.1", "--json"]).output)
    assert body["release"]["build"] == "9.19.1.2"
    assert {v["source"] for v in body["release"]["variants"]} <= body["sources"].keys()
    overview = json.loads(RUN.invoke(app, ["matrix", "show", "--json"]).output)
    assert len(overview["releases"]) == 80


def test_an_unknown_release_is_a_usage_error() -> None:
    error = RUN.invoke(app, ["matrix", "show", "9.99"]).exception
    assert isinstance(error, DoctorError)
    assert error.exit_code is ExitCode.USAGE


def test_validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RUN.invoke(app, ["matrix", "validate"]).exit_code == 0
    own = tmp_path / "own.yaml"
    text = default_path().read_text()
    own.write_text(text.replace('driver: "525.60.13"', "driver: 525.60", 1))
    result = RUN.invoke(app, ["matrix", "validate", str(own)])
    assert result.exit_code == ExitCode.BAD_INPUT
    line = text[: text.index('driver: "525.60.13"')].count("\n") + 1
    assert result.output.startswith(f"own.yaml:{line}: releases[")
    monkeypatch.setenv(VARIABLE, str(own))
    assert RUN.invoke(app, ["matrix", "validate"]).exit_code == ExitCode.BAD_INPUT


def test_compile_writes_beside_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_bytes(default_path().read_bytes())
    assert RUN.invoke(app, ["matrix", "compile", str(own)]).output.strip() == str(
        tmp_path / "own.msgpack"
    )
    assert RUN.invoke(app, ["matrix", "show", "--matrix", str(own)]).exit_code == 0
