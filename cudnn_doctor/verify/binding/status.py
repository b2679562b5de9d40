"""`cudnnStatus_t` in both numberings (renumbered with 9.0), and the error raised for all but 0."""

from __future__ import annotations

_V8 = {
    1: "NOT_INITIALIZED",
    2: "ALLOC_FAILED",
    3: "BAD_PARAM",
    4: "INTERNAL_ERROR",
    5: "INVALID_VALUE",
    6: "ARCH_MISMATCH",
    7: "MAPPING_ERROR",
    8: "EXECUTION_FAILED",
    9: "NOT_SUPPORTED",
    10: "LICENSE_ERROR",
    11: "RUNTIME_PREREQUISITE_MISSING",
    12: "RUNTIME_IN_PROGRESS",
    13: "RUNTIME_FP_OVERFLOW",
    14: "VERSION_MISMATCH",
}
_V9 = {
    1001: "NOT_INITIALIZED",
    1002: "SUBLIBRARY_VERSION_MISMATCH",
    1003: "SERIALIZATION_VERSION_MISMATCH",
    1004: "DEPRECATED",
    1005: "LICENSE_ERROR",
    1006: "RUNTIME_IN_PROGRESS",
    1007: "RUNTIME_FP_OVERFLOW",
    1008: "SUBLIBRARY_LOADING_FAILED",
    2000: "BAD_PARAM",
    2001: "INVALID_VALUE",
    2002: "BAD_PARAM_NULL_POINTER",
    2003: "BAD_PARAM_MISALIGNED_POINTER",
    2004: "BAD_PARAM_NOT_FINALIZED",
    2005: "BAD_PARAM_OUT_OF_BOUND",
    2006: "BAD_PARAM_SIZE_INSUFFICIENT",
    2007: "BAD_PARAM_STREAM_MISMATCH",
    2008: "BAD_PARAM_SHAPE_MISMATCH",
    2009: "BAD_PARAM_DUPLICATED_ENTRIES",
    2010: "BAD_PARAM_ATTRIBUTE_TYPE",
    2011: "BAD_PARAM_CUDA_GRAPH_MISMATCH",
    2012: "BAD_PARAM_DESCRIPTOR_TYPE",
    3000: "NOT_SUPPORTED",
    3001: "NOT_SUPPORTED_GRAPH_PATTERN",
    3002: "NOT_SUPPORTED_SHAPE",
    3003: "NOT_SUPPORTED_DATA_TYPE",
    3004: "NOT_SUPPORTED_LAYOUT",
    3005: "NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER",
    3006: "NOT_SUPPORTED_INCOMPATIBLE_CUDART",
    3007: "NOT_SUPPORTED_ARCH_MISMATCH",
    3008: "NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",
    3009: "NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE",
    3010: "NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT",
    3011: "NOT_SUPPORTED_PADDING",
    3012: "NOT_SUPPORTED_BAD_LAUNCH_PARAM",
    3013: "NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API",
    3014: "NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE",
    4000: "INTERNAL_ERROR",
    4001: "INTERNAL_ERROR_COMPILATION_FAILED",
    4002: "INTERNAL_ERROR_UNEXPECTED_VALUE",
    4003: "INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    4004: "INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    4005: "INTERNAL_ERROR_BAD_LAUNCH_PARAM",
    4006: "INTERNAL_ERROR_TEXTURE_CREATION_FAILED",
    5000: "EXECUTION_FAILED",
    5001: "EXECUTION_FAILED_CUDA_DRIVER",
    5002: "EXECUTION_FAILED_CUBLAS",
    5003: "EXECUTION_FAILED_CUDART",
    5004: "EXECUTION_FAILED_CURAND",
}


NOT_EXPORTED = -1
"""Our own code for a function that the release does not export."""


def status_name(code: int) -> str:
    """``CUDNN_STATUS_...`` of a code of either numbering (they do not overlap but for 0)."""
    if code == NOT_EXPORTED:
        return "not exported"
    name = "SUCCESS" if code == 0 else _V8.get(code) or _V9.get(code)
    return f"CUDNN_STATUS_{name}" if name else f"cudnnStatus_t({code})"


class CudnnError(Exception):
    """A cuDNN call that did not return CUDNN_STATUS_SUCCESS."""

    def __init__(self, call: str, code: int, message: str = "") -> None:
        self.call = call
        self.code = code
        self.name = status_name(code)
        self.message = message
        super().__init__(f"{call}: {self.name}" + (f" ({message})" if message else ""))

    @property
    def unsupported(self) -> bool:
        """Whether cuDNN says that it does not do this (which is an answer, not a fault), or the
        release has no such function (any more).

        A missing sublibrary or run-time compiler is a fault although its code is in the group.
        """
        missing = ("SUBLIBRARY_UNAVAILABLE", "PREREQUISITE_MISSING", "INCOMPATIBLE", "ARCH")
        if self.code == NOT_EXPORTED:
            return True
        return "NOT_SUPPORTED" in self.name and not any(part in self.name for part in missing)
