"""Unpacking goes on while the rest arrives, and its memory does not grow with the archive."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import xzpack
from support.redist_server import RedistServer, serving

from cudnn_doctor.install.archives.unpack import unpack
from cudnn_doctor.install.plan import Fetch, Unpack
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import State

TOP = "cudnn-linux-x86_64-9.9.9.9_cuda12-archive"
PART = random.Random(4).randbytes(1 << 18)


def pack(folder: Path, packing: str, parts: int, unit: bytes = PART, block: int = 1 << 19) -> Path:
    """A wheel, or an archive of one block or of many, with so many libraries."""
    names = [*(f"libcudnn_{n}.so.9" for n in range(parts)), "libcudnn.so.9"]
    if packing == "wheel":
        path = folder / "nvidia_cudnn_cu12-9.9.9.9-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(f"nvidia/cudnn/lib/{name}", unit)
        return path
    plain, path, one = folder / "plain", folder / f"{TOP}.tar.xz", folder / "one"
    one.write_bytes(unit)
    with tarfile.open(plain, "w") as tar:
        for name in names:
            tar.add(one, f"{TOP}/lib/{name}")
    data = plain.read_bytes()
    pieces = [data[at : at + block] for at in range(0, len(data), block)]
    chunks = list(xzpack.compress(pieces, 0))
    with path.open("wb") as out:
        if packing == "one block":
            xzpack.write_one(chunks, pieces, out)
        else:
            xzpack.write_blocks(chunks, out)
    return path


def step(path: Path, base: str, staging: Path) -> Unpack:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    source = Fetch(
        urls=(f"{base}{path.name}",), sha256=digest, size=path.stat().st_size, name=path.name
    )
    return Unpack(source=source, staging=str(staging))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedistServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "root").mkdir()
    with serving(tmp_path / "root") as running:
        yield running


@pytest.mark.parametrize("packing", ["one block", "many blocks", "wheel"])
def test_files_are_there_before_the_rest_has_come(
    server: RedistServer, tmp_path: Path, packing: str
) -> None:
    path = pack(server.root, packing, 16)
    size = path.stat().st_size
    server.rate = size / 8
    staging, state = tmp_path / "staging", State(tmp_path / "state", tmp_path / "cache")
    work = threading.Thread(target=unpack, args=(step(path, server.url, staging), state, Silent()))
    work.start()
    while not (staging / "lib/libcudnn_1.so.9").exists():
        assert work.is_alive()
        time.sleep(0.01)
    assert server.served < size / 2
    server.rate = 0.0
    work.join()
    assert (staging / "lib/libcudnn_15.so.9").read_bytes() == PART


CHILD = """
import os, sys
from pathlib import Path
from cudnn_doctor.install.plan import Fetch, Unpack
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import State
from cudnn_doctor.install.archives.unpack import unpack

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
path, digest, base = sys.argv[1:]
source = Fetch(urls=(Path(path).as_uri(),), sha256=digest, name=path)
unpack(Unpack(source=source, staging=base + "/s"), State(Path(base), Path(base, "c")), Silent())
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.parametrize("packing", ["one block", "many blocks", "wheel"])
def test_memory_does_not_grow_with_the_archive(tmp_path: Path, packing: str) -> None:
    unit = bytes(1 << 20) + PART[:10_000]  # quick to pack
    peaks = []
    for parts in (40, 200):
        folder = tmp_path / str(parts)
        folder.mkdir()
        path = pack(folder, packing, parts, unit, 4 << 20)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        command = [sys.executable, "-c", CHILD, str(path), digest, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) * 1024)
    assert peaks[1] - peaks[0] < 20 * len(unit), [p >> 20 for p in peaks]
