"""The ELF reader against pyelftools, against damaged files, and against the clock's order."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudnn_doctor.machine.elf import Elf, read_elf, section_range

SYSTEM = sorted(
    {os.path.realpath(p) for p in glob.glob("/usr/lib/*-linux-gnu/*.so*")}
    | {os.path.realpath(p) for p in ("/bin/sh", "/bin/ls")}
)[:80]


def by_pyelftools(path: str) -> Elf:
    with open(path, "rb") as file:
        elf = ELFFile(file)
        soname = rpath = runpath = None
        needed = []
        for segment in elf.iter_segments():
            if not isinstance(segment, DynamicSegment):
                continue
            for tag in segment.iter_tags():
                if tag.entry.d_tag == "DT_NEEDED":
                    needed.append(tag.needed)
                elif tag.entry.d_tag == "DT_SONAME":
                    soname = tag.soname
                elif tag.entry.d_tag == "DT_RPATH":
                    rpath = tag.rpath
                elif tag.entry.d_tag == "DT_RUNPATH":
                    runpath = tag.runpath
        versions = [
            tuple(map(int, match[1].split(".")))[:2]
            for section in elf.iter_sections()
            if isinstance(section, GNUVerNeedSection)
            for _, auxiliaries in section.iter_versions()
            for aux in auxiliaries
            if (match := re.fullmatch(r"GLIBC_([\d.]+)", aux.name))
        ]
        newest = ".".join(map(str, max(versions))) if versions else None
        machine = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64", "EM_386": "i386"}
        return Elf(
            "ok",
            os.path.getsize(path),
            machine[elf.header.e_machine],
            elf.elfclass,
            soname,
            tuple(needed),
            rpath,
            runpath,
            newest,
        )


def is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


@pytest.mark.parametrize("path", [p for p in SYSTEM if os.path.isfile(p) and is_elf(p)][:60])
def test_agrees_with_pyelftools(path: str) -> None:
    assert read_elf(path) == by_pyelftools(path)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    source = folder / "a.c"
    source.write_text(
        '#include <stdio.h>\nconst char *needle = "libneedle.so.12";\n'
        "int say(void) { return puts(needle); }\n"
    )
    target = folder / "liba.so.1"
    subprocess.run(
        [
            *("gcc", "-shared", "-fPIC", "-o", target, source, "-Wl,-soname,liba.so.1"),
            "-Wl,--enable-new-dtags,-rpath,$ORIGIN:/x",
        ],
        check=True,
    )
    return target


def test_reads_the_run_path_and_soname(library: Path) -> None:
    elf = read_elf(str(library))
    assert (elf.status, elf.soname, elf.runpath, elf.rpath) == (
        "ok",
        "liba.so.1",
        "$ORIGIN:/x",
        None,
    )


def test_disable_new_dtags_gives_rpath(library: Path) -> None:
    old = library.with_name("libold.so")
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-Wl,--no-as-needed",
            "-o",
            old,
            library,
            "-Wl,--disable-new-dtags,-rpath,/old",
        ],
        check=True,
    )
    elf = read_elf(str(old))
    assert (elf.rpath, elf.runpath) == ("/old", None)
    assert elf.needed[0] == "liba.so.1"


def test_section_range_covers_the_strings(library: Path) -> None:
    found = section_range(str(library), ".rodata")
    assert found is not None
    offset, size = found
    assert b"libneedle.so.12" in library.read_bytes()[offset : offset + size]
    assert section_range(str(library), ".nonesuch") is None


@pytest.mark.parametrize(
    ("keep", "status"), [(0, "truncated"), (3, "truncated"), (40, "truncated"), (9000, "truncated")]
)
def test_a_cut_file_is_truncated(library: Path, keep: int, status: str) -> None:
    cut = library.with_name(f"cut{keep}.so")
    cut.write_bytes(library.read_bytes()[:keep])
    assert read_elf(str(cut)).status == status


def test_what_is_no_elf(tmp_path: Path) -> None:
    script = tmp_path / "libc.so"
    script.write_text("INPUT(-lfoo)\n" * 10)
    os.mkfifo(tmp_path / "pipe")
    assert read_elf(str(script)).status == "not-elf"
    assert read_elf(str(tmp_path)).status == "not-elf"
    assert read_elf(str(tmp_path / "pipe")).status == "not-elf"
    assert read_elf(str(tmp_path / "absent")).status == "unreadable"


def craft(elf_class: int, order: str, machine: int) -> bytes:
    """A header of the given class and byte order, without any segment."""
    import struct

    ident = (
        b"\x7fELF" + bytes([2 if elf_class == 64 else 1, 1 if order == "<" else 2, 1]) + b"\0" * 9
    )
    body = "HHIQQQIHHHHHH" if elf_class == 64 else "HHIIIIIHHHHHH"
    return ident + struct.pack(order + body, 3, machine, 1, *[0] * 10)


@pytest.mark.parametrize(
    ("elf_class", "order", "number", "name"),
    [
        (64, "<", 62, "x86_64"),
        (64, "<", 183, "aarch64"),
        (32, "<", 3, "i386"),
        (64, "<", 21, "ppc64le"),
        (64, ">", 21, "ppc64"),
        (64, ">", 22, "s390x"),
        (32, "<", 40, "arm"),
        (64, "<", 9999, "machine-9999"),
    ],
)
def test_class_order_and_machine(
    tmp_path: Path, elf_class: int, order: str, number: int, name: str
) -> None:
    file = tmp_path / "x.so"
    file.write_bytes(craft(elf_class, order, number))
    elf = read_elf(str(file))
    assert (elf.status, elf.elf_class, elf.machine) == ("ok", elf_class, name)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_bytes_never_raise(library: Path, data: st.DataObject) -> None:
    good = bytearray(library.read_bytes())
    for _ in range(data.draw(st.integers(1, 12))):
        place = data.draw(st.integers(0, 1023) | st.integers(0, len(good) - 1))
        good[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    bad = library.with_name("bad.so")
    bad.write_bytes(bytes(good[: data.draw(st.sampled_from([len(good), 64, 500, 5000]))]))
    assert read_elf(str(bad)).status in {"ok", "truncated", "not-elf"}
    section_range(str(bad), ".rodata")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_after_the_magic_never_raise(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.so"
    file.write_bytes(b"\x7fELF" + tail)
    read_elf(str(file))
    section_range(str(file), ".rodata")


def test_much_faster_than_pyelftools(library: Path) -> None:
    """The reason for own code; the real ratio is tens, the limit leaves room for a busy machine."""

    def best(read: object) -> float:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            read(str(library))  # type: ignore[operator]
            times.append(time.perf_counter() - start)
        return min(times)

    assert best(read_elf) * 3 < best(by_pyelftools)
