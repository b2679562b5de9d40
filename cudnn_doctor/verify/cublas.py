"""cuBLAS's GEMM, as the rate against which convolutions are measured."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from cudnn_doctor.verify.binding.library import open_global

P = ctypes.c_void_p
I = ctypes.c_int  # noqa: E741


class GemmType(NamedTuple):
    """cudaDataType of A and B, of C, cublasComputeType_t; and bytes an element of A."""

    inputs: int
    output: int
    compute: int
    bytes: int


TYPES = {
    "fp32": GemmType(0, 0, 68, 4),
    "tf32": GemmType(0, 0, 77, 4),
    "fp16": GemmType(2, 2, 68, 2),
    "bf16": GemmType(14, 14, 68, 2),
    "int8": GemmType(3, 10, 72, 1),
}
"""CUDA_R_32F 0, R_16F 2, R_8I 3, R_32I 10, R_16BF 14; COMPUTE_32F 68, 32I 72, 32F_FAST_TF32 77."""
_TRANSPOSE, _NORMAL, _DEFAULT_ALGORITHM = 1, 0, -1
_GEMM = (I, I, I, I, I, P, P, I, I, P, I, I, P, P, I, I, I, I)


class CublasError(Exception):
    """A cuBLAS call that did not return CUBLAS_STATUS_SUCCESS."""


class Cublas:
    """A cuBLAS handle; ``paths`` are tried in order, the first that opens is used."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        errors = []
        for path in paths:
            try:
                self._lib = open_global(path)
            except OSError as error:
                errors.append(str(error))
                continue
            self.path = path
            break
        else:
            raise CublasError(errors[-1] if errors else "no libcublas is known")
        self._handle = P()
        self._check("cublasCreate_v2", self._lib.cublasCreate_v2(ctypes.byref(self._handle)))

    @staticmethod
    def _check(call: str, code: int) -> None:
        if code:
            raise CublasError(f"{call}: cublasStatus_t({code})")

    def gemm(self, kind: str, sizes: tuple[int, int, int], a: int, b: int, c: int) -> None:
        """Column-major C(m,n) = A(k,m)^T B(k,n); pointers are device addresses."""
        types = TYPES[kind]
        m, n, k = sizes
        one = I(1) if kind == "int8" else ctypes.c_float(1.0)
        zero = I(0) if kind == "int8" else ctypes.c_float(0.0)
        function = self._lib.cublasGemmEx
        function.argtypes = (P, *_GEMM)
        code = function(
            self._handle, _TRANSPOSE, _NORMAL, m, n, k, ctypes.byref(one),
            a, types.inputs, k, b, types.inputs, k, ctypes.byref(zero),
            c, types.output, m, types.compute, _DEFAULT_ALGORITHM,
        )  # fmt: skip
        self._check("cublasGemmEx", code)
