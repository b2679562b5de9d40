"""Whether the resolver may give a cuDNN build to a GPU."""

from __future__ import annotations

import re
from typing import Literal

from cudnn_doctor.matrix.capability import cc_support
from cudnn_doctor.matrix.model import Matrix, Variant
from cudnn_doctor.matrix.query import gpu_by_cc
from cudnn_doctor.matrix.specs import version_key
from cudnn_doctor.matrix.target import TargetGpu

_DATA_CENTRE = re.compile(r"\b(Tesla|G[BH][23]00|T4G?|[ABHLPV]\d{1,3}[A-Z]?)\b")
_WORKSTATION = re.compile(r"\b(RTX|GTX|GeForce|Quadro)\b", re.IGNORECASE)
_STATES: dict[str, Literal["ok", "out", "unknown"]] = {
    "native": "ok",
    "ptx": "out",
    "no": "out",
    "unknown": "unknown",
}


def gpu_verdict(
    gpu: TargetGpu, variant: Variant, matrix: Matrix, platform: str
) -> tuple[Literal["ok", "out", "unknown"], str]:
    """Judge one GPU against one CUDA flavour of a release.

    PTX alone is no support: cuDNN carries it for a part of its kernels only. For Jetson it proves
    nothing either way, because only x86_64 builds were measured.
    """
    cc, model = gpu.cc or "", gpu_by_cc(matrix, gpu.cc or "")
    major = version_key(variant.cuda)[:1]
    if model and model.max_cuda and major > version_key(model.max_cuda)[:1]:
        return "out", f"CUDA {model.max_cuda} is the last that supports {gpu.label}"
    if model and model.min_cuda and major < version_key(model.min_cuda)[:1]:
        return "out", f"CUDA {model.min_cuda} is the first that supports {gpu.label}"
    support = cc_support(matrix, variant, cc, platform=platform)
    if _documented_minimum(variant, cc):
        return "ok", f"supported from compute capability {variant.cc_min} on"
    known = f" ({support.how})" if support.how else ""
    if support.verdict == "ptx":
        tegra = model is not None and model.tegra
        return "unknown" if tegra else "out", f"{support.reason}: not all kernels have it{known}"
    return _STATES[support.verdict], f"{support.reason}{known}"


def is_blackwell(gpu: TargetGpu) -> bool:
    """Compute capability 10.0 and later, which needs driver R570 at least."""
    return version_key(gpu.cc) >= (10, 0)


def is_data_centre(gpu: TargetGpu) -> bool:
    """Whether NVIDIA supports CUDA forward compatibility on it, as far as name or kind tell."""
    if gpu.name:
        return bool(_DATA_CENTRE.search(gpu.name)) and not _WORKSTATION.search(gpu.name)
    return gpu.cc in ("8.0", "9.0", "10.0", "10.3")


def _documented_minimum(variant: Variant, cc: str) -> bool:
    """Whether it is of the generation that the release documents as its oldest.

    Old matrices give only the lowest compute capability; that generation is then supported.
    """
    if variant.cc is not None or variant.cc_max or not variant.cc_min:
        return False
    wanted, oldest = version_key(cc), version_key(variant.cc_min)
    return wanted[0] == oldest[0] and wanted >= oldest
