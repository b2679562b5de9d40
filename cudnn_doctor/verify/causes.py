"""From an error or a death to its cause, in words. Pure: the facts are passed in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_DRIVER_ERRORS = {
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (
        "the user-space driver library and the loaded kernel module are of different versions: "
        "reboot, or reload the module"
    ),
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": (
        "a CUDA compatibility package is in use on a GPU that does not support it"
    ),
    "CUDA_ERROR_INSUFFICIENT_DRIVER": "the driver is too old",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is too old for the code it was given",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "this release has no kernels for this GPU",
    "CUDA_ERROR_SYSTEM_NOT_READY": (
        "the GPU's fabric is not ready: nvidia-fabricmanager is not running or of another version"
    ),
    "CUDA_ERROR_DEVICE_UNAVAILABLE": (
        "the GPU is in exclusive or prohibited compute mode and taken by another process"
    ),
    "CUDA_ERROR_ECC_UNCORRECTABLE": "the GPU reports an uncorrectable memory error",
}
_MISSING = re.compile(
    r"(lib(?:cublas|cublasLt|nvrtc|nvJitLink|cudnn\w*)[\w.+-]*\.so[\w.]*|cudnn_\w+)"
)


_STATUS_CAUSES = (
    (("VERSION_MISMATCH",), "its libraries are of different releases"),
    (("LOADING_FAILED", "UNAVAILABLE"), "one of its libraries is missing or cannot be opened"),
    (
        ("PREREQUISITE_MISSING",),
        "a run-time library (NVRTC, nvJitLink or cuBLASLt) cannot be found",
    ),
)
_SIGNAL_CAUSES = {
    "SIGBUS": "a library file is truncated, or changed while it was in use",
    "SIGABRT": "cuDNN ended the process itself; its last output tells more",
    "SIGSEGV": "a memory fault inside a library: mixed releases or a damaged file",
    "SIGILL": "an illegal instruction: a damaged library file or another processor's",
    "SIGKILL": "killed from outside, most often for want of memory",
}


def initialise_cause(name: str, facts: Mapping[str, Any]) -> str:
    """Why cudnnCreate or the driver refused; ``name`` is the status or CUresult."""
    if name == "CUDA_ERROR_NO_DEVICE":
        visible = facts.get("visible")
        hidden = visible is not None
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU" if hidden else "no GPU is seen"
    if name in _DRIVER_ERRORS:
        return _DRIVER_ERRORS[name]
    return _full(name, facts) or _too_old(name, facts) or _of_status(name)


_SYMBOL = re.compile(r"[Cc]annot load symbol (\w+)")


def _full(name: str, facts: Mapping[str, Any]) -> str:
    if "OUT_OF_MEMORY" in name or "ALLOC" in name or _memory_is_full(facts):
        return f"GPU memory is full{_memory(facts)}: another process holds it"
    return ""


def _too_old(name: str, facts: Mapping[str, Any]) -> str:
    if _driver_is_older(facts):
        return (
            f"the driver supports CUDA {_cuda(facts['driver_cuda'])} and this copy was built for "
            f"CUDA {_cuda(facts['cudart'])}: the driver is too old for it"
        )
    if "ARCH_MISMATCH" in name:
        return f"this release has no kernels for compute capability {facts.get('cc', '?')}"
    return ""


def _of_status(name: str) -> str:
    return next((why for parts, why in _STATUS_CAUSES if any(p in name for p in parts)), "")


def _memory_is_full(facts: Mapping[str, Any]) -> bool:
    free = facts.get("memory_free")
    return free is not None and free < 256 << 20


def _memory(facts: Mapping[str, Any]) -> str:
    free, total = facts.get("memory_free"), facts.get("memory_total")
    if free is None or total is None:
        return ""
    return f" ({free / 2**20:.0f} of {total / 2**20:.0f} MiB free)"


def _driver_is_older(facts: Mapping[str, Any]) -> bool:
    driver, cudart = facts.get("driver_cuda"), facts.get("cudart")
    return bool(driver and cudart and driver // 1000 < cudart // 1000)


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


_STEP_CAUSES = (
    (("CUBLAS",), "cuBLASLt failed, or cannot be found or used"),
    (("SUBLIBRARY", "UNAVAILABLE"), "a cuDNN sublibrary is missing or of another release"),
    (
        ("ILLEGAL_INSTRUCTION", "INVALID_PC", "INVALID_IMAGE", "INVALID_SOURCE"),
        "GPU code is not as it was compiled: a damaged library file, or faulty memory",
    ),
    (
        ("EXECUTION_FAILED", "LAUNCH_FAILED", "ILLEGAL_ADDRESS"),
        "a kernel failed: a damaged library file, a fault of this release, or of the GPU",
    ),
)


def step_cause(error: str, facts: Mapping[str, Any]) -> str:
    """Why a step's call failed, where the error's text tells."""
    if "PREREQUISITE_MISSING" in error or "COMPILATION_FAILED" in error:
        missing = facts.get("unopened", ())
        which = ", ".join(missing) if missing else f"NVRTC or nvJitLink{_of_cuda(facts)}"
        return f"kernels cannot be compiled at run time: {which} cannot be found or used"
    if "OUT_OF_MEMORY" in error or "ALLOCATION_FAILED" in error:
        return f"GPU memory is full{_memory(facts)}"
    return next((why for parts, why in _STEP_CAUSES if any(p in error for p in parts)), "")


_DEFINED_BY = {"cublasLt": "cuBLASLt", "cublas": "cuBLAS", "nvrtc": "NVRTC", "nvJit": "nvJitLink"}


def _of_cuda(facts: Mapping[str, Any]) -> str:
    """The CUDA that the copy was built for, after the name of a library that it needs."""
    return f" of CUDA {facts['cudart'] // 1000}" if facts.get("cudart") else ""


def death_cause(how: str, log: str, facts: Mapping[str, Any] | None = None) -> str:
    """Why a child process died, from its signal, the end of its output and what is known."""
    symbol = _SYMBOL.search(log)
    if symbol:
        name = symbol.group(1)
        known = next((who for part, who in _DEFINED_BY.items() if name.startswith(part)), "")
        library = f"{known}{_of_cuda(facts or {})}" if known else "the library"
        return f"{library}, which defines {name}, cannot be found or used"
    named = _MISSING.search(log)
    refused = any(word in log.lower() for word in ("cannot", "unable", "could not"))
    if named and refused and how != "SIGBUS":
        return f"{named.group(1)} could not be loaded"
    if how.startswith("no "):
        return "the call did not come back: the library or the driver hangs, or the limit is short"
    return _SIGNAL_CAUSES.get(how, "")
