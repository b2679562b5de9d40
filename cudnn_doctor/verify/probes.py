"""Probes of known wrong-result releases: does this copy on this GPU have the fault?

Each carries the id of an issue in compat_matrix.yaml and repeats the reported situation. They are
steps of rung 4 like any other: a wrong result is a failure, whatever the matrix says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from cudnn_doctor.verify import bounds, convolve, formats
from cudnn_doctor.verify.binding import cnn
from cudnn_doctor.verify.binding.enums import DataType
from cudnn_doctor.verify.binding.graph import Graph, Pointwise, Tensor, Window, row_major
from cudnn_doctor.verify.binding.status import CudnnError
from cudnn_doctor.verify.cuda import Buffer, CudaError
from cudnn_doctor.verify.formats import FORMATS
from cudnn_doctor.verify.fused import Bound, any_engine, execute, first_plan
from cudnn_doctor.verify.lab import Lab, Unsupported, run_twice
from cudnn_doctor.verify.workloads import Convolution, output_dims

PREFIX = "known fault "
"""Steps are named so, followed by the issue's id."""


class Probe(NamedTuple):
    issue: str
    run: Callable[[Lab], dict[str, Any]]
    full: bool = False
    """Left to ``--full``."""


class Huge(NamedTuple):
    """A convolution whose operands are larger than 2^31 bytes; contiguous, without padding."""

    x: tuple[int, ...] = (1, 16, 124, 1282, 722)
    w: tuple[int, ...] = (16, 16, 1, 3, 3)
    window: Window = Window((0, 0, 0), (1, 1, 1), (1, 1, 1))
    kind: str = "bf16"


_BLOCK = 1 << 20
"""Elements of the random block that fills the input over and over."""
_ROWS = 96
"""Rows of the result that are checked, spread over all of it."""


def huge_convolution(lab: Lab, huge: Huge = Huge()) -> dict[str, Any]:  # noqa: B008 - immutable
    """A 3D convolution past 2^31 bytes on the engine that heuristics propose first.

    Rows of the result all over it are checked, the first and the last among them.
    """
    convolve.require(lab, huge.kind)
    xp, form = lab.xp, FORMATS[huge.kind]
    out = output_dims(huge.x, huge.w, huge.window)
    need = 2 * form.size * (_product(huge.x) + _product(out)) + (1 << 30)
    if lab.driver.memory()[0] < need:
        raise Unsupported(f"needs {need >> 30} GiB of free GPU memory")
    block = formats.encode(lab.random("huge/x", (_BLOCK,)), form, xp)
    x = lab.repeat(block, _product(huge.x))
    w = lab.operand(lab.random("huge/w", huge.w), form)
    y = Buffer(lab.driver, _product(out) * form.size).fill(0xFF)
    graph = Graph(lab.cudnn)
    tx, tw, ty = (graph.tensor(form.dtype, d, row_major(d)) for d in (huge.x, huge.w, out))
    graph.convolution_forward(tx, tw, ty, huge.window)
    plan = first_plan(lab.cudnn, graph, any_engine)
    workspace, _ = lab.reserve(plan.workspace_size)
    pointers = {tx.uid: x.pointer, tw.uid: w.pointer, ty.uid: y.pointer}
    plan.execute(plan.variant_pack(pointers, workspace))
    lab.driver.synchronize()
    lab.release()
    numbers = formats.decode(block, form, xp)
    return {"engine": plan.engine.label} | _check_rows(lab, huge, numbers, w.exact, y)


def _check_rows(lab: Lab, huge: Huge, block: Any, w: Any, y: Buffer) -> dict[str, Any]:
    form = FORMATS[huge.kind]
    out = output_dims(huge.x, huge.w, huge.window)
    rows = _product(out[:-1])
    worst, step = 0.0, max(1, (rows - 1) // (_ROWS - 1))
    for number in [*range(0, rows - 1, step), rows - 1]:
        exact, spread = _row(lab, huge, block, w, number)
        start, size = number * out[-1] * form.size, out[-1] * form.size
        got = lab.decode(y.read(start, size), (out[-1],), form)
        bound = bounds.sum_bound(
            exact, spread, terms=_product(huge.w[1:]), arithmetic=form, stored=form
        )
        worst = max(worst, lab.check(got, exact, bound, f"row {number} of {rows}").worst)
    return {"worst": round(worst, 4), "elements": (rows // step + 1) * out[-1]}


def _row(lab: Lab, huge: Huge, block: Any, w: Any, number: int) -> tuple[Any, Any]:
    """Exact values and spread of one row of the result; the input repeats ``block``."""
    xp = lab.xp
    out = output_dims(huge.x, huge.w, huge.window)
    _, k, d, h = (int(i) for i in lab.unravel(number, out[:-1]))
    strides = row_major(huge.x)
    _, channels, depth, height, width = (xp.arange(n) for n in (1, *huge.w[1:]))
    taps = (
        channels[:, None, None, None] * strides[1]
        + (d + depth[:, None, None]) * strides[2]
        + (h + height[:, None]) * strides[3]
        + width
    ).reshape(-1)
    at = taps[:, None] + xp.arange(out[-1])
    products = w[k].reshape(-1)[:, None] * block[at % block.size]
    return products.sum(axis=0), xp.sqrt((products**2).sum(axis=0))


def _product(numbers: tuple[int, ...]) -> int:
    total = 1
    for n in numbers:
        total *= n
    return total


_SIZES = (56, 14, 112, 28)


def depthwise_sequence(lab: Lab, kind: str = "fp16") -> dict[str, Any]:
    """Depthwise convolutions of different spatial size, launched one after another unawaited."""
    problems = [
        convolve.Problem(
            Convolution(
                f"depthwise {n}", (2, 32, n, n), (32, 1, 3, 3),
                Window((1, 1), (1, 1), (1, 1)), groups=32,
            ),
            kind, "nhwc", "forward",
        )
        for n in _SIZES
    ]  # fmt: skip
    convolve.require(lab, kind)
    made = [convolve.prepare(lab, problem) for problem in problems]
    chosen = [convolve.choose(lab, p, m) for p, m in zip(problems, made, strict=True)]
    space = lab.reserve(max(size for _, size in chosen))
    outputs = {p.name: lab.output(m.dims, m.output) for p, m in zip(problems, made, strict=True)}

    def run() -> None:
        for problem, prepared, (algorithm, _) in zip(problems, made, chosen, strict=True):
            first, second = (operand.pointer for operand in prepared.inputs)
            cnn.convolve(
                lab.cudnn, problem.direction, prepared.operands, prepared.convolution, algorithm,
                pointers=(first, second, outputs[problem.name].pointer), workspace=space,
            )  # fmt: skip

    contents, same = run_twice(outputs, run)
    checked = [
        convolve.check(lab, problem, prepared, algorithm, contents[problem.name])[0]
        for problem, prepared, (algorithm, _) in zip(problems, made, chosen, strict=True)
    ]
    return {
        "worst": round(max(c.worst for c in checked), 4),
        "elements": sum(c.elements for c in checked),
        "repeatable": same,
    }


_GEMM, _GAP = (256, 192, 128), 64
"""Rows, columns and depth; elements between the end of a row and the next."""


def unpacked_gemm(lab: Lab, kind: str = "fp16") -> dict[str, Any]:
    """ReLU(A B) on engine 11, rows of all matrices farther apart than they are long."""
    convolve.require(lab, kind)
    xp, form = lab.xp, FORMATS[kind]
    m, n, k = _GEMM
    a = lab.operand(lab.random("gemm/a", (1, m, k + _GAP)), form)
    b = lab.operand(lab.random("gemm/b", (1, k, n + _GAP)), form)
    graph = Graph(lab.cudnn)

    def matrix(rows: int, columns: int, *, virtual: bool = False) -> Tensor:
        wide = columns if virtual else columns + _GAP
        dtype = DataType.FLOAT if virtual else form.dtype
        return graph.tensor(dtype, (1, rows, columns), (rows * wide, wide, 1), virtual=virtual)

    ta, tb, ty = matrix(m, k), matrix(k, n), matrix(m, n)
    product = graph.matmul(ta, tb, matrix(m, n, virtual=True))
    graph.pointwise(Pointwise.RELU_FWD, product, ty)
    plan = first_plan(lab.cudnn, graph, lambda engine: engine.number == 11)
    dims = (1, m, n + _GAP)
    y = lab.output(dims, form)
    pointers = {ta.uid: a.pointer, tb.uid: b.pointer, ty.uid: y.pointer}
    contents, same = execute(lab, Bound(graph, pointers, {"y": y}, (a, b)), plan)
    left, right = a.exact[..., :k], b.exact[..., :n]
    exact = xp.maximum(left @ right, 0.0)
    bound = bounds.sum_bound(
        exact, xp.sqrt(left**2 @ right**2), terms=k, arithmetic=form, stored=form
    )
    compared = lab.check(lab.decode(contents["y"], dims, form)[..., :n], exact, bound)
    return {
        "engine": plan.engine.label,
        "worst": round(compared.worst, 4),
        "elements": compared.elements,
        "repeatable": same,
    }


PROBES = (
    Probe("conv3d-lowprec", huge_convolution),
    Probe("depthwise-sequence", depthwise_sequence),
    Probe("gemm-engine11", unpacked_gemm, full=True),
)


def steps(*, full: bool = True) -> Iterator[tuple[str, Callable[[Lab], dict[str, Any]]]]:
    """Names and work, for the ladder."""
    return ((PREFIX + p.issue, partial(_try, p)) for p in PROBES if full or not p.full)


def _try(probe: Probe, lab: Lab) -> dict[str, Any]:
    """A refusal (by parameter too) or want of memory says nothing of the fault."""
    try:
        return probe.run(lab)
    except CudnnError as error:
        if error.unsupported or "BAD_PARAM" in error.name:
            raise Unsupported(str(error)) from error
        raise
    except CudaError as error:
        if error.name == "CUDA_ERROR_OUT_OF_MEMORY":
            raise Unsupported("not enough free GPU memory") from error
        raise
