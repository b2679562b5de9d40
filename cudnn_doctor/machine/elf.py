"""A bounded reader of what the loader needs to know of an ELF file.

It reads the headers, the dynamic section and the version needs, by pread, and nothing else: a
cuDNN library is up to 800 MB and a check looks at a hundred of them. That takes tens of
microseconds a file where pyelftools, the reference of its tests, takes milliseconds; hence own
code. Layouts: System V gABI, chapters 4 and 5; symbol versions: LSB core, part 10.7.

No input makes it raise: every number read is checked against the file and against a limit.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

T = TypeVar("T")
Status = Literal["ok", "truncated", "not-elf", "unreadable"]

_BLOCK = 1 << 14
_MAX_HEADERS = 512
_MAX_DYNAMIC = 2048
_MAX_NEEDED = 256
_MAX_STRING = 1 << 14
_MAX_VERSIONS = 512
_MAX_CHAIN = 4096
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 14, 15, 29
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_DT_SYMTAB, _DT_GNU_HASH = 6, 0x6FFFFEF5
_MACHINES = {
    3: "i386",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}
_GLIBC = re.compile(r"GLIBC_(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?")


class Elf(NamedTuple):
    """What one file's ELF headers say; fields that could not be read are None or empty."""

    status: Status
    size: int | None = None
    machine: str | None = None
    """In uname's spelling."""
    elf_class: int | None = None
    """32 or 64."""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    glibc_needed: str | None = None
    """Newest GLIBC_x.y that it requires, as ``x.y``."""


class _Layout(NamedTuple):
    """Struct formats that differ between the two classes (byte order already chosen)."""

    header: struct.Struct
    program: struct.Struct
    section: struct.Struct
    dynamic: struct.Struct
    elf_class: int
    order: str


def _layout(elf_class: int, order: str) -> _Layout:
    if elf_class == 64:
        formats = ("HHIQQQIHHHHHH", "IIQQQQQQ", "IIQQQQIIQQ", "qQ")
    else:
        formats = ("HHIIIIIHHHHHH", "IIIIIIII", "IIIIIIIIII", "iI")
    header, program, section, dynamic = (struct.Struct(order + f) for f in formats)
    return _Layout(header, program, section, dynamic, elf_class, order)


_LAYOUTS = {(c, o): _layout(c, o) for c in (32, 64) for o in "<>"}


class _File:
    """Random reads of an open file through a cache of aligned blocks."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self._blocks: dict[int, bytes] = {}

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes; fewer where the file ends."""
        if offset < 0 or offset >= self.size or length <= 0:
            return b""
        length = min(length, self.size - offset)
        number, start = divmod(offset, _BLOCK)
        if start + length > _BLOCK:
            return os.pread(self.fd, length, offset)
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = os.pread(self.fd, _BLOCK, number * _BLOCK)
        return block[start : start + length]

    def string(self, offset: int, limit: int) -> str:
        """The zero-terminated string at ``offset``, at most ``limit`` bytes of it."""
        data = self.read(offset, min(limit, 256))
        end = data.find(b"\0")
        if end < 0:
            data = self.read(offset, min(limit, _MAX_STRING))
            end = data.find(b"\0")
        return (data if end < 0 else data[:end]).decode("utf-8", "surrogateescape")


def read_elf(path: str) -> Elf:
    """Read the file at ``path`` (links are followed); never raises."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return Elf("unreadable")
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return Elf("not-elf")
        return _parse(_File(fd, info.st_size))
    except OSError:
        return Elf("unreadable")
    finally:
        os.close(fd)


class _Headers(NamedTuple):
    layout: _Layout
    segments: list[tuple[int, int, int, int]]
    """(type, offset, vaddr, size in file)."""
    whole: bool
    """False: the file ends before something that its headers promise."""
    sections: tuple[int, int, int]
    """(offset, count, index of the names)."""


def _identify(file: _File) -> _Layout | None:
    """Class and byte order; None when it is no ELF file."""
    start = file.read(0, 16)
    if len(start) < 16 or start[:4] != b"\x7fELF":
        return None
    elf_class, order = {1: 32, 2: 64}.get(start[4], 0), {1: "<", 2: ">"}.get(start[5], "")
    return _LAYOUTS.get((elf_class, order))


def _parse(file: _File) -> Elf:
    start = file.read(0, 4)
    if len(start) < 4 or (start == b"\x7fELF" and file.size < 16):
        return Elf("truncated" if b"\x7fELF".startswith(start) else "not-elf", file.size)
    layout = _identify(file)
    if layout is None:
        return Elf("not-elf", file.size)
    head = file.read(16, layout.header.size)
    if len(head) < layout.header.size:
        return Elf("truncated", file.size, None, layout.elf_class)
    number = struct.unpack_from(layout.order + "H", head, 2)[0]
    machine = _MACHINES.get(number, f"machine-{number}")
    if machine == "ppc64" and layout.order == "<":
        machine = "ppc64le"
    headers = _headers(file, layout, head)
    return _dynamic(file, headers)._replace(
        status="ok" if headers.whole else "truncated",
        size=file.size,
        machine=machine,
        elf_class=layout.elf_class,
    )


def _headers(file: _File, layout: _Layout, head: bytes) -> _Headers:
    fields = layout.header.unpack(head)
    phoff, shoff = fields[4], fields[5]
    phentsize, phnum, shentsize, shnum, names = fields[8:13]
    whole = shoff + shnum * shentsize <= file.size and phoff + phnum * phentsize <= file.size
    segments = []
    wide = layout.elf_class == 64
    for index in range(min(phnum, _MAX_HEADERS)):
        raw = file.read(phoff + index * phentsize, layout.program.size)
        if len(raw) < layout.program.size:
            break
        entry = layout.program.unpack(raw)
        kind = entry[0]
        offset, vaddr, filesz = (entry[2], entry[3], entry[5]) if wide else (*entry[1:3], entry[4])
        if kind in {_PT_LOAD, _PT_DYNAMIC}:
            segments.append((kind, offset, vaddr, filesz))
            whole = whole and offset + filesz <= file.size
    return _Headers(layout, segments, whole, (shoff, shnum if shentsize else 0, names))


def _offset(headers: _Headers, vaddr: int) -> int | None:
    """File offset of an address."""
    for kind, offset, start, size in headers.segments:
        if kind == _PT_LOAD and start <= vaddr < start + size:
            return offset + vaddr - start
    return None


def _tags(file: _File, headers: _Headers) -> tuple[dict[int, int], list[int]]:
    """Entries of the dynamic section: the last value of each tag, and all DT_NEEDED."""
    tags: dict[int, int] = {}
    needed: list[int] = []
    entry = headers.layout.dynamic
    for kind, offset, _, size in headers.segments:
        if kind != _PT_DYNAMIC:
            continue
        raw = file.read(offset, min(size, _MAX_DYNAMIC * entry.size))
        for tag, value in entry.iter_unpack(raw[: len(raw) // entry.size * entry.size]):
            if tag == 0:
                break
            if tag == _DT_NEEDED:
                needed.append(value)
            else:
                tags[tag] = value
        break
    return tags, needed


def _dynamic(file: _File, headers: _Headers) -> Elf:
    """SONAME, NEEDED, search paths and version needs; ``status`` is for the caller to set."""
    tags, needed = _tags(file, headers)
    table = _offset(headers, tags.get(_DT_STRTAB, -1))
    if table is None:
        return Elf("ok")
    length = tags.get(_DT_STRSZ, 0)

    def text(index: int | None) -> str | None:
        if index is None or not 0 <= index < length:
            return None
        return file.string(table + index, length - index)

    return Elf(
        "ok",
        soname=text(tags.get(_DT_SONAME)),
        needed=tuple(name for i in needed[:_MAX_NEEDED] if (name := text(i))),
        rpath=text(tags.get(_DT_RPATH)),
        runpath=text(tags.get(_DT_RUNPATH)),
        glibc_needed=_newest_glibc(file, headers, tags, table, length),
    )


def _newest_glibc(
    file: _File, headers: _Headers, tags: dict[int, int], table: int, length: int
) -> str | None:
    here = _offset(headers, tags.get(_DT_VERNEED, -1))
    if here is None:
        return None
    order = headers.layout.order
    need, aux = struct.Struct(order + "HHIII"), struct.Struct(order + "IHHII")
    newest: tuple[int, int] | None = None
    left = _MAX_VERSIONS
    for _ in range(min(tags.get(_DT_VERNEEDNUM, 0), _MAX_VERSIONS)):
        raw = file.read(here, need.size)
        if len(raw) < need.size:
            break
        _, count, _, first, following = need.unpack(raw)
        spot = here + first
        for _ in range(min(count, left)):
            left -= 1
            raw = file.read(spot, aux.size)
            if len(raw) < aux.size:
                break
            _, _, _, name, onward = aux.unpack(raw)
            match = _GLIBC.fullmatch(file.string(table + name, 64)) if name < length else None
            if match:
                version = (int(match[1]), int(match[2]))
                newest = version if newest is None else max(newest, version)
            spot += onward
            if not onward:
                break
        here += following
        if not following:
            break
    return None if newest is None else f"{newest[0]}.{newest[1]}"


def section_range(path: str, name: str) -> tuple[int, int] | None:
    """File offset and size of a section (``.rodata``); None without one. Never raises."""

    def find(file: _File, headers: _Headers) -> tuple[int, int] | None:
        return _find_section(file, headers, name)

    return _with_headers(path, find)


def exported_bytes(path: str, symbol: str, size: int) -> bytes | None:
    """First ``size`` bytes of an exported data symbol; None without one. Never raises."""

    def find(file: _File, headers: _Headers) -> bytes | None:
        vaddr = _symbol_address(file, headers, symbol.encode())
        offset = None if vaddr is None else _offset(headers, vaddr)
        data = b"" if offset is None else file.read(offset, size)
        return data if len(data) == size else None

    return _with_headers(path, find)


def _with_headers(path: str, find: Callable[[_File, _Headers], T | None]) -> T | None:
    """Answer of ``find`` on the open file, None where it is no readable ELF file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        file = _File(fd, os.fstat(fd).st_size)
        layout = _identify(file)
        if layout is None:
            return None
        head = file.read(16, layout.header.size)
        if len(head) < layout.header.size:
            return None
        return find(file, _headers(file, layout, head))
    except OSError:
        return None
    finally:
        os.close(fd)


def _symbol_address(file: _File, headers: _Headers, symbol: bytes) -> int | None:
    """Address of a defined dynamic symbol of a 64-bit file, by its GNU hash table.

    Layout: a header of four words (buckets, first symbol, Bloom words, shift), the Bloom filter,
    the buckets, then one hash word a symbol whose lowest bit ends a chain.
    """
    tags, _ = _tags(file, headers)
    table, names, symbols = (
        _offset(headers, tags.get(tag, -1)) for tag in (_DT_GNU_HASH, _DT_STRTAB, _DT_SYMTAB)
    )
    if table is None or names is None or symbols is None or headers.layout.elf_class != 64:
        return None
    order = headers.layout.order

    def word(offset: int) -> int:
        return int.from_bytes(file.read(offset, 4), "little" if order == "<" else "big")

    count, first, bloom = word(table), word(table + 4), word(table + 8)
    if not count:
        return None
    wanted = _gnu_hash(symbol)
    buckets = table + 16 + 8 * bloom
    start = word(buckets + 4 * (wanted % count))
    entry = struct.Struct(order + "IBBHQQ")
    for index in range(max(start, first), max(start, first) + _MAX_CHAIN):
        here = word(buckets + 4 * (count + index - first))
        raw = file.read(symbols + index * entry.size, entry.size)
        if len(raw) < entry.size:
            return None
        name, _, _, section, value, _ = entry.unpack(raw)
        if here | 1 == wanted | 1 and file.read(names + name, len(symbol) + 1) == symbol + b"\0":
            return int(value) if section else None
        if here & 1:
            return None
    return None


def _gnu_hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _find_section(file: _File, headers: _Headers, name: str) -> tuple[int, int] | None:
    offset, count, names = headers.sections
    shape = headers.layout.section
    table = file.read(offset, min(count, _MAX_HEADERS) * shape.size)
    entries = list(shape.iter_unpack(table[: len(table) // shape.size * shape.size]))
    if names >= len(entries):
        return None
    strings = entries[names][4]
    for entry in entries:
        if file.string(strings + entry[0], 64) == name and entry[4] + entry[5] <= file.size:
            return entry[4], entry[5]
    return None
