"""cuDNN's cnn layer: legacy convolutions, forward, backward-data and backward-filter.

The three directions have functions of one shape, ``(first, second) -> result``:
forward (x, w) -> y; data (w, dy) -> dx; filter (x, dy) -> dw.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Literal, NamedTuple

from cudnn_doctor.verify.binding import enums
from cudnn_doctor.verify.binding.library import (
    SIZE,
    Cudnn,
    Descriptor,
    F,
    I,
    P,
    descriptor_signatures,
    ints,
)

Direction = Literal["forward", "data", "filter"]
_NAME: dict[Direction, str] = {
    "forward": "Forward",
    "data": "BackwardData",
    "filter": "BackwardFilter",
}
_SIGNATURES = {
    **descriptor_signatures("Convolution"),
    "cudnnSetConvolutionNdDescriptor": (P, I, P, P, P, I, I),
    "cudnnSetConvolutionMathType": (P, I),
    "cudnnSetConvolutionGroupCount": (P, I),
    **{
        name: signature
        for way in _NAME.values()
        for name, signature in (
            (f"cudnnGetConvolution{way}Algorithm_v7", (P, P, P, P, P, I, P, P)),
            (f"cudnnGetConvolution{way}WorkspaceSize", (P, P, P, P, P, I, P)),
            (f"cudnnConvolution{way}", (*(P,) * 7, I, P, SIZE, P, P, P)),
        )
    },
}
_ALGORITHMS: dict[Direction, tuple[str, ...]] = {
    "forward": (
        "IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT",
        "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED",
    ),
    "data": ("ALGO_0", "ALGO_1", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"),
    "filter": (
        "ALGO_0", "ALGO_1", "FFT", "ALGO_3", "WINOGRAD", "WINOGRAD_NONFUSED", "FFT_TILING",
    ),
}  # fmt: skip
_MAX_ALGORITHMS = 16


class _AlgoPerf(ctypes.Structure):
    _fields_ = (
        ("algo", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("math_type", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )


class Algorithm(NamedTuple):
    """One algorithm that the heuristics propose."""

    number: int
    name: str
    math_type: int
    deterministic: bool
    workspace: int
    """Bytes."""

    @property
    def transforms(self) -> bool:
        """Whether it computes in a transformed domain, with its larger rounding errors."""
        return "FFT" in self.name or "WINOGRAD" in self.name


class Operands(NamedTuple):
    """Descriptors of the two inputs and the result, in the direction's order."""

    first: Descriptor
    second: Descriptor
    result: Descriptor


def declare(cudnn: Cudnn) -> None:
    """Make the layer's functions callable."""
    cudnn.declare(_SIGNATURES)


def convolution(
    cudnn: Cudnn,
    *,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    compute: int,
    math_type: int,
) -> Descriptor:
    """Convolution descriptor (cross-correlation, as every framework uses it)."""
    made = Descriptor(cudnn, "Convolution")
    cudnn.call(
        "cudnnSetConvolutionNdDescriptor",
        made,
        len(padding),
        ints(padding),
        ints(stride),
        ints(dilation),
        enums.CROSS_CORRELATION,
        compute,
    )
    cudnn.call("cudnnSetConvolutionGroupCount", made, groups)
    cudnn.call("cudnnSetConvolutionMathType", made, math_type)
    return made


def algorithms(
    cudnn: Cudnn, direction: Direction, operands: Operands, convolution: Descriptor
) -> list[Algorithm]:
    """What the heuristics propose, best first, those that cannot work left out."""
    results = (_AlgoPerf * _MAX_ALGORITHMS)()
    count = I()
    cudnn.call(
        f"cudnnGetConvolution{_NAME[direction]}Algorithm_v7",
        cudnn.handle, operands.first, operands.second, convolution, operands.result,
        _MAX_ALGORITHMS, ctypes.byref(count), results,
    )  # fmt: skip
    names = _ALGORITHMS[direction]
    return [
        Algorithm(r.algo, names[r.algo], r.math_type, r.determinism == 1, r.memory)
        for r in results[: count.value]
        if r.status == 0 and 0 <= r.algo < len(names)
    ]


def workspace_size(
    cudnn: Cudnn,
    direction: Direction,
    operands: Operands,
    convolution: Descriptor,
    algorithm: Algorithm,
) -> int:
    """Bytes of workspace that the algorithm needs."""
    size = SIZE()
    cudnn.call(
        f"cudnnGetConvolution{_NAME[direction]}WorkspaceSize",
        cudnn.handle, operands.first, operands.second, convolution, operands.result,
        algorithm.number, ctypes.byref(size),
    )  # fmt: skip
    return size.value


def convolve(
    cudnn: Cudnn,
    direction: Direction,
    operands: Operands,
    convolution: Descriptor,
    algorithm: Algorithm,
    *,
    pointers: tuple[int, int, int],
    workspace: tuple[int, int],
) -> None:
    """Run it: ``pointers`` as the operands, ``workspace`` its pointer and size in bytes."""
    cudnn.call(
        f"cudnnConvolution{_NAME[direction]}",
        cudnn.handle, ctypes.byref(F(1.0)), operands.first, pointers[0],
        operands.second, pointers[1], convolution, algorithm.number,
        workspace[0], workspace[1], ctypes.byref(F(0.0)), operands.result, pointers[2],
    )  # fmt: skip
