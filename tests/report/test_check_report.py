"""The report of a check: golden texts, width, ASCII, JSON against its schema, exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import msgspec
import pytest
from typer.testing import CliRunner

from cudnn_doctor.cli.app import app
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.report.json import render as render_json
from cudnn_doctor.report.schema import DOCUMENTS, FOLDER, schema_text
from cudnn_doctor.report.style import Style
from cudnn_doctor.report.terminal import WIDTH, render

sys.path.insert(0, str(Path(__file__).parents[1] / "checks"))
from check_builders import SYSTEM, healthy, judge, with_copy

GOLDEN = Path(__file__).parent / "golden"
PLAIN = Style()


def shadowed() -> Machine:
    machine = with_copy(healthy("9.19.0"), SYSTEM, "9.14.0", cached=True, kind="system")
    return msgspec.structs.replace(machine, environ={"LD_LIBRARY_PATH": SYSTEM})


@pytest.mark.parametrize(("name", "machine"), [("healthy", healthy()), ("shadowed", shadowed())])
def test_golden_text(name: str, machine: Machine) -> None:
    expected = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    assert render(judge(machine), machine, PLAIN) == expected


def test_at_most_80_columns_except_for_commands_and_paths() -> None:
    machine = shadowed()
    for line in render(judge(machine), machine, PLAIN).splitlines():
        assert len(line) <= WIDTH or " " not in line.strip() or line.startswith("      ")


def test_commands_stand_whole_on_their_own_lines() -> None:
    machine = shadowed()
    report = judge(machine)
    lines = [line.strip() for line in render(report, machine, PLAIN).splitlines()]
    for finding in report.findings:
        if finding.severity == "error":
            for remedy in finding.remedies:
                assert set(remedy.commands) <= set(lines)


def test_ascii_where_the_encoding_is_not_utf8() -> None:
    text = render(judge(shadowed()), shadowed(), Style(unicode=False))
    assert text.isascii()


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Style.of(Terminal()).colour  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Style.of(Terminal()).colour  # type: ignore[arg-type]
    assert "\x1b" not in render(judge(healthy()), healthy(), PLAIN)
    assert "\x1b[" in render(judge(healthy()), healthy(), Style(colour=True))


def test_verbose_tells_every_rule_and_note() -> None:
    report = judge(healthy())
    text = render(report, healthy(), PLAIN, verbose=True)
    assert all(result.rule in text for result in report.results)
    assert all(finding.id in text for finding in report.findings)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_shipped_schemas_are_in_step_with_the_types(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == schema_text(name), (
        "run python -m cudnn_doctor.report.schema"
    )


@pytest.mark.parametrize("machine", [healthy(), shadowed(), Machine(partial=True)])
def test_json_follows_its_schema(machine: Machine) -> None:
    document = json.loads(render_json(judge(machine), machine))
    jsonschema.validate(document, json.loads((FOLDER / "check.json").read_text(encoding="utf-8")))
    assert document["schema"] == 1
    assert document["summary"]["passed"] == sum(r["status"] == "pass" for r in document["results"])


# -- the command


def save(machine: Machine, folder: Path) -> str:
    path = folder / "machine.json"
    path.write_bytes(msgspec.json.encode(machine))
    return str(path)


@pytest.mark.parametrize(
    ("machine", "arguments", "code"),
    [
        (healthy(), [], 0),
        (shadowed(), [], 1),
        (shadowed(), ["--fail-on", "never"], 0),
        (shadowed(), ["--suppress", "ld-library-path-shadow=ours@2999-01-01"], 0),
        (shadowed(), ["--suppress", "ld-library-path-shadow=ours@2020-01-01"], 1),
        (shadowed(), ["--skip", "mixed-cudnn-copies"], 0),
    ],
)
def test_exit_code_is_the_same_for_every_format(
    machine: Machine, arguments: list[str], code: int, tmp_path: Path
) -> None:
    base = ["check", "--snapshot", save(machine, tmp_path), *arguments]
    for extra in ([], ["--json"], ["-v"], ["-q"], ["--format", "json"]):
        result = CliRunner().invoke(app, [*base, *extra])
        assert result.exit_code == code, result.output
        assert (result.output == "") is (extra == ["-q"])


def test_json_of_the_command_is_one_document(tmp_path: Path) -> None:
    path = save(shadowed(), tmp_path)
    result = CliRunner().invoke(app, ["check", "--snapshot", path, "--json"])
    document = json.loads(result.output)
    assert document["verdict"] == "problems"
    assert document["exit_code"] == 1
    assert document["findings"][0]["id"] == "ld-library-path-shadow"


def test_a_snapshot_survives_the_way_out_and_in(tmp_path: Path) -> None:
    first = save(shadowed(), tmp_path)
    out = str(tmp_path / "again.json")
    runner = CliRunner()
    one = runner.invoke(app, ["check", "--snapshot", first, "--snapshot-out", out])
    two = runner.invoke(app, ["check", "--snapshot", out])
    assert one.output == two.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--skip", "no-such-thing"],
        ["--suppress", "no-such-thing=x@2030-01-01"],
        ["--snapshot", "-", "--deep"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["check", *arguments])
    assert getattr(result.exception, "exit_code", result.exit_code) == 2


def test_list_names_every_diagnosis() -> None:
    output = CliRunner().invoke(app, ["check", "--list"]).output
    assert "cudnn-wheel-clobbered" in output
    assert "ld-library-path-shadow" in output
