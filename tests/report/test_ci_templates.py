"""The GitHub action and the GitLab template: valid, and their steps run as those systems would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import yaml
from support import fakewheels, wheelworld
from support.composite import Outcome, Runner
from support.wheelindex import WheelIndex
from typer.testing import CliRunner

from cudnn_doctor.cli.app import app
from cudnn_doctor.matrix.load import load
from cudnn_doctor.matrix.model import Variant

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "templates" / "gitlab-ci.yml"
INSTALL = "Install cuDNN"
BUILD = "9.10.2.21"


def validate(schema: str, *files: Path) -> None:
    command = ["-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_action_is_valid() -> None:
    validate("github-actions", ROOT / "action.yml")


def test_no_input_is_pasted_into_a_script() -> None:
    for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def gitlab_documents() -> tuple[dict[str, Any], dict[str, Any]]:
    head, jobs = TEMPLATE.read_text().split("\n---\n")
    return yaml.safe_load(head), yaml.safe_load(jobs)


def test_gitlab_template_is_valid(tmp_path: Path) -> None:
    for number, document in enumerate(gitlab_documents()):
        path = tmp_path / f"{number}.yml"
        path.write_text(yaml.safe_dump(document))
        validate("gitlab-ci", path)


def test_gitlab_template_uses_every_input_and_no_other() -> None:
    head, jobs = TEMPLATE.read_text().split("\n---\n")
    used = set(re.findall(r"\$\[\[ inputs\.([\w-]+) \]\]", jobs))
    assert used == set(yaml.safe_load(head)["spec"]["inputs"])


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"requirements.txt": "torch==2.6.0\n"}, "9.1.0"),
        ({"uv.lock": '[[package]]\nname = "torch"\nversion = "2.6.0"\n'}, "9.1.0"),
        (
            {
                "requirements.txt": "torch\n",
                "uv.lock": '[[package]]\nname = "torch"\nversion = "2.6.0"\n',
            },
            "9.1.0",
        ),
        ({"Dockerfile": "RUN pip install torch==2.6.0\n"}, "9.1.0"),
    ],
)
def test_project_files_decide_the_version(
    files: dict[str, str], expected: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    arguments = ["resolve", "--project", str(tmp_path), "--gpu", "9.0", "--cuda", "12", "--json"]
    document = json.loads(CliRunner().invoke(app, arguments).output)
    assert expected in json.dumps(document)
    assert "torch==2.6.0" in json.dumps(document)


# -- run for real, with a loopback index of small wheels


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    wheelworld.build_cuda12(folder, BUILD)
    return folder


@pytest.fixture(scope="module")
def matrix(wheels: Path) -> Path:
    """A matrix file that knows the small wheels only, with the real one's GPUs and drivers."""
    real, small = load(), wheelworld.matrix_of(wheels, (BUILD,))
    source = next(iter(real.sources))
    releases = tuple(
        msgspec.structs.replace(
            release,
            source=source,
            variants=(Variant(cuda="12", source=source),),
        )
        for release in small.releases
    )
    path = wheels / "matrix.yaml"
    whole = msgspec.structs.replace(real, releases=releases)
    path.write_text(json.dumps(msgspec.to_builtins(whole)))
    return path


@pytest.fixture(scope="module")
def index(wheels: Path) -> Iterator[WheelIndex]:
    index = WheelIndex(wheels)
    yield index
    index.close()


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a job of either system starts with: no GPU, a Python, this machine's package index."""
    kept = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "UV_", "SSL_"))}
    home = tmp_path_factory.mktemp("home")
    path = f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"
    return {**kept, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def runner(
    tmp_path_factory: pytest.TempPathFactory, environ: dict[str, str], index: WheelIndex
) -> Runner:
    runner = Runner(tmp_path_factory.mktemp("runner"), environ)
    fakewheels.make_venv(runner.workspace / "env")
    (runner.workspace / "requirements.txt").write_text("nvidia-cudnn-cu12==9.10.2.21\n")
    return runner


def act(runner: Runner, index: WheelIndex, matrix: Path, **inputs: str) -> Outcome:
    given = {"python": "./env", "matrix": str(matrix), "method": "wheel", "cuda": "12", **inputs}
    given = {name.replace("_", "-"): value for name, value in given.items()}
    only = {"PIP_INDEX_URL": index.url, "PIP_FIND_LINKS": "", "UV_DEFAULT_INDEX": index.url}
    return runner.run(ROOT, given, {INSTALL: only})


@pytest.fixture(scope="module")
def installed(runner: Runner, index: WheelIndex, matrix: Path) -> Outcome:
    return act(runner, index, matrix, version="9.10.2")


@pytest.mark.wheels
def test_action_installs_checks_and_tells_outputs(runner: Runner, installed: Outcome) -> None:
    outcome = installed
    assert not outcome.failed, outcome.log
    assert outcome.outputs["version"].startswith("9.10.2")
    folder = Path(outcome.outputs["lib-path"])
    assert folder.is_relative_to(runner.workspace / "env")
    assert (folder / "libcudnn.so.9").exists()
    names = sorted(path.name for path in Path(outcome.outputs["report"]).iterdir())
    assert names == ["check.json", "cudnn.sarif", "junit.xml", "report.html"]
    assert "cudnn-doctor check: healthy" in outcome.summary
    (cache,) = outcome.used
    assert cache["uses"].startswith("actions/cache@")
    assert Path(cache["path"]) == runner.temp / "cudnn-doctor" / "cache"
    assert "not verified: this runner has no GPU" in outcome.log


@pytest.mark.wheels
@pytest.mark.usefixtures("installed")
def test_a_failing_machine_fails_the_step_with_cause_and_cure(
    runner: Runner, index: WheelIndex, matrix: Path
) -> None:
    (library,) = (runner.workspace / "env").rglob("libcudnn_ops.so.9")
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])
    try:
        outcome = act(runner, index, matrix, method="none")
        told = act(runner, index, matrix, method="none", fail_on="never")
    finally:
        library.write_bytes(whole)
    assert outcome.failed and not told.failed
    assert INSTALL not in outcome.ran
    annotation = next(line for line in outcome.annotations if "cudnn-file-damaged" in line)
    assert "libcudnn_ops.so.9" in annotation and "mend" in annotation
    assert "```sh" in outcome.summary
    report = Path(outcome.outputs["report"])
    assert "cudnn-file-damaged" in (report / "report.html").read_text()
    sarif = json.loads((report / "cudnn.sarif").read_text())
    assert "cudnn-file-damaged" in [r["ruleId"] for r in sarif["runs"][0]["results"]]
    assert ElementTree.parse(report / "junit.xml").find(".//failure") is not None


@pytest.mark.wheels
def test_an_impossible_wish_fails_and_is_told_where_it_is_seen(
    runner: Runner, index: WheelIndex, matrix: Path
) -> None:
    outcome = act(runner, index, matrix, version="7.0")
    assert outcome.failed
    assert outcome.codes[INSTALL] == 4
    assert any("cudnn-doctor" in line for line in outcome.annotations), outcome.log
    assert "Check the machine" in outcome.ran


@pytest.mark.wheels
def test_inputs_are_never_commands(runner: Runner, index: WheelIndex, matrix: Path) -> None:
    evil = "9.10.2'; touch pwned; echo $(touch pwned) `touch pwned` \"; touch pwned"
    outcome = act(runner, index, matrix, version=evil, **{"for": evil, "fail_on": evil})
    assert outcome.failed
    assert not list(runner.base.rglob("pwned"))


@pytest.mark.wheels
def test_gitlab_job_runs_and_leaves_its_artifacts(
    tmp_path: Path, environ: dict[str, str], index: WheelIndex, matrix: Path
) -> None:
    head, jobs = TEMPLATE.read_text().split("\n---\n")
    inputs = {
        k: str(v.get("default", "")) for k, v in yaml.safe_load(head)["spec"]["inputs"].items()
    }
    inputs |= {"package": str(ROOT), "version": "9.10.2", "cuda": "12", "matrix": str(matrix)}
    text = re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", lambda m: json.dumps(inputs[m[1]]), jobs)
    job = yaml.safe_load(text)["cudnn-doctor"]
    project = tmp_path / "project"
    project.mkdir()
    fakewheels.make_venv(project / "env")
    variables = {"CI_PROJECT_DIR": str(project), "CI": "true", "GITLAB_CI": "true"}
    for name, value in job["variables"].items():
        variables[name] = value.replace("$CI_PROJECT_DIR", str(project))
    lines = list(job["script"])
    only = f"export PIP_INDEX_URL={index.url} UV_DEFAULT_INDEX={index.url} PIP_FIND_LINKS="
    lines.insert(4, f'{only}; export VIRTUAL_ENV="$CI_PROJECT_DIR/env"')

    def run(lines: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", "\n".join(lines)],
            cwd=project,
            env={**environ, **variables, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )

    done = run(lines)
    assert done.returncode == 0, done.stdout + done.stderr
    (library,) = (project / "env").rglob("libcudnn_ops.so.9")
    reports = job["artifacts"]["reports"]
    quality = project / reports["codequality"]
    assert json.loads(quality.read_text()) == []
    for path in project.glob(reports["junit"]):
        ElementTree.parse(path)
    page = project / "cudnn-report" / "report.html"
    assert "Healthy" in page.read_text()
    assert (project / job["cache"]["paths"][0]).is_dir()
    # a wish that cannot be met, and a damaged library: the job fails, and its reports say why
    assert run(lines[3:], CUDNN_VERSION_WANTED="7.0").returncode == 4
    library.write_bytes(library.read_bytes()[:3000])
    quality.unlink()
    page.unlink()
    assert run(lines[3:], CUDNN_METHOD="none").returncode == 1
    assert "cudnn-file-damaged" in [
        issue["check_name"] for issue in json.loads(quality.read_text())
    ]
    assert "cudnn-file-damaged" in page.read_text()
    shutil.rmtree(project)
