"""The CUDA major that a cuDNN was built for, from the library names inside its files."""

from __future__ import annotations

import mmap
import os
import posixpath
import re
from collections.abc import Iterable

from cudnn_doctor.machine.elf import section_range
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Library
from cudnn_doctor.machine.names import parse_cudnn

_TELLING = ("adv", "engines_precompiled", "ops_infer", "adv_infer")
"""Parts that open cuBLAS by name, the cheapest to search first (strings of measured wheels)."""
_CUBLAS = re.compile(rb"libcublas(?:Lt)?\.so\.(\d{2})\0")
_LIMIT = 64 << 20


def embedded_cuda(host: Host, libraries: Iterable[Library]) -> str | None:
    """``"12"`` when a part names libcublasLt.so.12 in its read-only data; None when none tells.

    Reads at most 64 MiB of one section of each telling part.
    """
    by_part = {
        parsed.part: library.real
        for library in libraries
        if library.real and (parsed := parse_cudnn(posixpath.basename(library.path)))
    }
    for part in _TELLING:
        real = by_part.get(part)
        if real is not None:
            found = cuda_named_in(host.outer(real))
            if found:
                return found
    return None


def cuda_named_in(path: str) -> str | None:
    """The major of the cuBLAS that the library at ``path`` names (``"12"``), None for none."""
    where = section_range(path, ".rodata")
    if where is None or where[1] == 0:
        return None
    start = where[0] // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    length = min(where[0] + where[1] - start, _LIMIT)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with mmap.mmap(fd, length, access=mmap.ACCESS_READ, offset=start) as data:
            match = _CUBLAS.search(data)
            return match[1].decode() if match else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)
