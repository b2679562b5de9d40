"""Symbols that were not found, and files of two releases in one process."""

from __future__ import annotations

import os.path
import re

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.model import Observation

_BASIC = re.compile(r"cudnn(?:GetVersion|Create|Destroy|GetErrorString)")
"""Functions of every release."""
_SHIM = re.compile(r"libcudnn\.so(?:\.\d+)*")
_CUBLAS_PAIR = re.compile(r"cublasLt\w+|libcublasLt")


def undefined_symbols(case: Case) -> None:
    """``X: undefined symbol: S``: who is at fault follows from S and from the folder of X."""
    for seen in case.seen("undefined-symbol", "symbol-not-in-file")[:6]:
        path, symbol = seen.get("path"), seen.get("symbol")
        version = seen.get("version")
        if "libcublas" in path and (_CUBLAS_PAIR.search(symbol) or "cublasLt" in version):
            _cublas(case, seen)
        elif "libcudnn" in path:
            _cudnn_internal(case, seen)
        elif re.match(r"cudnn[A-Z]", symbol):
            _cudnn_api(case, seen)
        elif symbol.startswith(("__nvJitLink", "nvJitLink")):
            folder = _shadowing_folder(case)
            lib = f"{folder}/libnvJitLink.so of another release" if folder else "libnvJitLink.so"
            case.vote("other-cuda-lib-missing", 0.6, culprit=lib, line=seen)
            case.vote("ld-library-path-shadow", 0.45, culprit=lib, line=seen)
        elif symbol.startswith("nvrtc"):
            case.vote("libnvrtc-shadowed-old", 0.85, culprit="libnvrtc.so", line=seen)
        elif symbol.startswith("cublas"):
            _cublas(case, seen)
        elif symbol.startswith(("cuda", "cusparse", "cusolver", "cufft", "nccl")):
            case.vote("cuda-major-mismatch", 0.45, culprit=path, line=seen)
            case.vote("ld-library-path-shadow", 0.35, culprit=path, line=seen)


def _shadowing_folder(case: Case) -> str:
    """The first LD_LIBRARY_PATH folder that is not the wheel's own."""
    folders = [f for f in case.facts.ld_path or () if "site-packages" not in f]
    return folders[0] if folders else ""


def _cublas(case: Case, seen: Observation) -> None:
    folder = _shadowing_folder(case)
    lib = (seen.get("version") or "libcublasLt.so").split()[0]
    lib = lib if lib.startswith("libcublasLt") else "libcublasLt.so"
    culprit = f"{folder}/{lib} of another release" if folder else f"{lib} of another release"
    case.vote("cublas-shadowed", 0.93 if folder else 0.85, culprit=culprit, line=seen)
    if folder:
        case.vote("ld-library-path-shadow", 0.4, f"LD_LIBRARY_PATH has {folder}", culprit=culprit)


def _cudnn_internal(case: Case, seen: Observation) -> None:
    """One cuDNN library wants a symbol that another one, of another release, does not have."""
    path, facts = seen.get("path"), case.facts
    folder = os.path.dirname(path)
    name = os.path.basename(path)
    if _BASIC.fullmatch(seen.get("symbol")) and _SHIM.fullmatch(name):
        because = f"every cuDNN has {seen.get('symbol')}: that file is another library"
        case.vote("cudnn-fake-symlink", 0.9, because, culprit=path, line=seen)
        return
    mixed = [
        copy
        for copy in facts.copies
        if len({v.rpartition(".")[0] for v in copy.file_versions.values()}) > 1
        or (copy.folder == folder and facts.says(r"two releases|two versions|several (?:rel|ver)"))
    ]
    if mixed:
        case.vote(
            "cudnn-mixed-in-one-dir",
            0.93,
            f"{mixed[0].folder} holds files of more than one release",
            culprit=f"{mixed[0].folder}: {name} is of another release than its neighbours",
            line=seen,
        )
        return
    in_wheel = "site-packages" in folder or "dist-packages" in folder
    culprit = f"{path} of another release than the rest"
    if folder and folder in (facts.ld_path or ()):
        case.vote(
            "ld-library-path-shadow",
            0.93,
            f"LD_LIBRARY_PATH has {folder}",
            culprit=culprit,
            line=seen,
        )
        case.vote("mixed-cudnn-copies", 0.5, culprit=culprit, line=seen)
        return
    if in_wheel and (shadow := _shadowing_folder(case)):
        case.vote(
            "ld-library-path-shadow",
            0.85,
            f"LD_LIBRARY_PATH has {shadow}",
            culprit=f"cuDNN libraries in {shadow}",
            line=seen,
        )
        return
    python = facts.uses("torch", "tensorflow", "jax", "whisper", "onnxruntime", "ctranslate2")
    same_folder = seen.signature.event == "symbol-not-in-file"
    case.vote("mixed-cudnn-copies", 0.5, culprit=culprit, line=seen)
    case.vote(
        "ld-library-path-shadow",
        0.55 if folder and not same_folder else 0.35,
        culprit=culprit,
        line=seen,
    )
    case.vote(
        "cudnn-mixed-in-one-dir",
        0.25 if python or not same_folder else 0.55,
        culprit=folder or culprit,
        line=seen,
    )


def _cudnn_api(case: Case, seen: Observation) -> None:
    """A program wants a cuDNN function that the loaded cuDNN does not have."""
    symbol = seen.get("symbol")
    found = case.first("found-cudnn")
    headers = case.facts.machine.headers
    copies = case.facts.copies
    culprit = f"{symbol}: compiled with other headers than the library that is loaded"
    if headers and copies:
        others = [
            c for c in copies if c.major and not (headers[0].version or "").startswith(f"{c.major}")
        ]
        if others:
            place = others[-1].folder or others[-1].kind
            culprit = f"{place} libcudnn.so.{others[-1].major} against cudnn.h {headers[0].version}"
    known = found is not None or bool(headers)
    case.vote("header-library-mismatch", 0.85 if known else 0.5, culprit=culprit, line=seen)
    case.vote(
        "cudnn-older-than-framework-build", 0.15 if known else 0.45, culprit=culprit, line=seen
    )
    for link in case.seen("link"):
        if "libcudnn" in link.get("path") and "cudnn" not in link.get("target"):
            case.vote("cudnn-fake-symlink", 0.95, culprit=link.get("path"), line=link)


def loaded_from_two_places(case: Case) -> None:
    """Loaded files (LD_DEBUG, maps) of cuDNN from more than one folder."""
    files = [o for o in case.seen("loaded-file") if "libcudnn" in o.get("path")]
    folders: dict[str, Observation] = {}
    for seen in files:
        folders.setdefault(os.path.dirname(seen.get("path")), seen)
    if len(folders) < 2:
        return
    (first, _), (other, seen) = list(folders.items())[:2]
    stray = seen.get("path")
    wheel = next((f for f in folders if "site-packages/nvidia/cudnn" in f), "")
    name = os.path.basename(stray)
    lacking = [c for c in case.facts.copies if any(name.startswith(x) for x in c.lacks if x != "*")]
    lacking += [
        c
        for c in case.facts.copies
        if c.shim and c.files and c.folder == first and not any(f.startswith(name) for f in c.files)
    ]
    if wheel and (lacking or not _shadowing_folder(case)):
        package = next(iter(case.facts.cudnn_wheels.items()), ("the wheel", ""))
        case.vote(
            "cudnn-wheel-incomplete",
            0.93 if lacking else 0.72,
            f"{first} is the main copy, {name} came from {other}",
            culprit=f"{' '.join(package).strip()} lacks {name}; {stray} is taken instead",
            line=seen,
        )
    case.vote("mixed-cudnn-copies", 0.6, culprit=f"{first} and {other}", line=seen)
    if _shadowing_folder(case) == other:
        case.vote("ld-library-path-shadow", 0.85, culprit=stray, line=seen)


def crash(case: Case) -> None:
    """A crash inside cuDNN: two copies in one process are the usual reason."""
    seen = case.first("crash")
    if seen is None:
        return
    path = seen.get("path")
    folder = os.path.dirname(path)
    others = [c for c in case.facts.copies if c.folder != folder]
    here = [c for c in case.facts.copies if c.folder == folder]
    if others and (here or folder):
        case.vote(
            "mixed-cudnn-copies",
            0.85,
            f"it crashed in {path}, another copy is in {others[0].folder or others[0].kind}",
            culprit=f"{path} (system) beside the environment's own copy",
            line=seen,
        )
        return
    case.vote("mixed-cudnn-copies", 0.42, culprit=path, line=seen)


SYMBOL_RULES = (undefined_symbols, loaded_from_two_places, crash)
