"""A framework refuses the cuDNN that it got, or says which one it wants."""

from __future__ import annotations

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.facts import numbers, release
from cudnn_doctor.explain.model import Observation
from cudnn_doctor.machine.model import CudnnCopy
from cudnn_doctor.versions import CudnnVersion


def refused(case: Case) -> None:
    """``compiled against A but found B``: older, newer, or another major."""
    for seen in case.seen("version-refused")[:3]:
        built, runtime = release(seen.get("built")), release(seen.get("runtime"))
        if built is None or runtime is None:
            continue
        culprit = _copy_label(case, runtime)
        if runtime.major != built.major:
            case.vote("cudnn-major-mismatch", 0.6, culprit=culprit, line=seen)
            _shadow(case, seen, built, runtime, culprit, base=0.55)
        elif runtime.release > built.release or seen.get("by") == "torch-old":
            case.vote(
                "cudnn-framework-version-mismatch",
                0.9,
                f"runtime {runtime.short} is not the {built.short} of the build, which it demands",
                culprit=f"{culprit}; the framework demands {built.short}",
                line=seen,
            )
        else:
            _older(case, seen, built, runtime, culprit)


def _older(
    case: Case, seen: Observation, built: CudnnVersion, runtime: CudnnVersion, culprit: str
) -> None:
    torch = seen.get("by") == "torch"
    if torch:
        _shadow(case, seen, built, runtime, culprit, base=0.88)
        case.vote("cudnn-older-than-framework-build", 0.35, culprit=culprit, line=seen)
        return
    good = [c for c in case.facts.copies if numbers(c.version)[:3] >= built.release]
    on_path = case.facts.ld_path
    if good and (on_path or on_path is None):
        _shadow(case, seen, built, runtime, culprit, base=0.85)
    case.vote(
        "cudnn-older-than-framework-build",
        0.3 if good else 0.85,
        f"{runtime.short} is loaded, the framework was built with {built.short}",
        culprit=culprit,
        line=seen,
    )
    if not good and not case.facts.copies:
        case.vote("ld-library-path-shadow", 0.42, culprit=culprit, line=seen)


def _shadow(
    case: Case,
    seen: Observation,
    built: CudnnVersion,
    runtime: CudnnVersion,
    culprit: str,
    *,
    base: float,
) -> None:
    path = case.facts.ld_path
    weight = base if path is None else base + 0.07 if path else base - 0.3
    because = f"LD_LIBRARY_PATH has {path[0]}" if path else ""
    case.vote("ld-library-path-shadow", weight, because, culprit=culprit, line=seen)


def _copy_label(case: Case, runtime: CudnnVersion) -> str:
    """The copy of that version, by its folder."""
    copies = [c for c in case.facts.copies if _is(c, runtime)]
    if not copies:
        return f"the cuDNN {runtime.short} that is found first"
    copy = copies[0]
    place = copy.folder or {
        "ld_library_path": "a folder on LD_LIBRARY_PATH",
        "conda": "the conda package cudnn",
    }.get(copy.kind, copy.kind)
    return f"{place}: cuDNN {copy.version or runtime.short}"


def _is(copy: CudnnCopy, version: CudnnVersion) -> bool:
    told = numbers(copy.version)
    parts = 3 if version.patch else 2
    return bool(told) and version.release[: min(len(told), parts)] == told[:parts]


def outdated_in_jax(case: Case) -> None:
    """JAX's own check, in its newer form: the versions stand on lines of their own."""
    seen = case.first("jax-outdated")
    if seen is not None and case.facts.ld_path:
        folder = case.facts.ld_path[0]
        case.vote("ld-library-path-shadow", 0.6, f"LD_LIBRARY_PATH has {folder}", culprit=folder)


def required(case: Case) -> None:
    """onnxruntime's provider was not created: it tells which cuDNN and CUDA it was built for."""
    seen = case.first("requires")
    if seen is None or case.seen("missing-library"):
        return
    facts, want = case.facts, int(seen.get("cudnn"))
    majors = {c.major for c in facts.copies if c.major}
    have = ", ".join(str(major) for major in sorted(majors))
    if facts.jetson and want not in majors:
        case.vote(
            "jetson-package-mismatch",
            0.92 if majors else 0.7,
            f"the wheel was built for cuDNN {want}, the JetPack has {have or 'another'}",
            culprit=f'the onnxruntime wheel: "Require cuDNN {want}.*" against {have or "JetPack"}',
            line=seen,
        )
        return
    if majors and want not in majors:
        case.vote(
            "cudnn-major-mismatch",
            0.85,
            f"only cuDNN {have} is there",
            culprit=f"onnxruntime needs cuDNN {want}; only {have} is present",
            line=seen,
        )
        return
    cuda = int(seen.get("cuda"))
    if facts.cuda_majors and cuda not in facts.cuda_majors:
        case.vote("cuda-major-mismatch", 0.7, culprit=f"onnxruntime needs CUDA {cuda}", line=seen)
        return
    hidden = [c for c in facts.copies_of(want) if not facts.searched(c.folder)]
    if hidden:
        case.vote("cudnn-not-on-loader-path", 0.85, culprit=hidden[0].folder, line=seen)
        return
    case.vote("cudnn-not-on-loader-path", 0.38, line=seen)
    case.vote("cudnn-not-installed", 0.38, line=seen)
    case.vote("cudnn-major-mismatch", 0.36, line=seen)
    case.vote("other-cuda-lib-missing", 0.25, line=seen)
    case.vote("jetson-package-mismatch", 0.1, line=seen)


VERSION_RULES = (refused, outdated_in_jax, required)
