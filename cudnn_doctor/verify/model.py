"""Types of a verification: the job for a child process, its events, and the report."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Status = Literal["pass", "fail", "skip"]
"""``skip`` is "not run", always with the reason."""
Level = Literal["quick", "default", "full"]

RUNGS = ("files", "load", "initialise", "convolve", "library", "speed")


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the types: immutable, defaults left out of the JSON."""


class Copy(Record, frozen=True, kw_only=True):
    """The cuDNN copy under test and what it would be loaded with."""

    folder: str
    shim: str
    """File name of libcudnn.so.N."""
    libraries: tuple[str, ...] = ()
    """File names of all its libraries, SONAMEs, the shim included."""
    version: str | None = None
    cuda: str | None = None
    flavour: Literal["full", "jit"] = "full"
    """``jit``: engines compiled at run time alone, through the graph API."""
    label: str = ""
    """How it was named: ``--lib DIR``, ``torch in ENV``, ``the loader's``."""
    companions: tuple[str, ...] = ()
    """Paths of cuBLASLt, NVRTC ... that it would get, opened before it."""
    cublas: tuple[str, ...] = ()
    """Paths at which libcublas may be found, for the GEMM rate."""


class Target(Record, frozen=True, kw_only=True):
    """One GPU or MIG instance."""

    visible: str | None = None
    """Value of CUDA_VISIBLE_DEVICES for the child; None leaves it as it is."""
    label: str = "GPU 0"
    uuid: str = ""


class Job(Record, frozen=True, kw_only=True):
    """What one child process does."""

    copy: Copy
    rungs: tuple[str, ...]
    level: Level = "default"
    seed: int = 0
    references: Literal["auto", "cupy", "numpy", "plain"] = "auto"
    uuid: str = ""
    done: tuple[str, ...] = ()
    """Steps (``rung: step``) that an earlier child did or died in, to be left out."""


class Event(Record, frozen=True, kw_only=True):
    """One line from the child: ``begin`` is written before the step, ``end`` after it."""

    event: Literal["begin", "end", "fact"]
    rung: str = ""
    step: str = ""
    status: Status = "skip"
    detail: str = ""
    seconds: float = 0.0
    data: dict[str, Any] = {}


class StepResult(Record, frozen=True, kw_only=True):
    rung: str
    step: str
    status: Status
    detail: str = ""
    seconds: float = 0.0
    data: dict[str, Any] = {}


class Death(Record, frozen=True, kw_only=True):
    """How a child process ended before its work was done."""

    how: str
    """``SIGBUS``, ``exit status 1`` or ``no answer for 120 s``."""
    rung: str = ""
    step: str = ""
    """What it was doing."""
    cause: str = ""
    log: str = ""
    """End of its output."""


class Rung(Record, frozen=True, kw_only=True):
    """Verdict of one rung."""

    name: str
    status: Status
    why: str = ""


class KnownFault(Record, frozen=True, kw_only=True):
    """A fault of some releases, in the matrix, and what its probe says of this copy here."""

    issue: str
    title: str
    listed: bool
    """The matrix says that this release has it."""
    found: Literal["has", "has not", "not run"]
    why: str = ""

    @property
    def confirmed(self) -> bool:
        """Listed for the release, and found."""
        return self.listed and self.found == "has"


class Verdict(Record, frozen=True, kw_only=True):
    """All that was found about one copy on one GPU."""

    copy: Copy
    gpu: str = ""
    facts: dict[str, Any] = {}
    """Versions, GPU, driver, mapped files, which step mapped them."""
    rungs: tuple[Rung, ...] = ()
    steps: tuple[StepResult, ...] = ()
    deaths: tuple[Death, ...] = ()
    known: tuple[KnownFault, ...] = ()
    seed: int = 0
    seconds: float = 0.0
    failed: bool = False
    """A rung failed."""
