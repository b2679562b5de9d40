"""Broken set-ups that happened to people, their paraphrases, and both in other wrappings."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudnn_doctor.explain import Diagnosis, explain_text
from cudnn_doctor.machine.described import describe

HERE = Path(__file__).resolve().parent.parent / "cases"
CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "cases.yaml").read_text())
VARIANTS: list[dict[str, Any]] = yaml.safe_load((HERE / "variants.yaml").read_text())
MORE: list[dict[str, Any]] = yaml.safe_load((HERE / "more.yaml").read_text())
BY_ID = {case["id"]: case for case in CASES}

CULPRITS = {
    "ct2-v8-in-venv-not-on-loader-path": "site-packages/nvidia/cudnn/lib",
    "ct2-v9-in-venv-not-on-loader-path": "site-packages/nvidia/cudnn/lib",
    "whisperx-chased-the-brace-version": "9.1.0",
    "ct2-45-wants-v9-torch20-has-v8": "ctranslate2 4.5.0",
    "ort-needs-adv-so9-distro-toolkit": "libcudnn*.so.9",
    "fake-symlink-cudnn-to-libcuda": "/usr/lib64/libcudnn.so.8",
    "so7-regular-files-not-in-ldcache": "/usr/local/cuda/lib64",
    "poetry-torch-201-without-nvidia-wheels": "torch 2.0.1",
    "tf-module-system-wiped-path": "module",
    "ort-libcurand-not-cudnn": "libcurand.so.10",
    "jax-nemos-brace-version-shows-foreign-shim": "9.1.0",
    "te-cosmos-sublibrary-loading-unknown": "9.3.0",
    "cu13-wheel-920-lacks-tensor-ir-falls-to-apt-cu12": "libcudnn_engines_tensor_ir.so.9",
    "whisperx-aur-cudnn-segv-in-graph": "/usr/lib/libcudnn_graph.so.9",
    "torch22-system-89-undefined-layernorm-symbol": "/usr/local/cuda/lib64/libcudnn_cnn_train.so.8",
    "dlib-mixed-versions-in-one-folder": "/usr/local/cuda-11.1/targets/x86_64-linux/lib",
    "tf-conda-prefix-lib-shadows-wheel": "$CONDA_PREFIX/lib",
    "conda-forge-jaxlib-build-newer-than-solved-cudnn": "9.10.1",
    "jax-cu13-clobbered-by-torch-cu12-wheel": "9.10.2",
    "sglang-killed-pip-left-dist-info-only": "nvidia-cudnn-cu12 9.10.2.21",
    "tf16-wheel-in-older-cudnn7-image": "7.1.1",
    "gladia-conda-torch-85-vs-841": "/usr/local/cuda/lib64",
    "old-torch-7102-vs-7605": "7.6.5",
    "torch180-cu102-turing": "torch 1.8.0",
    "arm-wheel-lacked-engines-precompiled": "libcudnn_engines_precompiled.so.9",
    "immich-ort-cudnn914-pascal-maxwell": "6.1",
    "openpose-gtx550ti-arch-mismatch": "2.1",
    "rtx3090-torch14-execution-failed": "torch 1.4.0",
    "ort-h800-driver525-ptx": "525.105.17",
    "fooocus-driver470-torch-cu121": "470.86",
    "nct-14-mounts-compat-804": "/compat/libcuda.so.1",
    "unattended-upgrade-nvml-mismatch": "460.73.01",
    "docker-desktop-on-linux-no-libnvidia-ml": "desktop-linux",
    "stubs-on-ld-library-path": "/scratch/opt/cuda-12.1/lib64/stubs",
    "wsl-libcuda-so-unversioned-missing": "libcuda.so",
    "torch20-cu118-nvrtc-hashed-name": "libnvrtc.so",
    "dgx-spark-wants-cuda12-libs": "sgl-kernel",
    "cublas11-takes-system-cublaslt": "/usr/local/cuda/lib64/libcublasLt.so.11",
    "darknet-cudnn8-wants-cublas11": "libcublas.so.11",
    "apt-cudnn8-dev-exact-version": "8.9.7.29",
    "opencv-header-in-usr-include-not-cuda": "CUDNN_INCLUDE_DIR",
    "aarch64-pypi-torch-is-cpu": "torch 2.9.1+cpu",
    "centos7-glibc227-libcudnn-cnn": "2.17",
    "jetson-nano-libgomp-static-tls": "libgomp.so.1",
}
NEVER = (
    r"apt(?:-get)? install (?:-y )?nvidia-cudnn\b",
    r"gcompat",
    r"ln -s\S* \S*libcudnn\.so\.\d \S*libcudnn\.so\.\d",
    r"stubs/libcuda\.so \S",
    r"LD_PRELOAD=\S*libm\.so",
    r"chmod 777",
    r"nvidia-pyindex",
    r"9\.1\.0(?!\.70)",
)
REINSTALL = r"(?:install|reinstall)\S* .*cudnn"
DRIVER = r"install .*(?:nvidia-driver|cuda-drivers|nvidia-open)|reboot"
TRAPS = {
    "whisperx-chased-the-brace-version": r"install .*9\.1\.0|torch(?:==|<)",
    "jax-nemos-brace-version-shows-foreign-shim": r"install .*9\.1\.0",
    "poetry-torch-201-without-nvidia-wheels": r"apt(?:-get)? install",
    "ort-libcurand-not-cudnn": r"install [^\n]*nvidia-cudnn|libcudnn\d",
    "torch180-cu102-turing": rf"{REINSTALL}|{DRIVER}",
    "immich-ort-cudnn914-pascal-maxwell": r"-U .*cudnn(?!.*<9\.11)|cudnn\S*>=9",
    "llmc-turing-sdpa-no-plans": REINSTALL,
    "rtx3090-torch14-execution-failed": r"cudnn\.enabled|libcudnn",
    "thor-sm110-cu128-no-kernels": r"whl/cu128",
    "marqo-no-valid-algorithm-is-oom": REINSTALL,
    "caffe-v2-execution-failed-is-oom": REINSTALL,
    "unattended-upgrade-nvml-mismatch": r"cudnn",
    "uvm-wedged-after-suspend-999": r"CUDA_VISIBLE_DEVICES",
    "compose-without-gpu-reservation": r"install .*(?:libcuda|nvidia-driver)|stubs",
    "docker-desktop-on-linux-no-libnvidia-ml": r"install .*libnvidia",
    "wsl-libcuda-so-unversioned-missing": rf"{DRIVER}|libcudnn_cnn",
    "wsl-ldconfig-warning-benign": r"/usr/lib/wsl|ln -s",
    "torch20-cu118-nvrtc-hashed-name": REINSTALL,
    "dgx-spark-wants-cuda12-libs": r"ln -s",
    "cublas11-takes-system-cublaslt": r"uninstall",
    "darknet-cudnn8-wants-cublas11": REINSTALL,
    "pip-hash-mismatch-cudnn-wheel": r"update your hashes",
    "aarch64-pypi-torch-is-cpu": rf"CUDA_VISIBLE|{DRIVER}",
    "jax-bf16-conv-dtype7-old-build": REINSTALL,
    "jetson-nano-libgomp-static-tls": r"memory|batch|GPU",
    "jetson-ort119-built-for-cudnn8": REINSTALL,
    "tf-register-factory-noise": REINSTALL,
    "pip-errno28-tmpfs": r"TMPDIR='~|purge",
}
"""What the case warns of: the remedies must not say it."""
NO_COMMAND = {"nnunet-mig-uuid-as-ordinal", "tf-register-factory-noise"}
"""The wanted remedy names the user's own program, or is to do nothing."""
FILLER = {"pip", "install", "or", "to", "the", "in", "of", "from", "a", "an", "and", "python", "&&"}
FILLER |= {"#", "then", "with", "only", "by", "for"}


def _answer(log: str, machine: dict[str, Any] | None) -> tuple[Diagnosis, ...]:
    return explain_text(log, None if machine is None else describe(machine)).diagnoses


def _commands(diagnosis: Diagnosis) -> str:
    return "\n".join(line for r in diagnosis.remedies for line in (r.title, *r.commands))


def _names_what_is_missing(diagnoses: tuple[Diagnosis, ...]) -> bool:
    return bool(diagnoses) and diagnoses[0].id == "insufficient-evidence" and bool(diagnoses[0].ask)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_case_with_facts(case: dict[str, Any]) -> None:
    diagnoses = _answer(case["log"], case["machine"])
    assert diagnoses and diagnoses[0].id == case["wanted"]["check"]
    assert CULPRITS.get(case["id"], "") in diagnoses[0].culprit
    assert diagnoses[0].remedies
    commands = _commands(diagnoses[0])
    for trap in (*NEVER, TRAPS.get(case["id"], r"\0")):
        assert not re.search(trap, commands), trap


def _words(text: str) -> list[str]:
    """What a command is about: packages, files, verbs, without versions."""
    plain = re.sub(r"[\"']|sudo ", "", text.lower())
    words = [re.split(r"[=<>]", word)[0] for word in re.split(r"[\s;(),:]+", plain)]
    return [word for word in words if word and word not in FILLER]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_the_remedies_do_what_is_wanted(case: dict[str, Any]) -> None:
    """One of the wanted commands is there, by most of its words."""
    if case["id"] in NO_COMMAND:
        return
    have = re.sub(r"[\"']", "", _commands(_answer(case["log"], case["machine"])[0])).lower()
    wanted = case["wanted"]["fix"]
    lines = [wanted] if isinstance(wanted, str) else wanted
    shares = [
        sum(word in have for word in words) / len(words)
        for line in lines
        if (words := _words(line))
    ]
    assert max(shares) >= 0.5, (lines, have)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])
def test_case_by_the_log_alone(case: dict[str, Any]) -> None:
    diagnoses = _answer(case["log"], None)
    first = [d.id for d in diagnoses[:3]]
    assert case["wanted"]["check"] in first or _names_what_is_missing(diagnoses), first


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"{v['of']}-{v['log'][:24]}")
def test_variant(variant: dict[str, Any]) -> None:
    diagnoses = _answer(variant["log"], variant["machine"])
    assert diagnoses and diagnoses[0].id == variant["check"]
    assert str(variant["culprit"]) in diagnoses[0].culprit
    assert str(variant["fix"]).lower() in _commands(diagnoses[0]).lower()
    alone = _answer(variant["log"], None)
    first = [d.id for d in alone[:3]]
    assert variant["check"] in first or _names_what_is_missing(alone), first


@pytest.mark.parametrize("more", MORE, ids=lambda m: f"{m['check']}-{m['log'][:24]}")
def test_more_kinds(more: dict[str, Any]) -> None:
    diagnoses = _answer(more["log"], more["machine"])
    assert diagnoses and diagnoses[0].id == more["check"]
    assert str(more["culprit"]) in diagnoses[0].culprit
    commands = _commands(diagnoses[0])
    assert str(more["fix"]).lower() in commands.lower()
    assert not any(re.search(trap, commands) for trap in NEVER)
    if more.get("alone", True):
        alone = _answer(more["log"], None)
        first = [d.id for d in alone[:3]]
        assert more["check"] in first or _names_what_is_missing(alone), first


def test_every_case_has_two_variants_written_by_hand() -> None:
    written = Counter(variant["of"] for variant in VARIANTS)
    assert dict.fromkeys(BY_ID, 2) == {name: min(written[name], 2) for name in BY_ID}


def _json_lines(log: str) -> str:
    return "\n".join(
        json.dumps({"ts": "2026-01-01T00:00:00Z", "level": "error", "message": line})
        for line in log.splitlines()
    )


def _coloured(log: str) -> str:
    return "\n".join(f"\x1b[31;1m{line}\x1b[0m\x1b[K" for line in log.splitlines())


def _after_progress(log: str) -> str:
    return "\n".join(f" 10%|#   | 1/9\r 99%|####| 8/9\r{line}" for line in log.splitlines())


def _kubectl(log: str) -> str:
    return "\n".join(
        f"[pod/train-0/main] 2026-01-01T10:11:12.123456789Z {line}" for line in log.splitlines()
    )


def _journal(log: str) -> str:
    return "\n".join(f"Nov 30 10:11:12 gpu01 python3[4711]: {line}" for line in log.splitlines())


def _drowned(log: str) -> str:
    noise = [f"step {n} loss 0.{n} lr 1e-4 images/s 512" for n in range(400)]
    return "\n".join([*noise, log, *noise])


WRAPPINGS: tuple[Callable[[str], str], ...] = (
    _json_lines,
    _coloured,
    _after_progress,
    _kubectl,
    _journal,
    _drowned,
)


@pytest.mark.parametrize("wrap", WRAPPINGS, ids=lambda w: w.__name__.strip("_"))
@pytest.mark.parametrize("entry", [*CASES, *VARIANTS], ids=lambda e: e.get("id") or e["of"])
def test_wrapping_changes_nothing(entry: dict[str, Any], wrap: Callable[[str], str]) -> None:
    plain = _answer(entry["log"], entry["machine"])
    assert [d.id for d in _answer(wrap(entry["log"]), entry["machine"])][:1] == [plain[0].id]


HARD_WRAPPED = [case for case in CASES if max(map(len, case["log"].splitlines())) > 100]


@pytest.mark.parametrize("case", HARD_WRAPPED, ids=lambda c: c["id"])
@pytest.mark.parametrize("width", [80, 132])
def test_a_terminal_that_wraps(case: dict[str, Any], width: int) -> None:
    """Copied from a terminal, long lines are cut anywhere."""
    lines = [
        line[start : start + width]
        for line in case["log"].splitlines()
        for start in range(0, max(len(line), 1), width)
    ]
    first = [d.id for d in _answer("\n".join(lines), case["machine"])[:3]]
    assert case["wanted"]["check"] in first


def test_wrapped_at_words() -> None:
    log = textwrap.fill(BY_ID["gladia-conda-torch-85-vs-841"]["log"], 76)
    assert _answer(log, None)[0].id == "ld-library-path-shadow"
