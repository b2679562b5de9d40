"""ld.so's own configuration: against ldconfig, by hand-made caches, and against garbage."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.loaderconfig import parse_cache, probe_loader
from cudnn_doctor.machine.model import CacheEntry
from cudnn_doctor.machine.names import is_relevant

X86, ARM = 0x0303, 0x0A03
ENTRIES = [
    ("libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1", X86, 0),
    ("libother.so.1", "/lib/libother.so.1", X86, 0),
    ("libcudnn.so.9", "/usr/lib/x86_64-linux-gnu/libcudnn.so.9", X86, 0),
    ("libcudnn.so.9", "/usr/lib/glibc-hwcaps/x86-64-v3/libcudnn.so.9", X86, 1 << 62),
    ("libcudnn.so.9", "/usr/lib/aarch64-linux-gnu/libcudnn.so.9", ARM, 0),
]
WANTED = (
    CacheEntry(soname="libz.so.1", path="/lib/x86_64-linux-gnu/libz.so.1", arch="x86_64"),
    CacheEntry(
        soname="libcudnn.so.9", path="/usr/lib/x86_64-linux-gnu/libcudnn.so.9", arch="x86_64"
    ),
    CacheEntry(
        soname="libcudnn.so.9", path="/usr/lib/aarch64-linux-gnu/libcudnn.so.9", arch="aarch64"
    ),
)


def new_cache(order: str = "<", entries: list[tuple[str, str, int, int]] = ENTRIES) -> bytes:
    strings, records = b"", b""
    base = 48 + 24 * len(entries)
    for name, path, flags, hwcap in entries:
        key = base + len(strings)
        strings += name.encode() + b"\0"
        value = base + len(strings)
        strings += path.encode() + b"\0"
        records += struct.pack(order + "iIIIQ", flags, key, value, 0, hwcap)
    endian = b"\2" if order == "<" else b"\3"
    numbers = struct.pack(order + "II", len(entries), len(strings))
    head = b"glibc-ld.so.cache1.1" + numbers + endian + b"\0" * 19
    return head + records + strings


def old_cache() -> bytes:
    strings, records = b"", b""
    entries = [e for e in ENTRIES if not e[3]]
    for name, path, flags, _ in entries:
        key = len(strings)
        strings += name.encode() + b"\0"
        records += struct.pack("<iII", flags, key, len(strings))
        strings += path.encode() + b"\0"
    return b"ld.so-1.7.0\0" + struct.pack("<I", len(entries)) + records + strings


@pytest.mark.parametrize(
    "data",
    [new_cache(), new_cache(">"), old_cache(), old_cache() + b"\0" * 3 + new_cache()],
    ids=["new", "big-endian", "old", "old-then-new"],
)
def test_reads_every_form_of_the_cache(data: bytes) -> None:
    assert parse_cache(data) == WANTED


@pytest.mark.skipif(not shutil.which("ldconfig"), reason="no ldconfig here")
def test_agrees_with_ldconfig(tmp_path: Path) -> None:
    """A cache that the real ldconfig builds of real libraries, listed by ldconfig itself."""
    lib = tmp_path / "lib"
    lib.mkdir()
    (tmp_path / "a.c").write_text("int a;\n")
    for soname in ("libcudnn.so.9", "libcudnn_ops.so.9", "libunrelated.so.1"):
        target = lib / f"{soname}.0.0"
        command = ["gcc", "-shared", "-o", target, tmp_path / "a.c", f"-Wl,-soname,{soname}"]
        subprocess.run(command, check=True)
    (tmp_path / "conf").write_text(f"{lib}\n")
    cache = tmp_path / "cache"
    base = ["ldconfig", "-C", cache]
    subprocess.run([*base, "-f", tmp_path / "conf"], check=True)
    listing = subprocess.run([*base, "-p"], check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"^\s+(\S+) \((?!.*hwcap)[^)]*\) => (\S+)$", listing, re.M)
    wanted = [(name, path) for name, path in lines if is_relevant(name)]
    assert ("libcudnn_ops.so.9", f"{lib}/libcudnn_ops.so.9") in wanted
    assert [(e.soname, e.path) for e in parse_cache(cache.read_bytes())] == wanted


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_garbage_is_a_value_error_or_entries(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from([new_cache(), new_cache(">"), old_cache()])))
    for _ in range(data.draw(st.integers(1, 10))):
        raw[data.draw(st.integers(11, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        entries = parse_cache(bytes(raw))
    except ValueError:
        return
    assert all(is_relevant(e.soname) for e in entries)


def make_root(tmp_path: Path, files: dict[str, str | bytes]) -> Host:
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if (tmp_path / "bin").is_dir():
        shutil.copy("/bin/sh", tmp_path / "bin/sh")
    return Host(str(tmp_path))


def test_conf_includes_comments_and_loops(tmp_path: Path) -> None:
    host = make_root(
        tmp_path,
        {
            "etc/ld.so.conf": "# comment\ninclude ld.so.conf.d/*.conf\n/opt/last/  # tail\n",
            "etc/ld.so.conf.d/b.conf": "/opt/b\nhwcap 1 nosegneg\n",
            "etc/ld.so.conf.d/a.conf": "/opt/a=libc6\ninclude /etc/ld.so.conf\nrelative\n",
            "etc/ld.so.preload": "/opt/p.so:/opt/q.so # no\n",
        },
    )
    config = probe_loader(host)
    assert config.conf_folders == ("/opt/a", "/opt/b", "/opt/last")
    assert config.preload == ("/opt/p.so", "/opt/q.so")
    assert config.cache == ()


def test_a_broken_cache_is_a_recorded_failure(tmp_path: Path) -> None:
    host = make_root(tmp_path, {"etc/ld.so.cache": b"\0" * 100})
    assert probe_loader(host).cache is None
    assert [f.probe for f in host.failures] == ["loader"]


def test_default_folders_follow_the_distribution(tmp_path: Path) -> None:
    debian = make_root(tmp_path / "debian", {"usr/lib/aarch64-linux-gnu/x": ""})
    folders = ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib", "/usr/lib")
    assert probe_loader(debian).default_folders == folders
    fedora = make_root(tmp_path / "fedora", {"usr/lib64/x": ""})
    assert probe_loader(fedora).default_folders == ("/lib64", "/usr/lib64")


def test_musl_reads_its_path_file(tmp_path: Path) -> None:
    host = make_root(tmp_path, {"bin/x": "", "lib/ld-musl-x86_64.so.1": ""})
    assert probe_loader(host).default_folders == ("/lib", "/usr/local/lib", "/usr/lib")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld-musl-x86_64.path").write_text("/a:/b\n/c\n")
    assert probe_loader(host).default_folders == ("/a", "/b", "/c")
