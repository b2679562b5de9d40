"""Fat binaries put together by hand, and ELF libraries that carry them as nvcc's do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from support.elf import build_library

from cudnn_doctor.machine import fatbin


class Code(NamedTuple):
    """One entry: ``("sass", 90, "a")`` is a cubin for sm_90a."""

    kind: str
    arch: int
    suffix: str = ""
    isa: tuple[int, int] = (8, 8)
    payload: bytes = b"\x28\xb5\x2f\xfd compressed code"


_KINDS = {"ptx": fatbin.PTX, "sass": fatbin.CUBIN, "lto": 8}
_FLAGS = {"": 0, "a": fatbin.SPECIFIC, "f": fatbin.FAMILY}


def entry(code: Code, options: bytes = b"") -> bytes:
    """One entry of a container, its payload padded to eight bytes."""
    payload = code.payload + b"\0" * (-len(code.payload) % 8)
    major, minor = code.isa
    header = fatbin.ENTRY.pack(
        _KINDS[code.kind],
        0x101,
        64 + len(options),
        len(payload),
        len(code.payload),
        64 if options else 0,
        minor,
        major,
        code.arch,
        0,
        0,
        0x8011 | _FLAGS[code.suffix],
    )
    return header.ljust(64, b"\0") + options + payload


def container(codes: Sequence[Code], options: bytes = b"") -> bytes:
    """A whole fat binary."""
    entries = b"".join(entry(code, options) for code in codes)
    return fatbin.CONTAINER.pack(fatbin.MAGIC, 1, fatbin.CONTAINER.size, len(entries)) + entries


def build_gpu_library(path: Path, section: bytes, name: str = ".nv_fatbin", **elf: object) -> Path:
    """A shared library, built by gcc, with ``section`` in it; ``elf`` as for `build_library`."""
    blob = path.with_name(f"{path.name}.section")
    path.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(section)
    source = (
        f'__asm__(".section {name},\\"a\\"\\n.balign 8\\n.incbin \\"{blob}\\"\\n.previous");'
        "int marker;"
    )
    build_library(path, source=source, **elf)  # type: ignore[arg-type]
    blob.unlink()
    return path
