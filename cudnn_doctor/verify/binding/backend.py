"""cuDNN's backend API: descriptors with typed attributes (8.0 and later, used from 8.5)."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Sequence
from typing import Any

from cudnn_doctor.verify.binding.library import Cudnn, D, F, I, L, P

_SIGNATURES = {
    "cudnnBackendCreateDescriptor": (I, P),
    "cudnnBackendDestroyDescriptor": (P,),
    "cudnnBackendFinalize": (P,),
    "cudnnBackendSetAttribute": (P, I, I, L, P),
    "cudnnBackendGetAttribute": (P, I, I, L, P, P),
    "cudnnBackendExecute": (P, P, P),
}


class Kind(enum.IntEnum):
    """cudnnBackendDescriptorType_t."""

    POINTWISE = 0
    CONVOLUTION = 1
    ENGINE = 2
    ENGINECFG = 3
    ENGINEHEUR = 4
    EXECUTION_PLAN = 5
    OPERATION_CONVOLUTION_FORWARD = 10
    OPERATION_CONVOLUTION_BACKWARD_FILTER = 11
    OPERATION_CONVOLUTION_BACKWARD_DATA = 12
    OPERATION_POINTWISE = 13
    OPERATIONGRAPH = 15
    VARIANT_PACK = 16
    TENSOR = 17
    MATMUL = 18
    OPERATION_MATMUL = 19
    REDUCTION = 21
    OPERATION_REDUCTION = 22
    OPERATION_NORM_FORWARD = 29
    OPERATION_NORM_BACKWARD = 30
    OPERATION_RESHAPE = 31


class Type(enum.IntEnum):
    """cudnnBackendAttributeType_t."""

    HANDLE = 0
    DATA_TYPE = 1
    BOOLEAN = 2
    INT64 = 3
    FLOAT = 4
    DOUBLE = 5
    VOID_PTR = 6
    CONVOLUTION_MODE = 7
    HEUR_MODE = 8
    NUMERICAL_NOTE = 11
    POINTWISE_MODE = 14
    BACKEND_DESCRIPTOR = 15
    REDUCTION_OPERATOR = 18
    BEHAVIOR_NOTE = 19
    NORM_MODE = 27
    NORM_FWD_PHASE = 28


_ELEMENT: dict[Type, Any] = {
    Type.HANDLE: P,
    Type.BOOLEAN: ctypes.c_bool,
    Type.INT64: L,
    Type.FLOAT: F,
    Type.DOUBLE: D,
    Type.VOID_PTR: P,
    Type.BACKEND_DESCRIPTOR: P,
}
"""C type of an attribute's elements; all others are enumerations."""


class Attr(enum.IntEnum):
    """cudnnBackendAttributeName_t."""

    POINTWISE_MODE = 0
    POINTWISE_MATH_PREC = 1
    CONVOLUTION_COMP_TYPE = 100
    CONVOLUTION_CONV_MODE = 101
    CONVOLUTION_DILATIONS = 102
    CONVOLUTION_FILTER_STRIDES = 103
    CONVOLUTION_POST_PADDINGS = 104
    CONVOLUTION_PRE_PADDINGS = 105
    CONVOLUTION_SPATIAL_DIMS = 106
    ENGINEHEUR_MODE = 200
    ENGINEHEUR_OPERATION_GRAPH = 201
    ENGINEHEUR_RESULTS = 202
    ENGINECFG_ENGINE = 300
    EXECUTION_PLAN_HANDLE = 400
    EXECUTION_PLAN_ENGINE_CONFIG = 401
    EXECUTION_PLAN_WORKSPACE_SIZE = 402
    OPERATION_CONVOLUTION_FORWARD_ALPHA = 700
    OPERATION_CONVOLUTION_FORWARD_BETA = 701
    OPERATION_CONVOLUTION_FORWARD_CONV_DESC = 702
    OPERATION_CONVOLUTION_FORWARD_W = 703
    OPERATION_CONVOLUTION_FORWARD_X = 704
    OPERATION_CONVOLUTION_FORWARD_Y = 705
    OPERATION_CONVOLUTION_BWD_DATA_ALPHA = 706
    OPERATION_CONVOLUTION_BWD_DATA_BETA = 707
    OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC = 708
    OPERATION_CONVOLUTION_BWD_DATA_W = 709
    OPERATION_CONVOLUTION_BWD_DATA_DX = 710
    OPERATION_CONVOLUTION_BWD_DATA_DY = 711
    OPERATION_CONVOLUTION_BWD_FILTER_ALPHA = 712
    OPERATION_CONVOLUTION_BWD_FILTER_BETA = 713
    OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC = 714
    OPERATION_CONVOLUTION_BWD_FILTER_DW = 715
    OPERATION_CONVOLUTION_BWD_FILTER_X = 716
    OPERATION_CONVOLUTION_BWD_FILTER_DY = 717
    OPERATION_POINTWISE_PW_DESCRIPTOR = 750
    OPERATION_POINTWISE_XDESC = 751
    OPERATION_POINTWISE_BDESC = 752
    OPERATION_POINTWISE_YDESC = 753
    OPERATIONGRAPH_HANDLE = 800
    OPERATIONGRAPH_OPS = 801
    OPERATIONGRAPH_ENGINE_GLOBAL_COUNT = 802
    TENSOR_BYTE_ALIGNMENT = 900
    TENSOR_DATA_TYPE = 901
    TENSOR_DIMENSIONS = 902
    TENSOR_STRIDES = 903
    TENSOR_UNIQUE_ID = 906
    TENSOR_IS_VIRTUAL = 907
    TENSOR_IS_BY_VALUE = 908
    VARIANT_PACK_UNIQUE_IDS = 1000
    VARIANT_PACK_DATA_POINTERS = 1001
    VARIANT_PACK_WORKSPACE = 1003
    ENGINE_OPERATION_GRAPH = 1300
    ENGINE_GLOBAL_INDEX = 1301
    ENGINE_NUMERICAL_NOTE = 1303
    ENGINE_BEHAVIOR_NOTE = 1305
    MATMUL_COMP_TYPE = 1500
    OPERATION_MATMUL_ADESC = 1520
    OPERATION_MATMUL_BDESC = 1521
    OPERATION_MATMUL_CDESC = 1522
    OPERATION_MATMUL_DESC = 1523
    REDUCTION_OPERATOR = 1600
    REDUCTION_COMP_TYPE = 1601
    OPERATION_REDUCTION_XDESC = 1610
    OPERATION_REDUCTION_YDESC = 1611
    OPERATION_REDUCTION_DESC = 1612
    OPERATION_NORM_FWD_MODE = 2000
    OPERATION_NORM_FWD_PHASE = 2001
    OPERATION_NORM_FWD_XDESC = 2002
    OPERATION_NORM_FWD_MEAN_DESC = 2003
    OPERATION_NORM_FWD_INV_VARIANCE_DESC = 2004
    OPERATION_NORM_FWD_SCALE_DESC = 2005
    OPERATION_NORM_FWD_BIAS_DESC = 2006
    OPERATION_NORM_FWD_EPSILON_DESC = 2007
    OPERATION_NORM_FWD_YDESC = 2013
    OPERATION_NORM_BWD_MODE = 2100
    OPERATION_NORM_BWD_XDESC = 2101
    OPERATION_NORM_BWD_MEAN_DESC = 2102
    OPERATION_NORM_BWD_INV_VARIANCE_DESC = 2103
    OPERATION_NORM_BWD_DYDESC = 2104
    OPERATION_NORM_BWD_SCALE_DESC = 2105
    OPERATION_NORM_BWD_DSCALE_DESC = 2107
    OPERATION_NORM_BWD_DBIAS_DESC = 2108
    OPERATION_NORM_BWD_DXDESC = 2109
    OPERATION_RESHAPE_XDESC = 2200
    OPERATION_RESHAPE_YDESC = 2201


def declare(cudnn: Cudnn) -> None:
    """Make the layer's functions callable."""
    cudnn.declare(_SIGNATURES)


class Node:
    """A backend descriptor; it keeps alive the descriptors set into it."""

    def __init__(self, cudnn: Cudnn, kind: Kind) -> None:
        self._cudnn = cudnn
        self.kind = kind
        self.pointer = P()
        self._kept: list[Any] = []
        cudnn.call("cudnnBackendCreateDescriptor", kind, ctypes.byref(self.pointer))

    def __del__(self) -> None:
        if self.pointer:
            self._cudnn.call("cudnnBackendDestroyDescriptor", self.pointer)

    def set(self, attribute: Attr, type_: Type, *values: Any) -> Node:
        """Set an attribute; Nodes are passed by their pointers. Returns itself."""
        self._kept.extend(v for v in values if isinstance(v, Node))
        plain = [v.pointer.value if isinstance(v, Node) else v for v in values]
        array = (_ELEMENT.get(type_, I) * len(plain))(*plain)
        self._cudnn.call(
            "cudnnBackendSetAttribute", self.pointer, attribute, type_, len(plain), array
        )
        return self

    def finalize(self) -> Node:
        """Finalize; raises CudnnError (NOT_SUPPORTED... where cuDNN cannot do it)."""
        self._cudnn.call("cudnnBackendFinalize", self.pointer)
        return self

    def get(self, attribute: Attr, type_: Type, limit: int = 1) -> list[Any]:
        """Values of a plain attribute, at most ``limit``."""
        array = (_ELEMENT.get(type_, I) * limit)()
        return list(array[: self._get(attribute, type_, limit, array)])

    def get_into(self, attribute: Attr, nodes: Sequence[Node]) -> int:
        """Let cuDNN fill descriptors made beforehand; returns how many it filled."""
        array = (P * len(nodes))(*(node.pointer.value for node in nodes))
        return self._get(attribute, Type.BACKEND_DESCRIPTOR, len(nodes), array)

    def _get(self, attribute: Attr, type_: Type, limit: int, array: Any) -> int:
        count = L()
        self._cudnn.call(
            "cudnnBackendGetAttribute",
            self.pointer, attribute, type_, limit, ctypes.byref(count), array,
        )  # fmt: skip
        return min(count.value, limit)
