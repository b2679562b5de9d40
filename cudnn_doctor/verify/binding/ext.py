"""cuDNN's ext library (from 9.22): causal convolution along a sequence."""

from __future__ import annotations

from typing import NamedTuple

from cudnn_doctor.verify.binding.library import Cudnn, I, P

_SIGNATURES = {"cudnnCausalConv1dForward": (P, P, P, P, P, I, I, I, I, I, I)}
_IDENTITY = 0
"""CUDNN_CAUSAL_CONV1D_ACTIVATION_IDENTITY."""


class Causal(NamedTuple):
    """Sizes of a depthwise causal convolution."""

    batch: int
    channels: int
    length: int
    taps: int


def declare(cudnn: Cudnn) -> None:
    """Make the library's functions callable."""
    cudnn.declare(_SIGNATURES)


def causal_convolution(
    cudnn: Cudnn, shape: Causal, dtype: int, pointers: tuple[int, int, int, int]
) -> None:
    """y[n, c, t] = bias[c] + sum over j of x[n, c, t - j] * w[c, taps - 1 - j], default stream.

    ``pointers`` are device addresses of x, w, bias and y.
    """
    cudnn.call("cudnnCausalConv1dForward", None, *pointers, *shape, dtype, _IDENTITY)
