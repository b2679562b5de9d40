"""Whether a cuDNN build holds code that a GPU can run."""

from __future__ import annotations

from typing import Literal

from cudnn_doctor.matrix.model import GpuModel, Matrix, Variant
from cudnn_doctor.matrix.specs import version_key
from cudnn_doctor.matrix.target import TargetGpu


def gpu_verdict(
    gpu: TargetGpu, variant: Variant, matrix: Matrix
) -> tuple[Literal["ok", "out", "unknown"], str]:
    """Judge one GPU against one CUDA flavour of a release.

    Native code runs on its own compute capability and on newer minors of the same major (CUDA's
    binary compatibility); beyond that only what is documented counts. PTX alone is no support:
    cuDNN carries it for a part of its kernels.
    """
    cc, label = version_key(gpu.cc), gpu.label
    oldest, newest = version_key(variant.cc_min), version_key(variant.cc_max)
    outside = _outside_toolkit(gpu, variant, matrix)
    if not outside and oldest and cc < oldest:
        outside = f"{label}: supported from compute capability {variant.cc_min} on"
    if outside:
        return "out", outside
    native = [own for own in variant.cc or () if _runs(version_key(own), cc)]
    if native:
        return "ok", f"{label}: native code for {native[-1]}"
    if variant.cc is not None and _is_tegra(gpu, matrix):
        return "unknown", f"{label}: only builds for other platforms were measured"
    if oldest and (cc <= newest if newest else cc[0] == oldest[0]):
        return "ok", f"{label}: supported from {variant.cc_min} to {variant.cc_max or 'newer'}"
    if gpu.cc in variant.cc_partial:
        return "unknown", f"{label}: native code in some of the libraries only"
    if variant.cc is not None or newest:
        codes = variant.cc_max or ", ".join(variant.cc or ())
        return "out", f"{label}: no code for it (newest: {codes})"
    return "unknown", f"{label}: support by the CUDA {variant.cuda} build of this release"


def is_blackwell(gpu: TargetGpu) -> bool:
    """Compute capability 10.0 and later, which needs driver R570 at least."""
    return version_key(gpu.cc) >= (10, 0)


def _model(gpu: TargetGpu, matrix: Matrix) -> GpuModel | None:
    return next((model for model in matrix.gpus if model.cc == gpu.cc), None)


def _is_tegra(gpu: TargetGpu, matrix: Matrix) -> bool:
    model = _model(gpu, matrix)
    return model is not None and model.tegra


def _runs(code: tuple[int, ...], cc: tuple[int, ...]) -> bool:
    """Binary compatibility: same major, same or older minor."""
    return code[0] == cc[0] and code <= cc


def _outside_toolkit(gpu: TargetGpu, variant: Variant, matrix: Matrix) -> str:
    """Whether the CUDA major cannot target the GPU at all."""
    model = _model(gpu, matrix)
    major = version_key(variant.cuda)[0]
    if model is None:
        return ""
    if model.max_cuda and major > version_key(model.max_cuda)[0]:
        return f"{gpu.label}: CUDA {model.max_cuda} is the last that supports it"
    if model.min_cuda and major < version_key(model.min_cuda)[0]:
        return f"{gpu.label}: CUDA {model.min_cuda} is the first that supports it"
    return ""
