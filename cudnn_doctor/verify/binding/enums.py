"""Values of cuDNN's enumerations that the legacy layers use (same in 8.x and 9.x)."""

from __future__ import annotations

import enum


class DataType(enum.IntEnum):
    """cudnnDataType_t."""

    FLOAT = 0
    DOUBLE = 1
    HALF = 2
    INT8 = 3
    INT32 = 4
    BFLOAT16 = 9
    INT64 = 10
    BOOLEAN = 11
    FP8_E4M3 = 12
    FP8_E5M2 = 13


class MathType(enum.IntEnum):
    """cudnnMathType_t."""

    DEFAULT = 0
    TENSOR_OP = 1
    TENSOR_OP_ALLOW_CONVERSION = 2
    FMA = 3


class TensorFormat(enum.IntEnum):
    """cudnnTensorFormat_t."""

    NCHW = 0
    NHWC = 1


class PoolingMode(enum.IntEnum):
    """cudnnPoolingMode_t."""

    MAX = 0
    AVERAGE_COUNT_INCLUDE_PADDING = 1
    AVERAGE_COUNT_EXCLUDE_PADDING = 2


class ActivationMode(enum.IntEnum):
    """cudnnActivationMode_t."""

    SIGMOID = 0
    RELU = 1
    TANH = 2


SOFTMAX_ACCURATE = 1
SOFTMAX_MODE_CHANNEL = 1
BATCHNORM_SPATIAL = 1
CROSS_CORRELATION = 1
PROPAGATE_NAN = 1
RNN_ALGO_STANDARD = 0
LSTM = 2
RNN_DOUBLE_BIAS = 2
UNIDIRECTIONAL = 0
LINEAR_INPUT = 0
RNN_SEQ_MAJOR_UNPACKED = 0
FWD_MODE_INFERENCE = 0
FWD_MODE_TRAINING = 1
WGRAD_MODE_ADD = 0
