"""Faults that print no error of their own: state told by a listing, a version, a number."""

from __future__ import annotations

import re

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.facts import numbers, release


def clobbered(case: Case) -> None:
    """Two cuDNN wheels in one environment own the same files."""
    wheels = case.facts.cudnn_wheels
    owned = case.facts.says(r"(?:one|same) folder owned by two|two distributions")
    if len(wheels) < 2 and not owned:
        return
    seen = case.first("dist-version")
    loaded = [release(o.get("number") or o.get("version")) for o in case.seen("cudnn-version")]
    found = [c.version for c in case.facts.copies if c.kind == "wheel" and c.version]
    have = next((v.short for v in loaded if v), None) or (found[0] if found else None)
    names = " and ".join(f"{n} {v}".strip() for n, v in sorted(wheels.items()))
    told = f": the files are {have}" if have else ""
    case.vote(
        "cudnn-wheel-clobbered",
        0.9 if have else 0.6,
        "both own nvidia/cudnn/lib",
        culprit=f"nvidia/cudnn/lib, owned by {names or 'two wheels'}{told}",
        line=seen,
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


_FAMILIES = {"Kepler": (3, 5), "Maxwell": (5, 2), "Pascal": (6, 1), "Volta": (7, 0)}


def pascal(case: Case) -> None:
    """A cuDNN that dropped the GPU (9.11 and later need CC 7.5)."""
    seen = case.first("cudnn-version", "cudnn-status", "no-kernel-image", "no-algorithm")
    family = case.first("gpu-family")
    capability = case.facts.capability
    if not capability and family is not None:
        capability = _FAMILIES[family.get("family")]
    if seen is None or not capability or capability >= (7, 5):
        return
    versions = [numbers(c.version) for c in case.facts.copies if c.version]
    versions += [numbers(v) for v in case.facts.cudnn_wheels.values()]
    if family is not None:
        told = [release(o.get("number") or o.get("version")) for o in case.seen("cudnn-version")]
        versions += [version.release for version in told if version]
    newest = max((v for v in versions if v), default=())
    if newest >= (9, 11):
        case.vote(
            "gpu-too-old-for-cudnn",
            0.92 if case.facts.capability else 0.5,
            "cuDNN 9.11 and later support compute capability 7.5 and above",
            culprit=f"CC {_dotted(capability)} with cuDNN {_dotted(newest[:3])}",
            line=seen,
        )


def conv3d(case: Case) -> None:
    """torch 2.9 avoids cuDNN for half-precision conv3d below a bound of cuDNN's version."""
    torch = case.facts.framework("torch")
    seen = case.first("slow-fallback", "out-of-memory")
    if torch is None or seen is None or numbers(torch.version)[:2] != (2, 9):
        return
    wheel = next(iter(case.facts.cudnn_wheels.items()), ("", ""))
    old = not wheel[1] or numbers(wheel[1]) < (9, 15)
    if old:
        case.vote(
            "cudnn-version-performance",
            0.85 if case.seen("slow-fallback") else 0.5,
            "torch 2.9 goes around cuDNN for conv3d in half types below cuDNN 9.15",
            culprit=f"{' '.join(wheel).strip() or 'cuDNN'} with torch {torch.version}",
            line=seen,
        )
        if case.seen("slow-fallback"):
            case.doubt("out-of-memory-masked", 0.4)


def nans(case: Case) -> None:
    """Half precision on Turing cards without tensor cores, with early 8.x."""
    seen = case.first("nan-output")
    if seen is None:
        return
    text = " ".join(o.text for o in case.observations)
    half = re.search(r"half|fp16|float16", text + case.facts.prose, re.I)
    gtx16 = re.search(r"GTX\s*16[56]0", case.facts.gpu_name)
    if gtx16:
        case.vote(
            "cudnn-version-wrong-results",
            0.75 if half else 0.6,
            "GTX 16xx has no tensor cores",
            culprit=f"{case.facts.gpu_name} in half precision with that cuDNN",
            line=seen,
        )
    elif half and re.search(r"conv|cudnn", text, re.I):
        case.vote(
            "cudnn-version-wrong-results", 0.4, culprit="half-precision convolutions", line=seen
        )


def built_older(case: Case) -> None:
    """The framework's own build is the limit, whatever cuDNN is installed."""
    seen = case.first("invalid-dtype")
    if seen is None:
        return
    built = [f for f in case.facts.machine.frameworks if f.cudnn_built]
    label = "the framework's build"
    if built:
        name = built[-1].distribution or built[-1].name
        label = f"{name} {built[-1].version} (built with {built[-1].cudnn_built})"
    case.vote(
        "framework-built-with-older-cudnn",
        0.5,
        culprit=f"{label}, not the installed cuDNN",
        line=seen,
    )


def died(case: Case) -> None:
    """A crash without words, while two releases can meet in the process."""
    seen = case.first("died-silently", "crash")
    path = case.facts.ld_path
    if seen is None or not path:
        return
    first = [c for c in case.facts.copies if c.folder in path and c.version]
    own = [c for c in case.facts.copies if c.kind in ("wheel", "bundled") and c.version]
    if first and own and numbers(first[0].version) != numbers(own[0].version):
        case.vote(
            "mixed-cudnn-copies",
            0.75,
            f"LD_LIBRARY_PATH brings {first[0].version}, the framework's own copy is "
            f"{own[0].version}",
            culprit=f"{first[0].folder} {first[0].version} with {own[0].folder} {own[0].version}",
            line=seen,
        )


STATE_RULES = (clobbered, pascal, conv3d, nans, built_older, died)
