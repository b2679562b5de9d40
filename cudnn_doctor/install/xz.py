"""Decompress .xz while it arrives, on all cores where the file allows it.

A file made of many blocks carries each block's compressed size in the block's header (xz file
format 1.2.1, section 3.1): such blocks are cut out of the stream and decompressed side by side, a
bounded number at a time, so memory stays flat. A single-block file is decompressed as it comes. The
standard library's lzma does the work (and checks each block's checksum); it releases the GIL.
"""

from __future__ import annotations

import io
import lzma
import os
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

MAGIC = b"\xfd7zXZ\x00"
_HEADER = 12
_CHECK_SIZES = (0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64)
_MAX_BLOCK = 256 << 20
"""Larger blocks are decompressed in sequence: memory before speed."""
_PIECE = 1 << 20


class Source(Protocol):
    """Bytes in order; empty at the end."""

    def read(self, size: int, /) -> bytes: ...


class XzReader(io.RawIOBase):
    """A readable stream of the decompressed bytes; raises lzma.LZMAError on damaged input."""

    def __init__(self, source: Source, workers: int | None = None) -> None:
        self._source = source
        self._workers = workers or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._workers)
        self._waiting: deque[Future[bytes]] = deque()
        self._ready: memoryview = memoryview(b"")
        self._single: lzma.LZMADecompressor | None = None
        self._single_input = b""
        self._header = self._exactly(_HEADER)
        if not self._header.startswith(MAGIC):
            raise lzma.LZMAError("not an .xz file")
        self._check = _CHECK_SIZES[self._header[7] & 0x0F]
        self._blocks_left = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._ready:
            data = self._next()
            if data is None:
                return 0
            self._ready = memoryview(data)
        count = min(len(view), len(self._ready))
        view[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        super().close()

    def _next(self) -> bytes | None:
        """The next decompressed piece, None at the end."""
        if self._single is not None:
            return self._next_single(self._single)
        while self._blocks_left and len(self._waiting) <= self._workers:
            self._cut_block()
            if self._single is not None and not self._waiting:
                return self._next_single(self._single)
            if self._single is not None:
                break
        return self._waiting.popleft().result() if self._waiting else None

    def _next_single(self, decoder: lzma.LZMADecompressor) -> bytes | None:
        if self._waiting:
            return self._waiting.popleft().result()
        while not decoder.eof:
            data = self._single_input or (self._source.read(_PIECE) if decoder.needs_input else b"")
            self._single_input = b""
            if not data and decoder.needs_input:
                raise lzma.LZMAError("the archive ends in the middle")
            if out := decoder.decompress(data, 4 * _PIECE):
                return out
        return None

    def _cut_block(self) -> None:
        """Hand the next block to the pool, or switch to decompressing in sequence."""
        first = self._exactly(1)
        if first == b"\x00":  # the index: no block follows
            self._blocks_left = False
            return
        head = first + self._exactly(first[0] * 4 + 3)
        size = compressed_size(head)
        if size is None or size > _MAX_BLOCK:
            self._single = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            self._single_input = self._header + head
            self._blocks_left = False
            return
        body = self._exactly(-(-size // 4) * 4 + self._check)
        self._waiting.append(self._pool.submit(_decompress, self._header + head + body))

    def _exactly(self, count: int) -> bytes:
        parts, left = [], count
        while left:
            data = self._source.read(left)
            if not data:
                raise lzma.LZMAError("the archive ends in the middle")
            parts.append(data)
            left -= len(data)
        return b"".join(parts)


def compressed_size(head: bytes) -> int | None:
    """Compressed size told by a block header (bytes, from its size byte to its CRC), if any.

    Raises lzma.LZMAError when the header's CRC is wrong.
    """
    if zlib.crc32(head[:-4]) != int.from_bytes(head[-4:], "little"):
        raise lzma.LZMAError("a block header is damaged")
    if not head[1] & 0x40:
        return None
    size = shift = 0
    for byte in head[2:11]:
        size |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return size
        shift += 7
    raise lzma.LZMAError("a block header is damaged")


def _decompress(stream: bytes) -> bytes:
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    return decoder.decompress(stream)
