"""NVRTC and nvcc: compilers that do not know the GPU, or another one than the framework's."""

from __future__ import annotations

import re

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.facts import numbers
from cudnn_doctor.explain.model import Observation
from cudnn_doctor.explain.rules.gpu import build_capability

_LONG_GONE = 50
_DROPPED = ((30, (9, 0)), (35, (11, 0)), (50, (12, 0)), (75, (13, 0)))
"""Architectures below the first number: dropped by that CUDA (CUDA release notes)."""


def _other_toolkit(case: Case, wanted: str) -> str:
    """Folder of a toolkit before the framework's own NVRTC, of another release than ``wanted``."""
    for folder in case.facts.ld_path or ():
        found = re.search(r"cuda[-/_]?v?(\d{1,2}\.\d)", folder)
        if found and (not wanted or found[1] != wanted):
            return folder
        if not found and re.search(r"/cuda(?:/|$)", folder) and _toolkit_differs(case, wanted):
            return folder
    return ""


def _toolkit_differs(case: Case, wanted: str) -> bool:
    versions = [t.version for t in case.facts.machine.toolkits or () if t.version]
    return bool(versions) and all(numbers(v)[:2] != numbers(wanted)[:2] for v in versions)


def _framework_cuda(case: Case) -> str:
    told = [f.cuda for f in case.facts.machine.frameworks if f.cuda and f.cuda != "cpu"]
    return told[0] if told else ""


def unknown_architecture(case: Case) -> None:
    """NVRTC refuses the GPU's architecture: the build is too old, or an older NVRTC is loaded."""
    seen = case.first("nvrtc-architecture")
    seen = seen or case.statuses().get("INTERNAL_ERROR_COMPILATION_FAILED")
    if seen is None:
        return
    label, newest = build_capability(case)
    capability = case.facts.capability
    sm = ".".join(map(str, capability))
    if label and newest and capability > newest:
        case.vote("gpu-too-new-for-build", 0.88, culprit=f"{label} on CC {sm}", line=seen)
        case.doubt("libnvrtc-shadowed-old", 0.4)
        return
    folder = _other_toolkit(case, _framework_cuda(case))
    if folder:
        _shadowed(case, seen, folder, "an older NVRTC")


def _shadowed(case: Case, seen: Observation, folder: str, what: str) -> None:
    case.vote(
        "libnvrtc-shadowed-old",
        0.88,
        f"LD_LIBRARY_PATH has {folder}",
        culprit=f"{folder}: libnvrtc ({what}) is found first",
        line=seen,
    )
    case.doubt("gpu-too-new-for-build", 0.5)
    case.doubt("libnvrtc-missing", 0.5)


def builtins(case: Case) -> None:
    """NVRTC's companion file of the same release is not where the loader looks."""
    seen = case.first("nvrtc-builtins")
    if seen is None:
        return
    folder = _other_toolkit(case, seen.get("version"))
    if folder:
        _shadowed(case, seen, folder, f"another release than {seen.get('version')}")
        return
    case.vote("libnvrtc-missing", 0.5, culprit=seen.get("lib"), line=seen)


def compiler(case: Case) -> None:
    """nvcc does not know the architecture that it is asked for."""
    seen = case.first("compiler-architecture")
    if seen is None:
        return
    sm = int(seen.get("sm"))
    newer = f"the CUDA toolkit that compiles: it does not know sm_{sm}"
    dropped = f"sm_{sm}: this CUDA toolkit has dropped it"
    known = [numbers(t.version) for t in case.facts.machine.toolkits or () if t.version]
    last = next((cuda for bound, cuda in _DROPPED if sm < bound), None)
    if last is None or (known and max(known) < last):
        case.vote("gpu-too-new-for-build", 0.8, culprit=newer, line=seen)
    elif known or sm < _LONG_GONE:
        case.vote("gpu-too-old", 0.8, culprit=dropped, line=seen)
    else:
        case.vote("gpu-too-new-for-build", 0.5, culprit=newer, line=seen)
        case.vote("gpu-too-old", 0.45, culprit=dropped, line=seen)


def tensorrt(case: Case) -> None:
    """TensorRT names the compute capability that it has no code for."""
    seen = case.first("unsupported-sm")
    if seen is None:
        return
    capability = (int(seen.get("major"), 16), int(seen.get("minor")))
    label = f"CC {capability[0]}.{capability[1]} with this TensorRT"
    if capability < (7, 5):
        case.vote("gpu-too-old", 0.85, culprit=label, line=seen)
    else:
        case.vote("gpu-too-new-for-build", 0.8, culprit=label, line=seen)


COMPILING_RULES = (unknown_architecture, builtins, compiler, tensorrt)
