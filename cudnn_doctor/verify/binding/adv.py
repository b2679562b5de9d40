"""cuDNN's adv layer: LSTM through the RNN v8 functions (8.x and 9.x)."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from cudnn_doctor.verify.binding import enums, ops
from cudnn_doctor.verify.binding.library import (
    SIZE,
    Cudnn,
    Descriptor,
    F,
    I,
    P,
    U,
    descriptor_signatures,
    ints,
)

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    **descriptor_signatures("RNN", "RNNData"),
    "cudnnSetRNNDescriptor_v8": (P, I, I, I, I, I, I, I, I, I, I, I, I, P, U),
    "cudnnSetRNNDataDescriptor": (P, I, I, I, I, I, P, P),
    "cudnnGetRNNTempSpaceSizes": (P, P, I, P, P, P),
    "cudnnGetRNNWeightSpaceSize": (P, P, P),
    "cudnnGetRNNWeightParams": (P, P, I, SIZE, P, I, P, P, P, P),
    "cudnnRNNForward": (P, P, I, P, P, P, P, P, P, P, P, P, P, P, SIZE, P, SIZE, P, SIZE, P),
    "cudnnRNNBackwardData_v8": (*(P,) * 16, SIZE, P, SIZE, P, SIZE, P),
    "cudnnRNNBackwardWeights_v8": (P, P, I, *(P,) * 7, SIZE, P, SIZE, P, SIZE, P),
}


class LstmShape(NamedTuple):
    """Sizes of a one-layer, one-direction LSTM without projection."""

    steps: int
    batch: int
    inputs: int
    hidden: int


def declare(cudnn: Cudnn) -> None:
    """Make the layer's functions callable."""
    cudnn.declare(_SIGNATURES)


class Lstm:
    """A one-layer fp32 LSTM; pointers are device addresses, sizes bytes."""

    def __init__(self, cudnn: Cudnn, shape: LstmShape) -> None:
        self._cudnn = cudnn
        self.shape = shape
        steps, batch, inputs, hidden = shape
        self._dropout = Descriptor(cudnn, "Dropout")
        cudnn.call("cudnnSetDropoutDescriptor", self._dropout, cudnn.handle, 0.0, None, 0, 0)
        self._rnn = Descriptor(cudnn, "RNN")
        kind = enums.DataType.FLOAT
        cudnn.call(
            "cudnnSetRNNDescriptor_v8",
            self._rnn, enums.RNN_ALGO_STANDARD, enums.LSTM, enums.RNN_DOUBLE_BIAS,
            enums.UNIDIRECTIONAL, enums.LINEAR_INPUT, kind, kind, enums.MathType.FMA,
            inputs, hidden, hidden, 1, self._dropout, 0,
        )  # fmt: skip
        self._x = self._data(inputs)
        self._y = self._data(hidden)
        state = (1, batch, hidden)
        self._state = ops.tensor(cudnn, kind, state, (batch * hidden, hidden, 1))
        self.lengths = ints([steps] * batch)
        size = SIZE()
        cudnn.call("cudnnGetRNNWeightSpaceSize", cudnn.handle, self._rnn, ctypes.byref(size))
        self.weight_bytes = size.value
        work, reserve = SIZE(), SIZE()
        cudnn.call(
            "cudnnGetRNNTempSpaceSizes",
            cudnn.handle, self._rnn, enums.FWD_MODE_TRAINING, self._x,
            ctypes.byref(work), ctypes.byref(reserve),
        )  # fmt: skip
        self.work_bytes, self.reserve_bytes = work.value, reserve.value

    def _data(self, width: int) -> Descriptor:
        made = Descriptor(self._cudnn, "RNNData")
        steps, batch = self.shape.steps, self.shape.batch
        self._cudnn.call(
            "cudnnSetRNNDataDescriptor",
            made, enums.DataType.FLOAT, enums.RNN_SEQ_MAJOR_UNPACKED, steps, batch, width,
            ints([steps] * batch), ctypes.byref(F(0.0)),
        )  # fmt: skip
        return made

    def parameter_offsets(self, weights: int) -> list[tuple[int, int]]:
        """Byte offsets of (matrix, bias) in the weight space, for the 8 gates i f g o W, then R."""
        matrix = Descriptor(self._cudnn, "Tensor")
        bias = Descriptor(self._cudnn, "Tensor")
        offsets = []
        for gate in range(8):
            at, bias_at = P(), P()
            self._cudnn.call(
                "cudnnGetRNNWeightParams",
                self._cudnn.handle, self._rnn, 0, self.weight_bytes, weights, gate,
                matrix, ctypes.byref(at), bias, ctypes.byref(bias_at),
            )  # fmt: skip
            offsets.append(((at.value or 0) - weights, (bias_at.value or 0) - weights))
        return offsets

    def forward(self, p: dict[str, int]) -> None:
        """Pointers: x, y, hy, cy, weights, work, reserve, lengths; initial state is zero."""
        self._cudnn.call(
            "cudnnRNNForward",
            self._cudnn.handle, self._rnn, enums.FWD_MODE_TRAINING, p["lengths"],
            self._x, p["x"], self._y, p["y"], self._state, None, p["hy"],
            self._state, None, p["cy"], self.weight_bytes, p["weights"],
            self.work_bytes, p["work"], self.reserve_bytes, p["reserve"],
        )  # fmt: skip

    def backward(self, p: dict[str, int]) -> None:
        """Further pointers: dy, dx, dweights (zeroed by the caller: gradients are added)."""
        spaces = (self.work_bytes, p["work"], self.reserve_bytes, p["reserve"])
        self._cudnn.call(
            "cudnnRNNBackwardData_v8",
            self._cudnn.handle, self._rnn, p["lengths"], self._y, p["y"], p["dy"],
            self._x, p["dx"], self._state, None, None, None, self._state, None, None, None,
            self.weight_bytes, p["weights"], *spaces,
        )  # fmt: skip
        self._cudnn.call(
            "cudnnRNNBackwardWeights_v8",
            self._cudnn.handle, self._rnn, enums.WGRAD_MODE_ADD, p["lengths"],
            self._x, p["x"], self._state, None, self._y, p["y"],
            self.weight_bytes, p["dweights"], *spaces,
        )  # fmt: skip
