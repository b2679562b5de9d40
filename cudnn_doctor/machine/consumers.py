"""Who would load cuDNN on a machine, and how their own code gets at the shim."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

from cudnn_doctor.machine.catalogue import SCHEMES, scheme_for
from cudnn_doctor.machine.loads import Consumer
from cudnn_doctor.machine.model import Framework, Library, Machine
from cudnn_doctor.machine.names import parse_cudnn

PLAIN = "dlopen"
"""Name and scheme of the plain program that opens cuDNN by SONAME."""
PROGRAM = "program"
"""Scheme of a native program given by its path."""
_INHERITS = {"inherits-torch": "torch", "inherits-ctranslate2": "ctranslate2"}
_PIN = re.compile(r"nvidia[-_]cudnn[^;]*?(?:[=~>]=)\s*(\d+)\b")
"""A pin's lower bound: an upper one (``<10``) names a major that is not wanted."""
_FIRST_ON_9 = {
    "torch": (2, 4),
    "ctranslate2": (4, 5),
    "tensorflow": (2, 18),
    "onnxruntime": (1, 19),
}
"""First version of a framework whose usual GPU build wants cuDNN 9 (framework records)."""


def consumers(machine: Machine) -> tuple[Consumer, ...]:
    """Each framework of each environment that uses cuDNN (or may), then the plain loader.

    Frameworks that are known not to use cuDNN (CPU builds, CuPy 14) are left out.
    """
    found = [framework_consumer(machine, framework) for framework in machine.frameworks]
    users = [c for c in found if SCHEMES.get(c.scheme, SCHEMES["unknown"]).uses_cudnn is not False]
    return (*users, *plain_consumers(machine))


def plain_consumers(machine: Machine) -> tuple[Consumer, ...]:
    """A program without search tags, once for each cuDNN major that is on the machine."""
    majors = {c.major for c in machine.copies or () if c.major is not None and not c.private}
    majors |= {
        name.major
        for library in machine.libraries
        if (name := parse_cudnn(posixpath.basename(library.path)))
        and name.major is not None
        and not name.hashed
    }
    found = sorted(majors, reverse=True)
    return tuple(
        Consumer(name=PLAIN, scheme=PLAIN, major=major, version=str(major)) for major in found
    )


def framework_consumer(machine: Machine, framework: Framework) -> Consumer:
    """The consumer that a framework is, with what it inherits from another one resolved."""
    scheme = scheme_for(framework.name, framework.version, framework.cuda)
    source = framework
    base = _INHERITS.get(scheme)
    if base is not None:
        found = [f for f in machine.frameworks if f.name == base]
        same = [f for f in found if f.environment == framework.environment]
        if same:
            source = same[0]
            scheme = scheme_for(source.name, source.version, source.cuda)
    return Consumer(
        name=framework.name,
        environment=framework.environment,
        version=framework.version,
        scheme=scheme,
        major=_major(machine, source),
        cuda=source.cuda,
        binaries=source.binaries,
    )


def _major(machine: Machine, framework: Framework) -> int | None:
    """cuDNN major that a framework wants: its objects tell, else its pins, else its version."""
    binaries = set(framework.binaries)
    for library in machine.libraries:
        if library.path in binaries:
            for name in library.needed:
                parsed = parse_cudnn(name)
                if parsed and not parsed.part and parsed.major is not None:
                    return parsed.major
    built = re.match(r"\d+", framework.cudnn_built or "", re.ASCII)
    if built:
        return int(built[0])
    for pin in framework.pins:
        match = _PIN.match(pin)
        if match:
            return int(match[1])
    first = _FIRST_ON_9.get(framework.name)
    numbers = re.match(r"(\d+)\.(\d+)", framework.version)
    if first and numbers:
        return 9 if (int(numbers[1]), int(numbers[2])) >= first else 8
    return 9 if framework.name in {"jax", "transformer-engine", "nvidia-cudnn-frontend"} else None


def site_folder(machine: Machine, consumer: Consumer) -> str:
    """The site-packages folder that the consumer is imported from; a guess where none is told."""
    for framework in machine.frameworks:
        same = framework.environment == consumer.environment and framework.name == consumer.name
        if same and framework.location:
            return posixpath.dirname(framework.location)
    for environment in machine.environments:
        if environment.prefix == consumer.environment and environment.site_packages:
            return environment.site_packages[0]
    for inside in (f"/{consumer.name}/lib", "/nvidia/"):
        for copy in machine.copies or ():
            site, marker, _ = copy.folder.partition(inside)
            if marker and copy.environment in {None, consumer.environment}:
                return site
    return f"{consumer.environment}/site-packages"


# -- what a framework's own Python code opens by path before anything asks for the SONAME

_WITH_COMPANIONS = {"jax-preload-then-rpath", "torch-rpath-wheel-cu12", "torch-rpath-wheel-cu13"}
_COMPANIONS = (
    "nvidia/*/lib/libcublasLt.so.[0-9]*",
    "nvidia/*/lib/libcublas.so.[0-9]*",
    "nvidia/*/lib/libnvrtc.so.[0-9]*",
)

Files = Mapping[str, Library]
Environ = Mapping[str, str]


def preloads(consumer: Consumer, site: str, files: Files, environ: Environ) -> Iterator[str]:
    """Paths or names that the consumer's code opens, in order, until one of them opens."""
    special = _SPECIAL.get(consumer.scheme)
    if special is not None:
        yield from special(consumer, files, environ)
    scheme = SCHEMES.get(consumer.scheme)
    for pattern in scheme.preload_globs if scheme else ():
        yield from sorted(
            path for path in files if path.startswith(site) and _below(path, site, pattern)
        )


def companion_preloads(consumer: Consumer, site: str, files: Files) -> Iterator[str]:
    """CUDA libraries of the wheels that PyTorch and JAX open by path together with cuDNN."""
    if consumer.scheme in _WITH_COMPANIONS:
        for pattern in _COMPANIONS:
            yield from sorted(
                path for path in files if path.startswith(site) and _below(path, site, pattern)
            )


def _below(path: str, site: str, pattern: str) -> bool:
    relative = path[len(site) :].lstrip("/")
    same_depth = relative.count("/") == pattern.count("/")
    return same_depth and fnmatch.fnmatchcase(relative, pattern)


def _system_first(consumer: Consumer, files: Files, environ: Environ) -> Iterator[str]:
    """Transformer Engine: named folders searched through, the highest file name first."""
    variables = ("CUDNN_HOME", "CUDNN_PATH", "CUDA_HOME", "CUDA_PATH")
    for root in (*(environ.get(v) for v in variables), "/usr/local/cuda"):
        if root:
            inside = [
                path
                for path in files
                if path.startswith(root.rstrip("/") + "/")
                and posixpath.basename(path).startswith("libcudnn.so")
            ]
            yield from sorted(inside, key=posixpath.basename, reverse=True)[:1]
    yield "libcudnn.so"


def _frontend(consumer: Consumer, files: Files, environ: Environ) -> Iterator[str]:
    """nvidia-cudnn-frontend from 1.28: the folders of LD_LIBRARY_PATH before the wheel."""
    numbers = re.match(r"(\d+)\.(\d+)", consumer.version)
    if numbers and (int(numbers[1]), int(numbers[2])) < (1, 28):
        return
    for name in ("libcudnn.so.9", "libcudnn.so"):
        for folder in environ.get("LD_LIBRARY_PATH", "").split(":"):
            path = posixpath.normpath(f"{folder}/{name}") if folder else ""
            if path in files:
                yield path


_SPECIAL: dict[str, Callable[[Consumer, Files, Environ], Iterator[str]]] = {
    "te-system-first": _system_first,
    "cudnn-frontend-dlopen": _frontend,
}
