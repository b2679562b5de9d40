"""What ld.so consults besides the environment: its cache, its folders, its preloads.

Formats: ``ldconfig(8)``, ``ld.so(8)`` and glibc's cache file ("ld.so-1.7.0" and
"glibc-ld.so.cache1.1", alone or the second after the first); musl's ``/etc/ld-musl-ARCH.path``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from cudnn_doctor.machine.elf import read_elf
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import CacheEntry, LoaderConfig
from cudnn_doctor.machine.names import is_relevant

CACHE = "/etc/ld.so.cache"
_OLD_MAGIC, _NEW_MAGIC = b"ld.so-1.7.0", b"glibc-ld.so.cache1.1"
_OLD_HEADER, _OLD_ENTRY = 16, 12
_NEW_HEADER, _NEW_ENTRY = 48, 24
_BIG_ENDIAN = 3
_MAX_ENTRIES = 1 << 17
_MAX_PATH = 4096
_MAX_CONF_FILES = 256
_CACHE_ARCH = {
    0x0000: "",
    0x0300: "x86_64",
    0x0400: "s390x",
    0x0500: "ppc64le",
    0x0800: "x32",
    0x0900: "arm",
    0x0A00: "aarch64",
    0x0B00: "arm",
    0x1000: "riscv64",
    0x1200: "loongarch64",
}
"""Bits 8 to 15 of a cache entry's flags (``FLAG_X8664_LIB64`` and so on)."""
TRIPLETS = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "ppc64le": "powerpc64le-linux-gnu",
    "i386": "i386-linux-gnu",
    "s390x": "s390x-linux-gnu",
    "riscv64": "riscv64-linux-gnu",
    "loongarch64": "loongarch64-linux-gnu",
    "arm": "arm-linux-gnueabihf",
}


def probe_loader(host: Host) -> LoaderConfig:
    """Read the loader's configuration; what cannot be read is recorded in ``host.failures``."""
    arch = host_arch(host)
    preload = tuple(
        path
        for line in (host.text("/etc/ld.so.preload") or "").splitlines()
        for path in line.split("#", 1)[0].replace(":", " ").split()
    )
    if _is_musl(host):
        return LoaderConfig(cache=(), default_folders=_musl_folders(host, arch), preload=preload)
    return LoaderConfig(
        cache=_probe_cache(host),
        conf_folders=_conf_folders(host),
        default_folders=_default_folders(host, arch),
        preload=preload,
    )


def host_arch(host: Host) -> str:
    """Architecture of the user space, uname's spelling; empty when it cannot be told."""
    for program in ("/bin/sh", "/usr/bin/env", "/sbin/ldconfig", "/bin/busybox"):
        elf = read_elf(host.outer(program))
        if elf.machine:
            return elf.machine
    return os.uname().machine if host.live else ""


def _is_musl(host: Host) -> bool:
    return bool(host.glob("/lib/ld-musl-*.so.1")) and not host.exists(CACHE)


def _musl_folders(host: Host, arch: str) -> tuple[str, ...]:
    text = host.text(f"/etc/ld-musl-{arch}.path")
    if text is None:
        return ("/lib", "/usr/local/lib", "/usr/lib")
    return tuple(p for p in text.replace("\n", ":").split(":") if p.startswith("/"))


def _default_folders(host: Host, arch: str) -> tuple[str, ...]:
    """The folders built into glibc's ld.so: Debian's multiarch, or lib64 elsewhere."""
    for triplet in (TRIPLETS[arch],) if arch in TRIPLETS else TRIPLETS.values():
        if host.is_dir(f"/lib/{triplet}") or host.is_dir(f"/usr/lib/{triplet}"):
            return (f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib", "/usr/lib")
    if arch in {"i386", "arm"}:
        return ("/lib", "/usr/lib")
    return ("/lib64", "/usr/lib64", *(("/usr/lib",) if not host.is_dir("/usr/lib64") else ()))


# -- /etc/ld.so.conf


def _conf_folders(host: Host) -> tuple[str, ...]:
    found: dict[str, None] = {}
    seen: set[str] = set()
    for line in _conf_lines(host, "/etc/ld.so.conf", seen):
        folder = line.split("=", 1)[0].rstrip()
        if folder.startswith("/"):
            found[folder.rstrip("/") or "/"] = None
    return tuple(found)


def _conf_lines(host: Host, path: str, seen: set[str]) -> Iterator[str]:
    if path in seen or len(seen) >= _MAX_CONF_FILES:
        return
    seen.add(path)
    for raw in (host.text(path) or "").splitlines():
        line = raw.split("#", 1)[0].strip()
        words = line.split()
        if words[:1] == ["include"]:
            for pattern in words[1:]:
                absolute = pattern if pattern.startswith("/") else f"/etc/{pattern}"
                for included in host.glob(absolute):
                    yield from _conf_lines(host, included, seen)
        elif words and words[0] != "hwcap":
            yield line


# -- /etc/ld.so.cache


def _probe_cache(host: Host) -> tuple[CacheEntry, ...] | None:
    if not host.exists(CACHE):
        return ()
    data = host.bytes(CACHE)
    if data is None:
        host.fail("loader", f"{CACHE} cannot be read")
        return None
    try:
        return parse_cache(data)
    except ValueError as error:
        host.fail("loader", f"{CACHE}: {error}")
        return None


def parse_cache(data: bytes) -> tuple[CacheEntry, ...]:
    """The relevant entries of an ld.so.cache, in its order; ValueError when it is none.

    Entries for special CPUs (``glibc-hwcaps``) are left out: cuDNN has none.
    """
    start = data.find(_NEW_MAGIC)
    if start >= 0 and (start == 0 or data.startswith(_OLD_MAGIC)):
        return _parse_new(memoryview(data)[start:])
    if data.startswith(_OLD_MAGIC):
        return _parse_old(memoryview(data))
    raise ValueError("not an ld.so cache")


def _parse_new(data: memoryview) -> tuple[CacheEntry, ...]:
    if len(data) < _NEW_HEADER:
        raise ValueError("ends inside its header")
    order = ">" if data[28] & 3 == _BIG_ENDIAN else "<"
    (count,) = struct.unpack_from(order + "I", data, 20)
    _check_count(count, _NEW_HEADER, _NEW_ENTRY, len(data))
    entry = struct.Struct(order + "iIIIQ")
    found = []
    for flags, key, value, _, hwcap in entry.iter_unpack(
        data[_NEW_HEADER : _NEW_HEADER + count * _NEW_ENTRY]
    ):
        if not hwcap:
            found.append(_entry(data, flags, key, value))
    return tuple(e for e in found if e is not None)


def _parse_old(data: memoryview) -> tuple[CacheEntry, ...]:
    if len(data) < _OLD_HEADER:
        raise ValueError("ends inside its header")
    (count,) = struct.unpack_from("<I", data, 12)
    _check_count(count, _OLD_HEADER, _OLD_ENTRY, len(data))
    strings = _OLD_HEADER + count * _OLD_ENTRY
    entries = struct.iter_unpack("<iII", data[_OLD_HEADER:strings])
    found = [_entry(data[strings:], flags, key, value) for flags, key, value in entries]
    return tuple(e for e in found if e is not None)


def _check_count(count: int, header: int, entry: int, size: int) -> None:
    if count > _MAX_ENTRIES or header + count * entry > size:
        raise ValueError(f"promises {count} entries and ends before them")


def _entry(data: memoryview, flags: int, key: int, value: int) -> CacheEntry | None:
    if bytes(data[key : key + 3]) != b"lib":
        return None
    name = _string(data, key)
    if not is_relevant(name):
        return None
    arch = _CACHE_ARCH.get(flags & 0xFF00, f"flags-{flags & 0xFF00:#x}")
    return CacheEntry(soname=name, path=_string(data, value), arch=arch)


def _string(data: memoryview, offset: int) -> str:
    raw = bytes(data[offset : offset + _MAX_PATH])
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")
