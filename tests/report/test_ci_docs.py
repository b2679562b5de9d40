"""docs/ci.md: what it shows is valid, short and works; the example alerts fire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from support.runs import healthy, shadowed
from typer.testing import CliRunner

from cudnn_doctor.cli.app import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "ci.md").read_text()
ALERTS = ROOT / "docs" / "examples" / "cudnn-alerts.yml"


def shown(name: str) -> str:
    match = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", TEXT, re.DOTALL)
    assert match, name
    return match[1]


@pytest.mark.parametrize(
    ("name", "schema"),
    [("github-workflow", "github-workflows"), ("gitlab-job", "gitlab-ci")],
)
def test_pipelines_have_ten_lines_and_are_valid(name: str, schema: str, tmp_path: Path) -> None:
    text = shown(name)
    assert text.count("\n") <= 10
    path = tmp_path / "ci.yml"
    path.write_text(text)
    command = ["-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflow_gives_inputs_that_exist_and_resolve() -> None:
    steps = yaml.safe_load(shown("github-workflow"))["jobs"]["cudnn"]["steps"]
    given = steps[-1]["with"]
    assert set(given) <= set(yaml.safe_load((ROOT / "action.yml").read_text())["inputs"])
    arguments = ["resolve", "--for", given["for"], "--gpu", "9.0", "--cuda", "12", "--json"]
    assert CliRunner().invoke(app, arguments).exit_code == 0


def test_gitlab_job_gives_inputs_that_exist() -> None:
    (include,) = yaml.safe_load(shown("gitlab-job"))["include"]
    head = yaml.safe_load((ROOT / include["file"]).read_text().split("\n---\n")[0])
    assert set(include["inputs"]) <= set(head["spec"]["inputs"])


@pytest.mark.parametrize(("name", "file"), [("html", "report.html"), ("prometheus", "cudnn.prom")])
def test_commands_write_their_files(name: str, file: str, tmp_path: Path) -> None:
    command = shown(name).split()
    assert command[0] == "cudnn-doctor"
    done = subprocess.run(
        [sys.executable, "-m", "cudnn_doctor", *command[1:]], cwd=tmp_path, capture_output=True
    )
    assert done.returncode in (0, 1, 3), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_every_format_is_told() -> None:
    from cudnn_doctor.report import formats

    assert {name for name in formats.names() if f"`{name}`" not in TEXT} == set()


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")


@needs_promtool
def test_alert_rules_are_valid() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize(("broken", "firing"), [(True, ["CudnnProblems"]), (False, [])])
def test_alert_fires_on_our_own_metrics(broken: bool, firing: list[str], tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    taken = "1970-01-01T00:00:00+00:00"
    found = msgspec.structs.replace(shadowed() if broken else healthy(), taken=taken)
    machine.write_bytes(msgspec.json.encode(found))
    arguments = ["check", "--snapshot", str(machine), "--format", "prometheus"]
    lines = CliRunner().invoke(app, arguments).output.splitlines()
    series = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    alerts = [
        {"exp_labels": {"severity": "warning", "verdict": "problems"}} if name in firing else None
        for name in ("CudnnProblems", "CudnnCheckStale")
    ]
    test = {
        "rule_files": [str(ALERTS)],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": f"{v}x60"} for s, _, v in series],
                "alert_rule_test": [
                    {"eval_time": "30m", "alertname": name, "exp_alerts": [a] if a else []}
                    for name, a in zip(("CudnnProblems", "CudnnCheckStale"), alerts, strict=True)
                ],
            }
        ],
    }
    if broken:
        rule = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"][0]
        annotations = {
            k: v.replace("{{ $labels.instance }}", "") for k, v in rule["annotations"].items()
        }
        test["tests"][0]["alert_rule_test"][0]["exp_alerts"][0]["exp_annotations"] = annotations  # type: ignore[index]
    path = tmp_path / "test.yml"
    path.write_text(json.dumps(test))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
