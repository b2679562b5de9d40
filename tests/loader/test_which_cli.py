"""`cudnn-doctor which` as a person runs it: text, JSON, trace, programs, snapshots, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from support.elf import build_library
from support.fakewheels import cudnn_folder, cudnn_wheel, install, make_venv, torch_wheel

from cudnn_doctor.report.schema import FOLDER, schema_text


def which(*arguments: object, **environ: object) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    variables.update({key: str(value) for key, value in environ.items()})
    return subprocess.run(
        [sys.executable, "-m", "cudnn_doctor", "which", *map(str, arguments)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("which")
    make_venv(folder / "venv")
    wheels = [cudnn_wheel(folder / "w", "9.10.2.21"), torch_wheel(folder / "w")]
    install(folder / "venv", *wheels)
    return folder / "venv"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cudnn_folder(tmp_path_factory.mktemp("o") / "lib", "9.14.0")


def test_the_swapped_parts_are_named_with_their_reason(venv: Path, other: Path) -> None:
    done = which("torch", "--python", venv, "-v", LD_LIBRARY_PATH=other)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "torch 2.9.1" in text
    assert "libcudnn.so.9 9.10.2.21" in text
    assert f"{venv}" in text
    assert f"LD_LIBRARY_PATH entry 1 ({other})" in text
    assert f"{other}/libcudnn_graph.so.9" in text


def test_short_text_fits_eighty_columns(venv: Path, other: Path) -> None:
    done = which("--python", venv, LD_LIBRARY_PATH=other)
    assert done.returncode == 0
    assert "7 sublibraries  9.14.0  (the shim is 9.10.2.21)" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_json_follows_its_schema(venv: Path) -> None:
    done = which("torch", "--python", venv, "--json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((FOLDER / "which.json").read_text()))
    (plan,) = document["plans"]
    assert plan["consumer"]["name"] == "torch"
    assert plan["folder"].endswith("nvidia/cudnn/lib")
    assert (FOLDER / "which.json").read_text() == schema_text("which")


def test_trace_proves_the_plain_loader(other: Path) -> None:
    done = which("dlopen", "--trace", LD_LIBRARY_PATH=other)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "traced: it answers 9.14.0, 2 cuDNN files mapped, as predicted" in done.stdout


def test_a_death_while_tracing_is_told_and_fails(venv: Path) -> None:
    done = which("torch", "--python", venv, "--trace")
    assert done.returncode == 1
    assert "torch must not be imported" in " ".join(done.stdout.split())


def test_a_program_with_its_own_search_path(tmp_path: Path, other: Path) -> None:
    needed = build_library(tmp_path / "libcudnn.so.9")
    program = tmp_path / "program"
    command = ["gcc", "-x", "c", "-", "-o", str(program), "-x", "none", "-Wl,--no-as-needed"]
    command += [str(needed), f"-Wl,--disable-new-dtags,-rpath,{other}"]
    subprocess.run(command, input="int main(void) { return 0; }", text=True, check=True)
    needed.unlink()
    done = which(program, "-v")
    assert done.returncode == 0, done.stderr
    assert f"RPATH {other} of {program}" in " ".join(done.stdout.split())
    refused = which(program, "--trace")
    assert (refused.returncode, "not run to trace" in refused.stderr) == (1, True)


def test_a_named_consumer_without_cudnn_fails(tmp_path: Path) -> None:
    described = tmp_path / "machine.json"
    described.write_text(json.dumps({"frameworks": ["torch 2.9.1+cu128"], "cudnn_copies": []}))
    done = which("torch", "--snapshot", described)
    assert done.returncode == 1
    assert "libcudnn.so.9: not found" in done.stdout
    assert which("--snapshot", described).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nonesuch"], 2, "no nonesuch in any environment"),
        (["./absent"], 2, "no such file"),
        (["/etc/passwd"], 2, "not a native program"),
        (["--snapshot", "-", "--trace"], 2, "saved facts"),
        (["--snapshot", "/nonexistent.json"], 7, "nonexistent.json"),
        (["dlopen", "--trace", "--root", "/usr/share"], 2, "no dlopen"),
    ],
)
def test_wrong_usage(arguments: list[str], code: int, told: str) -> None:
    done = which(*arguments)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_help_has_examples() -> None:
    done = which("--help")
    assert "cudnn-doctor which torch --trace" in done.stdout
