"""Rung 4: convolutions through the legacy API, checked element by element."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from cudnn_doctor.verify import bounds, references
from cudnn_doctor.verify.binding import cnn, ops
from cudnn_doctor.verify.binding.cnn import Algorithm, Direction, Operands
from cudnn_doctor.verify.binding.enums import DataType, MathType, TensorFormat
from cudnn_doctor.verify.binding.graph import channels_last, row_major
from cudnn_doctor.verify.binding.library import Descriptor
from cudnn_doctor.verify.binding.status import CudnnError
from cudnn_doctor.verify.formats import FORMATS, Format
from cudnn_doctor.verify.lab import Lab, Operand, Refused, Unsupported, run_twice
from cudnn_doctor.verify.workloads import Convolution, output_dims

DIRECTIONS: tuple[Direction, ...] = ("forward", "data", "filter")
_MATH = {"fp32": MathType.FMA, "tf32": MathType.TENSOR_OP}


class Problem(NamedTuple):
    """One convolution in one type, layout and direction."""

    shape: Convolution
    kind: str
    layout: str
    direction: Direction

    @property
    def name(self) -> str:
        return f"{self.shape.name} {self.kind} {self.layout} {self.direction}"


class Exact(NamedTuple):
    """Reference and the spread of its sums (Q in `bounds`)."""

    value: Any
    spread: Any
    terms: int


def memory_axes(layout: str, rank: int) -> tuple[int, ...] | None:
    """Order of dimensions in memory, outermost first; None where it is the usual one."""
    return (0, *range(2, rank), 1) if layout == "nhwc" else None


def needs(kind: str) -> tuple[int, int]:
    """Lowest compute capability with hardware for a type."""
    return {"tf32": (8, 0), "bf16": (8, 0), "fp16": (5, 3), "int8": (6, 1), "fp8": (9, 0)}.get(
        kind, (0, 0)
    )


def require(lab: Lab, kind: str) -> None:
    """Raises Unsupported where the GPU has no hardware for the type."""
    if not lab.at_least(*needs(kind)):
        major, minor = needs(kind)
        raise Unsupported(f"{kind} needs compute capability {major}.{minor} or newer")


def _dims(problem: Problem, which: str) -> tuple[int, ...]:
    shape = problem.shape
    out = output_dims(shape.x, shape.w, shape.window)
    return {"x": shape.x, "w": shape.w, "y": out}[which]


_OPERANDS: dict[Direction, tuple[str, str, str]] = {
    "forward": ("x", "w", "y"),
    "data": ("w", "y", "x"),
    "filter": ("x", "y", "w"),
}


def _values(lab: Lab, shape: Convolution, which: str, dims: tuple[int, ...], kind: Format) -> Any:
    if kind.name != "int8":
        return lab.random(f"{shape.name}/{which}", dims)
    return lab.random(f"{shape.name}/{which}", dims, 40.0)


@lru_cache(maxsize=4)
def _exact(lab: Lab, shape: Convolution, rounding: str, direction: Direction) -> Exact:
    """Reference in float64; shared by the layouts, and by fp32 and TF32 (the same inputs)."""
    from cudnn_doctor.verify import formats

    problem = Problem(shape, rounding, "nchw", direction)
    kind = FORMATS[rounding]
    first, second, _ = _OPERANDS[direction]
    inputs = []
    for which in (first, second):
        values = _values(lab, shape, which, _dims(problem, which), kind)
        inputs.append(formats.decode(formats.encode(values, kind, lab.xp), kind, lab.xp))
    squares = _reference(lab, problem, [a * a for a in inputs])
    return Exact(_reference(lab, problem, inputs), lab.xp.sqrt(squares), _terms(problem))


def _reference(lab: Lab, problem: Problem, inputs: list[Any]) -> Any:
    shape, xp = problem.shape, lab.xp
    first, second = inputs
    if problem.direction == "forward":
        return references.convolution_forward(first, second, shape.window, shape.groups, xp)
    if problem.direction == "data":
        return references.convolution_data(first, second, shape, xp)
    return references.convolution_filter(first, second, shape, xp)


def _terms(problem: Problem) -> int:
    """Products in the longest sum that makes one element of the result."""
    taps = 1
    for n in problem.shape.w[2:]:
        taps *= n
    if problem.direction == "forward":
        return taps * problem.shape.w[1]
    if problem.direction == "data":
        return taps * problem.shape.w[0] // problem.shape.groups
    y = _dims(problem, "y")
    points = y[0]
    for n in y[2:]:
        points *= n
    return points


def _descriptor(lab: Lab, problem: Problem, which: str, dtype: int) -> Descriptor:
    dims = _dims(problem, which)
    nhwc = problem.layout == "nhwc"
    if which == "w":
        layout = TensorFormat.NHWC if nhwc else TensorFormat.NCHW
        return ops.filter_(lab.cudnn, dtype, layout, dims)
    return ops.tensor(lab.cudnn, dtype, dims, channels_last(dims) if nhwc else row_major(dims))


class Prepared(NamedTuple):
    """Everything but the algorithm."""

    operands: Operands
    convolution: Descriptor
    inputs: tuple[Operand, Operand]
    output: Format
    dims: tuple[int, ...]
    axes: tuple[int, ...] | None


def prepare(lab: Lab, problem: Problem) -> Prepared:
    """Upload the inputs and describe the convolution."""
    kind = FORMATS[problem.kind]
    output = FORMATS["fp32"] if problem.kind == "int8" else kind
    names = _OPERANDS[problem.direction]
    dims = _dims(problem, names[2])
    axes = memory_axes(problem.layout, len(dims))
    inputs = tuple(
        lab.operand(_values(lab, problem.shape, n, _dims(problem, n), kind), kind, axes)
        for n in names[:2]
    )
    shape = problem.shape
    convolution = cnn.convolution(
        lab.cudnn,
        padding=shape.window.padding,
        stride=shape.window.stride,
        dilation=shape.window.dilation,
        groups=shape.groups,
        compute=DataType.INT32 if problem.kind == "int8" else DataType.FLOAT,
        math_type=_MATH.get(problem.kind, MathType.TENSOR_OP),
    )
    operands = Operands(
        _descriptor(lab, problem, names[0], kind.dtype),
        _descriptor(lab, problem, names[1], kind.dtype),
        _descriptor(lab, problem, names[2], output.dtype),
    )
    return Prepared(operands, convolution, (inputs[0], inputs[1]), output, dims, axes)


def choose(lab: Lab, problem: Problem, made: Prepared) -> tuple[Algorithm, int]:
    """The heuristics' first algorithm that works, and the bytes of workspace it wants."""
    arguments = (problem.direction, made.operands, made.convolution)
    wanted = _MATH.get(problem.kind)
    for algorithm in cnn.algorithms(lab.cudnn, *arguments):
        if wanted is MathType.FMA and algorithm.math_type not in (MathType.FMA, MathType.DEFAULT):
            continue
        math_type = MathType.FMA if wanted is MathType.FMA else algorithm.math_type
        lab.cudnn.call("cudnnSetConvolutionMathType", made.convolution, math_type)
        try:
            size = cnn.workspace_size(lab.cudnn, *arguments, algorithm)
        except CudnnError as error:
            if error.unsupported:
                continue
            raise
        return algorithm, size
    raise Unsupported("cuDNN proposes no algorithm for it")


def run(lab: Lab, problem: Problem) -> dict[str, Any]:
    """Do one convolution twice and check it; the algorithm and the error as data.

    Raises Unsupported where cuDNN refuses (Refused or CudnnError for a basic shape, which none may
    refuse) and Wrong for a result outside its bound.
    """
    require(lab, problem.kind)
    made = prepare(lab, problem)
    try:
        algorithm, size = choose(lab, problem, made)
        workspace = lab.reserve(size)
        output = lab.output(made.dims, made.output)
        contents, repeatable = run_twice(
            {"result": output},
            lambda: cnn.convolve(
                lab.cudnn,
                problem.direction,
                made.operands,
                made.convolution,
                algorithm,
                pointers=(made.inputs[0].pointer, made.inputs[1].pointer, output.pointer),
                workspace=workspace,
            ),
        )
    except Unsupported as error:
        if problem.shape.basic and problem.kind != "int8":
            raise Refused(
                f"{error}: its engines cannot be loaded, or have no kernels for this GPU"
            ) from error
        raise
    except CudnnError as error:
        if error.unsupported and not problem.shape.basic:
            raise Unsupported(str(error)) from error
        raise
    results = [contents] if repeatable else [contents, {"result": output.read()}]
    checked = [check(lab, problem, made, algorithm, r["result"]) for r in results]
    worst = max(checked, key=lambda c: c[0].worst)
    data: dict[str, Any] = {
        "algorithm": algorithm.name,
        "worst": round(worst[0].worst, 4),
        "elements": worst[0].elements,
        "repeatable": repeatable,
    }
    if any(reduced for _, reduced in checked):
        data["reduced"] = f"partial sums kept in {made.output.name}"
    return data


def check(
    lab: Lab, problem: Problem, made: Prepared, algorithm: Algorithm, contents: bytearray
) -> tuple[bounds.Comparison, bool]:
    """Compare one result; whether it only stands with 16-bit partial sums. Raises Wrong."""
    kind = FORMATS[problem.kind]
    exact = _exact(lab, problem.shape, kind.rounding_name, problem.direction)
    bound = bounds.sum_bound(
        exact.value,
        exact.spread,
        terms=exact.terms,
        arithmetic=kind,
        stored=made.output,
        transforms=algorithm.transforms,
    )
    result = lab.decode(contents, made.dims, made.output, made.axes)
    strict = bounds.compare(result, exact.value, bound, lab.xp)
    if strict.ok or not bounds.reduces(strict, made.output):
        return lab.check(result, exact.value, bound, algorithm.name), False
    wide = bounds.reduced_bound(bound, exact.spread, terms=exact.terms, stored=made.output)
    return lab.check(result, exact.value, wide, algorithm.name), True
