"""Rung 5: pooling, activation, softmax and normalisation, forward and backward.

Bounds are first-order: a few roundings of the working precision (fp32 throughout inside cuDNN),
sums by `bounds.growth`, one rounding to store the result. Each is derived beside its operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cudnn_doctor.verify import references
from cudnn_doctor.verify.binding import ops
from cudnn_doctor.verify.binding.enums import ActivationMode, DataType, PoolingMode
from cudnn_doctor.verify.binding.graph import Graph, row_major
from cudnn_doctor.verify.bounds import SECOND_ORDER, growth
from cudnn_doctor.verify.convolve import require
from cudnn_doctor.verify.cuda import Buffer
from cudnn_doctor.verify.formats import FORMATS
from cudnn_doctor.verify.fused import Bound, any_engine, execute, first_plan, host_scalar
from cudnn_doctor.verify.lab import Lab, run_twice

_FP32 = FORMATS["fp32"]
_U = _FP32.rounding
_EXPONENTIAL = 2.0**-20
"""Relative error allowed to one exponential, sigmoid or tanh (fast hardware ones included)."""
_TINY = 2.0**-24
_IMAGE = (4, 32, 28, 28)


def _pointers(**buffers: Any) -> dict[str, int]:
    return {name: buffer.pointer for name, buffer in buffers.items()}


def _finish(
    lab: Lab,
    checks: Sequence[tuple[str, bytearray, tuple[int, ...], str, Any, Any]],
    repeatable: bool = True,
) -> dict[str, Any]:
    """Check each (name, contents, dims, format, exact, bound)."""
    worst, elements = 0.0, 0
    for name, contents, dims, form, exact, bound in checks:
        got = lab.decode(contents, dims, FORMATS[form])
        compared = lab.check(got, exact, SECOND_ORDER * bound + _TINY, name)
        worst, elements = max(worst, compared.worst), elements + compared.elements
    return {"worst": round(worst, 4), "elements": elements, "repeatable": repeatable}


def activation(lab: Lab, mode: ActivationMode, kind: str) -> dict[str, Any]:
    """y within a rounding of f(x); dx = dy * f'(x) with f' from the stored y."""
    require(lab, kind)
    xp, form = lab.xp, FORMATS[kind]
    x = lab.operand(lab.random("activation/x", _IMAGE), form)
    dy = lab.operand(lab.random("activation/dy", _IMAGE), form)
    exact = {
        ActivationMode.RELU: lambda: xp.maximum(x.exact, 0.0),
        ActivationMode.SIGMOID: lambda: references.sigmoid(x.exact, xp),
        ActivationMode.TANH: lambda: xp.tanh(x.exact),
    }[mode]()
    y = lab.operand(exact.astype(xp.float32), form)
    slope = {
        ActivationMode.RELU: lambda: (x.exact > 0).astype(xp.float64),
        ActivationMode.SIGMOID: lambda: y.exact * (1 - y.exact),
        ActivationMode.TANH: lambda: 1 - y.exact**2,
    }[mode]()
    out, dx = lab.output(_IMAGE, form), lab.output(_IMAGE, form)
    tensor = ops.tensor(lab.cudnn, form.dtype, _IMAGE, row_major(_IMAGE))
    how = ops.activation(lab.cudnn, mode)

    def run() -> None:
        ops.activation_forward(lab.cudnn, how, tensor, x.pointer, out.pointer)
        pointers = (x.pointer, y.pointer, dy.pointer, dx.pointer)
        ops.activation_backward(lab.cudnn, how, tensor, pointers)

    got, same = run_twice({"y": out, "dx": dx}, run)
    gradient = dy.exact * slope
    bound = (form.rounding + 4 * _U) * abs(gradient) + 4 * _U * abs(dy.exact)
    return _finish(
        lab,
        [
            ("y", got["y"], _IMAGE, kind, exact, form.rounding * abs(exact) + 2 * _EXPONENTIAL),
            ("dx", got["dx"], _IMAGE, kind, gradient, bound),
        ],
        same,
    )


def pooling(lab: Lab, mode: PoolingMode, kind: str) -> dict[str, Any]:
    """2x2 windows, stride 2. A maximum is exact; a mean of n has n additions and a division."""
    require(lab, kind)
    xp, form = lab.xp, FORMATS[kind]
    n, c, h, w = _IMAGE
    small = (n, c, h // 2, w // 2)
    x = lab.operand(lab.random("pooling/x", _IMAGE), form)
    dy = lab.operand(lab.random("pooling/dy", small), form)
    windows = x.exact.reshape(n, c, h // 2, 2, w // 2, 2)
    spread = xp.repeat(xp.repeat(dy.exact, 2, axis=2), 2, axis=3)
    if mode is PoolingMode.MAX:
        exact = windows.max(axis=(3, 5))
        top = xp.repeat(xp.repeat(exact, 2, axis=2), 2, axis=3)
        chosen = (x.exact == top).reshape(windows.shape)
        first = _first_of_window(chosen, xp).reshape(_IMAGE)
        gradient, bound = spread * first, 0.0 * exact
    else:
        exact, gradient = windows.mean(axis=(3, 5)), spread / 4
        bound = (4 * _U) * abs(windows).mean(axis=(3, 5)) + form.rounding * abs(exact)
    y = lab.operand(exact.astype(xp.float32), form)
    out, dx = lab.output(small, form), lab.output(_IMAGE, form)
    tx = ops.tensor(lab.cudnn, form.dtype, _IMAGE, row_major(_IMAGE))
    ty = ops.tensor(lab.cudnn, form.dtype, small, row_major(small))
    how = ops.pooling(lab.cudnn, mode, (2, 2), (0, 0), (2, 2))

    def run() -> None:
        ops.pooling_forward(lab.cudnn, how, tx, ty, (x.pointer, out.pointer))
        pointers = (x.pointer, y.pointer, dy.pointer, dx.pointer)
        ops.pooling_backward(lab.cudnn, how, tx, ty, pointers)

    got, same = run_twice({"y": out, "dx": dx}, run)
    checks = [("y", got["y"], small, kind, exact, bound)]
    gradient_bound = (form.rounding + 4 * _U) * abs(gradient)
    if mode is not PoolingMode.MAX or form is _FP32:  # half types have ties for the maximum
        checks.append(("dx", got["dx"], _IMAGE, kind, gradient, gradient_bound))
    return _finish(lab, checks, same)


def _first_of_window(chosen: Any, xp: Any) -> Any:
    """Of equal maxima only the first: ties have one gradient."""
    n, c, h, _, w, _ = chosen.shape
    flat = chosen.transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h, w, 4)
    only = flat & (xp.cumsum(flat, axis=-1) == 1)
    return only.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5)


def softmax(lab: Lab, kind: str) -> dict[str, Any]:
    """Over the channels: the exponent is off by a rounding of its size, the sum by its growth.

    The exponentials may be kept in the tensor's type: they, their sum and the quotient are then
    each off by one rounding of it.
    """
    require(lab, kind)
    xp, form = lab.xp, FORMATS[kind]
    x = lab.operand(lab.random("softmax/x", _IMAGE, 2.0), form)
    dy = lab.operand(lab.random("softmax/dy", _IMAGE), form)
    exact = references.softmax(x.exact, 1, xp)
    y = lab.operand(exact.astype(xp.float32), form)
    out, dx = lab.output(_IMAGE, form), lab.output(_IMAGE, form)
    tensor = ops.tensor(lab.cudnn, form.dtype, _IMAGE, row_major(_IMAGE))

    def run() -> None:
        ops.softmax_forward(lab.cudnn, tensor, x.pointer, out.pointer)
        ops.softmax_backward(lab.cudnn, tensor, y.pointer, dy.pointer, dx.pointer)

    got, same = run_twice({"y": out, "dx": dx}, run)
    sums = growth(_IMAGE[1]) * _U
    spread = (abs(x.exact).max(axis=1, keepdims=True) + 1) * 4 * _U
    y_bound = (spread + 2 * _EXPONENTIAL + sums + 3 * form.rounding) * exact
    products = dy.exact * y.exact
    total = products.sum(axis=1, keepdims=True)
    size = abs(products).sum(axis=1, keepdims=True)
    gradient = y.exact * (dy.exact - total)
    dx_bound = y.exact * ((sums + 4 * _U) * size + 4 * _U * abs(dy.exact))
    dx_bound = dx_bound + form.rounding * abs(gradient)
    return _finish(
        lab,
        [
            ("y", got["y"], _IMAGE, kind, exact, y_bound),
            ("dx", got["dx"], _IMAGE, kind, gradient, dx_bound),
        ],
        same,
    )


_EPSILON = 1e-5
_ACROSS = (0, 2, 3)


def batch_norm(lab: Lab, kind: str) -> dict[str, Any]:
    """Training, inference with the running statistics that training made, and backward.

    Means of n numbers are off by growth(n) roundings of the mean magnitude, the deviation by that
    relative to itself; both scale the normalised value.
    """
    require(lab, kind)
    xp, form = lab.xp, FORMATS[kind]
    n, c, h, w = _IMAGE
    count, per = n * h * w, (1, c, 1, 1)
    x = lab.operand(lab.random("batchnorm/x", _IMAGE), form)
    dy = lab.operand(lab.random("batchnorm/dy", _IMAGE), form)
    scale = lab.operand(lab.random("batchnorm/scale", per), _FP32)
    bias = lab.operand(lab.random("batchnorm/bias", per), _FP32)
    mean = x.exact.mean(axis=_ACROSS, keepdims=True)
    variance = x.exact.var(axis=_ACROSS, keepdims=True)
    inverse = 1 / xp.sqrt(variance + _EPSILON)
    normal = (x.exact - mean) * inverse
    exact = normal * scale.exact + bias.exact
    unbiased = variance * count / (count - 1)
    inferred = (x.exact - mean) / xp.sqrt(unbiased + _EPSILON) * scale.exact + bias.exact
    dbias = dy.exact.sum(axis=_ACROSS, keepdims=True)
    dscale = (dy.exact * normal).sum(axis=_ACROSS, keepdims=True)
    dx = scale.exact * inverse * (dy.exact - (dbias + normal * dscale) / count)
    outputs: dict[str, Buffer] = {k: lab.output(_IMAGE, form) for k in ("y", "yi", "dx")}
    small = ("running_mean", "running_var", "mean", "invvar", "dscale", "dbias")
    outputs |= {k: lab.output(per, _FP32) for k in small}
    tensor = ops.tensor(lab.cudnn, form.dtype, _IMAGE, row_major(_IMAGE))
    narrow = ops.tensor(lab.cudnn, DataType.FLOAT, per, row_major(per))
    pointers = _pointers(x=x, dy=dy, scale=scale, bias=bias, **outputs)

    def run() -> None:
        for name in ("running_mean", "running_var"):  # they are read, and their poison is NaN
            outputs[name].fill(0)
        ops.batchnorm_training(lab.cudnn, tensor, narrow, pointers, _EPSILON)
        inference = pointers | {"y": pointers["yi"]}
        ops.batchnorm_inference(lab.cudnn, tensor, narrow, inference, _EPSILON)
        ops.batchnorm_backward(lab.cudnn, tensor, narrow, pointers, _EPSILON)

    got, same = run_twice(outputs, run)
    sums = (growth(count) + 8) * 2 * _U
    size = abs(x.exact).mean(axis=_ACROSS, keepdims=True) + abs(mean)
    normal_bound = 4 * sums * (abs(normal) + size * inverse + 1)
    y_bound = normal_bound * abs(scale.exact) + 4 * _U * abs(bias.exact)
    dsum = abs(dy.exact).sum(axis=_ACROSS, keepdims=True)
    dprod = (abs(dy.exact) * (abs(normal) + 1)).sum(axis=_ACROSS, keepdims=True)
    dx_bound = abs(scale.exact) * inverse * (abs(dy.exact) + (dsum + abs(normal) * dprod) / count)
    return _finish(
        lab,
        [
            ("mean", got["mean"], per, "fp32", mean, sums * size),
            ("running mean", got["running_mean"], per, "fp32", mean, sums * size),
            ("running variance", got["running_var"], per, "fp32", unbiased, 8 * sums * unbiased),
            ("1/deviation", got["invvar"], per, "fp32", inverse, 8 * sums * inverse),
            ("y", got["y"], _IMAGE, kind, exact, y_bound + form.rounding * abs(exact)),
            ("inference", got["yi"], _IMAGE, kind, inferred,
             y_bound + form.rounding * abs(inferred)),
            ("dbias", got["dbias"], per, "fp32", dbias, sums * dsum),
            ("dscale", got["dscale"], per, "fp32", dscale, 4 * sums * dprod),
            ("dx", got["dx"], _IMAGE, kind, dx, 4 * sums * dx_bound + form.rounding * abs(dx)),
        ],
        same,
    )  # fmt: skip


def layer_norm(lab: Lab, kind: str) -> dict[str, Any]:
    """Rows of 512 on the graph API (cuDNN's own norm engines); bounds as for batch_norm."""
    require(lab, kind)
    xp, form = lab.xp, FORMATS[kind]
    rows, width = 256, 512
    dims, wide, tall = (rows, width, 1, 1), (1, width, 1, 1), (rows, 1, 1, 1)
    x = lab.operand(lab.random("layernorm/x", dims), form)
    scale = lab.operand(lab.random("layernorm/scale", wide), _FP32)
    bias = lab.operand(lab.random("layernorm/bias", wide), _FP32)
    graph = Graph(lab.cudnn)
    last = (width, 1, width, width)
    tx, ty = (graph.tensor(form.dtype, dims, last) for _ in range(2))
    ts, tb = (graph.tensor(DataType.FLOAT, wide, last) for _ in range(2))
    tm, tv = (graph.tensor(DataType.FLOAT, tall, (1, 1, 1, 1)) for _ in range(2))
    epsilon = graph.scalar()
    graph.layer_norm(tx, ty, scale=ts, bias=tb, epsilon=epsilon, mean=tm, inverse_deviation=tv)
    outputs = {
        "y": lab.output(dims, form),
        "mean": lab.output(tall, _FP32),
        "inverse": lab.output(tall, _FP32),
    }
    kept, at = host_scalar(_EPSILON)
    pointers = {
        tx.uid: x.pointer, ts.uid: scale.pointer, tb.uid: bias.pointer, epsilon.uid: at,
        ty.uid: outputs["y"].pointer, tm.uid: outputs["mean"].pointer,
        tv.uid: outputs["inverse"].pointer,
    }  # fmt: skip
    plan = first_plan(lab.cudnn, graph, any_engine)
    bound = Bound(graph, pointers, outputs, (x, scale, bias, kept))
    got, same = execute(lab, bound, plan)
    mean = x.exact.mean(axis=1, keepdims=True)
    inverse = 1 / xp.sqrt(x.exact.var(axis=1, keepdims=True) + _EPSILON)
    normal = (x.exact - mean) * inverse
    exact = normal * scale.exact + bias.exact
    sums = (growth(width) + 8) * 2 * _U
    size = abs(x.exact).mean(axis=1, keepdims=True) + abs(mean)
    y_bound = 4 * sums * (abs(normal) + size * inverse + 1) * abs(scale.exact)
    y_bound = y_bound + 4 * _U * abs(bias.exact) + form.rounding * abs(exact)
    return {"engine": plan.engine.label} | _finish(
        lab,
        [
            ("mean", got["mean"], tall, "fp32", mean, sums * size),
            ("1/deviation", got["inverse"], tall, "fp32", inverse, 8 * sums * inverse),
            ("y", got["y"], dims, kind, exact, y_bound),
        ],
        same,
    )
