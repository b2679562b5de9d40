"""Rung 4, continued: convolution + bias + activation and FP8 convolution on the graph API."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from cudnn_doctor.verify import bounds, references
from cudnn_doctor.verify.binding.enums import DataType
from cudnn_doctor.verify.binding.graph import Graph, Pointwise, Tensor, channels_last
from cudnn_doctor.verify.binding.library import Cudnn
from cudnn_doctor.verify.binding.plan import Engine, Plan, engines
from cudnn_doctor.verify.binding.status import CudnnError
from cudnn_doctor.verify.convolve import memory_axes, require
from cudnn_doctor.verify.cuda import Buffer
from cudnn_doctor.verify.formats import FORMATS, Format
from cudnn_doctor.verify.lab import Lab, Uncompiled, Unsupported, run_twice
from cudnn_doctor.verify.workloads import Convolution, output_dims

Choice = Callable[[Engine], bool]


def any_engine(_: Engine) -> bool:
    return True


def precompiled(engine: Engine) -> bool:
    return not engine.compiled_at_run_time


def run_time_compiled(engine: Engine) -> bool:
    return engine.compiled_at_run_time


def plans(cudnn: Cudnn, graph: Graph, choice: Choice) -> Iterator[Plan]:
    """Plans on the engines of a kind that can be built, best first.

    Raises the last CudnnError when engines of the kind were proposed and none could be built.
    """
    failure: CudnnError | None = None
    built = 0
    for engine in engines(cudnn, graph.finalize()):
        if engine.reorders or not choice(engine):
            continue
        try:
            plan = Plan(cudnn, engine)
        except CudnnError as error:
            failure = error
            continue
        built += 1
        yield plan
    if failure is not None and not built:
        raise failure


def first_plan(cudnn: Cudnn, graph: Graph, choice: Choice) -> Plan:
    """The best plan; raises Unsupported where no engine of the kind is proposed or can be built
    (Uncompiled where one is wanted that compiles at run time and none is proposed)."""
    try:
        for plan in plans(cudnn, graph, choice):
            return plan
    except CudnnError as error:
        if error.unsupported:
            raise Unsupported(str(error)) from error
        raise
    kind = Uncompiled if choice is run_time_compiled else Unsupported
    raise kind("no engine of this kind is proposed for it")


class Bound(NamedTuple):
    """A graph with its memory: what to pass for each tensor, and the outputs by name."""

    graph: Graph
    pointers: Mapping[int, int]
    outputs: dict[str, Buffer]
    keep: tuple[Any, ...] = ()
    """Inputs and host scalars that must outlive the run."""


def execute(
    lab: Lab, bound: Bound, plan: Plan, zeroed: tuple[Buffer, ...] = ()
) -> tuple[dict[str, bytearray], bool]:
    """Run a plan twice on poisoned outputs; their contents, and whether both runs agree.

    ``zeroed`` buffers are cleared before each run (sums that some releases only add to).
    """
    workspace, _ = lab.reserve(plan.workspace_size)
    pack = plan.variant_pack(bound.pointers, workspace)

    def once() -> None:
        for buffer in zeroed:
            buffer.fill(0)
        plan.execute(pack)

    return run_twice(bound.outputs, once)


def host_scalar(value: float) -> tuple[Any, int]:
    """A float on the host and its address; the first must be kept."""
    kept = ctypes.c_float(value)
    return kept, ctypes.addressof(kept)


class Fused(NamedTuple):
    """The inputs' exact numbers and the graph."""

    bound: Bound
    exact: Any
    spread: Any
    terms: int
    dims: tuple[int, ...]


def _virtual(graph: Graph, like: Tensor) -> Tensor:
    return graph.tensor(DataType.FLOAT, like.dims, like.strides, virtual=True)


def _build(lab: Lab, shape: Convolution, kind: Format, output: Format, fuse: bool) -> Fused:
    """Convolution, then (``fuse``) + bias and ReLU; NHWC, sums and intermediates in fp32."""
    cudnn, xp = lab.cudnn, lab.xp
    axes = memory_axes("nhwc", len(shape.x))
    out = output_dims(shape.x, shape.w, shape.window)
    x = lab.operand(lab.random("fused/x", shape.x), kind, axes)
    w = lab.operand(lab.random("fused/w", shape.w), kind, axes)
    result = lab.output(out, output)
    graph = Graph(cudnn)
    tx = graph.tensor(kind.dtype, shape.x, channels_last(shape.x))
    tw = graph.tensor(kind.dtype, shape.w, channels_last(shape.w))
    ty = graph.tensor(output.dtype, out, channels_last(out))
    pointers = {tx.uid: x.pointer, tw.uid: w.pointer, ty.uid: result.pointer}
    exact = references.convolution_forward(x.exact, w.exact, shape.window, shape.groups, xp)
    squares = references.convolution_forward(x.exact**2, w.exact**2, shape.window, shape.groups, xp)
    keep: tuple[Any, ...] = (x, w)
    if fuse:
        width = (1, shape.w[0], 1, 1)
        bias = lab.operand(lab.random("fused/bias", width, 4.0), kind)
        tb = graph.tensor(kind.dtype, width, channels_last(width))
        sums = graph.convolution_forward(tx, tw, _virtual(graph, ty), shape.window)
        shifted = graph.pointwise(Pointwise.ADD, sums, _virtual(graph, ty), tb)
        graph.pointwise(Pointwise.RELU_FWD, shifted, ty)
        pointers[tb.uid] = bias.pointer
        exact = xp.maximum(exact + bias.exact, 0.0)
        squares = squares + bias.exact**2
        keep += (bias,)
    else:
        graph.convolution_forward(tx, tw, ty, shape.window)
    terms = shape.w[1] + 1
    for n in shape.w[2:]:
        terms *= n
    bound = Bound(graph, pointers, {"y": result}, keep)
    return Fused(bound, exact, xp.sqrt(squares), terms, out)


def run(
    lab: Lab, shape: Convolution, kind: str, choice: Choice, *, fuse: bool = True, output: str = ""
) -> dict[str, Any]:
    """One fused convolution on an engine of the wanted kind, checked element by element."""
    require(lab, kind)
    arithmetic, stored = FORMATS[kind], FORMATS[output or kind]
    made = _build(lab, shape, arithmetic, stored, fuse)
    plan = first_plan(lab.cudnn, made.bound.graph, choice)
    contents, repeatable = execute(lab, made.bound, plan)
    bound = bounds.sum_bound(
        made.exact,
        made.spread,
        terms=made.terms,
        arithmetic=arithmetic,
        stored=stored,
        transforms=plan.engine.transforms,
    )
    axes = memory_axes("nhwc", len(made.dims))
    result = lab.decode(contents["y"], made.dims, stored, axes)
    compared = lab.check(result, made.exact, bound, plan.engine.label)
    return {
        "engine": plan.engine.label,
        "worst": round(compared.worst, 4),
        "elements": compared.elements,
        "repeatable": repeatable,
    }


def run_fp8(lab: Lab, shape: Convolution) -> dict[str, Any]:
    """E4M3 convolution in whichever output type this release offers on this GPU."""
    require(lab, "fp8")
    refusals = []
    for output in ("fp32", "bf16", "fp16", "fp8"):
        try:
            return run(lab, shape, "fp8", any_engine, fuse=False, output=output) | {
                "output": output
            }
        except Unsupported as error:
            refusals.append(f"{output} output: {error}")
    raise Unsupported("; ".join(refusals))
