"""List the engines that a cuDNN copy proposes for the graphs that `verify` uses.

Usage: python benchmarks/explore_engines.py FOLDER
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cudnn_doctor.verify import attention, fused, workloads
from cudnn_doctor.verify.binding import adv, backend, cnn, ops
from cudnn_doctor.verify.binding.graph import Graph
from cudnn_doctor.verify.binding.library import Cudnn, open_global
from cudnn_doctor.verify.binding.plan import Plan, engines
from cudnn_doctor.verify.binding.status import CudnnError
from cudnn_doctor.verify.cuda import Driver
from cudnn_doctor.verify.formats import FORMATS
from cudnn_doctor.verify.lab import Lab


def show(cudnn: Cudnn, title: str, make: Callable[[], Graph]) -> None:
    print(f"== {title}")
    try:
        graph = make().finalize()
        for engine in engines(cudnn, graph):
            try:
                plan = Plan(cudnn, engine)
                state = f"ok, workspace {plan.workspace_size}"
            except CudnnError as error:
                state = str(error)
            print(f"  {engine.mode} {engine.label} behavior {sorted(engine.behavior)}"
                  f" numerical {sorted(engine.numerical)}: {state}")  # fmt: skip
    except Exception:
        traceback.print_exc(file=sys.stdout)


def main() -> None:
    folder = Path(sys.argv[1])
    driver = Driver()
    device = driver.start()
    cudnn = Cudnn(open_global(str(sorted(folder.glob("libcudnn.so.?"))[-1])))
    for layer in (ops, cnn, adv, backend):
        layer.declare(cudnn)
    cudnn.create()
    lab = Lab(cudnn, driver, device, 1, numpy)
    shape = workloads.FUSED

    def conv(kind: str, output: str, fuse: bool) -> Graph:
        return fused._build(lab, shape, FORMATS[kind], FORMATS[output], fuse).bound.graph

    def attend(build: Callable[..., Any], kind: str) -> Graph:
        return build(attention._Builder(lab, workloads.Attention(), FORMATS[kind]))[0]

    for kind in ("fp16", "bf16", "fp32"):
        for fuse in (True, False):
            show(cudnn, f"conv {kind} fused={fuse}", partial(conv, kind, kind, fuse))
    for output in ("fp32", "bf16", "fp16", "fp8"):
        show(cudnn, f"conv fp8 -> {output}", partial(conv, "fp8", output, False))
    for kind in ("fp16", "bf16"):
        show(cudnn, f"attention {kind}", partial(attend, attention._forward_graph, kind))
        show(cudnn, f"attention backward {kind}", partial(attend, attention._backward_graph, kind))


if __name__ == "__main__":
    main()
