"""Operation graphs on the backend API: tensors and operations, as small functions."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from cudnn_doctor.verify.binding import enums
from cudnn_doctor.verify.binding.backend import Attr, Kind, Node, Type
from cudnn_doctor.verify.binding.library import Cudnn

FLOAT = enums.DataType.FLOAT


class Pointwise(enum.IntEnum):
    """cudnnPointwiseMode_t."""

    ADD = 0
    MUL = 1
    DIV = 6
    SUB = 9
    EXP = 13
    LOG = 15
    IDENTITY = 21
    RELU_FWD = 100


class Reduction(enum.IntEnum):
    """cudnnReduceTensorOp_t."""

    ADD = 0
    MAX = 3


LAYER_NORM = 0
NORM_FWD_TRAINING = 1


class Tensor(NamedTuple):
    """A tensor of the graph; ``uid`` names it in the variant pack."""

    uid: int
    node: Node
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: int


class Window(NamedTuple):
    """How a convolution's filter moves; one entry a spatial dimension."""

    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]


def row_major(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of a packed tensor with the last dimension innermost."""
    strides, step = [1] * len(dims), 1
    for axis in range(len(dims) - 1, -1, -1):
        strides[axis] = step
        step *= dims[axis]
    return tuple(strides)


def channels_last(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of a packed tensor with dimension 1 innermost (NHWC, NDHWC)."""
    strides = row_major((dims[0], *dims[2:], dims[1]))
    return (strides[0], strides[-1], *strides[1:-1])


class Graph:
    """Collects tensors and operations; `finalize` makes the operation graph."""

    def __init__(self, cudnn: Cudnn) -> None:
        self.cudnn = cudnn
        self.operations: list[Node] = []
        self._tensors = 0

    def tensor(
        self,
        dtype: int,
        dims: Sequence[int],
        strides: Sequence[int] | None = None,
        *,
        virtual: bool = False,
        by_value: bool = False,
    ) -> Tensor:
        """A tensor; ``virtual`` ones never reach memory, ``by_value`` ones are host scalars."""
        self._tensors += 1
        shape, steps = tuple(dims), tuple(strides or row_major(dims))
        node = Node(self.cudnn, Kind.TENSOR)
        node.set(Attr.TENSOR_DATA_TYPE, Type.DATA_TYPE, dtype)
        node.set(Attr.TENSOR_DIMENSIONS, Type.INT64, *shape)
        node.set(Attr.TENSOR_STRIDES, Type.INT64, *steps)
        node.set(Attr.TENSOR_UNIQUE_ID, Type.INT64, self._tensors)
        node.set(Attr.TENSOR_BYTE_ALIGNMENT, Type.INT64, 16)
        if virtual:
            node.set(Attr.TENSOR_IS_VIRTUAL, Type.BOOLEAN, True)
        if by_value:
            node.set(Attr.TENSOR_IS_BY_VALUE, Type.BOOLEAN, True)
        return Tensor(self._tensors, node.finalize(), shape, steps, dtype)

    def scalar(self, rank: int = 4) -> Tensor:
        """A float scalar passed by value from the host."""
        return self.tensor(FLOAT, (1,) * rank, by_value=True)

    def convolution_forward(
        self, x: Tensor, w: Tensor, y: Tensor, window: Window, compute: int = FLOAT
    ) -> Tensor:
        spatial = len(window.padding)
        how = Node(self.cudnn, Kind.CONVOLUTION)
        how.set(Attr.CONVOLUTION_COMP_TYPE, Type.DATA_TYPE, compute)
        how.set(Attr.CONVOLUTION_CONV_MODE, Type.CONVOLUTION_MODE, enums.CROSS_CORRELATION)
        how.set(Attr.CONVOLUTION_SPATIAL_DIMS, Type.INT64, spatial)
        how.set(Attr.CONVOLUTION_PRE_PADDINGS, Type.INT64, *window.padding)
        how.set(Attr.CONVOLUTION_POST_PADDINGS, Type.INT64, *window.padding)
        how.set(Attr.CONVOLUTION_FILTER_STRIDES, Type.INT64, *window.stride)
        how.set(Attr.CONVOLUTION_DILATIONS, Type.INT64, *window.dilation)
        op = Node(self.cudnn, Kind.OPERATION_CONVOLUTION_FORWARD)
        op.set(
            Attr.OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            Type.BACKEND_DESCRIPTOR,
            how.finalize(),
        )
        self._link(op, Attr.OPERATION_CONVOLUTION_FORWARD_X, x)
        self._link(op, Attr.OPERATION_CONVOLUTION_FORWARD_W, w)
        self._link(op, Attr.OPERATION_CONVOLUTION_FORWARD_Y, y)
        op.set(Attr.OPERATION_CONVOLUTION_FORWARD_ALPHA, Type.FLOAT, 1.0)
        op.set(Attr.OPERATION_CONVOLUTION_FORWARD_BETA, Type.FLOAT, 0.0)
        return self._add(op, y)

    def pointwise(self, mode: Pointwise, x: Tensor, y: Tensor, b: Tensor | None = None) -> Tensor:
        """``y = mode(x)`` or ``y = x mode b``."""
        how = Node(self.cudnn, Kind.POINTWISE)
        how.set(Attr.POINTWISE_MODE, Type.POINTWISE_MODE, mode)
        how.set(Attr.POINTWISE_MATH_PREC, Type.DATA_TYPE, FLOAT)
        op = Node(self.cudnn, Kind.OPERATION_POINTWISE)
        op.set(Attr.OPERATION_POINTWISE_PW_DESCRIPTOR, Type.BACKEND_DESCRIPTOR, how.finalize())
        self._link(op, Attr.OPERATION_POINTWISE_XDESC, x)
        if b is not None:
            self._link(op, Attr.OPERATION_POINTWISE_BDESC, b)
        self._link(op, Attr.OPERATION_POINTWISE_YDESC, y)
        return self._add(op, y)

    def reduction(self, operator: Reduction, x: Tensor, y: Tensor) -> Tensor:
        how = Node(self.cudnn, Kind.REDUCTION)
        how.set(Attr.REDUCTION_OPERATOR, Type.REDUCTION_OPERATOR, operator)
        how.set(Attr.REDUCTION_COMP_TYPE, Type.DATA_TYPE, FLOAT)
        op = Node(self.cudnn, Kind.OPERATION_REDUCTION)
        op.set(Attr.OPERATION_REDUCTION_DESC, Type.BACKEND_DESCRIPTOR, how.finalize())
        self._link(op, Attr.OPERATION_REDUCTION_XDESC, x)
        self._link(op, Attr.OPERATION_REDUCTION_YDESC, y)
        return self._add(op, y)

    def matmul(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        how = Node(self.cudnn, Kind.MATMUL)
        how.set(Attr.MATMUL_COMP_TYPE, Type.DATA_TYPE, FLOAT)
        op = Node(self.cudnn, Kind.OPERATION_MATMUL)
        self._link(op, Attr.OPERATION_MATMUL_ADESC, a)
        self._link(op, Attr.OPERATION_MATMUL_BDESC, b)
        self._link(op, Attr.OPERATION_MATMUL_CDESC, c)
        op.set(Attr.OPERATION_MATMUL_DESC, Type.BACKEND_DESCRIPTOR, how.finalize())
        return self._add(op, c)

    def reshape(self, x: Tensor, y: Tensor) -> Tensor:
        op = Node(self.cudnn, Kind.OPERATION_RESHAPE)
        self._link(op, Attr.OPERATION_RESHAPE_XDESC, x)
        self._link(op, Attr.OPERATION_RESHAPE_YDESC, y)
        return self._add(op, y)

    def layer_norm(
        self,
        x: Tensor,
        y: Tensor,
        *,
        scale: Tensor,
        bias: Tensor,
        epsilon: Tensor,
        mean: Tensor,
        inverse_deviation: Tensor,
    ) -> Tensor:
        """Layer normalisation in the training phase (mean and 1/deviation are outputs)."""
        op = Node(self.cudnn, Kind.OPERATION_NORM_FORWARD)
        op.set(Attr.OPERATION_NORM_FWD_MODE, Type.NORM_MODE, LAYER_NORM)
        op.set(Attr.OPERATION_NORM_FWD_PHASE, Type.NORM_FWD_PHASE, NORM_FWD_TRAINING)
        self._link(op, Attr.OPERATION_NORM_FWD_XDESC, x)
        self._link(op, Attr.OPERATION_NORM_FWD_MEAN_DESC, mean)
        self._link(op, Attr.OPERATION_NORM_FWD_INV_VARIANCE_DESC, inverse_deviation)
        self._link(op, Attr.OPERATION_NORM_FWD_SCALE_DESC, scale)
        self._link(op, Attr.OPERATION_NORM_FWD_BIAS_DESC, bias)
        self._link(op, Attr.OPERATION_NORM_FWD_EPSILON_DESC, epsilon)
        self._link(op, Attr.OPERATION_NORM_FWD_YDESC, y)
        return self._add(op, y)

    def finalize(self) -> Node:
        """The finalized operation graph."""
        made = Node(self.cudnn, Kind.OPERATIONGRAPH)
        made.set(Attr.OPERATIONGRAPH_HANDLE, Type.HANDLE, self.cudnn.handle.value)
        made.set(Attr.OPERATIONGRAPH_OPS, Type.BACKEND_DESCRIPTOR, *self.operations)
        return made.finalize()

    def _link(self, op: Node, attribute: Attr, tensor: Tensor) -> None:
        op.set(attribute, Type.BACKEND_DESCRIPTOR, tensor.node)

    def _add(self, op: Node, result: Tensor) -> Tensor:
        self.operations.append(op.finalize())
        return result
