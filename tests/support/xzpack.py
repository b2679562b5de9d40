"""Write .xz files of one block or many without the xz program, on all cores.

The standard library writes blocks whose headers tell no sizes. `xz --threads` writes them with
sizes, and so does this: LZMA2 data made by the standard library, framed by the rules of the xz file
format 1.2.1. LZMA2 data that begins anew can be strung together, so that even one block is
compressed on all cores.
"""

from __future__ import annotations

import lzma
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, NamedTuple

_FLAGS = b"\x00\x01"
"""Stream flags: each block has a CRC32."""
_DICTIONARY = 8 << 20
_DICTIONARY_BITS = b"\x16"
"""8 MiB, as a block header writes it (section 5.3.1)."""
_END = b"\x00"
"""Last byte of LZMA2 data."""


class Chunk(NamedTuple):
    """Plain bytes' LZMA2 form with its last byte, their number and their bytes' CRC32."""

    packed: bytes
    size: int
    crc: int


def compress(pieces: Iterable[bytes], preset: int = 1) -> Iterator[Chunk]:
    """Compress each piece by itself, a bounded number at a time, in order."""
    cores = len(os.sched_getaffinity(0))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": _DICTIONARY}]

    def chunk(piece: bytes) -> Chunk:
        packed = lzma.compress(piece, lzma.FORMAT_RAW, filters=filters)
        return Chunk(packed, len(piece), zlib.crc32(piece))

    with ThreadPoolExecutor(cores) as pool:
        waiting = []
        for piece in pieces:
            waiting.append(pool.submit(chunk, piece))
            if len(waiting) > 2 * cores:
                yield waiting.pop(0).result()
        for job in waiting:
            yield job.result()


def write_blocks(chunks: Iterable[Chunk], out: IO[bytes]) -> None:
    """A stream with each chunk in a block of its own, whose header tells its sizes."""
    out.write(_stream_header())
    records = []
    for packed, size, crc in chunks:
        sizes = _number(len(packed)) + _number(size)
        records.append(_block(out, [packed], sizes, size, crc))
    _end(out, records)


def write_one(chunks: Sequence[Chunk], plain: Iterable[bytes], out: IO[bytes]) -> None:
    """A stream with all chunks in one block that tells no sizes; ``plain``: the same bytes."""
    out.write(_stream_header())
    crc = 0
    for piece in plain:
        crc = zlib.crc32(piece, crc)
    packed = [chunk.packed.removesuffix(_END) for chunk in chunks]
    size = sum(chunk.size for chunk in chunks)
    _end(out, [_block(out, [*packed, _END], b"", size, crc)])


def _block(
    out: IO[bytes], packed: Sequence[bytes], sizes: bytes, size: int, crc: int
) -> tuple[int, int]:
    """Write a block; returns what the index tells of it."""
    body = (b"\xc0" if sizes else b"\x00") + sizes + b"\x21\x01" + _DICTIONARY_BITS
    body += bytes(-(len(body) + 1) % 4)
    head = bytes([(len(body) + 1) // 4]) + body
    out.write(_with_crc(head))
    for part in packed:
        out.write(part)
    length = sum(map(len, packed))
    out.write(bytes(-length % 4) + struct.pack("<I", crc))
    return len(head) + 4 + length + 4, size


def _end(out: IO[bytes], records: Sequence[tuple[int, int]]) -> None:
    """Index and footer."""
    index = b"\x00" + _number(len(records))
    index += b"".join(_number(unpadded) + _number(size) for unpadded, size in records)
    index = _with_crc(index + bytes(-len(index) % 4))
    out.write(index)
    footer = struct.pack("<I", len(index) // 4 - 1) + _FLAGS
    out.write(struct.pack("<I", zlib.crc32(footer)) + footer + b"YZ")


def _stream_header() -> bytes:
    return b"\xfd7zXZ\x00" + _with_crc(_FLAGS)


def _with_crc(data: bytes) -> bytes:
    return data + struct.pack("<I", zlib.crc32(data))


def _number(value: int) -> bytes:
    """A multibyte integer (section 1.2)."""
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])
