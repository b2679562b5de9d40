"""CMake's variables, and targets that cannot be written."""

from __future__ import annotations

import re

from cudnn_doctor.explain.case import Case

_STACK = re.compile(
    r"cudnn|cuda|nvidia|cublas|torch|tensorflow|\bjax|onnxruntime|paddle|whl/cu|\bgpu\b|conda|\bpip\b",
    re.I,
)
"""Names of which one stands in every log about this stack or its installers."""
_PATH = re.compile(r"(?<!\S)[^\w\s/]?(/[\w.+@~/-]*\w)")


def cmake_values(case: Case) -> None:
    """A folder in CUDNN_LIBRARY, a file in CUDNN_INCLUDE_DIR, or a root without cuDNN."""
    seen = case.first("cmake-not-found", "linker-missing", "cmake-variable", "header-missing")
    if seen is None:
        return
    options = [(o.get("variable"), o.get("value")) for o in case.seen("cmake-option")]
    options += re.findall(
        r"(CUDNN_(?:LIBRARY|LIBRARIES|INCLUDE_DIR|INCLUDE))(?::\w+)?\s?=\s?([^\s'\";,]+)",
        case.facts.prose,
    )
    environ = case.facts.machine.environ.items()
    options += [(k, v) for k, v in environ if k.startswith("CUDNN_LIBRAR") and "PATH" not in k]
    for name, value in options:
        library = "LIBRAR" in name
        is_file = re.search(r"\.(?:so[\d.]*|a|lib|dylib|h)$", value) is not None
        if value.startswith(("/", "$", "~")) and is_file != library:
            want = "a file is wanted, a folder is given" if library else "a folder is wanted"
            case.vote(
                "cmake-variable-wrong", 0.9, want, culprit=f"{name}={value} ({want})", line=seen
            )
            case.doubt("dev-headers-wrong-path", 0.5)
            case.doubt("wheel-no-unversioned-so", 0.5)
            return
    root = re.search(r"\b(CUDNN_(?:ROOT\w*|HOME|PATH|DIR))\s*[=:]\s*(\S+)", case.facts.prose)
    roots = [(k, v) for k, v in environ if re.match(r"CUDNN_(?:ROOT|HOME|PATH|DIR)", k)]
    name, value = roots[0] if roots else (root[1], root[2]) if root else ("", "")
    if name and seen.signature.event == "cmake-not-found":
        case.vote("cmake-variable-wrong", 0.4, culprit=f"{name}={value}", line=seen)


def only_versioned_names(case: Case) -> None:
    """A build looks for libcudnn.so, the wheel has libcudnn.so.N only."""
    seen = case.first("cmake-not-found")
    copies = [c for c in case.facts.copies if c.folder]
    if seen is not None and copies and all(c.kind == "wheel" for c in copies):
        culprit = f"libcudnn.so (the wheel in {copies[0].folder} has libcudnn.so.N only)"
        case.vote("wheel-no-unversioned-so", 0.85, culprit=culprit, line=seen)
        case.doubt("dev-headers-wrong-path", 0.6)


def targets(case: Case) -> None:
    """Name the folder that cannot be written."""
    seen = case.first("read-only", "install-denied")
    if seen is None:
        return
    told = case.first("target-folder")
    quoted = _PATH.search(seen.text)
    path = quoted[1] if quoted else seen.get("path") or seen.get("path2")
    path = path or (told.get("path") if told else "")
    if not path and "externally-managed" in seen.text:
        path = "the system's Python (PEP 668: externally managed)"
    for diagnosis in ("read-only-target", "permission-denied"):
        if path and diagnosis in case.suspects:
            case.vote(diagnosis, 0.06, culprit=path, line=seen)


def not_ours(case: Case) -> None:
    """A full disk's or a network's complaint in a log that is about something else."""
    if case.facts.given or any(_STACK.search(o.text) for o in case.observations):
        return
    for diagnosis in ("network-blocked", "read-only-target", "permission-denied"):
        case.doubt(diagnosis, 0.15)


BUILD_RULES = (cmake_values, only_versioned_names, targets, not_ours)
