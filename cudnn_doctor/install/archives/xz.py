"""Decompress .xz while it arrives, on all cores where the file allows it.

A file made of many blocks carries each block's sizes in the block's header (xz file format 1.2.1,
section 3.1): such blocks are cut out of the stream and decompressed side by side, a
bounded number at a time, so memory stays flat. A single-block file is decompressed as it comes, a
few pieces ahead of the reader. The standard library's lzma does the work (and checks each block's
checksum); it releases the GIL.
"""

from __future__ import annotations

import lzma
import os
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

MAGIC = b"\xfd7zXZ\x00"
_HEADER = 12
_CHECK_SIZES = (0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64)
_MAX_BLOCK = 256 << 20
"""Bytes; blocks that are or become larger are decompressed in sequence: memory before speed."""
_MAX_AHEAD = 400 << 20
"""Bytes of blocks that wait or are under way, on however many cores."""
_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Bytes that the control group of this process may use, in a container; else absent or `max`."""
_PIECE = 1 << 20
_PIECES_AHEAD = 6


class Source(Protocol):
    """Bytes in order; empty at the end."""

    def read(self, size: int, /) -> bytes: ...


class XzReader:
    """The decompressed bytes, in order; raises lzma.LZMAError on damaged input."""

    def __init__(self, source: Source, workers: int | None = None) -> None:
        self._source = source
        self._workers = workers or len(os.sched_getaffinity(0))
        self._max_ahead = max_ahead()
        self._pool = ThreadPoolExecutor(self._workers)
        self._waiting: deque[Future[list[bytes]]] = deque()
        self._sizes: deque[int] = deque()
        self._pieces: deque[bytes] = deque()
        self._ready = memoryview(b"")
        self._single: lzma.LZMADecompressor | None = None
        self._single_input = b""
        self._header = self._exactly(_HEADER)
        if not self._header.startswith(MAGIC):
            raise lzma.LZMAError("not an .xz file")
        self._check = _CHECK_SIZES[self._header[7] & 0x0F]
        self._blocks_left = True

    def __enter__(self) -> XzReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def read(self, size: int, /) -> memoryview:
        """At least one byte and at most ``size``, not copied; empty at the end."""
        while not self._ready and (self._pieces or self._next()):
            self._ready = memoryview(self._pieces.popleft())
        data, self._ready = self._ready[:size], self._ready[size:]
        return data

    def _next(self) -> bool:
        """Whether there are further pieces: they are then in ``_pieces``."""
        while self._blocks_left and len(self._waiting) <= 2 * self._workers:
            if self._waiting and sum(self._sizes) > self._max_ahead:
                break
            self._cut_block()
            if self._waiting and self._waiting[0].done():
                break  # no waiting for what has not arrived while something is ready
        while self._single is not None and len(self._waiting) < _PIECES_AHEAD:
            self._waiting.append(self._pool.submit(self._piece))
        while self._waiting and not self._pieces:
            if self._sizes:
                self._sizes.popleft()
            self._pieces.extend(self._waiting.popleft().result())
        return bool(self._pieces)

    def _piece(self) -> list[bytes]:
        """The next piece of what is decompressed in sequence, none at the end; the pool has one
        worker then."""
        decoder = self._single or lzma.LZMADecompressor(lzma.FORMAT_XZ)
        while True:
            if decoder.eof:  # another stream may follow (xz manual: .xz files can be concatenated)
                rest = decoder.unused_data.lstrip(b"\0") or self._source.read(_PIECE).lstrip(b"\0")
                if not rest:
                    return []
                decoder = self._single = lzma.LZMADecompressor(lzma.FORMAT_XZ)
                self._single_input = rest
            data = self._single_input or (self._source.read(_PIECE) if decoder.needs_input else b"")
            self._single_input = b""
            if not data and decoder.needs_input:
                raise lzma.LZMAError("the archive ends in the middle")
            if out := decoder.decompress(data, 4 * _PIECE):
                return [out]

    def _cut_block(self) -> None:
        """Hand the next block to the pool, or switch to decompressing in sequence."""
        first = self._exactly(1)
        if first == b"\x00":  # the index: no block follows
            self._blocks_left = False
            return
        head = first + self._exactly(first[0] * 4 + 3)
        sizes = block_sizes(head)
        if sizes is None or max(sizes) > _MAX_BLOCK:
            self._single = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            self._single_input = self._header + head
            self._blocks_left = False
            self._pool.shutdown(wait=False)  # what it has goes on
            self._pool = ThreadPoolExecutor(1)
            return
        packed, unpacked = sizes
        body = self._parts(-(-packed // 4) * 4 + self._check)
        self._sizes.append(max(packed, unpacked))
        parts = deque((self._header + head, *body))
        self._waiting.append(self._pool.submit(_decompress, parts, unpacked))

    def _exactly(self, count: int) -> bytes:
        return b"".join(self._parts(count))

    def _parts(self, count: int) -> Iterator[bytes]:
        while count:
            data = self._source.read(min(count, _PIECE))
            if not data:
                raise lzma.LZMAError("the archive ends in the middle")
            yield data
            count -= len(data)


def max_ahead() -> int:
    """Bytes of blocks to have in memory at most: half of what a container may use."""
    try:
        return min(_MAX_AHEAD, int(_LIMIT.read_text()) // 2)
    except (OSError, ValueError):
        return _MAX_AHEAD


def block_sizes(head: bytes) -> tuple[int, int] | None:
    """Compressed and uncompressed size told by a block header (bytes, from its size byte to its
    CRC); None unless it tells both.

    Raises lzma.LZMAError when the header is damaged.
    """
    if zlib.crc32(head[:-4]) != int.from_bytes(head[-4:], "little"):
        raise lzma.LZMAError("a block header is damaged")
    if head[1] & 0xC0 != 0xC0:
        return None
    packed, at = _number(head, 2)
    unpacked, _ = _number(head, at)
    return packed, unpacked


def _number(head: bytes, at: int) -> tuple[int, int]:
    """A multibyte integer (section 1.2 of the format) and where it ends."""
    size = shift = 0
    for index, byte in enumerate(head[at : at + 9]):
        size |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return size, at + index + 1
        shift += 7
    raise lzma.LZMAError("a block header is damaged")


def _decompress(parts: deque[bytes], size: int) -> list[bytes]:
    """One block, whose header promises ``size`` bytes: at most one more is made, to tell.

    In pieces, so that none is copied into a larger one; ``parts`` are let go one after the other,
    so that no more is held than the larger of the block's two sizes.
    """
    decoder, pieces, left = lzma.LZMADecompressor(lzma.FORMAT_XZ), [], size
    while parts or not decoder.needs_input:
        data = parts.popleft() if decoder.needs_input else b""
        piece = decoder.decompress(data, min(left + 1, _PIECE))
        left -= len(piece)
        if left < 0:
            break
        if piece:
            pieces.append(piece)
    if left:
        raise lzma.LZMAError("a block is damaged")
    return pieces
