"""Which GPU code a library carries: the fat binaries that nvcc puts into it, read by their headers.

A section ``.nv_fatbin`` is a row of containers, each a header and a row of entries; an entry is one
cubin (SASS, native code) or one PTX text, for one architecture. Everything asked for here stands in
the entry's header, so nothing is decompressed and of a 400 MB section a few MB are touched. The
layout is not documented by NVIDIA; it was read from files that nvcc 11.7 to 13.5 made, and agrees
with cuobjdump wherever that reads a file at all (cuobjdump of CUDA 13 fails on the compression that
nvcc used up to 12.3).
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from cudnn_doctor.machine.elf import section_range

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
"""The second holds relocatable device code that was not linked."""
MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")
"""Magic, version, size of this header, size of the entries."""
ENTRY = struct.Struct("<HHIQIIHHIIIQ")
"""Kind, version, size of this header, size of the payload (padded), compressed size, offset of the
options, minor and major of the code's version, architecture, offset and length of a name, flags."""
PTX, CUBIN = 1, 2
SPECIFIC, FAMILY = 1 << 20, 1 << 21
"""Flags: code for exactly this architecture (``sm_90a``), or for its family (``compute_120f``)."""

_MAGIC_BYTES = struct.pack("<I", MAGIC)
_ALIGNMENT = 8
_PIECE = 1 << 20
_MAX_ENTRIES = 1 << 20


class GpuCode(NamedTuple):
    """How many cubins and PTX texts a library holds for each architecture (``sm_90a``)."""

    sass: dict[str, int]
    ptx: dict[str, int]
    ptx_isa: str | None = None
    """Newest PTX ISA version of the PTX texts, ``9.5``; each CUDA release brings its own."""
    whole: bool = True
    """False: a container or an entry does not fit where it stands, so the counts are too low."""


class _Entry(NamedTuple):
    kind: int
    arch: str
    isa: tuple[int, int]


def read_gpu_code(path: str) -> GpuCode:
    """Count the GPU code of the library at ``path``; empty where there is none.

    Only headers are read, by pread. Never raises for what the file holds; OSError when it cannot be
    read at all.
    """
    sass: Counter[str] = Counter()
    ptx: Counter[str] = Counter()
    newest = (0, 0)
    whole = True
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for name in SECTIONS:
            where = section_range(path, name)
            for entry in _entries(fd, *where) if where else ():
                if entry is None:
                    whole = False
                elif entry.kind == CUBIN:
                    sass[entry.arch] += 1
                elif entry.kind == PTX:
                    ptx[entry.arch] += 1
                    newest = max(newest, entry.isa)
    finally:
        os.close(fd)
    isa = f"{newest[0]}.{newest[1]}" if newest > (0, 0) else None
    return GpuCode(dict(sass), dict(ptx), isa, whole)


def _entries(fd: int, start: int, size: int) -> Iterator[_Entry | None]:
    """The entries of a section's containers, in order; None for what cannot be followed."""
    position, end = start, start + size
    left = _MAX_ENTRIES
    while (found := _next_container(fd, position, end)) is not None:
        raw = os.pread(fd, CONTAINER.size, found)
        if len(raw) < CONTAINER.size:  # somebody is cutting the file short
            yield None
            return
        _, _, header, length = CONTAINER.unpack(raw)
        at, stop = found + header, found + header + length
        if header < CONTAINER.size or stop > end:
            yield None
            position = found + _ALIGNMENT
            continue
        while at < stop and left:
            entry, at = _entry(fd, at, stop)
            left -= 1
            yield entry
        if not left:
            yield None
            return
        position = stop + -(stop - start) % _ALIGNMENT


def _entry(fd: int, at: int, end: int) -> tuple[_Entry | None, int]:
    """The entry at ``at`` and where the next one begins."""
    raw = os.pread(fd, ENTRY.size, at)
    if len(raw) < ENTRY.size:
        return None, end
    kind, _, header, payload, _, _, minor, major, arch, _, _, flags = ENTRY.unpack(raw)
    following = at + header + payload
    if header < ENTRY.size or following > end:
        return None, end
    return _Entry(kind, f"sm_{arch}{_suffix(kind, flags)}", (major, minor)), following


def _suffix(kind: int, flags: int) -> str:
    """``a`` or ``f``. A cubin of a family runs where a plain one of its architecture runs (newer
    minors of the major); cuobjdump names it so too, hence no ``f`` for cubins."""
    if flags & SPECIFIC:
        return "a"
    return "f" if flags & FAMILY and kind == PTX else ""


def _next_container(fd: int, position: int, end: int) -> int | None:
    """Offset of the first whole container header from ``position`` on, past any padding."""
    while position + CONTAINER.size <= end:
        piece = os.pread(fd, 4, position)
        if piece != _MAGIC_BYTES:
            piece = os.pread(fd, min(_PIECE, end - position), position)
        if not piece:
            return None
        at = piece.find(_MAGIC_BYTES)
        while at >= 0 and at % _ALIGNMENT:
            at = piece.find(_MAGIC_BYTES, at + 1)
        if at >= 0:
            found = position + at
            return found if found + CONTAINER.size <= end else None
        position += max(len(piece) // _ALIGNMENT, 1) * _ALIGNMENT
    return None
