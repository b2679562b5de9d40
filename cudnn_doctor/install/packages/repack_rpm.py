"""An .rpm again of an installed package: the header that rpm's database holds, unchanged, and a
payload of the installed files.

Format: https://rpm-software-management.github.io/rpm/manual/format_v4.html; the payload is rpm's
own variant of cpio, whose entries name files by their number in the header.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

_MAGIC = b"\x8e\xad\xe8\x01\0\0\0\0"
_LEAD = struct.Struct(">4sBBhh66shh16s")
_ENTRY = struct.Struct(">IIiI")
_HEADER = "header"
_TRAILER = b"070701" + b"0" * 40 + b"00000001" + b"0" * 40 + b"0000000b" + b"0" * 8
_BLOCK = 1 << 20

_IMMUTABLE, _SIGNATURES = 63, 62
_NAME, _ARCH = 1000, 1022
_SIZES, _MODES, _DEVICES, _INODES, _FLAGS = 1028, 1030, 1095, 1096, 1037
_FOLDER_NUMBERS, _BASENAMES, _FOLDERS = 1116, 1117, 1118
_COMPRESSOR, _LONG_SIZES = 1125, 5008
_GHOST = 1 << 6
_INTEGERS = {2: "B", 3: "H", 4: "I", 5: "Q"}
_STRINGS, _BYTES = (6, 8, 9), 7
_OF_THE_HEADER = (267, 268, 269, 273)
"""Its signatures (DSA, RSA) and digests (SHA-1, SHA-256)."""


class Header(NamedTuple):
    """One header: its entries (tag, type, offset, count) and the data that they point to."""

    entries: list[tuple[int, int, int, int]]
    data: bytes

    def values(self, tag: int) -> list[Any]:
        """The values of a tag, integers or texts; empty where it is absent."""
        for number, kind, offset, count in self.entries:
            if number != tag:
                continue
            if kind in _STRINGS:
                parts = self.data[offset:].split(b"\0", count)[:count]
                return [part.decode("utf-8", "surrogateescape") for part in parts]
            layout = f">{count}{_INTEGERS[kind]}"
            return list(struct.unpack_from(layout, self.data, offset))
        return []

    def immutable(self) -> bytes:
        """What the package had, without what rpm added when it installed it."""
        _, _, offset, size = next(e for e in self.entries if e[0] == _IMMUTABLE)
        *_, back, _ = _ENTRY.unpack_from(self.data, offset)
        count = -back // _ENTRY.size
        return _packed(self.entries[:count], self.data[: offset + size])


def describe(name: str, folder: Path) -> None:
    """Write down the header of ``name.arch`` as rpm's database holds it."""
    stem, _, arch = name.rpartition(".")
    with subprocess.Popen(("rpmdb", "--exportdb"), stdout=subprocess.PIPE) as dump:
        assert dump.stdout is not None
        for raw, header in _headers(dump.stdout):
            if header.values(_NAME) == [stem] and header.values(_ARCH) == [arch]:
                (folder / _HEADER).write_bytes(raw)
    if dump.returncode or not (folder / _HEADER).is_file():
        raise OSError(f"rpmdb --exportdb does not tell of {name}")


def build(folder: Path, tree: Path, target: str) -> str:
    """Build ``target`` with the suffix of its kind; returns that path."""
    with (folder / _HEADER).open("rb") as file:
        (_, header) = next(_headers(file))
    path = f"{target}.rpm"
    with open(path, "wb") as rpm:
        name = header.values(_NAME)[0].encode()[:65]
        rpm.write(_LEAD.pack(b"\xed\xab\xee\xdb", 3, 0, 0, 1, name, 1, 5, b""))
        rpm.write(_signatures(header))
        rpm.write(header.immutable())
        with _compressor(header, rpm) as payload:
            _write_payload(payload, header, tree)
    return path


def _headers(file: IO[bytes]) -> Iterator[tuple[bytes, Header]]:
    while len(head := file.read(16)) == 16:
        count, size = struct.unpack(">II", head[8:])
        body = file.read(count * _ENTRY.size + size)
        index = [_ENTRY.unpack_from(body, i * _ENTRY.size) for i in range(count)]
        yield head + body, Header(index, body[count * _ENTRY.size :])


def _packed(index: list[tuple[int, int, int, int]], data: bytes) -> bytes:
    entries = b"".join(_ENTRY.pack(*entry) for entry in index)
    return _MAGIC + struct.pack(">II", len(index), len(data)) + entries + data


def _signatures(header: Header) -> bytes:
    """The signature header with what it said of the main header alone: that is still true."""
    entries, data = [], b""
    for tag, kind, offset, count in header.entries:
        if tag in _OF_THE_HEADER:
            end = offset + count if kind == _BYTES else header.data.index(b"\0", offset) + 1
            entries.append((tag, kind, len(data), count))
            data += header.data[offset:end]
    size = _ENTRY.size
    region = _ENTRY.pack(_SIGNATURES, _BYTES, -size * (len(entries) + 1), size)
    packed = _packed([(_SIGNATURES, _BYTES, len(data), size), *entries], data + region)
    return packed + b"\0" * (-len(packed) % 8)


# -- the payload


class _Writer(Protocol):
    def __enter__(self) -> _Writer: ...
    def __exit__(self, *_: Any) -> Any: ...
    def write(self, data: bytes, /) -> Any: ...


def _compressor(header: Header, raw: IO[bytes]) -> _Writer:
    """The compression that the header names, at its fastest."""
    name = (header.values(_COMPRESSOR) or ["gzip"])[0]
    if name == "xz":
        return lzma.open(raw, "wb", preset=0, check=lzma.CHECK_CRC32)
    if name == "lzma":
        return lzma.open(raw, "wb", preset=0, format=lzma.FORMAT_ALONE)
    if name == "bzip2":
        return bz2.open(raw, "wb", compresslevel=1)
    if name == "zstd":
        return _StoredZstd(raw)
    return gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1)


class _StoredZstd:
    """A Zstandard frame (RFC 8878) of raw blocks."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        raw.write(b"\x28\xb5\x2f\xfd\x00\x58")  # no content size, a window of 2 MiB

    def __enter__(self) -> _StoredZstd:
        return self

    def __exit__(self, *_: object) -> None:
        self._block(b"", last=True)

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), 1 << 17):
            self._block(data[start : start + (1 << 17)], last=False)

    def _block(self, data: bytes, *, last: bool) -> None:
        self._raw.write((len(data) << 3 | last).to_bytes(3, "little") + data)


def _write_payload(payload: _Writer, header: Header, tree: Path) -> None:
    folders, numbers = header.values(_FOLDERS), header.values(_FOLDER_NUMBERS)
    names = header.values(_BASENAMES)
    sizes = header.values(_LONG_SIZES) or header.values(_SIZES)
    modes, flags = header.values(_MODES), header.values(_FLAGS)
    inodes = [*zip(header.values(_DEVICES), header.values(_INODES), strict=True)]
    last = {inode: number for number, inode in enumerate(inodes)}
    for number, name in enumerate(names):
        path = tree / (folders[numbers[number]] + name).lstrip("/")
        if flags[number] & _GHOST or not _as_told(path, modes[number], sizes[number]):
            continue
        payload.write(b"07070X%08x\0\0" % number)
        if stat.S_ISLNK(modes[number]):
            _padded(payload, os.fsencode(os.readlink(path)))
        elif stat.S_ISREG(modes[number]) and last[inodes[number]] == number:
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    _padded(payload, block)
    _padded(payload, _TRAILER + b"TRAILER!!!\0")


def _as_told(path: Path, mode: int, size: int) -> bool:
    """Whether a file is there with the size that the header tells."""
    if not os.path.lexists(path):
        return False
    here = path.lstat()
    told = stat.S_IFMT(here.st_mode) == stat.S_IFMT(mode)
    return told and (here.st_size == size or stat.S_ISDIR(mode))


def _padded(payload: _Writer, data: bytes) -> None:
    payload.write(data + b"\0" * (-len(data) % 4))
