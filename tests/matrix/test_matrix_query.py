"""Look-ups by GPU name, driver, framework, distribution and issue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.load import default_path, load

MATRIX = load(default_path())


@pytest.mark.parametrize(
    ("name", "cc"),
    [
        ("RTX 3090", "8.6"),
        ("NVIDIA GeForce RTX 3090 Ti", "8.6"),
        ("rtx2080ti", "7.5"),
        ("H100", "9.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("Tesla K80", "3.7"),
        ("GTX 1080 Ti", "6.1"),
        ("NVIDIA GB10", "12.1"),
        ("A100-SXM4-80GB", "8.0"),
        ("NVIDIA A10G", "8.6"),
        ("NVIDIA L40S", "8.9"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("Quadro RTX 6000", "7.5"),
        ("RTX PRO 6000 Blackwell", "12.0"),
        ("NVIDIA RTX A6000", "8.6"),
        ("Jetson AGX Orin", "8.7"),
        ("Orin (nvgpu)", "8.7"),
        ("Thor", "11.0"),
        ("5090", "12.0"),
        ("B200", "10.0"),
        ("GB300", "10.3"),
        ("GRID T4-8Q", "7.5"),
        ("NVIDIA GeForce GTX TITAN X", "5.2"),
        ("NVIDIA TITAN X (Pascal)", "6.1"),
        ("Tesla V100-SXM2-16GB", "7.0"),
    ],
)
def test_gpu_by_name(name: str, cc: str) -> None:
    found = query.gpu_by_name(MATRIX, name)
    assert found is not None
    assert found.cc == cc


@pytest.mark.parametrize(
    "name",
    ["309", "RTX", "RTX 309", "6000", "Ti", "Blackwell", "", "GeForce", "RTX 30900"],
)
def test_no_gpu_by_a_vague_or_wrong_name(name: str) -> None:
    assert query.gpu_by_name(MATRIX, name) is None


@given(st.text(max_size=40))
def test_any_name_is_answered(name: str) -> None:
    query.gpu_by_name(MATRIX, name)


def test_every_known_name_finds_its_own_capability() -> None:
    for model in MATRIX.gpus:
        for name in model.names:
            found = query.gpu_by_name(MATRIX, name)
            assert found is not None, name
            assert found.cc == model.cc, name


def test_driver_branches() -> None:
    assert query.driver_branch(MATRIX, "535.104.05").lts
    assert query.driver_branch(MATRIX, "536.1") is None


def test_driver_floors_and_toolkit_drivers() -> None:
    assert query.driver_floor(MATRIX, "12.4").driver == "525.60.13"
    assert query.driver_floor(MATRIX, "13").driver == "580.65.06"
    assert query.driver_floor(MATRIX, "10.2").driver == "440.33"
    assert query.driver_floor(MATRIX, "9.0") is None
    assert query.toolkit_driver(MATRIX, "12.4") == "550.54.14"


def test_release_by_release_or_build_number() -> None:
    assert query.release(MATRIX, "9.10.2.21").version == "9.10.2"
    assert query.release(MATRIX, "9.10").version == "9.10.0"
    assert query.release(MATRIX, "9.99.0") is None
    assert query.release(MATRIX, "nonsense") is None


def test_variants_of_builds_per_cuda_minor() -> None:
    assert query.variant(MATRIX, "8.0.5", "11.0").cuda == "11.0"
    assert query.variant(MATRIX, "8.0.5", "11").cuda == "11.1"
    assert query.variant(MATRIX, "8.0.5", "11.8") is None
    assert query.variant(MATRIX, "8.9.7", "11.8").cuda == "11"
    assert query.variant(MATRIX, "8.9.7", None) is None
    assert query.variant(MATRIX, "9.28.1", None).cuda == "13"


def test_framework_needs() -> None:
    def need(framework: str, distribution: str, version: str, cuda: str | None = None):
        return query.framework_need(MATRIX, framework, distribution, version, cuda)

    assert need("torch", "torch", "2.6.0").cudnn_install == "==9.1.0.70"
    assert need("torch", "torch", "2.6.0").loader == "torch-rpath-wheel-cu12"
    assert need("torch", "torch", "2.6.0+cu126").channel == "pytorch/cu126"
    assert need("torch", "torch", "1.8.0").known_bad
    assert need("onnxruntime-gpu", "onnxruntime-gpu", "1.27.0").cuda_major == 13
    assert need("tensorflow", "tensorflow", "2.21.0").loader == "tf-dlopen-runpath"
    assert need("jax", "jax-cuda13-plugin", "0.12.0").cuda_major == 13
    assert need("torch", "torch", "99.0") is None
    assert need("torch", "torch", "not a version") is None


def test_issues() -> None:
    def ids(*args: str | None) -> set[str]:
        return {issue.id for issue in query.issues_for(MATRIX, *args)}

    assert "conv3d-lowprec" in ids("9.10.2")
    assert "conv3d-lowprec" not in ids("9.15.0.57")
    assert "sdpa-seqlen-128" in ids("9.15.0.57")
    assert "wheel-lacks-tensor-ir" in ids("9.20.0", "13")
    assert "wheel-lacks-tensor-ir" not in ids("9.20.0", "12")
    assert "sdpa-bwd-mask-nan" not in ids("9.20.0", "13", "8.6")
    assert "torch-below-cc75" in ids("9.11.0", "12", "7.0")


@pytest.mark.parametrize(
    ("distro", "version", "name"),
    [
        ("ubuntu", "24.04", "ubuntu2404"),
        ("debian", "12", "debian12"),
        ("rocky", "9.4", "rhel9"),
        ("almalinux", "8.10", "rhel8"),
        ("amzn", "2023", "amzn2023"),
        ("opensuse-leap", "15.6", "opensuse15"),
        ("sles", "15.5", "sles15"),
        ("azurelinux", "3.0", "azl3"),
        ("linuxmint", "22.1", "ubuntu2404"),
    ],
)
def test_repositories(distro: str, version: str, name: str) -> None:
    assert query.repository_for(MATRIX, distro, version).distro == name


def test_no_repository_is_guessed() -> None:
    assert query.repository_for(MATRIX, "ubuntu", "24.10") is None
    assert query.repository_for(MATRIX, "alpine", "3.20") is None
    assert query.repository_for(MATRIX, "ubuntu", "24.04", "ppc64le") is None
    assert query.repository_for(MATRIX, "debian", "13").key_fingerprint.endswith("8793F200")


def test_distro_packages() -> None:
    def names(manager: str, version: str, cuda: str | None = None) -> list[tuple[str, ...]]:
        rows = query.distro_packages_for(MATRIX, manager, version, cuda, "nvidia")
        return [row.runtime for row in rows]

    assert names("apt", "9.10.2", "12") == [("libcudnn9-cuda-12",)]
    assert names("apt", "9.11.0", "11") == []
    assert names("apt", "8.9.7.29", "12") == [("libcudnn8",)]
    assert names("dnf", "9.28.1", "13.0") == [("libcudnn9-cuda-13",)]
    assert names("zypper", "9.28.1", "13") == [("libcudnn9-cuda-13",)]
    row = query.distro_packages_for(MATRIX, "dnf", "9.20.0", "12")[0]
    assert row.dev == ("libcudnn9-devel-cuda-12",)
    assert row.jit == ("libcudnn9-jit-cuda-12",)


def test_an_open_range_of_an_issue_is_marked_as_inferred() -> None:
    issues = {issue.id: issue for issue in MATRIX.issues}
    assert query.how(MATRIX, issues["conv3d-lowprec"], "affects") == "documented"
    assert query.how(MATRIX, issues["depthwise-sequence"], "affects") == "inferred"
