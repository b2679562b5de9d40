"""Every command's help: it teaches, with examples, within 80 columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import cudnn_doctor
from cudnn_doctor.cli.app import Commands, app

GROUPS = {
    "matrix": ("show", "validate", "compile", "update", "inspect"),
    "cache": ("list", "clear"),
}
ROOM = Path(cudnn_doctor.__file__).parent
CALL = r"cudnn-doctor ((?:matrix |cache )?[a-z]+)([^`\"'\n|;#,]*)"
SINGLE = [name for name in Commands.places if name not in GROUPS]
ALL = [[name] for name in (*SINGLE, *GROUPS)] + [
    [g, name] for g, names in GROUPS.items() for name in names
]


def help_of(*words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert done.exit_code == 0, done.output
    return re.sub(r"\x1b\[[0-9;]*m", "", done.output)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_each_command_teaches_by_examples(words: list[str]) -> None:
    text = help_of(*words)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "Examples" in text
    assert f"\n   cudnn-doctor {' '.join(words)}" in text.split("Examples")[1]


def test_the_root_lists_every_command() -> None:
    text = help_of()
    assert all(f" {name} " in text for name in Commands.places)
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_program_names_only_options_that_it_has() -> None:
    helps = {" ".join(words): help_of(*words) for words in ALL}
    seen = 0
    for path in sorted(ROOM.rglob("*.py")) + sorted(ROOM.rglob("*.yaml")):
        for name, rest in re.findall(CALL, path.read_text(encoding="utf-8")):
            for option in re.findall(r"(?<= )--[a-z][a-z-]+", rest.split(" -- ")[0]):
                seen += 1
                if name in helps:
                    assert re.search(rf" {option}\s", helps[name]), (path.name, name, option)
    assert seen > 30


def test_a_misspelt_command_gets_a_suggestion() -> None:
    done = CliRunner().invoke(app, ["chek"])
    assert done.exit_code == 2
    assert "'check'" in done.output


def test_only_the_command_asked_for_is_built() -> None:
    command = typer.main.get_command(app)
    assert command.commands == {}  # type: ignore[attr-defined]
