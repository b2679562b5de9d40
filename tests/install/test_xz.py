"""The reader of .xz streams against real files of xz, whole and damaged."""

from __future__ import annotations

import io
import lzma
import os
import random
import shutil
import subprocess
import threading
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_doctor.install.archives import xz
from cudnn_doctor.install.archives.xz import XzReader

if shutil.which("xz") is None:
    pytest.skip("xz is not installed", allow_module_level=True)

DATA = random.Random(3).randbytes(300_000) + b"soft " * 60_000


def compress(*options: str, data: bytes = DATA) -> bytes:
    command = ["xz", "-c", "-1", *options]
    return subprocess.run(command, input=data, check=True, capture_output=True).stdout


class Dribble(io.BytesIO):
    """Gives a few bytes at a time, as a network does."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 1, 777) if size and size > 0 else 777)


def everything(reader: XzReader) -> bytes:
    return b"".join(iter(lambda: bytes(reader.read(70_000)), b""))


FORMS = {
    "one block": ("--threads=1",),
    "many blocks": ("--threads=2", "--block-size=50000"),
    "blocks without sizes": ("--threads=1", "--block-size=50000"),
    "no check": ("--threads=2", "--block-size=50000", "--check=none"),
    "crc32": ("--threads=2", "--block-size=50000", "--check=crc32"),
    "sha256": ("--threads=2", "--block-size=50000", "--check=sha256"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workers", [1, 4])
def test_all_forms_are_read(form: str, workers: int) -> None:
    with XzReader(Dribble(compress(*FORMS[form])), workers) as reader:
        assert everything(reader) == DATA


def test_blocks_are_decompressed_side_by_side_on_all_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    all_at_work, decompress = threading.Barrier(3, timeout=20), xz._decompress

    def together(parts: deque[bytes], size: int) -> list[bytes]:
        all_at_work.wait()
        return decompress(parts, size)

    monkeypatch.setattr(xz, "_decompress", together)
    packed = compress("--threads=2", f"--block-size={len(DATA) // 3}")
    with XzReader(io.BytesIO(packed)) as reader:
        assert everything(reader) == DATA


def test_concatenated_streams_are_read() -> None:
    packed = compress("--threads=1") + bytes(8) + compress("--threads=1", data=b"more")
    with XzReader(Dribble(packed)) as reader:
        assert everything(reader) == DATA + b"more"


def test_an_empty_file_is_read() -> None:
    with XzReader(io.BytesIO(compress("--threads=1", data=b""))) as reader:
        assert reader.read(10) == b""


PACKED = {form: compress(*FORMS[form]) for form in ("one block", "many blocks")}


@settings(max_examples=60, deadline=None)
@given(form=st.sampled_from(sorted(PACKED)), data=st.data())
def test_damage_is_never_taken_for_data(form: str, data: st.DataObject) -> None:
    packed = bytearray(PACKED[form])
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    try:
        with XzReader(io.BytesIO(packed), 2) as reader:
            found = everything(reader)
    except (lzma.LZMAError, EOFError):
        return
    assert found == DATA  # the damage was in the index or footer, which the data does not need


@settings(max_examples=40, deadline=None)
@given(form=st.sampled_from(sorted(PACKED)), share=st.floats(0, 0.99))
def test_a_cut_stream_is_an_error(form: str, share: float) -> None:
    cut = PACKED[form][: int(len(PACKED[form]) * share)]
    with pytest.raises(lzma.LZMAError), XzReader(io.BytesIO(cut), 2) as reader:
        everything(reader)


def test_a_container_with_little_memory_reads_little_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = compress(*FORMS["many blocks"])
    (tmp_path / "memory.max").write_text("100000\n")
    monkeypatch.setattr(xz, "_LIMIT", tmp_path / "memory.max")
    source = io.BytesIO(packed)
    with XzReader(source, 8) as reader:
        first = reader.read(1)
        assert source.tell() < 3 * 50_000 < len(packed) / 2
        assert bytes(first) + everything(reader) == DATA
