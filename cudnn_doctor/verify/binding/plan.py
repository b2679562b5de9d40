"""Engines for an operation graph, and execution plans on them."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cudnn_doctor.verify.binding.backend import Attr, Kind, Node, Type
from cudnn_doctor.verify.binding.library import Cudnn
from cudnn_doctor.verify.binding.status import CudnnError

_MAX_CONFIGS = 64


class HeurMode(enum.IntEnum):
    """cudnnBackendHeurMode_t."""

    INSTANT = 0
    B = 1
    FALLBACK = 2
    A = 3


class Behavior(enum.IntEnum):
    """cudnnBackendBehaviorNote_t."""

    RUNTIME_COMPILATION = 0
    REQUIRES_FILTER_INT8X32_REORDER = 1
    REQUIRES_BIAS_INT8X32_REORDER = 2
    SUPPORTS_CUDA_GRAPH_NATIVE_API = 3
    CUBLASLT_DEPENDENCY = 4


class Numerical(enum.IntEnum):
    """cudnnBackendNumericalNote_t."""

    TENSOR_CORE = 0
    DOWN_CONVERT_INPUTS = 1
    REDUCED_PRECISION_REDUCTION = 2
    FFT = 3
    NONDETERMINISTIC = 4
    WINOGRAD = 5


class Engine(NamedTuple):
    """One engine configuration that the heuristics propose."""

    config: Node
    number: int
    """CUDNN_ATTR_ENGINE_GLOBAL_INDEX."""
    behavior: frozenset[int]
    numerical: frozenset[int]
    mode: str

    @property
    def compiled_at_run_time(self) -> bool:
        return Behavior.RUNTIME_COMPILATION in self.behavior

    @property
    def reorders(self) -> bool:
        """Wants filters in an order of its own, which we do not make."""
        return bool(
            {Behavior.REQUIRES_FILTER_INT8X32_REORDER, Behavior.REQUIRES_BIAS_INT8X32_REORDER}
            & self.behavior
        )

    @property
    def transforms(self) -> bool:
        """Computes in a transformed domain, with its larger rounding errors."""
        return bool({Numerical.FFT, Numerical.WINOGRAD} & self.numerical)

    @property
    def label(self) -> str:
        made = "run-time compiled" if self.compiled_at_run_time else "precompiled"
        domain = [n.name for n in (Numerical.FFT, Numerical.WINOGRAD) if n in self.numerical]
        return ", ".join([f"engine {self.number}", made, *domain])


def engines(cudnn: Cudnn, graph: Node) -> Iterator[Engine]:
    """Engine configurations from heuristics mode A, then the fallback list; best first.

    A mode that the release or GPU does not know is passed over; raises the last CudnnError where
    none is left.
    """
    modes = (HeurMode.A, HeurMode.FALLBACK)
    refusals: list[CudnnError] = []
    for mode in modes:
        try:
            configs = _configs(cudnn, graph, mode)
        except CudnnError as error:
            if not error.unsupported:
                raise
            refusals.append(error)
            continue
        for config in configs:
            engine = Node(cudnn, Kind.ENGINE)
            if not config.get_into(Attr.ENGINECFG_ENGINE, [engine]):
                continue
            yield Engine(
                config,
                engine.get(Attr.ENGINE_GLOBAL_INDEX, Type.INT64)[0],
                frozenset(engine.get(Attr.ENGINE_BEHAVIOR_NOTE, Type.BEHAVIOR_NOTE, 16)),
                frozenset(engine.get(Attr.ENGINE_NUMERICAL_NOTE, Type.NUMERICAL_NOTE, 16)),
                mode.name,
            )
    if len(refusals) == len(modes):
        raise refusals[-1]


def _configs(cudnn: Cudnn, graph: Node, mode: HeurMode) -> list[Node]:
    heuristics = Node(cudnn, Kind.ENGINEHEUR)
    heuristics.set(Attr.ENGINEHEUR_OPERATION_GRAPH, Type.BACKEND_DESCRIPTOR, graph)
    heuristics.set(Attr.ENGINEHEUR_MODE, Type.HEUR_MODE, mode)
    heuristics.finalize()
    configs = [Node(cudnn, Kind.ENGINECFG) for _ in range(_MAX_CONFIGS)]
    return configs[: heuristics.get_into(Attr.ENGINEHEUR_RESULTS, configs)]


class Plan:
    """An execution plan; building it compiles kernels where the engine does so."""

    def __init__(self, cudnn: Cudnn, engine: Engine) -> None:
        self._cudnn = cudnn
        self.engine = engine
        self._plan = Node(cudnn, Kind.EXECUTION_PLAN)
        self._plan.set(Attr.EXECUTION_PLAN_HANDLE, Type.HANDLE, cudnn.handle.value)
        self._plan.set(Attr.EXECUTION_PLAN_ENGINE_CONFIG, Type.BACKEND_DESCRIPTOR, engine.config)
        self._plan.finalize()
        size = self._plan.get(Attr.EXECUTION_PLAN_WORKSPACE_SIZE, Type.INT64)
        self.workspace_size: int = size[0] if size else 0
        """Bytes."""

    def variant_pack(self, pointers: Mapping[int, int], workspace: int) -> Node:
        """Addresses by tensor uid (of device memory; of host scalars for by-value tensors)."""
        pack = Node(self._cudnn, Kind.VARIANT_PACK)
        pack.set(Attr.VARIANT_PACK_UNIQUE_IDS, Type.INT64, *pointers)
        pack.set(Attr.VARIANT_PACK_DATA_POINTERS, Type.VOID_PTR, *pointers.values())
        pack.set(Attr.VARIANT_PACK_WORKSPACE, Type.VOID_PTR, workspace)
        return pack.finalize()

    def execute(self, pack: Node) -> None:
        """Launch on the handle's stream."""
        self._cudnn.call(
            "cudnnBackendExecute", self._cudnn.handle, self._plan.pointer, pack.pointer
        )
