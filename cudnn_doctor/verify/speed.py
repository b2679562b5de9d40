"""Rung 6: rates of large convolutions against cuBLAS, and of streaming operations against a copy.

Everything is timed by CUDA events in one process, on random data (power, and with it the clock,
depends on the data). A convolution's rate counts a multiplication and an addition a term.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudnn_doctor.verify import formats
from cudnn_doctor.verify.binding import ops
from cudnn_doctor.verify.binding.enums import ActivationMode
from cudnn_doctor.verify.binding.graph import Graph, channels_last, row_major
from cudnn_doctor.verify.binding.plan import Engine, Numerical, Plan
from cudnn_doctor.verify.convolve import require
from cudnn_doctor.verify.cublas import Cublas
from cudnn_doctor.verify.cuda import Buffer
from cudnn_doctor.verify.formats import FORMATS
from cudnn_doctor.verify.fused import plans
from cudnn_doctor.verify.lab import Lab, Unsupported
from cudnn_doctor.verify.nvml import Monitor
from cudnn_doctor.verify.workloads import Speed, output_dims

MIN_RATIO = 0.5
"""Least share of the GEMM rate, or of the copy rate, that is no finding."""
_WARM, _MEASURE = 0.05, 0.15
"""Seconds."""
_GEMM = 8192
_STREAM = (64, 64, 256, 256)
_CANDIDATES = 4


def _rate(lab: Lab, run: Callable[[], None], seconds: float = _MEASURE) -> float:
    """Mean seconds of one run, after warming up."""
    begin, end = lab.driver.event(), lab.driver.event()
    run()
    begin.record()
    run()
    once = max(end.record().milliseconds_since(begin) / 1e3, 1e-6)
    for _ in range(int(_WARM / once)):
        run()
    count = max(3, int(seconds / once))
    begin.record()
    for _ in range(count):
        run()
    return end.record().milliseconds_since(begin) / 1e3 / count


def _filled(lab: Lab, kind: str, elements: int) -> Buffer:
    """Device memory of random numbers: one block, repeated."""
    block = formats.encode(lab.random("speed", (1 << 20,)), FORMATS[kind], lab.xp)
    return lab.repeat(block, elements)


def _suits(kind: str) -> Callable[[Engine], bool]:
    """True fp32 keeps to engines that neither shorten inputs nor use tensor cores."""
    shortened = {Numerical.TENSOR_CORE, Numerical.DOWN_CONVERT_INPUTS}
    return lambda engine: kind != "fp32" or not shortened & engine.numerical


def convolution(
    lab: Lab, cublas: Callable[[], Cublas], speed: Speed, kind: str, uuid: str
) -> dict[str, Any]:
    """Rates of GEMM and of the heuristics' first few engines; the best is the convolution's."""
    require(lab, kind)
    form, blas = FORMATS[kind], cublas()
    count = _GEMM * _GEMM
    a, b = _filled(lab, kind, count), _filled(lab, kind, count)
    c = Buffer(lab.driver, count * 4)
    sizes = (_GEMM, _GEMM, _GEMM)
    graph, pointers, keep = _graph(lab, speed, kind)
    with Monitor(uuid) as monitor:
        gemm = _rate(lab, lambda: blas.gemm(kind, sizes, a.pointer, b.pointer, c.pointer))
        tried: list[tuple[float, str]] = []
        for plan in plans(lab.cudnn, graph, _suits(kind)):
            seconds = _rate(lab, _executor(lab, plan, pointers))
            tried.append((seconds, plan.engine.label))
            if len(tried) == _CANDIDATES:
                break
        again = _rate(lab, lambda: blas.gemm(kind, sizes, a.pointer, b.pointer, c.pointer))
    if not tried:
        raise Unsupported("no engine is proposed for it")
    del keep
    gemm_rate = 2.0 * _GEMM**3 / min(gemm, again) / 1e12
    best, label = min(tried)
    rate, first = speed.operations / best / 1e12, speed.operations / tried[0][0] / 1e12
    return {
        "tflops": round(rate, 1),
        "first_tflops": round(first, 1),
        "gemm_tflops": round(gemm_rate, 1),
        "ratio": round(rate / gemm_rate, 3),
        "engine": label,
        "gpu": monitor.summary(),
        "bytes": form.size,
    }


def _graph(lab: Lab, speed: Speed, kind: str) -> tuple[Graph, dict[int, int], tuple[Buffer, ...]]:
    form = FORMATS[kind]
    out = output_dims(speed.x, speed.w, speed.window)
    graph = Graph(lab.cudnn)
    tensors = [graph.tensor(form.dtype, d, channels_last(d)) for d in (speed.x, speed.w, out)]
    graph.convolution_forward(tensors[0], tensors[1], tensors[2], speed.window)
    buffers = tuple(_filled(lab, kind, t.dims[0] * t.strides[0]) for t in tensors)
    pointers = {t.uid: b.pointer for t, b in zip(tensors, buffers, strict=True)}
    return graph, pointers, buffers


def _executor(lab: Lab, plan: Plan, pointers: dict[int, int]) -> Callable[[], None]:
    workspace, _ = lab.reserve(plan.workspace_size)
    pack = plan.variant_pack(pointers, workspace)
    return lambda: plan.execute(pack)


def streaming(lab: Lab, kind: str, uuid: str) -> dict[str, Any]:
    """ReLU and softmax, which read and write every byte once, against a device copy."""
    require(lab, kind)
    form = FORMATS[kind]
    elements = 1
    for n in _STREAM:
        elements *= n
    x = _filled(lab, kind, elements)
    y = Buffer(lab.driver, x.size)
    moved = 2 * elements * form.size
    tensor = ops.tensor(lab.cudnn, form.dtype, _STREAM, row_major(_STREAM))
    relu = ops.activation(lab.cudnn, ActivationMode.RELU)
    runs: dict[str, Callable[[], None]] = {
        "copy": lambda: y.copy_from(x),
        "relu": lambda: ops.activation_forward(lab.cudnn, relu, tensor, x.pointer, y.pointer),
        "softmax": lambda: ops.softmax_forward(lab.cudnn, tensor, x.pointer, y.pointer),
    }
    with Monitor(uuid) as monitor:
        rates = {name: moved / _rate(lab, run) / 1e9 for name, run in runs.items()}
    return {
        "copy_gbs": round(rates["copy"], 1),
        "relu_gbs": round(rates["relu"], 1),
        "softmax_gbs": round(rates["softmax"], 1),
        "ratio": round(rates["relu"] / rates["copy"], 3),
        "gpu": monitor.summary(),
    }


def slow(data: dict[str, Any]) -> str:
    """Why a rate is a finding; empty when it is none."""
    if data["ratio"] >= MIN_RATIO:
        return ""
    gpu = data["gpu"]
    if gpu.get("harmful"):
        why = "the GPU was throttled: " + ", ".join(gpu["throttled"])
    else:
        why = "another process uses the GPU, or cuDNN chose an engine that does not suit it"
    return f"{data['ratio']:.0%} of the reference rate; {why}"
