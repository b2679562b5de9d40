"""What the machine tells of the very file or wheel that the log complains of."""

from __future__ import annotations

import os.path
import re

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.model import Observation
from cudnn_doctor.machine.model import Environment

CUDA_LIBRARY = re.compile(
    r"lib(?:cublas(?:Lt)?|cudart|cufft|curand|cusolver|cusparse(?:Lt)?|cupti|nvJitLink|nvrtc|nccl"
    r"|npp\w+|nvToolsExt|cufile)\b"
)
_OWN_WHEELS = ("torch", "tensorflow", "jax")
"""Frameworks whose run path or preload leads to the wheels of their own environment, whatever else
is on the disk."""


def other_architecture(case: Case, seen: Observation, lib: str, major: int | None) -> bool:
    """A file of that name is built for another CPU: the loader passes over it without a word."""
    here = case.facts.machine.system.arch
    for library in case.facts.machine.libraries:
        known = library.machine is not None and here is not None
        if known and library.machine != here and os.path.basename(library.path) == lib:
            because = f"{library.path} is built for {library.machine}, this is {here}"
            culprit = library.path
            case.vote("cudnn-wrong-architecture", 0.9, because, culprit=culprit, line=seen)
            return True
    return False


def own_wheel(case: Case, seen: Observation, lib: str, major: int | None) -> bool:
    """A framework looks into its own environment: the wheel there is absent or of another major."""
    facts = case.facts
    for framework in facts.machine.frameworks if facts.whole else ():
        environment = _environment(case, framework.environment)
        if framework.name not in _OWN_WHEELS or environment is None:
            continue
        required = _required(environment, framework.distribution or framework.name)
        present = {d.name: d.version for d in environment.distributions}
        label = f"{framework.name} {framework.version}"
        if required and required not in present:
            case.vote(
                "framework-deps-not-installed",
                0.93,
                f"{label} requires {required}, which is not in {environment.prefix}",
                culprit=f"{label} is there, {required} is not",
                line=seen,
            )
            return True
        version = present.get(required, "")
        if major is not None and version and version.partition(".")[0] != str(major):
            case.vote(
                "cudnn-major-mismatch",
                0.93,
                f"{required} {version} is installed, {label} wants {lib}",
                culprit=f"{required} {version}: {label} needs cuDNN {major} ({lib})",
                line=seen,
            )
            return True
    return False


def _environment(case: Case, prefix: str) -> Environment | None:
    return next((e for e in case.facts.machine.environments if e.prefix == prefix), None)


def _required(environment: Environment, name: str) -> str:
    """The cuDNN wheel that a distribution's metadata require; empty where there is none."""
    for dist in environment.distributions:
        for line in dist.requires if dist.name == name else ():
            wheel = re.match(r"nvidia[-_]cudnn[-_]cu\d+", line)
            if wheel and "extra" not in line:
                return wheel[0].replace("_", "-")
    return ""


def damaged(case: Case) -> None:
    """A library file that is cut short or is no library."""
    bad = {x.path for x in case.facts.machine.libraries if x.status in ("truncated", "not-elf")}
    for seen in case.seen("damaged-library")[:3]:
        lib = seen.get("lib")
        wheel = "-packages" in lib
        path = os.path.normpath(lib)
        if path in bad and "libcudnn" in lib:
            case.vote(
                "cudnn-file-damaged", 0.93, f"{path} is no whole library", culprit=path, line=seen
            )
            continue
        if "libcudnn" in lib:
            case.vote("wheel-files-missing", 0.75 if wheel else 0.2, culprit=lib, line=seen)
            case.vote("cudnn-install-incomplete", 0.4 if wheel else 0.75, culprit=lib, line=seen)
        elif CUDA_LIBRARY.search(lib):
            case.vote("other-cuda-lib-missing", 0.6, culprit=lib, line=seen)
        if "libcudnn" in lib or CUDA_LIBRARY.search(lib):
            case.vote("download-corrupt", 0.4, culprit=lib, line=seen)


def died_silently(case: Case) -> None:
    """SIGBUS or SIGSEGV without a word: a library that is cut short is mapped, then missed."""
    seen = case.first("died-silently")
    cut = [x for x in case.facts.machine.libraries if x.status == "truncated"]
    ours = [x.path for x in cut if "cudnn" in x.path]
    if seen is not None and ours:
        because = f"{ours[0]} is truncated: reading behind its end is a bus error"
        case.vote("cudnn-file-damaged", 0.85, because, culprit=ours[0], line=seen)


FILE_RULES = (damaged, died_silently)
