"""Lay out a wheel while it arrives: members are inflated side by side as soon as bytes are there.

The local headers tell where members begin (APPNOTE.TXT of PKWARE, section 4.3.7). A member whose
header does not tell its size, and all behind it, waits for the end of the file. The central
directory, which every other program goes by, must say the same as the headers.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from cudnn_doctor.install.archives.download import Arriving
from cudnn_doctor.install.archives.sink import Refused, Sink

_LOCAL = struct.Struct("<4s5H3I2H")
_MAGIC = b"PK\x03\x04"
_SIZES_FOLLOW, _ENCRYPTED = 0x8, 0x1
_ZIP64 = 0xFFFFFFFF
_PIECE = 1 << 20


class Member(NamedTuple):
    """One file, as its local header describes it; sizes and offsets in bytes."""

    name: str
    method: int
    begin: int
    packed: int
    size: int


def unzip(arriving: Arriving, sink: Sink, workers: int) -> None:
    """Fill ``sink``; raises Refused, zlib.error or zipfile.BadZipFile on what no honest wheel
    holds. Whoever calls has `Arriving` closed before the threads are waited for."""
    with ThreadPoolExecutor(workers) as pool:
        try:
            seen: dict[str, Member] = {}
            jobs: list[Future[None]] = []
            for member in _arriving_members(arriving):
                seen[member.name] = member
                if place := _place(member.name, member.size, sink):
                    jobs.append(pool.submit(_inflate, arriving, member, sink, place))
            path = arriving.finish()
            for job in jobs:
                job.result()
        except BaseException:
            arriving.break_off()
            raise
    _judge(path, seen, sink)


def _place(name: str, size: int, sink: Sink) -> str | None:
    if name.endswith("/"):
        return None
    place = sink.place(name)
    if place:
        sink.reserve(size)
    return place


def _arriving_members(arriving: Arriving) -> Iterator[Member]:
    """Members in the order of the file, up to the first whose header tells no size."""
    position = 0
    while True:
        head = arriving.at(position, _LOCAL.size)
        if len(head) < _LOCAL.size or not head.startswith(_MAGIC):
            return
        _, _, flags, method, _, _, _, packed, size, name_size, extra_size = _LOCAL.unpack(head)
        if flags & _ENCRYPTED or method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Refused("it holds a file that is encrypted or packed in an unknown way")
        if flags & _SIZES_FOLLOW or _ZIP64 in (packed, size):
            return
        position += _LOCAL.size
        name = arriving.at(position, name_size).decode("utf-8", "surrogateescape")
        begin = position + name_size + extra_size
        yield Member(name, method, begin, packed, size)
        position = begin + packed


def _inflate(arriving: Arriving, member: Member, sink: Sink, place: str) -> None:
    """Write one member, waiting for its bytes."""
    pieces = _packed_pieces(arriving, member)
    sink.write(place, pieces if member.method == zipfile.ZIP_STORED else _plain(pieces, member))


def _packed_pieces(arriving: Arriving, member: Member) -> Iterator[bytes]:
    position, end = member.begin, member.begin + member.packed
    while position < end:
        data = arriving.at(position, min(_PIECE, end - position))
        if not data:
            raise Refused(f"it ends in the middle of {member.name!r}")
        position += len(data)
        yield data


def _plain(pieces: Iterator[bytes], member: Member) -> Iterator[bytes]:
    decoder, left = zlib.decompressobj(-zlib.MAX_WBITS), member.size
    for piece in pieces:
        data = piece
        while data and left >= 0:
            plain = decoder.decompress(data, 4 * _PIECE)
            data = decoder.unconsumed_tail
            left -= len(plain)
            yield plain
    if left or not decoder.eof:
        raise Refused(f"{member.name!r} is not as long as its header says")


def _judge(path: Path, seen: dict[str, Member], sink: Sink) -> None:
    """Compare with the central directory, and write what the headers did not show."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.external_attr >> 16 & 0o170000 not in (0, 0o100000, 0o040000):
                raise Refused(f"it holds {info.filename!r}, which is not a plain file")
            member = seen.pop(info.filename, None)
            if member is None:
                if place := _place(info.filename, info.file_size, sink):
                    with archive.open(info) as source:
                        sink.write(place, iter(lambda: source.read(_PIECE), b""))
            elif (member.packed, member.size) != (info.compress_size, info.file_size):
                raise Refused(f"it says two things about {info.filename!r}")
    if seen:
        raise Refused(f"its directory does not list {next(iter(seen))!r}")
