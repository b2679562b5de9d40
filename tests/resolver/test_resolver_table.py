"""Real combinations against the shipped matrix.

The answers were worked out by hand from the support matrices, the wheel index and the scans of the
wheels, not taken from the resolver. Facts used throughout: newest cu13 is 9.28.1.4, newest cu12
9.28.0.42, newest cu11 9.10.2.21; 9.11 dropped everything below 7.5; CUDA 12 dropped Kepler and CUDA
13 everything below 7.5; native Blackwell code starts with 9.7.0; drivers 450.80.02, 525.60.13 and
580.65.06 are the floors of CUDA 11, 12 and 13, and Blackwell needs 570.26.
"""

from __future__ import annotations

import functools

import pytest

from cudnn_doctor.matrix.load import load
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.matrix.query import gpu_by_name
from cudnn_doctor.matrix.resolver import Conflict, Resolution, resolve
from cudnn_doctor.matrix.specs import normalise
from cudnn_doctor.matrix.target import FrameworkRequest, Target, TargetGpu, platform_of

NEWEST_13 = ("9.28.1.4", "13")
NEWEST_12 = ("9.28.0.42", "12")
NEWEST_11 = ("9.10.2.21", "11")
LAST_FOR_OLD = ("9.10.2.21", "12")


@functools.cache
def matrix() -> Matrix:
    return load()


def answer(
    *gpus: str, frameworks: tuple[str, ...] = (), arch: str = "x86_64", **fields: object
) -> Resolution | Conflict:
    found = []
    for gpu in gpus:
        model = None if gpu[0].isdigit() else gpu_by_name(matrix(), gpu)
        found.append(TargetGpu(cc=model.cc, name=gpu) if model else TargetGpu(cc=gpu))
    if isinstance(version := fields.get("version"), str):
        fields["version"] = normalise(version)
    requests = tuple(FrameworkRequest.parse(text) for text in frameworks)
    target = Target(
        gpus=tuple(found),
        frameworks=requests,
        platform=platform_of(arch),
        **fields,  # type: ignore[arg-type]
    )
    return resolve(target, matrix())


def pair(result: Resolution | Conflict) -> tuple[str, str]:
    assert isinstance(result, Resolution), result
    return result.build, result.cuda


GENERATIONS = [
    # Kepler: 8.7.0 is the last that carries code for 3.5; for 3.0, 8.5.0 (CUDA 10.2) is
    (("Tesla K80",), "470.256.02", ("8.7.0.84", "11")),
    (("Tesla K40",), "470.256.02", ("8.7.0.84", "11")),
    (("GTX 680",), "470.256.02", ("8.5.0.96", "10")),
    # Maxwell, Pascal, Volta: the driver may run CUDA 13, cuDNN for it cannot run on them
    (("GTX 750 Ti",), "580.65.06", LAST_FOR_OLD),
    (("GTX 980",), "535.54.03", LAST_FOR_OLD),
    (("Tesla M40",), "470.256.02", NEWEST_11),
    (("Tesla P100",), "550.54.14", LAST_FOR_OLD),
    (("GTX 1080",), "580.65.06", LAST_FOR_OLD),
    (("Tesla P4",), "535", LAST_FOR_OLD),
    (("Tesla V100",), "580.95.05", LAST_FOR_OLD),
    (("Titan V",), "460.32.03", NEWEST_11),
    # Turing to Ada
    (("Tesla T4",), "470.256.02", NEWEST_11),
    (("RTX 2080 Ti",), "535.54.03", NEWEST_12),
    (("RTX 2060",), "580.65.06", NEWEST_13),
    (("A100",), "450.80.02", NEWEST_11),
    (("A100",), "525.60.13", NEWEST_12),
    (("RTX 3090",), "535.104.05", NEWEST_12),
    (("RTX 3090",), "580.65.06", NEWEST_13),
    (("RTX 4090",), "520.61.05", NEWEST_11),
    (("RTX 4090",), "550.54.14", NEWEST_12),
    (("L40S",), "590", NEWEST_13),
    # Hopper
    (("H100",), "525.60.13", NEWEST_12),
    (("H200",), "580.65.06", NEWEST_13),
    # Blackwell
    (("B200",), "570.26", NEWEST_12),
    (("B200",), "580.65.06", NEWEST_13),
    (("B300",), "580.65.06", NEWEST_13),
    (("RTX 5090",), "570.86.16", NEWEST_12),
    (("RTX 5090",), "580.65.06", NEWEST_13),
    # several GPUs: each must be able to run it
    (("GTX 1080", "RTX 5090"), "580.65.06", LAST_FOR_OLD),
    (("Tesla V100", "H100"), "535", LAST_FOR_OLD),
    (("RTX 2080", "RTX 3090"), "580", NEWEST_13),
    (("Tesla K80", "GTX 1080"), "470.256.02", ("8.7.0.84", "11")),
]


@pytest.mark.parametrize(("gpus", "driver", "expected"), GENERATIONS)
def test_gpu_generations(gpus: tuple[str, ...], driver: str, expected: tuple[str, str]) -> None:
    result = answer(*gpus, driver=driver)
    assert pair(result) == expected
    assert isinstance(result, Resolution) and result.certain


SERVERS = [
    (("GH200",), "aarch64", "570.86.16", NEWEST_12),
    (("GH200",), "aarch64", "580.65.06", NEWEST_13),
    (("GB10",), "aarch64", "580.95.05", NEWEST_13),
    (("GB200",), "sbsa", "580.65.06", NEWEST_13),
    # Jetson Orin has its own archives, for CUDA 12 up to 9.20.0
    (("Jetson AGX Orin",), "jetson", None, ("9.20.0.48", "12")),
]


@pytest.mark.parametrize(("gpus", "arch", "driver", "expected"), SERVERS)
def test_aarch64(
    gpus: tuple[str, ...], arch: str, driver: str | None, expected: tuple[str, str]
) -> None:
    assert pair(answer(*gpus, arch=arch, driver=driver)) == expected


def test_jetson_gets_no_server_wheel() -> None:
    result = answer("Jetson AGX Orin", arch="jetson")
    assert isinstance(result, Resolution)
    assert list(result.packages) == ["tarball"]
    assert result.archive and "linux-aarch64" in result.archive.path


def test_thor_is_not_certain_because_its_builds_were_not_measured() -> None:
    result = answer("Jetson AGX Thor", arch="aarch64", driver="580.65.06")
    assert pair(result) == NEWEST_13
    assert isinstance(result, Resolution) and not result.certain


BRANCHES = [
    ("418.39", ("8.0.5.39", "10")),
    ("440.33.01", ("8.7.0.84", "10")),
    ("450.80.02", NEWEST_11),
    ("450.51.06", ("8.7.0.84", "10")),  # below the floor of CUDA 11's minor-version compatibility
    ("455", NEWEST_11),
    ("460", NEWEST_11),
    ("465", NEWEST_11),
    ("470", NEWEST_11),
    ("495", NEWEST_11),
    ("510", NEWEST_11),
    ("515", NEWEST_11),
    ("520", NEWEST_11),
    ("525.60.11", NEWEST_11),
    ("525.60.13", NEWEST_12),
    ("530", NEWEST_12),
    ("535", NEWEST_12),
    ("545", NEWEST_12),
    ("550", NEWEST_12),
    ("555", NEWEST_12),
    ("560", NEWEST_12),
    ("565", NEWEST_12),
    ("570", NEWEST_12),
    ("575", NEWEST_12),
    ("580.65.05", NEWEST_12),
    ("580.65.06", NEWEST_13),
    ("590", NEWEST_13),
    ("595", NEWEST_13),
    ("610", NEWEST_13),
    ("615", NEWEST_13),
    ("617", NEWEST_13),
]


@pytest.mark.parametrize(("driver", "expected"), BRANCHES)
def test_driver_branches(driver: str, expected: tuple[str, str]) -> None:
    assert pair(answer(driver=driver)) == expected


FRAMEWORKS = [
    # torch pins the wheel exactly; the index's own build goes before those of other indexes
    (("torch==1.13.1",), (), ("8.5.0.96", "11")),
    (("torch==2.0.*",), (), ("8.5.0.96", "11")),
    (("torch==2.3.*",), (), ("8.9.2.26", "12")),
    (("torch==2.4.*",), (), ("9.1.0.70", "12")),
    (("torch==2.6.*",), (), ("9.1.0.70", "12")),
    (("torch==2.6.*+cu124",), (), ("9.1.0.70", "12")),
    (("torch==2.6.*+cu126",), (), ("9.5.1.17", "12")),
    (("torch==2.7.1",), (), ("9.5.1.17", "12")),
    (("torch==2.8.0",), (), ("9.10.2.21", "12")),
    (("torch==2.9.*+cu130",), (), ("9.13.0.50", "13")),
    (("torch==2.11.*",), (), ("9.19.0.56", "13")),
    (("torch==2.13.*",), (), ("9.20.0.48", "13")),
    (("torch==2.14.*",), (), ("9.24.0.43", "13")),
    (("torch",), (), ("9.26.0.51", "13")),
    # only another CUDA build of the same version suits the GPU
    (("torch==2.11.*",), ("Tesla V100",), ("9.10.2.21", "12")),
    (("torch==2.8.*",), ("Tesla V100",), ("9.10.2.21", "12")),
    (("torch==2.7.*",), ("RTX 5090",), ("9.7.1.26", "12")),
    # TensorFlow
    (("tensorflow==2.3.*",), (), ("7.6.5.32", "10")),
    (("tensorflow==2.14.*",), (), ("8.7.0.84", "11")),
    (("tensorflow[and-cuda]==2.15.*",), (), ("8.9.4.25", "12")),
    (("tensorflow==2.17.*",), (), ("8.9.7.29", "12")),
    (("tensorflow==2.18.*",), (), ("9.3.0.75", "12")),
    (("tensorflow==2.20.*",), (), NEWEST_12),
    # JAX: the extra names the CUDA major, the floor rises, there is no pin
    (("jax[cuda12]",), (), NEWEST_12),
    (("jax[cuda13]",), (), NEWEST_13),
    (("jax[cuda12]==0.6.2",), (), NEWEST_12),
    (("jax[cuda12]==0.4.35",), ("GTX 1080",), LAST_FOR_OLD),
    # the others of the catalogue
    (("onnxruntime-gpu==1.17.*",), (), ("8.9.7.29", "11")),
    (("onnxruntime-gpu==1.23.*",), (), NEWEST_12),
    (("onnxruntime-gpu==1.27.0",), (), NEWEST_13),
    (("ctranslate2==4.4.*",), (), ("8.9.7.29", "12")),
    (("ctranslate2==4.6.2",), (), NEWEST_12),
    (("ctranslate2==4.8.5",), (), NEWEST_13),
    (("faster-whisper==1.2.1",), (), NEWEST_13),
    (("paddlepaddle-gpu==3.0.*",), (), ("9.9.0.52", "12")),
    (("cupy-cuda12x==13.*",), (), ("8.8.1.3", "12")),
    (("cupy-cuda12x==14.*",), (), NEWEST_13),
    (("mxnet-cu112==1.9.1",), (), ("8.9.7.29", "11")),
    (("tensorrt-cu12==10.*",), (), ("8.9.7.29", "12")),
    (("tensorrt-cu13",), (), NEWEST_13),
    (("nvidia-cudnn-frontend",), (), NEWEST_13),
    (("transformer-engine==2.*",), (), NEWEST_12),
    (("vllm==0.17.0",), (), ("9.10.2.21", "12")),
    (("vllm==0.9.2",), (), ("9.5.1.17", "12")),
    (("nnabla-ext-cuda120",), (), ("8.9.7.29", "12")),
    (("triton-inference-server==21.12",), (), ("8.3.1.22", "11")),
    (("xformers",), (), NEWEST_13),
    (("keras",), (), NEWEST_13),
    (("kaldi",), (), NEWEST_13),
    # several at once
    (("torch==2.6.*", "jax[cuda12]==0.5.*"), (), ("9.1.0.70", "12")),
    (("torch==2.8.*", "tensorflow==2.20.*", "onnxruntime-gpu==1.23.*"), (), LAST_FOR_OLD),
    (("torch==2.11.*", "jax[cuda13]"), ("H200",), ("9.19.0.56", "13")),
]


@pytest.mark.parametrize(("frameworks", "gpus", "expected"), FRAMEWORKS)
def test_frameworks(
    frameworks: tuple[str, ...], gpus: tuple[str, ...], expected: tuple[str, str]
) -> None:
    assert pair(answer(*gpus, frameworks=frameworks)) == expected


def test_every_framework_of_the_matrix_resolves_alone_or_tells_why() -> None:
    for name in {need.framework for need in matrix().frameworks}:
        assert answer(frameworks=(name,)) == answer(frameworks=(name,))


OTHERS = [
    ({"cuda": "11"}, NEWEST_11),
    ({"cuda": "11.8"}, NEWEST_11),
    ({"cuda": "12.4"}, NEWEST_12),
    ({"cuda": "10.2"}, ("8.7.0.84", "10")),
    # manylinux2014 wheels end with 9.5.0, 9.5.1 is 2.28, the rest 2.27
    ({"glibc": "2.17"}, ("9.5.0.50", "12")),
    ({"glibc": "2.17", "method": "wheel"}, ("9.5.0.50", "12")),
    ({"glibc": "2.27", "method": "wheel"}, NEWEST_13),
    ({"glibc": "2.27", "method": "wheel", "version": "9.5"}, ("9.5.0.50", "12")),
    # 9.28.x has no archive that was found
    ({"method": "tarball"}, ("9.27.0.42", "13")),
    ({"flavour": "jit"}, ("9.27.0.42", "13")),
    ({"version": "9.10.*"}, LAST_FOR_OLD),
    ({"version": "9.11"}, ("9.11.1.4", "12")),
    ({"version": "<9"}, ("8.9.7.29", "12")),
    ({"version": "8.9.7", "cuda": "11"}, ("8.9.7.29", "11")),
    # 9.25.0.15 is yanked: given only to those who name it
    ({"version": ">=9.25,<9.25.1"}, None),
    ({"version": "9.25.0.15"}, ("9.25.0.15", "13")),
    # 9.19.1 for CUDA 12 exists as an archive only
    ({"version": "9.19.1", "cuda": "12"}, ("9.19.1.2", "12")),
    ({"version": "9.19.1", "cuda": "12", "method": "wheel"}, None),
]


@pytest.mark.parametrize(("fields", "expected"), OTHERS)
def test_other_demands(fields: dict[str, str], expected: tuple[str, str] | None) -> None:
    result = answer(**fields)  # type: ignore[arg-type]
    if expected is None:
        assert isinstance(result, Conflict)
    else:
        assert pair(result) == expected


CONFLICTS = [
    (answer, ("GTX 1080",), {"version": ">=9.11"}, {"gpu GTX 1080 (6.1)", "version >=9.11"}),
    (answer, ("Tesla K80",), {"cuda": "12"}, {"gpu Tesla K80 (3.7)", "cuda 12"}),
    (answer, (), {"libc": "musl"}, {"musl"}),
    (answer, (), {"cuda": "14"}, {"cuda 14"}),
    (answer, (), {"driver": "470", "cuda": "12"}, {"driver 470", "cuda 12"}),
    (answer, ("Tesla V100",), {"cuda": "13"}, {"gpu Tesla V100 (7.0)", "cuda 13"}),
    (
        answer,
        ("RTX 5090",),
        {"frameworks": ("torch==2.6.*",)},
        {"gpu RTX 5090 (12.0)", "for torch==2.6.*"},
    ),
    (
        answer,
        (),
        {"driver": "470", "frameworks": ("torch==2.6.*",)},
        {"driver 470", "for torch==2.6.*"},
    ),
    (
        answer,
        (),
        {"frameworks": ("torch==2.6.*", "tensorflow==2.17.*")},
        {"for torch==2.6.*", "for tensorflow==2.17.*"},
    ),
    (
        answer,
        (),
        {"arch": "jetson", "method": "wheel"},
        {"arch aarch64", "method wheel"},
    ),
    (answer, ("RTX 5090",), {"driver": "565"}, {"driver 565 with a Blackwell GPU"}),
]


@pytest.mark.parametrize(("ask", "gpus", "fields", "expected"), CONFLICTS)
def test_conflicts(ask, gpus, fields, expected) -> None:
    result = ask(*gpus, **fields)
    assert isinstance(result, Conflict)
    assert set(result.constraints) == expected
    assert result.relax


def test_a_conflict_says_what_would_do() -> None:
    result = answer(driver="470", frameworks=("torch==2.6.*",))
    assert isinstance(result, Conflict)
    told = {option.constraints: option for option in result.relax}
    driver = told[("driver 470",)]
    assert driver.build == "9.1.0.70"
    assert "525.60.13" in driver.how[0]
    # torch 2.7 is the newest with a CUDA 11 build whose cuDNN is known
    other = told[("for torch==2.6.*",)]
    assert (other.build, other.cuda) == ("9.1.0.70", "11")
    assert "torch 2.7.1" in other.how[0] and "cu118" in other.how[0]
    why = {reason.constraint: reason.why for reason in result.why}
    assert "525.60.13" in why["driver 470"]
    assert "CUDA 12 build" in why["for torch==2.6.*"]


def test_the_answer_names_the_framework_build_that_it_suits() -> None:
    result = answer("Tesla V100", frameworks=("torch==2.11.*",))
    assert isinstance(result, Resolution)
    assert "cu126" in result.frameworks["torch==2.11.*"]


def test_frameworks_that_load_no_cudnn_are_told_so() -> None:
    for framework in ("ctranslate2==4.8.5", "cupy-cuda12x==14.*", "tensorrt-cu13"):
        result = answer(frameworks=(framework,))
        assert isinstance(result, Resolution)
        assert any("loads no cuDNN" in reason for reason in result.reasons)


def test_bundled_copies_are_told() -> None:
    result = answer(frameworks=("ctranslate2==4.6.2",))
    assert isinstance(result, Resolution)
    assert any("own copy" in reason for reason in result.reasons)
