"""One small checked convolution with nothing but the standard library and libcuda.

For machines without NumPy; the exact result is summed in Python.
"""

from __future__ import annotations

import math
import random
import sys
from array import array
from typing import Any

from cudnn_doctor.verify.binding import cnn, ops
from cudnn_doctor.verify.binding.enums import DataType, MathType, TensorFormat
from cudnn_doctor.verify.binding.graph import row_major
from cudnn_doctor.verify.binding.library import Cudnn
from cudnn_doctor.verify.bounds import SECOND_ORDER, TRANSFORM, relative_error
from cudnn_doctor.verify.cuda import Buffer, Driver
from cudnn_doctor.verify.formats import FORMATS
from cudnn_doctor.verify.lab import POISONS, Wrong

_C, _K, _SIZE, _TAPS = 8, 8, 12, 3
_OUT = _SIZE - _TAPS + 1
_TILE = 2.0
"""An element's spread may be half of the largest in its tile."""


def enabling_command(driver_cuda: int) -> str:
    """What to type for all that is not done without NumPy or CuPy; the driver's CUDA as 13000."""
    extra = f"cuda{min(max(driver_cuda // 1000, 11), 13)}"
    return f"{sys.executable} -m pip install 'cudnn-doctor[{extra}]'"


def convolution(cudnn: Cudnn, driver: Driver, seed: int) -> dict[str, Any]:
    """3x3, fp32, NCHW, forward; raises Wrong for a result outside its bound."""
    numbers = random.Random(seed)  # noqa: S311 - test data
    x = array("f", (numbers.gauss(0, 1) for _ in range(_C * _SIZE * _SIZE)))
    w = array("f", (numbers.gauss(0, 1) for _ in range(_K * _C * _TAPS * _TAPS)))
    px, pw = Buffer(driver, 4 * len(x)).write(x.tobytes()), Buffer(driver, 4 * len(w))
    pw.write(w.tobytes())
    out = Buffer(driver, 4 * _K * _OUT * _OUT)
    kind = DataType.FLOAT
    x_dims, w_dims, y_dims = (1, _C, _SIZE, _SIZE), (_K, _C, _TAPS, _TAPS), (1, _K, _OUT, _OUT)
    operands = cnn.Operands(
        ops.tensor(cudnn, kind, x_dims, row_major(x_dims)),
        ops.filter_(cudnn, kind, TensorFormat.NCHW, w_dims),
        ops.tensor(cudnn, kind, y_dims, row_major(y_dims)),
    )
    how = cnn.convolution(
        cudnn, padding=(0, 0), stride=(1, 1), dilation=(1, 1), groups=1, compute=kind,
        math_type=MathType.FMA,
    )  # fmt: skip
    algorithm = cnn.algorithms(cudnn, "forward", operands, how)[0]
    space = Buffer(driver, cnn.workspace_size(cudnn, "forward", operands, how, algorithm))
    contents = []
    for poison in POISONS:
        out.fill(poison)
        cnn.convolve(
            cudnn, "forward", operands, how, algorithm,
            pointers=(px.pointer, pw.pointer, out.pointer),
            workspace=(space.pointer, space.size),
        )  # fmt: skip
        contents.append(out.read())
    worst = _check(array("f", bytes(contents[0])), x, w, algorithm.transforms)
    return {
        "algorithm": algorithm.name,
        "worst": round(worst, 4),
        "elements": _K * _OUT * _OUT,
        "repeatable": contents[0] == contents[1],
    }


def _check(y: array[float], x: array[float], w: array[float], transforms: bool) -> float:
    terms, kind = _C * _TAPS * _TAPS, FORMATS["fp32"]
    worst = 0.0
    for k in range(_K):
        for p in range(_OUT):
            for q in range(_OUT):
                products = [
                    x[(c * _SIZE + p + r) * _SIZE + q + s]
                    * w[((k * _C + c) * _TAPS + r) * _TAPS + s]
                    for c in range(_C)
                    for r in range(_TAPS)
                    for s in range(_TAPS)
                ]
                exact, spread = math.fsum(products), math.sqrt(math.fsum(p * p for p in products))
                widened = spread * (TRANSFORM * _TILE if transforms else 1)
                own = (kind.product + kind.rounding) * abs(exact)
                bound = SECOND_ORDER * (relative_error(terms, kind) * widened + own)
                got = y[(k * _OUT + p) * _OUT + q]
                ratio = abs(got - exact) / bound
                if not ratio <= 1:
                    raise Wrong(f"element {[k, p, q]} is {got:.7g} instead of {exact:.7g}")
                worst = max(worst, ratio)
    return worst
