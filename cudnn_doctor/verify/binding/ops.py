"""cuDNN's ops layer: tensor descriptors, softmax, pooling, activation, batch normalisation."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from cudnn_doctor.verify.binding import enums
from cudnn_doctor.verify.binding.library import (
    SIZE,
    Cudnn,
    D,
    Descriptor,
    F,
    I,
    P,
    descriptor_signatures,
    ints,
)

_SIGNATURES = {
    **descriptor_signatures("Tensor", "Filter", "Pooling", "Activation", "Dropout"),
    "cudnnSetTensorNdDescriptor": (P, I, I, P, P),
    "cudnnSetFilterNdDescriptor": (P, I, I, I, P),
    "cudnnSetPoolingNdDescriptor": (P, I, I, I, P, P, P),
    "cudnnPoolingForward": (P,) * 8,
    "cudnnPoolingBackward": (P,) * 12,
    "cudnnSetActivationDescriptor": (P, I, I, D),
    "cudnnActivationForward": (P,) * 8,
    "cudnnActivationBackward": (P,) * 12,
    "cudnnSoftmaxForward": (P, I, I, *(P,) * 6),
    "cudnnSoftmaxBackward": (P, I, I, *(P,) * 8),
    "cudnnBatchNormalizationForwardInference": (P, I, *(P,) * 11, D),
    "cudnnBatchNormalizationForwardTraining": (P, I, *(P,) * 9, D, P, P, D, P, P),
    "cudnnBatchNormalizationBackward": (P, I, *(P,) * 14, D, P, P),
    "cudnnDropoutGetStatesSize": (P, P),
    "cudnnSetDropoutDescriptor": (P, P, F, P, SIZE, ctypes.c_ulonglong),
}
_ONE = ctypes.byref(F(1.0))
_ZERO = ctypes.byref(F(0.0))


def declare(cudnn: Cudnn) -> None:
    """Make the layer's functions callable."""
    cudnn.declare(_SIGNATURES)


def tensor(cudnn: Cudnn, dtype: int, dims: Sequence[int], strides: Sequence[int]) -> Descriptor:
    """Tensor descriptor; strides in elements."""
    made = Descriptor(cudnn, "Tensor")
    cudnn.call("cudnnSetTensorNdDescriptor", made, dtype, len(dims), ints(dims), ints(strides))
    return made


def filter_(cudnn: Cudnn, dtype: int, layout: int, dims: Sequence[int]) -> Descriptor:
    """Filter descriptor, dims K, C, spatial."""
    made = Descriptor(cudnn, "Filter")
    cudnn.call("cudnnSetFilterNdDescriptor", made, dtype, layout, len(dims), ints(dims))
    return made


def pooling(
    cudnn: Cudnn, mode: int, window: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Descriptor:
    made = Descriptor(cudnn, "Pooling")
    cudnn.call(
        "cudnnSetPoolingNdDescriptor",
        made,
        mode,
        enums.PROPAGATE_NAN,
        len(window),
        ints(window),
        ints(padding),
        ints(stride),
    )
    return made


def activation(cudnn: Cudnn, mode: int) -> Descriptor:
    made = Descriptor(cudnn, "Activation")
    cudnn.call("cudnnSetActivationDescriptor", made, mode, enums.PROPAGATE_NAN, 0.0)
    return made


def activation_forward(cudnn: Cudnn, what: Descriptor, x: Descriptor, px: int, py: int) -> None:
    """x and y are of one descriptor."""
    cudnn.call("cudnnActivationForward", cudnn.handle, what, _ONE, x, px, _ZERO, x, py)


def pooling_forward(
    cudnn: Cudnn, what: Descriptor, x: Descriptor, y: Descriptor, pointers: tuple[int, int]
) -> None:
    """Pointers: x, y."""
    px, py = pointers
    cudnn.call("cudnnPoolingForward", cudnn.handle, what, _ONE, x, px, _ZERO, y, py)


def pooling_backward(
    cudnn: Cudnn,
    what: Descriptor,
    x: Descriptor,
    y: Descriptor,
    pointers: tuple[int, int, int, int],
) -> None:
    """Pointers: x, y, dy, dx."""
    px, py, pdy, pdx = pointers
    cudnn.call(
        "cudnnPoolingBackward",
        cudnn.handle, what, _ONE, y, py, y, pdy, x, px, _ZERO, x, pdx,
    )  # fmt: skip


def activation_backward(
    cudnn: Cudnn, what: Descriptor, x: Descriptor, pointers: tuple[int, int, int, int]
) -> None:
    """Pointers: x, y, dy, dx; all of one descriptor."""
    px, py, pdy, pdx = pointers
    cudnn.call(
        "cudnnActivationBackward",
        cudnn.handle, what, _ONE, x, py, x, pdy, x, px, _ZERO, x, pdx,
    )  # fmt: skip


def softmax_forward(cudnn: Cudnn, x: Descriptor, px: int, py: int) -> None:
    """Accurate softmax over the channels."""
    cudnn.call(
        "cudnnSoftmaxForward",
        cudnn.handle, enums.SOFTMAX_ACCURATE, enums.SOFTMAX_MODE_CHANNEL,
        _ONE, x, px, _ZERO, x, py,
    )  # fmt: skip


def softmax_backward(cudnn: Cudnn, x: Descriptor, py: int, pdy: int, pdx: int) -> None:
    cudnn.call(
        "cudnnSoftmaxBackward",
        cudnn.handle, enums.SOFTMAX_ACCURATE, enums.SOFTMAX_MODE_CHANNEL,
        _ONE, x, py, x, pdy, _ZERO, x, pdx,
    )  # fmt: skip


def batchnorm_training(
    cudnn: Cudnn, x: Descriptor, parameters: Descriptor, pointers: dict[str, int], epsilon: float
) -> None:
    """Pointers: x, y, scale, bias, running_mean, running_var, mean, invvar; momentum is 1."""
    p = pointers
    cudnn.call(
        "cudnnBatchNormalizationForwardTraining",
        cudnn.handle, enums.BATCHNORM_SPATIAL, _ONE, _ZERO, x, p["x"], x, p["y"],
        parameters, p["scale"], p["bias"], 1.0, p["running_mean"], p["running_var"],
        epsilon, p["mean"], p["invvar"],
    )  # fmt: skip


def batchnorm_inference(
    cudnn: Cudnn, x: Descriptor, parameters: Descriptor, pointers: dict[str, int], epsilon: float
) -> None:
    """Pointers: x, y, scale, bias, running_mean, running_var."""
    p = pointers
    cudnn.call(
        "cudnnBatchNormalizationForwardInference",
        cudnn.handle, enums.BATCHNORM_SPATIAL, _ONE, _ZERO, x, p["x"], x, p["y"],
        parameters, p["scale"], p["bias"], p["running_mean"], p["running_var"], epsilon,
    )  # fmt: skip


def batchnorm_backward(
    cudnn: Cudnn, x: Descriptor, parameters: Descriptor, pointers: dict[str, int], epsilon: float
) -> None:
    """Pointers: x, dy, dx, scale, dscale, dbias, mean, invvar."""
    p = pointers
    cudnn.call(
        "cudnnBatchNormalizationBackward",
        cudnn.handle, enums.BATCHNORM_SPATIAL, _ONE, _ZERO, _ONE, _ZERO, x, p["x"], x, p["dy"],
        x, p["dx"], parameters, p["scale"], p["dscale"], p["dbias"], epsilon,
        p["mean"], p["invvar"],
    )  # fmt: skip
