"""Rung 5: scaled dot-product attention, forward and backward, as operation graphs.

The graphs are the published composite pattern: two matrix products around a softmax written as
reductions and pointwise operations; backward with the softmax recomputed from its statistics.
Dimensions are batch, heads, sequence, head size.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from cudnn_doctor.verify.binding.enums import DataType
from cudnn_doctor.verify.binding.graph import Graph, Pointwise, Reduction, Tensor, row_major
from cudnn_doctor.verify.bounds import SECOND_ORDER, growth
from cudnn_doctor.verify.convolve import require
from cudnn_doctor.verify.formats import FORMATS, Format
from cudnn_doctor.verify.fused import Bound, any_engine, execute, first_plan, host_scalar
from cudnn_doctor.verify.lab import Lab, Operand
from cudnn_doctor.verify.workloads import Attention

_EXPONENTIAL = 2.0**-18
"""Relative error allowed to one hardware exponential or logarithm."""
_FP32 = FORMATS["fp32"]


class Exact(NamedTuple):
    """Forward pass in float64, with what bounds need."""

    scale: float
    p: Any
    """Probabilities."""
    o: Any
    stats: Any
    """log of the sum of exponentials a row."""
    score_error: Any
    """Bound of the error of one score, in the exponent."""


def _swap(a: Any) -> Any:
    return a.swapaxes(-1, -2)


def _exact(lab: Lab, shape: Attention, q: Any, k: Any, v: Any) -> Exact:
    xp = lab.xp
    scale = 1 / math.sqrt(shape.size)
    scores = scale * (q @ _swap(k))
    top = scores.max(axis=-1, keepdims=True)
    weights = xp.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    p = weights / total
    magnitude = scale * (abs(q) @ _swap(abs(k)))
    error = (growth(shape.size) + 4) * FORMATS["bf16"].accumulation * magnitude
    error = error.max(axis=-1, keepdims=True) + abs(top) * _FP32.rounding
    return Exact(scale, p, p @ v, top + xp.log(total), error)


class _Builder:
    """Shorthand for the graphs' many virtual tensors."""

    def __init__(self, lab: Lab, shape: Attention, kind: Format) -> None:
        self.graph = Graph(lab.cudnn)
        self.kind = kind
        b, h, s, d = shape
        self.rows, self.square, self.wide = (b, h, s, 1), (b, h, s, s), (b, h, s, d)
        self.transposed = (h * s * d, s * d, 1, d)
        """Strides that show a (sequence, size) matrix as (size, sequence)."""

    def io(self, dims: tuple[int, ...]) -> Tensor:
        return self.graph.tensor(self.kind.dtype, dims)

    def io_transposed(self) -> Tensor:
        b, h, s, d = self.wide
        return self.graph.tensor(self.kind.dtype, (b, h, d, s), self.transposed)

    def virtual(self, dims: tuple[int, ...], dtype: int = DataType.FLOAT) -> Tensor:
        return self.graph.tensor(dtype, dims, virtual=True)

    def point(self, mode: Pointwise, x: Tensor, b: Tensor | None = None) -> Tensor:
        return self.graph.pointwise(mode, x, self.virtual(x.dims), b)


def _forward_graph(builder: _Builder) -> tuple[Graph, dict[str, Tensor]]:
    g, b = builder.graph, builder
    q, k, v, o = b.io(b.wide), b.io_transposed(), b.io(b.wide), b.io(b.wide)
    scale = g.scalar()
    scores = b.point(Pointwise.MUL, g.matmul(q, k, b.virtual(b.square)), scale)
    top = g.reduction(Reduction.MAX, scores, b.virtual(b.rows))
    weights = b.point(Pointwise.EXP, b.point(Pointwise.SUB, scores, top))
    total = g.reduction(Reduction.ADD, weights, b.virtual(b.rows))
    logarithm = b.point(Pointwise.LOG, total)
    stats = g.pointwise(Pointwise.ADD, top, g.tensor(DataType.FLOAT, b.rows), logarithm)
    p = g.pointwise(Pointwise.DIV, weights, b.virtual(b.square, b.kind.dtype), total)
    g.matmul(p, v, o)
    return g, {"q": q, "k": k, "v": v, "o": o, "stats": stats, "scale": scale}


def _backward_graph(builder: _Builder) -> tuple[Graph, dict[str, Tensor]]:
    g, b = builder.graph, builder
    q, k, v = b.io(b.wide), b.io_transposed(), b.io_transposed()
    o, do = b.io(b.wide), b.io(b.wide)
    stats, scale, one = g.tensor(DataType.FLOAT, b.rows), g.scalar(), g.scalar()
    products = g.pointwise(Pointwise.MUL, do, b.virtual(b.wide), o)
    rows = g.reduction(Reduction.ADD, products, b.virtual(b.rows))
    total = g.pointwise(Pointwise.MUL, rows, g.tensor(DataType.FLOAT, b.rows), one)
    scores = b.point(Pointwise.MUL, g.matmul(q, k, b.virtual(b.square)), scale)
    p = b.point(Pointwise.EXP, b.point(Pointwise.SUB, scores, stats))
    dv = g.matmul(_turned(b, p), do, b.io(b.wide))
    dp = b.point(Pointwise.SUB, g.matmul(do, v, b.virtual(b.square)), total)
    ds = b.point(Pointwise.MUL, b.point(Pointwise.MUL, dp, p), scale)
    dk = g.matmul(_turned(b, ds), q, b.io(b.wide))
    keys = g.reshape(k, g.tensor(b.kind.dtype, b.wide, row_major(b.wide), virtual=True))
    sums = g.matmul(ds, keys, g.tensor(DataType.FLOAT, b.wide))
    dq = g.pointwise(Pointwise.IDENTITY, sums, b.io(b.wide))
    names = {"q": q, "k": k, "v": v, "o": o, "do": do, "stats": stats, "scale": scale}
    return g, names | {
        "one": one, "total": total, "sums": sums, "dq": dq, "dk": dk, "dv": dv,
    }  # fmt: skip


def _turned(builder: _Builder, x: Tensor) -> Tensor:
    """The transpose of a square of scores, in the input type as the products want it."""
    _, h, s, _ = builder.square
    strides = (h * s * s, s * s, 1, s)
    to = builder.graph.tensor(builder.kind.dtype, builder.square, strides, virtual=True)
    return builder.graph.reshape(x, to)


def _inputs(lab: Lab, shape: Attention, kind: Format, names: str) -> dict[str, Operand]:
    return {n: lab.operand(lab.random(f"attention/{n}", tuple(shape)), kind) for n in names}


def forward(lab: Lab, shape: Attention, kind: str) -> dict[str, Any]:
    """O and the softmax statistics, checked."""
    require(lab, kind)
    form = FORMATS[kind]
    inputs = _inputs(lab, shape, form, "qkv")
    exact = _exact(lab, shape, *(inputs[n].exact for n in "qkv"))
    builder = _Builder(lab, shape, form)
    graph, tensors = _forward_graph(builder)
    outputs = {"o": lab.output(builder.wide, form), "stats": lab.output(builder.rows, _FP32)}
    kept, at = host_scalar(exact.scale)
    pointers = {tensors[n].uid: inputs[n].pointer for n in "qkv"}
    pointers |= {tensors[n].uid: buffer.pointer for n, buffer in outputs.items()}
    pointers[tensors["scale"].uid] = at
    plan = first_plan(lab.cudnn, graph, any_engine)
    contents, repeatable = execute(lab, Bound(graph, pointers, outputs, (inputs, kept)), plan)
    spread = exact.p @ abs(inputs["v"].exact)
    relative = (
        2 * exact.score_error
        + 2 * _EXPONENTIAL
        + 2 * form.rounding
        + 2 * growth(shape.sequence) * form.accumulation
    )
    bound = SECOND_ORDER * (relative * spread + form.rounding * abs(exact.o)) + 2.0**-24
    o = lab.check(lab.decode(contents["o"], builder.wide, form), exact.o, bound, "O")
    stats_bound = exact.score_error + 2 * _EXPONENTIAL * (1 + abs(exact.stats))
    stats_bound = stats_bound + growth(shape.sequence) * form.accumulation
    got = lab.decode(contents["stats"], builder.rows, _FP32)
    lab.check(got, exact.stats, stats_bound, "softmax statistics")
    return {
        "engine": plan.engine.label,
        "worst": round(o.worst, 4),
        "elements": o.elements,
        "repeatable": repeatable,
    }


def backward(lab: Lab, shape: Attention, kind: str) -> dict[str, Any]:
    """dQ, dK and dV from exact O and statistics, checked."""
    require(lab, kind)
    xp, form = lab.xp, FORMATS[kind]
    inputs = _inputs(lab, shape, form, "qkv")
    inputs["do"] = lab.operand(lab.random("attention/do", tuple(shape)), form)
    exact = _exact(lab, shape, *(inputs[n].exact for n in "qkv"))
    inputs["o"] = lab.operand(exact.o.astype(xp.float32), form)
    inputs["stats"] = lab.operand(exact.stats.astype(xp.float32), _FP32)
    builder = _Builder(lab, shape, form)
    graph, tensors = _backward_graph(builder)
    outputs = {n: lab.output(builder.wide, form) for n in ("dq", "dk", "dv")}
    scratch = {
        "total": lab.output(builder.rows, _FP32),
        "sums": lab.output(builder.wide, _FP32),
    }
    scale, scale_at = host_scalar(exact.scale)
    one, one_at = host_scalar(1.0)
    pointers = {tensors[n].uid: operand.pointer for n, operand in inputs.items()}
    pointers |= {tensors[n].uid: b.pointer for n, b in (outputs | scratch).items()}
    pointers |= {tensors["scale"].uid: scale_at, tensors["one"].uid: one_at}
    plan = first_plan(lab.cudnn, graph, any_engine)
    bound = Bound(graph, pointers, outputs, (inputs, scale, one, scratch))
    contents, repeatable = execute(lab, bound, plan, zeroed=(scratch["sums"],))
    worst = _check_gradients(lab, form, exact, inputs, contents)
    return {"engine": plan.engine.label, "worst": round(worst, 4), "repeatable": repeatable}


def _check_gradients(
    lab: Lab, form: Format, exact: Exact, inputs: dict[str, Operand], contents: dict[str, bytearray]
) -> float:
    """Compare dQ, dK, dV; errors of P, dP and dS are carried to first order."""
    q, k, v, do = (inputs[n].exact for n in ("q", "k", "v", "do"))
    sequence, size = q.shape[-2:]
    products = do * inputs["o"].exact
    difference = do @ _swap(v) - products.sum(axis=-1, keepdims=True)
    sizes = abs(do) @ _swap(abs(v)) + abs(products).sum(axis=-1, keepdims=True)
    ds = exact.scale * exact.p * difference
    p_error = exact.score_error + _EXPONENTIAL + 2.0**-20 * (1 + abs(exact.stats))
    dp_error = (growth(size) + 2) * form.accumulation * sizes
    ds_error = exact.scale * exact.p * (p_error * abs(difference) + dp_error)
    ds_error = ds_error + 2 * form.rounding * abs(ds)
    sums = growth(sequence) * form.accumulation
    p_relative = p_error + 2 * form.rounding + sums
    results = {
        "dv": (_swap(exact.p) @ do, _swap(exact.p * p_relative) @ abs(do)),
        "dk": (_swap(ds) @ q, _swap(ds_error + sums * abs(ds)) @ abs(q)),
        "dq": (ds @ k, (ds_error + sums * abs(ds)) @ abs(k)),
    }
    worst = 0.0
    for name, (value, error) in results.items():
        bound = SECOND_ORDER * (error + form.rounding * abs(value)) + 2.0**-24
        got = lab.decode(contents[name], q.shape, form)
        worst = max(worst, lab.check(got, value, bound, name.upper()).worst)
    return worst
