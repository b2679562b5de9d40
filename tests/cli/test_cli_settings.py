"""Settings of a project: where they are found, that options win, what mistakes say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cudnn_doctor.cli.app import app
from cudnn_doctor.cli.settings import Settings, read_settings
from cudnn_doctor.errors import BadInput

SNAPSHOT = Path(__file__).parents[1] / "fixtures/h200_shadowed.json"


def check(*options: str) -> set[str]:
    done = CliRunner().invoke(app, ["check", "--snapshot", str(SNAPSHOT), "--json", *options])
    return {finding["id"] for finding in json.loads(done.stdout)["findings"]}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "inner/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "inner/deep")
    return tmp_path


def test_none_is_found() -> None:
    assert "ld-library-path-shadow" in check()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cudnn-doctor.toml", 'skip = ["frameworks"]\n'),
        ("pyproject.toml", '[tool.cudnn-doctor]\nskip = ["frameworks"]\n'),
    ],
)
def test_a_table_above_counts_and_an_option_wins(name: str, text: str, project: Path) -> None:
    (project / name).write_text(text)
    (project / "inner/pyproject.toml").write_text('[project]\nname = "cudnn-doctor-user"\n')
    assert "ld-library-path-shadow" not in check()
    assert "ld-library-path-shadow" in check("--skip", "gpu")


def test_suppression_of_a_project(project: Path) -> None:
    entry = "ld-library-path-shadow=meant so@2999-01-01"
    (project / "cudnn-doctor.toml").write_text(f'suppress = ["{entry}"]\n')
    done = CliRunner().invoke(app, ["check", "--snapshot", str(SNAPSHOT)])
    assert done.exit_code == 0


@pytest.mark.parametrize("text", ["skip = 3", "skp = []", "= =", "skip = [1]", "\x00"])
def test_mistakes_name_the_file(text: str, project: Path) -> None:
    (project / "cudnn-doctor.toml").write_text(text)
    with pytest.raises(BadInput) as caught:
        read_settings()
    assert caught.value.where == str(project / "cudnn-doctor.toml")


def test_foreign_pyproject_is_no_business_of_ours(project: Path) -> None:
    (project / "pyproject.toml").write_text("not = = toml")
    assert read_settings() == Settings()
