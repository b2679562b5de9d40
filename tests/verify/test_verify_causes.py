"""Statuses and causes in words."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_doctor.verify.binding.status import NOT_EXPORTED, CudnnError, status_name
from cudnn_doctor.verify.causes import death_cause, initialise_cause, step_cause

GIB = 1 << 30


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "CUDNN_STATUS_SUCCESS"),
        (1, "CUDNN_STATUS_NOT_INITIALIZED"),
        (9, "CUDNN_STATUS_NOT_SUPPORTED"),
        (14, "CUDNN_STATUS_VERSION_MISMATCH"),
        (1001, "CUDNN_STATUS_NOT_INITIALIZED"),
        (1002, "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"),
        (3000, "CUDNN_STATUS_NOT_SUPPORTED"),
        (3009, "CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"),
        (5003, "CUDNN_STATUS_EXECUTION_FAILED_CUDART"),
        (777, "cudnnStatus_t(777)"),
        (NOT_EXPORTED, "not exported"),
    ],
)
def test_both_numberings_are_named(code: int, name: str) -> None:
    assert status_name(code) == name


@pytest.mark.parametrize(
    ("code", "unsupported"),
    [(3000, True), (3002, True), (9, True), (NOT_EXPORTED, True), (3009, False), (3008, False),
     (3007, False), (3005, False), (4000, False), (1002, False)],
)  # fmt: skip
def test_a_refusal_is_told_from_a_fault(code: int, unsupported: bool) -> None:
    assert CudnnError("cudnnX", code).unsupported is unsupported


@pytest.mark.parametrize(
    ("name", "facts", "said"),
    [
        ("CUDA_ERROR_NO_DEVICE", {"visible": ""}, "CUDA_VISIBLE_DEVICES='' hides every GPU"),
        ("CUDA_ERROR_NO_DEVICE", {"visible": None}, "no GPU is seen"),
        ("CUDA_ERROR_SYSTEM_NOT_READY", {}, "nvidia-fabricmanager"),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", {}, "reboot"),
        ("CUDA_ERROR_OUT_OF_MEMORY", {}, "GPU memory is full: another process holds it"),
        ("CUDNN_STATUS_INTERNAL_ERROR", {"memory_free": 1 << 20, "memory_total": 8 * GIB},
         "GPU memory is full (1 of 8192 MiB free)"),
        ("CUDNN_STATUS_NOT_INITIALIZED", {"driver_cuda": 12040, "cudart": 13000},
         "the driver supports CUDA 12.4 and this copy was built for CUDA 13.0"),
        ("CUDNN_STATUS_ARCH_MISMATCH", {"cc": "6.1"}, "no kernels for compute capability 6.1"),
        ("CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", {}, "of different releases"),
        ("CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED", {}, "missing or cannot be opened"),
    ],
)  # fmt: skip
def test_why_nothing_could_be_initialised(name: str, facts: dict[str, Any], said: str) -> None:
    assert said in initialise_cause(name, facts)


def test_an_unknown_error_has_no_made_up_cause() -> None:
    assert not initialise_cause("CUDNN_STATUS_INTERNAL_ERROR", {"driver_cuda": 13000, "cudart": 12})
    assert not step_cause("CUDNN_STATUS_BAD_PARAM", {})
    assert not death_cause("exit status 1", "")


def test_why_a_step_failed() -> None:
    assert "libnvrtc.so.13 (no)" in step_cause(
        "x: CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",
        {"unopened": ["libnvrtc.so.13 (no)"]},
    )
    assert "cuBLASLt" in step_cause("CUDNN_STATUS_EXECUTION_FAILED_CUBLAS", {})
    assert "sublibrary" in step_cause("CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED", {})


def test_why_a_process_died() -> None:
    assert "truncated" in death_cause("SIGBUS", "Could not load libcudnn_cnn.so.9")
    symbol = death_cause("SIGABRT", "Cannot load symbol cudnnGetVersion")
    assert "the library, which defines cudnnGetVersion," in symbol
    blas = death_cause("SIGABRT", "Cannot load symbol cublasLtGetVersion", {"cudart": 13010})
    assert blas.startswith("cuBLASLt of CUDA 13, which defines cublasLtGetVersion, cannot be found")
    assert death_cause("SIGABRT", "Unable to load libnvrtc.so.13") == (
        "libnvrtc.so.13 could not be loaded"
    )
