"""Command line, child processes and report, on libraries that compute on the host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fakecudnn import fake_copy, fake_driver

from cudnn_doctor.report.schema import FOLDER, schema_text


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_copy(tmp_path_factory.mktemp("copy") / "lib")


def verify(
    copy: Path, driver: Path | None, *options: str, **environ: str
) -> tuple[int, dict[str, Any] | str]:
    """Exit code, and the one verdict of the JSON (the text without ``--json``)."""
    made = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "FAKE_CUDNN")}
    made.pop("CUDA_VISIBLE_DEVICES", None)
    made |= {"LD_LIBRARY_PATH": str(driver)} if driver else {}
    command = [sys.executable, "-m", "cudnn_doctor", "verify", "--lib", str(copy), "--seed", "5"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, env=made | environ,
        timeout=60, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert "Traceback" not in done.stdout + done.stderr
    if "--json" not in options:
        return done.returncode, done.stdout
    return done.returncode, json.loads(done.stdout)["verdicts"][0]


PLAIN = ("--quick", "--json", "--references", "plain")


def rungs(verdict: Any) -> dict[str, str]:
    return {rung["name"]: rung["status"] for rung in verdict["rungs"]}


def whys(verdict: Any) -> str:
    return " | ".join(rung.get("why", "") for rung in verdict["rungs"])


def test_a_healthy_copy_passes(copy: Path, driver: Path) -> None:
    code, verdict = verify(copy, driver, *PLAIN)
    assert code == 0, whys(verdict)
    assert rungs(verdict) == {
        "files": "pass", "load": "pass", "initialise": "pass", "convolve": "pass",
        "library": "skip", "speed": "skip",
    }  # fmt: skip
    assert verdict["facts"]["cudnn"] == 91900
    assert verdict["facts"]["gpu"] == "Fake GPU"
    assert all(str(copy) in path for path in verdict["facts"]["mapped"])


def test_without_numpy_the_rest_is_not_run_and_the_command_for_it_is_told(
    copy: Path, driver: Path
) -> None:
    plain = ("--references", "plain")
    code, verdict = verify(copy, driver, *plain, "--json")
    assert code == 3
    found = rungs(verdict)
    assert (found["convolve"], found["library"], found["speed"]) == ("pass", "skip", "skip")
    assert "pip install 'cudnn-doctor[cuda" in whys(verdict)
    _, text = verify(copy, driver, *plain, "--quick")
    assert "pip install 'cudnn-doctor[cuda" in text


def test_without_a_driver_the_gpu_rungs_are_not_run_and_the_exit_code_says_so(copy: Path) -> None:
    code, verdict = verify(copy, None, *PLAIN)
    assert code == 3
    found = rungs(verdict)
    assert (found["files"], found["load"]) == ("pass", "pass")
    assert (found["initialise"], found["convolve"]) == ("skip", "skip")
    assert "no NVIDIA driver" in whys(verdict)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("perturb", "is wrong|instead of"),
        ("silent", "instead of"),
        ("nan", "is nan instead of"),
        ("zero", "is 0 instead of"),
    ],
)
def test_a_wrong_result_fails(copy: Path, driver: Path, fault: str, said: str) -> None:
    code, verdict = verify(copy, driver, *PLAIN, FAKE_CUDNN=fault)
    assert code == 6
    assert rungs(verdict)["convolve"] == "fail"
    assert any(part in whys(verdict) for part in said.split("|"))


@pytest.mark.parametrize(("fault", "signal"), [("abort", "SIGABRT"), ("segv", "SIGSEGV")])
def test_a_crash_is_a_finding_with_its_signal_and_step(
    copy: Path, driver: Path, fault: str, signal: str
) -> None:
    code, verdict = verify(copy, driver, *PLAIN, FAKE_CUDNN=fault)
    assert code == 6
    death = verdict["deaths"][0]
    assert (death["how"], death["rung"], death["step"]) == (signal, "convolve", "small 3x3 fp32")
    assert death["cause"]


def test_a_hang_is_a_finding(copy: Path, driver: Path) -> None:
    code, verdict = verify(copy, driver, *PLAIN, "--timeout", "2", FAKE_CUDNN="hang")
    assert code == 6
    assert [d["how"] for d in verdict["deaths"]] == ["no answer for 2 s"]
    assert verdict["deaths"][0]["step"] == "small 3x3 fp32"


def test_after_a_crash_the_other_steps_are_tried(copy: Path, driver: Path) -> None:
    code, verdict = verify(
        copy, driver, "--quick", "--json", "--references", "numpy", FAKE_CUDNN="abort"
    )
    assert code == 6
    assert [d["step"] for d in verdict["deaths"]] == ["3x3 fp32 nchw forward"]
    later = [s["step"] for s in verdict["steps"] if s["rung"] == "convolve"]
    assert "3x3 bf16 nhwc forward" in later  # (refused by this library, but asked)
    assert later.count("3x3 bf16 nhwc forward") == 1
    assert len([s for s in verdict["steps"] if s["step"] == "cudnnCreate"]) == 1


def test_a_result_that_differs_from_run_to_run_within_its_bound_is_told(
    copy: Path, driver: Path
) -> None:
    code, verdict = verify(copy, driver, *PLAIN, FAKE_CUDNN="unstable")
    assert code == 0
    step = next(s for s in verdict["steps"] if s["rung"] == "convolve")
    assert step["data"]["repeatable"] is False


def test_a_refused_handle_is_named(copy: Path, driver: Path) -> None:
    code, verdict = verify(copy, driver, *PLAIN, FAKE_CUDNN="refuse")
    assert code == 6
    assert rungs(verdict)["initialise"] == "fail"
    assert "CUDNN_STATUS_NOT_INITIALIZED" in whys(verdict)


def test_hidden_gpus_are_named(copy: Path, driver: Path) -> None:
    code, verdict = verify(copy, driver, *PLAIN, CUDA_VISIBLE_DEVICES="", FAKE_NO_DEVICE="1")
    assert code == 6
    assert "CUDA_VISIBLE_DEVICES='' hides every GPU" in whys(verdict)


def test_a_driver_that_sees_no_gpu_is_no_fault(copy: Path, driver: Path) -> None:
    code, verdict = verify(copy, driver, *PLAIN, FAKE_NO_DEVICE="1")
    assert code == 3
    assert "the driver sees no GPU" in whys(verdict)


def test_a_driver_older_than_the_copy_is_the_cause(copy: Path, driver: Path) -> None:
    code, verdict = verify(copy, driver, *PLAIN, FAKE_CUDNN="refuse", FAKE_DRIVER="12040")
    assert code == 6
    assert "the driver supports CUDA 12.4 and this copy was built for CUDA 13.0" in whys(verdict)


def test_full_memory_is_the_cause(copy: Path, driver: Path) -> None:
    code, verdict = verify(copy, driver, *PLAIN, FAKE_CUDNN="refuse", FAKE_FREE="1000000")
    assert code == 6
    assert "GPU memory is full (1 of 8192 MiB free): another process holds it" in whys(verdict)


@pytest.mark.parametrize("damage", ["deleted", "truncated", "garbage"])
def test_damaged_files_fail_without_any_gpu(copy: Path, tmp_path: Path, damage: str) -> None:
    broken = tmp_path / "lib"
    shutil.copytree(copy, broken)
    victim = broken / "libcudnn_heuristic.so.9"
    if damage == "deleted":
        victim.unlink()
    elif damage == "truncated":
        os.truncate(victim, victim.stat().st_size // 2)
    else:
        victim.write_bytes(b"not a library")
    code, verdict = verify(broken, None, *PLAIN)
    assert code == 6
    assert rungs(verdict)["files"] == "fail"
    assert "libcudnn_heuristic.so.9" in whys(verdict)


def test_the_json_follows_its_schema(copy: Path, driver: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((FOLDER / "verify.json").read_text())
    for fault in ("", "abort", "nan"):
        _, verdict = verify(copy, driver, *PLAIN, FAKE_CUDNN=fault)
        jsonschema.validate({"schema": 1, "tool": "0", "verdicts": [verdict]}, schema)


def test_the_schema_file_is_what_the_types_say() -> None:
    assert (FOLDER / "verify.json").read_text() == schema_text("verify")


def test_two_copies_are_compared(copy: Path, driver: Path, tmp_path: Path) -> None:
    other = tmp_path / "lib"
    shutil.copytree(copy, other)
    code, text = verify(
        copy, driver, "--quick", "--references", "plain", "--compare", str(other), "-v"
    )
    assert code == 0
    assert text.count("cuDNN 9.19.0 in ") == 2
    assert "the same work" in text
    uncut = (str(tmp_path.parent), "-m pip install")
    long = [line for line in str(text).splitlines() if len(line) > 80]
    assert all(any(part in line for part in uncut) for line in long), long


def test_usage_errors(copy: Path) -> None:
    assert verify(copy, None, "--quick", "--full")[0] == 2
    assert verify(copy, None, "--framework", "torch")[0] == 2
    assert verify(copy.parent / "absent", None)[0] == 7


def test_an_environment_may_be_named_by_its_interpreter(copy: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    site = prefix / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    shutil.copytree(copy, site / "nvidia/cudnn/lib", symlinks=True)
    (prefix / "bin").mkdir()
    (prefix / "bin/python").symlink_to(sys.executable)
    (prefix / "pyvenv.cfg").write_text(f"home = {os.path.dirname(sys.executable)}\n")
    for name in (str(prefix), str(prefix / "bin/python")):
        done = subprocess.run(
            [sys.executable, "-m", "cudnn_doctor", "verify", "--python", name, "--quick", "--json"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        (verdict,) = json.loads(done.stdout)["verdicts"]
        assert verdict["copy"]["folder"] == str(site / "nvidia/cudnn/lib"), done.stderr
