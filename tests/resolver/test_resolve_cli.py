"""``cudnn-doctor resolve`` as a person and a script meet it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import cudnn_doctor


def resolve(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(cudnn_doctor.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-m", "cudnn_doctor", "resolve", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "80", "NO_COLOR": "1"},
    )


def document(*arguments: str) -> dict:
    return json.loads(resolve(*arguments, "--json").stdout)


def test_the_json_of_an_answer() -> None:
    answer = document("--gpu", "GTX 1080", "--driver", "580.65.06")["resolution"]
    assert (answer["version"], answer["cuda"], answer["flavour"]) == ("9.10.2", "12", "full")
    assert answer["build"] == "9.10.2.21"
    assert answer["packages"]["wheel"][0] == "nvidia-cudnn-cu12==9.10.2.21"
    assert "nvidia-cublas-cu12" in answer["packages"]["wheel"]
    assert answer["archive"]["path"].endswith("cudnn-linux-x86_64-9.10.2.21_cuda12-archive.tar.xz")
    assert len(answer["archive"]["sha256"]) == 64
    assert any("6.1" in reason for reason in answer["reasons"])
    assert "newer" not in answer


@pytest.mark.parametrize("version", ["9", "9.19.1", ">=99"])
def test_the_json_keeps_to_its_schema(version: str) -> None:
    schema = Path(cudnn_doctor.__file__).parent / "report" / "schemas" / "resolve.json"
    found = document("--gpu", "8.6", "--version", version, "--explain")
    jsonschema.validate(found, json.loads(schema.read_text()))
    assert ("conflict" in found) == (version == ">=99")


def test_cuda_13_companions_have_no_suffix() -> None:
    answer = document("--gpu", "9.0", "--driver", "580.65.06")["resolution"]
    assert answer["packages"]["wheel"][1:] == ["nvidia-cublas==13.*", "nvidia-cuda-nvrtc==13.*"]


def test_an_answer_without_an_archive_says_null() -> None:
    assert document("--version", "9.28.1", "--driver", "580")["resolution"]["archive"] is None


def test_explain_tells_of_every_newer_release_what_ruled_it_out() -> None:
    answer = document("--gpu", "7.0", "--driver", "580", "--explain")["resolution"]
    newer = {(row["version"], row["cuda"]): row["by"] for row in answer["newer"]}
    assert ("9.11.0", "12") in newer
    assert ("9.28.1", "13") in newer
    assert all(any(r["constraint"] == "gpu 7.0" for r in by) for by in newer.values())
    text = resolve("--gpu", "7.0", "--driver", "580", "--explain").stdout
    assert "9.28.1" in text and "what ruled them out" in text


def test_the_json_of_a_conflict_and_its_exit_code() -> None:
    done = resolve("--gpu", "6.1", "--version", ">=9.11", "--json")
    conflict = json.loads(done.stdout)["conflict"]
    assert done.returncode == 4
    assert set(conflict["constraints"]) == {"gpu 6.1", "version >=9.11"}
    ways = {tuple(way["constraints"]): way["build"] for way in conflict["relax"]}
    assert ways[("version >=9.11",)] == "9.10.2.21"


def test_text_fits_80_columns_but_for_commands() -> None:
    text = resolve("--gpu", "RTX 3090", "--driver", "535", "--for", "torch==2.6.*").stdout
    assert text.startswith("cuDNN 9.1.0.70 for CUDA 12")
    assert "pip install nvidia-cudnn-cu12==9.1.0.70" in text
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("    "))


def test_the_same_question_has_the_same_answer() -> None:
    question = ("--gpu", "8.6", "--gpu", "12.0", "--driver", "570.26", "--json", "--explain")
    assert resolve(*question).stdout == resolve(*question).stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--gpu", "Voodoo 2"), "Voodoo 2"),
        (("--gpu", "99.9"), "99.9"),
        (("--driver", "new"), "new"),
        (("--gpu", "8.6", "--arch", "sparc"), "sparc"),
        (("--glibc", "old"), "old"),
        (("--gpu", "8.6", "--cuda", "twelve"), "twelve"),
        (("--gpu", "8.6", "--version", "~~"), "~~"),
        (("--gpu", "8.6", "--for", "==="), "==="),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(arguments: tuple[str, ...], word: str) -> None:
    done = resolve(*arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_a_framework_that_nobody_knows_is_no_guess() -> None:
    done = resolve("--gpu", "8.6", "--for", "frobnicator")
    assert done.returncode == 3
    assert "frobnicator" in done.stderr


def test_a_snapshot_is_judged_and_options_override_it(tmp_path: Path) -> None:
    snapshot = tmp_path / "machine.json"
    facts = {
        "schema": 1,
        "system": {"arch": "x86_64", "libc": "glibc", "libc_version": "2.35"},
        "gpus": [{"name": "NVIDIA RTX A6000", "compute_capability": "8.6"}],
        "driver": {"version": "580.65.06"},
    }
    snapshot.write_text(json.dumps(facts))
    plain = document("--snapshot", str(snapshot))["resolution"]
    assert plain["cuda"] == "13"
    older = document("--snapshot", str(snapshot), "--driver", "535")["resolution"]
    assert older["cuda"] == "12"
    assert any("A6000" in reason for reason in older["reasons"])


def test_a_broken_snapshot_or_matrix_is_bad_input(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("{")
    for option in ("--snapshot", "--matrix"):
        done = resolve(option, str(broken), "--version", "9")
        assert done.returncode == 7
        assert "Traceback" not in done.stderr


def test_jetson_is_understood_from_the_gpu() -> None:
    answer = document("--gpu", "Jetson AGX Orin")["resolution"]
    assert list(answer["packages"]) == ["tarball"]
    assert "linux-aarch64" in answer["archive"]["path"]


def test_distribution_packages_follow_the_distribution(tmp_path: Path) -> None:
    snapshot = tmp_path / "rocky.json"
    system = {"arch": "x86_64", "distro_id": "rocky", "distro_version": "9.4", "libc": "glibc"}
    facts = {"schema": 1, "system": system, "driver": {"version": "580.65.06"}}
    snapshot.write_text(json.dumps(facts))
    packages = document("--snapshot", str(snapshot), "--method", "package")["resolution"][
        "packages"
    ]
    assert list(packages) == ["dnf"]
    assert packages["dnf"][0].startswith("libcudnn9-cuda-13-")


def test_help_teaches() -> None:
    text = resolve("--help").stdout
    assert "Examples" in text and "Exit codes" in text and "jax[cuda12]" in text
