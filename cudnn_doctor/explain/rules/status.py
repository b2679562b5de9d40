"""cuDNN's status names: consequences that several faults share; the facts decide."""

from __future__ import annotations

import re

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.facts import numbers
from cudnn_doctor.explain.model import Observation
from cudnn_doctor.explain.rules.gpu import build_capability

_VOTES: dict[str, dict[str, float]] = {
    "NOT_INITIALIZED": {
        "out-of-memory-masked": 0.3,
        "driver-too-old": 0.15,
        "mixed-cudnn-copies": 0.15,
        "cudnn-install-incomplete": 0.12,
        "known-bad-release": 0.1,
    },
    "ALLOC_FAILED": {"out-of-memory-masked": 0.8},
    "INTERNAL_ERROR_HOST_ALLOCATION_FAILED": {"out-of-memory-masked": 0.7},
    "INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED": {"out-of-memory-masked": 0.85},
    "INTERNAL_ERROR": {"out-of-memory-masked": 0.42, "mixed-cudnn-copies": 0.12},
    "INTERNAL_ERROR_COMPILATION_FAILED": {"libnvrtc-missing": 0.4, "libnvrtc-shadowed-old": 0.3},
    "EXECUTION_FAILED": {"out-of-memory-masked": 0.4, "gpu-too-new-for-build": 0.3},
    "EXECUTION_FAILED_CUBLAS": {"cublas-shadowed": 0.4, "out-of-memory-masked": 0.3},
    "EXECUTION_FAILED_CUDA_DRIVER": {"ptx-newer-than-driver": 0.3, "driver-too-old": 0.25},
    "MAPPING_ERROR": {"out-of-memory-masked": 0.35, "gpu-too-new-for-build": 0.25},
    "NOT_SUPPORTED": {"cudnn-feature-unsupported-on-gpu": 0.35, "cudnn-version-regression": 0.2},
    "VERSION_MISMATCH": {"mixed-cudnn-copies": 0.65},
    "SUBLIBRARY_VERSION_MISMATCH": {
        "mixed-cudnn-copies": 0.65,
        "cudnn-wheel-incomplete": 0.3,
        "ld-library-path-shadow": 0.3,
    },
    "SUBLIBRARY_LOADING_FAILED": {
        "cudnn-install-incomplete": 0.3,
        "cudnn-not-on-loader-path": 0.28,
        "mixed-cudnn-copies": 0.25,
    },
    "RUNTIME_PREREQUISITE_MISSING": {"libnvrtc-missing": 0.45, "other-cuda-lib-missing": 0.25},
    "NOT_SUPPORTED_INCOMPATIBLE_CUDART": {"cudnn-cuda-major-mismatch": 0.5},
}


def statuses(case: Case) -> None:
    """Votes by status; weak on purpose, since a status is a consequence."""
    for name, seen in case.statuses().items():
        for diagnosis, weight in _VOTES.get(name, {}).items():
            memory = "GPU memory" if diagnosis == "out-of-memory-masked" else ""
            sure = weight >= 0.6 or name == "SUBLIBRARY_VERSION_MISMATCH"
            case.vote(diagnosis, weight, culprit=memory, line=seen, symptom=not sure)


def execution_on_new_gpu(case: Case) -> None:
    """A build that is older than the GPU fails in its first kernels."""
    found = case.statuses()
    names = (
        "EXECUTION_FAILED",
        "MAPPING_ERROR",
        "INTERNAL_ERROR",
        "NOT_INITIALIZED",
        "ARCH_MISMATCH",
    )
    seen = next((found[name] for name in names if name in found), None) or case.first(
        "no-algorithm"
    )
    label, newest = build_capability(case)
    capability = case.facts.capability
    if seen is None or not newest or not capability:
        return
    turing = newest == (7, 0) and capability == (7, 5)  # cuDNN for CUDA 9 fails on Turing
    if capability[0] <= newest[0] and not turing:
        return
    sm = ".".join(map(str, capability))
    case.vote(
        "gpu-too-new-for-build",
        0.9,
        f"CC {sm}; {label} has code up to CC {'.'.join(map(str, newest))}",
        culprit=f"{label} on CC {sm}",
        line=seen,
    )
    case.doubt("out-of-memory-masked", 0.4)


def memory(case: Case) -> None:
    """Signs that memory was short: an allocation failed, several processes, size matters."""
    seen = case.first("no-algorithm")
    if seen is not None:
        case.vote("out-of-memory-masked", 0.68, culprit="free GPU memory at the failure", line=seen)
        case.vote("cudnn-version-regression", 0.28, line=seen)
        case.vote("gpu-too-new-for-build", 0.3, line=seen)
        case.vote("gpu-too-old-for-cudnn", 0.3, line=seen)
    status = case.statuses()
    vague = seen or next(
        (
            o
            for n, o in status.items()
            if n
            in (
                "EXECUTION_FAILED",
                "INTERNAL_ERROR",
                "NOT_INITIALIZED",
                "ALLOC_FAILED",
                "MAPPING_ERROR",
            )
        ),
        None,
    )
    if vague is None:
        return
    plain = case.first("out-of-memory")
    told = case.facts.says(
        r"nearly full|\b(?:large|big)\w*\b[^\n]{0,40}\bfails?\b"
        r"|\bsmall\w*\b[^\n]{0,40}\b(?:works?|runs?|fits?|ok)\b"
        r"|\bbatch\b[^\n]{0,20}\d+ (?:works?|runs?|fits?|is fine|ok)\b"
        r"|\b(?:lower|reduc|halv)\w*[^\n]{0,30}\b(?:batch|size|resolution)\b[^\n]{0,40}"
        r"\b(?:work|help|fix|run|solve)"
        r"|worker processes|several processes|out of memory"
    )
    if plain is not None or told:
        case.vote(
            "out-of-memory-masked",
            0.6,
            "memory was short" if told else "",
            culprit="GPU memory: the work space does not fit (small ones run, big ones do not)",
            line=plain or vague,
        )


def tensorflow_growth(case: Case) -> None:
    """TensorFlow takes the whole card, cudnnCreate finds nothing left."""
    hint = case.first("driver-hint")
    _short(case)
    for seen in case.seen("cudnn-handle")[:3]:
        what, status = seen.get("what"), seen.get("status")
        if status in ("INTERNAL_ERROR", "ALLOC_FAILED") or what.startswith(
            ("Failed to get conv", "cuDNN failed")
        ):
            _growth(case, seen, 0.82)
        elif what.startswith(("No algorithm", "Failed to determine", "Blas GEMM")):
            case.vote("out-of-memory-masked", 0.45, line=seen)
            _growth(case, seen, 0.4)
        elif status == "NOT_INITIALIZED" or not status:
            _growth(case, seen, 0.42)
            old = f"driver {case.facts.driver or hint.get('driver')}" if hint else ""
            case.vote("driver-too-old", 0.5 if hint else 0.2, culprit=old, line=hint or seen)
            case.vote("mixed-cudnn-copies", 0.2, line=seen)


def older_driver(case: Case) -> None:
    """The log tells that the driver's CUDA is older than the runtime's."""
    told, status = case.first("api-versions"), next(iter(case.statuses().values()), None)
    if told is None or status is None:
        return
    driver, runtime = numbers(told.get("driver")), numbers(told.get("runtime"))
    if driver < runtime:
        culprit = f"the driver (CUDA {told.get('driver')}) with CUDA {told.get('runtime')}"
        weight = 0.85 if driver[0] < runtime[0] else 0.6
        case.vote("driver-too-old", weight, culprit=culprit, line=told)


def _short(case: Case) -> None:
    """The log tells how much memory was left."""
    left = case.first("memory-left")
    status = next(iter(case.statuses().values()), None) or case.first("cudnn-handle")
    if left is not None and status is not None and int(left.get("free")) < 256 << 20:
        culprit = f"GPU memory: {int(left.get('free')) >> 20} MiB were free"
        case.vote("out-of-memory-masked", 0.6, culprit=culprit, line=left)


def _growth(case: Case, seen: Observation, weight: float) -> None:
    if case.seen(
        "version-refused", "missing-library", "driver-too-old", "gpu-libraries-not-loaded"
    ):
        weight *= 0.3
    if case.facts.uses("jax") and case.facts.framework("tensorflow") is None:
        culprit = "XLA's allocation of the card before cuDNN has its own"
        case.vote("out-of-memory-masked", weight, culprit=culprit, line=seen)
        return
    case.vote(
        "tf-memory-growth", weight, culprit="TensorFlow's allocation of the whole card", line=seen
    )
    if weight >= 0.5:
        case.doubt("out-of-memory-masked", 0.7)


_KNOWN_BAD = (
    ("torch", (1, 8, 0), "10.2", (7, 0), "its CUDA 10.2 wheel fails on some GPUs; 1.8.1 mends it"),
)
"""Framework releases known to be broken, beyond those that the matrix lists."""


def known_bad(case: Case) -> None:
    """A framework release known to fail like this."""
    seen = next(iter(case.statuses().values()), None) or case.first("no-algorithm")
    if seen is None:
        return
    for name, version, cuda, least, why in _KNOWN_BAD:
        framework = case.facts.framework(name)
        if framework is None or numbers(framework.version)[:3] != version:
            continue
        if framework.cuda not in (None, cuda) or (case.facts.capability or least) < least:
            continue
        case.vote(
            "known-bad-release",
            0.88,
            why,
            culprit=f"{name} {framework.version} (CUDA {cuda})",
            line=seen,
        )
        case.doubt("out-of-memory-masked", 0.4)


def versions_differ(case: Case) -> None:
    """SUBLIBRARY_VERSION_MISMATCH with known copies: name the odd one."""
    found = case.statuses()
    seen = found.get("SUBLIBRARY_VERSION_MISMATCH") or found.get("VERSION_MISMATCH")
    if seen is None:
        return
    lacking = [c for c in case.facts.copies if c.lacks and c.lacks != ("*",)]
    others = [c for c in case.facts.copies if c not in lacking]
    if lacking and others:
        wheel = " ".join(next(iter(case.facts.cudnn_wheels.items()), ("the wheel", "")))
        case.vote(
            "cudnn-wheel-incomplete",
            0.9,
            f"{lacking[0].folder} lacks {lacking[0].lacks[0]}",
            culprit=f"{wheel} lacks {lacking[0].lacks[0]}; that of {others[0].folder} is taken",
            line=seen,
        )
        return
    if case.facts.ld_path and len(case.facts.copies) > 1:
        case.vote("ld-library-path-shadow", 0.6, culprit=case.facts.ld_path[0], line=seen)
    versions = {c.version for c in case.facts.copies if c.version}
    if len(versions) > 1:
        case.vote("mixed-cudnn-copies", 0.6, culprit=" and ".join(sorted(versions)), line=seen)
    elif re.search("VERSION_MISMATCH", seen.text):
        case.vote(
            "mixed-cudnn-copies",
            0.1,
            culprit="not to be told from the log: look at every libcudnn*.so on the search path",
            line=seen,
        )


STATUS_RULES = (
    statuses,
    execution_on_new_gpu,
    memory,
    tensorflow_growth,
    older_driver,
    known_bad,
    versions_differ,
)
