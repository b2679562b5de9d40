"""Result types of the loader simulation (`loader`) and of its proof (`trace`)."""

from __future__ import annotations

from typing import Literal

from cudnn_doctor.machine.model import Fact

Via = Literal[
    "preload",
    "already-mapped",
    "absolute",
    "rpath",
    "ld_library_path",
    "runpath",
    "cache",
    "default",
    "missing",
    "unknown",
]


class Load(Fact, frozen=True, kw_only=True):
    """Which file one library name resolves to for one consumer, and why."""

    name: str
    """The SONAME asked for, ``libcudnn_ops.so.9``."""
    path: str | None = None
    """File that the loader opens; None when nothing was found."""
    real: str | None = None
    via: Via = "unknown"
    because: str = ""
    """One sentence: which tag or variable, of which object."""
    version: str | None = None
    problem: str | None = None
    """Why opening it fails although it was found (truncated, wrong architecture, dangling ...)."""
    tried: tuple[str, ...] = ()
    """Names or folders tried before it, in order."""


class Consumer(Fact, frozen=True, kw_only=True):
    """Something that would load cuDNN: a framework, a program, or the plain loader."""

    name: str
    """``torch``, ``tensorflow`` ..., ``dlopen`` (a plain program), or a program's path."""
    environment: str = ""
    version: str = ""
    scheme: str = ""
    """How it brings cuDNN in: id of the catalogue's loading scheme."""
    major: int | None = None
    """cuDNN major that it wants, None: does not use cuDNN or not known."""
    cuda: str | None = None
    binaries: tuple[str, ...] = ()


class LoadPlan(Fact, frozen=True, kw_only=True):
    """Everything cuDNN that one consumer would get."""

    consumer: Consumer
    uses_cudnn: bool | None = None
    """False: this build does not load cuDNN at all."""
    shim: Load | None = None
    sublibraries: tuple[Load, ...] = ()
    companions: tuple[Load, ...] = ()
    """cuBLAS, cuBLASLt, NVRTC, nvJitLink, libcuda, libz as cuDNN would get them."""
    folder: str | None = None
    """Folder of the copy that the shim belongs to."""
    certain: bool = True
    """False when facts were missing and the usual way of this consumer was assumed."""
    notes: tuple[str, ...] = ()


class Traced(Fact, frozen=True, kw_only=True):
    """What really was mapped when a child process loaded it."""

    consumer: Consumer
    ok: bool
    mapped: tuple[str, ...] = ()
    """Real paths of mapped libcudnn* files."""
    version: int | None = None
    """cudnnGetVersion()."""
    error: str = ""
