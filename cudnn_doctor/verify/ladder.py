"""The steps of each rung, as values: what a level does, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

from cudnn_doctor.verify import workloads
from cudnn_doctor.verify.model import Level

Run = Callable[[Any], dict[str, Any]]
"""A step's work on a Lab; its data. Raises Unsupported, Wrong, CudnnError or CudaError."""


class Step(NamedTuple):
    name: str
    run: Run


def convolve_steps(level: Level, flavour: str = "full") -> Iterator[Step]:
    """Rung 4."""
    from cudnn_doctor.verify import fused, probes
    from cudnn_doctor.verify.convolve import DIRECTIONS, Problem, run

    def step(problem: Problem) -> Step:
        return Step(problem.name, partial(run, problem=problem))

    if level == "quick":
        shape = next(s for s in workloads.CONVOLUTIONS if s.name == workloads.QUICK)
        yield step(Problem(shape, "fp32", "nchw", "forward"))
        yield from (step(Problem(shape, "fp16", "nhwc", way)) for way in DIRECTIONS)
        yield step(Problem(shape, "bf16", "nhwc", "forward"))
        yield Step(
            "conv+bias+relu fp16, precompiled",
            partial(run_fused, kind="fp16", choice=fused.precompiled),
        )
        if flavour == "jit":
            yield Step(
                "conv+bias+relu fp16, run-time compiled",
                partial(run_fused, kind="fp16", choice=fused.run_time_compiled),
            )
        return
    for shape in workloads.CONVOLUTIONS:
        if shape.large and level != "full":
            continue
        for kind in ("fp32", "tf32", "fp16", "bf16"):
            for way in DIRECTIONS:
                for layout in workloads.LAYOUTS:
                    if level == "full" or (shape.name, kind, layout, way) not in workloads.SLOW:
                        yield step(Problem(shape, kind, layout, way))
        if not shape.large and len(shape.x) == 4:
            yield step(Problem(shape, "int8", "nhwc", "forward"))
    for kind in ("fp16", "bf16"):
        for label, choice in (
            ("precompiled", fused.precompiled),
            ("run-time compiled", fused.run_time_compiled),
        ):
            if level == "full" or (kind, label) != ("bf16", "run-time compiled"):
                yield Step(
                    f"conv+bias+relu {kind}, {label}",
                    partial(run_fused, kind=kind, choice=choice),
                )
    yield Step("3x3 fp8 nhwc forward", partial(fused.run_fp8, shape=workloads.FUSED))
    yield from (Step(name, run) for name, run in probes.steps(full=level == "full"))


def run_fused(lab: Any, kind: str, choice: Any) -> dict[str, Any]:
    """The fused pattern, or the bare convolution where no engine of the kind fuses it."""
    from cudnn_doctor.verify import fused
    from cudnn_doctor.verify.lab import Unsupported

    try:
        return fused.run(lab, workloads.FUSED, kind, choice)
    except Unsupported:
        return fused.run(lab, workloads.FUSED, kind, choice, fuse=False) | {"fused": False}


def library_steps(level: Level) -> Iterator[Step]:
    """Rung 5."""
    from cudnn_doctor.verify import attention, causal, operations, recurrent
    from cudnn_doctor.verify.binding.enums import ActivationMode, PoolingMode

    for mode in ActivationMode:
        for kind in ("fp32", "fp16"):
            yield Step(
                f"{mode.name.lower()} {kind}",
                partial(operations.activation, mode=mode, kind=kind),
            )
    for pool in (PoolingMode.MAX, PoolingMode.AVERAGE_COUNT_INCLUDE_PADDING):
        for kind in ("fp32", "fp16"):
            yield Step(
                f"pooling {pool.name.split('_')[0].lower()} {kind}",
                partial(operations.pooling, mode=pool, kind=kind),
            )
    for kind in ("fp32", "fp16"):
        yield Step(f"softmax {kind}", partial(operations.softmax, kind=kind))
        yield Step(f"batch norm {kind}", partial(operations.batch_norm, kind=kind))
    for kind in ("fp16", "bf16") if level == "full" else ("fp16",):
        yield Step(f"layer norm {kind}", partial(operations.layer_norm, kind=kind))
    yield Step("lstm fp32", recurrent.lstm)
    for kind in ("fp32", "bf16") if level == "full" else ("fp32",):  # compiles for 5 s each
        yield Step(f"causal convolution {kind}", partial(causal.convolution, kind=kind))
    shapes = [workloads.Attention()]
    if level == "full":
        shapes.append(workloads.Attention(2, 8, 1024, 128))
    for shape in shapes:
        for kind in ("fp16", "bf16") if level == "full" else ("bf16",):
            size = f"{shape.sequence}x{shape.size} {kind}"
            yield Step(
                f"attention {size} forward",
                partial(attention.forward, shape=shape, kind=kind),
            )
            yield Step(
                f"attention {size} backward",
                partial(attention.backward, shape=shape, kind=kind),
            )


def speed_steps(level: Level, cublas_paths: tuple[str, ...], uuid: str) -> Iterator[Step]:
    """Rung 6."""
    from cudnn_doctor.verify import speed
    from cudnn_doctor.verify.cublas import Cublas

    cublas = lru_cache(maxsize=1)(partial(Cublas, cublas_paths))
    for shape in workloads.SPEED:
        for kind in shape.types:
            if level != "full" and kind == "fp16":
                continue
            yield Step(
                f"{shape.name} {kind}",
                partial(speed.convolution, cublas=cublas, speed=shape, kind=kind, uuid=uuid),
            )
    yield Step("streaming fp32", partial(speed.streaming, kind="fp32", uuid=uuid))
