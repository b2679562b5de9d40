"""How fetching and unpacking an archive grows with cores, and its memory with the archive's size.

    python benchmarks/install_scaling.py [--scaling] [--memory] [--out FILE.md] [--json FILE.json]

A loopback server serves archives in NVIDIA's layout, made from the libraries of a cuDNN
(``--libs``, or one found here, or else the system's), as xz of one block and of many. Each
measurement is one process that does what `install` does for its step "unpack": download, hash,
decompress and write, static libraries too. It needs no other program and no network; where xz is
there, `xz -dc --threads=N` stands beside it.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import itertools
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO), str(REPO / "tests"), str(REPO / "benchmarks")]

from install import pieces, server  # noqa: E402
from support import xzpack  # noqa: E402

TOP = "cudnn-linux-x86_64-9.99.0.1_cuda12-archive"
FOLDERS = (
    *(f"{folder}/nvidia/cudnn/lib" for folder in sys.path),
    "/usr/local/lib/python3*/*-packages/nvidia/cudnn/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
)
MIB = 1 << 20


class Archive(NamedTuple):
    """A file below the server's root, and what was measured when it was made (bytes)."""

    path: Path
    sha256: str
    plain: int

    @property
    def size(self) -> int:
        return self.path.stat().st_size


# -- the archives


def payload(libs: Path | None, size: int) -> tuple[str, bytes]:
    """So many bytes from the middle of all libraries, and the name of the largest."""
    found_here = [*(f"{folder}/libcudnn*.so*" for folder in FOLDERS), "/usr/lib/*/*.so*"]
    for pattern in [f"{libs}/*.so*"] if libs else found_here:
        paths = {Path(os.path.realpath(name)) for name in glob.glob(pattern)}
        sizes = {path: path.stat().st_size for path in sorted(paths) if path.is_file()}
        whole = sum(sizes.values())
        if whole < size:
            continue
        data = bytearray()
        for path, own in sizes.items():
            share = own * size // whole
            with path.open("rb") as file:
                file.seek((own - share) // 2)
                data += file.read(share)
        return max(sizes, key=lambda path: sizes[path]).name, bytes(data)
    raise SystemExit(f"no libraries of {size} bytes here: give --libs")


def plain_archive(path: Path, unit: bytes, times: int) -> None:
    """A tar file with ``times`` static libraries of these bytes."""
    source = path.with_suffix(".unit")
    source.write_bytes(unit)
    with tarfile.open(path, "w") as tar:
        for number in range(times):
            tar.add(source, f"{TOP}/lib/libcudnn_part{number}_static.a")
        source.write_bytes(b"x")
        tar.add(source, f"{TOP}/lib/libcudnn.so.9")
    source.unlink()


def make(root: Path, unit: bytes, times: int, block: int) -> dict[str, Archive]:
    """The same tar file as xz of one block and of many; ``block`` in bytes, before packing."""
    root.mkdir(parents=True, exist_ok=True)
    plain = root / "plain.tar"
    plain_archive(plain, unit, times)
    chunks = list(xzpack.compress(pieces(plain, block), preset=0))
    made = {}
    for packing in ("one", "many"):
        path = root / f"{packing}-{times}x-{block // MIB}MiB.tar.xz"
        with path.open("wb") as out:
            if packing == "one":
                xzpack.write_one(chunks, pieces(plain, block), out)
            else:
                xzpack.write_blocks(chunks, out)
        digest = hashlib.sha256()
        for piece in pieces(path, MIB):
            digest.update(piece)
        made[packing] = Archive(path, digest.hexdigest(), plain.stat().st_size)
    plain.unlink()
    return made


# -- one measurement, in a process of its own


def road(url: str, sha256: str, size: int, work: str, cpus: Sequence[int]) -> None:
    """Fetch and unpack on these CPUs; prints seconds, CPU seconds and the peak in MiB as JSON."""
    from cudnn_doctor.install.archives.unpack import unpack
    from cudnn_doctor.install.plan import Fetch, Unpack
    from cudnn_doctor.install.progress import Silent
    from cudnn_doctor.install.state import State

    os.sched_setaffinity(0, cpus)
    source = Fetch(urls=(url,), sha256=sha256, size=size, name=os.path.basename(url))
    step = Unpack(source=source, staging=f"{work}/staging", members="static")
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    unpack(step, State(Path(work, "state"), Path(work, "cache")), Silent())
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    busy = sum(after[:2]) - sum(before[:2])
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"seconds": seconds, "cpu_seconds": busy, "peak_mib": peak}))


def measured(url: str, archive: Archive, work: Path, cpus: Sequence[int]) -> dict[str, float]:
    """`road` in a process of its own, from nothing."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    wanted = [f"{url}{archive.path.name}", archive.sha256, archive.size, str(work), list(cpus)]
    command = [sys.executable, __file__, "--one", json.dumps(wanted)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    shutil.rmtree(work)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def xz_seconds(archive: Archive, cpus: Sequence[int]) -> float | None:
    """`xz -dc` with as many threads on as many CPUs; None where there is no xz."""
    program = shutil.which("xz")
    if program is None:
        return None
    command = [program, "-dc", f"--threads={len(cpus)}", str(archive.path)]
    start = time.perf_counter()
    subprocess.run(
        command, stdout=subprocess.DEVNULL, check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )  # fmt: skip
    return time.perf_counter() - start


def cores() -> list[int]:
    """The CPUs of this process, one of each physical core first."""
    allowed = sorted(os.sched_getaffinity(0))

    def siblings(cpu: int) -> str:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        return path.read_text() if path.exists() else str(cpu)

    seen: dict[str, list[int]] = {}
    for cpu in allowed:
        seen.setdefault(siblings(cpu), []).append(cpu)
    turns = itertools.zip_longest(*seen.values())
    return [cpu for turn in turns for cpu in turn if cpu is not None]


# -- the two tables


def scaling(base: Path, unit: bytes, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds by cores, for archives of many blocks."""
    order, rows = cores(), []
    for block in options.blocks:
        archive = make(base / "root", unit, max(options.times), block * MIB)["many"]
        steps = [n for n in (1, 2, 4, 8, 16, 32) if n <= len(order)]
        with server(base / "root", 0) as url:
            for count in steps:
                cpus = order[:count]
                turns = options.repeat if count > 1 else 1
                runs = [measured(url, archive, base / "work", cpus) for _ in range(turns)]
                row = {"block_mib": block, "cores": count, "plain_mib": archive.plain / MIB}
                row |= min(runs, key=lambda run: run["seconds"])
                row["xz_seconds"] = xz_seconds(archive, cpus)
                rows.append(told(row))
        archive.path.unlink()
    return rows


def memory(base: Path, unit: bytes, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Peaks by size and packing, on few cores and on all."""
    order, rows = cores(), []
    for times in options.times:
        made = make(base / "root", unit, times, min(options.blocks) * MIB)
        with server(base / "root", 0) as url:
            for packing, archive in made.items():
                for count in sorted({min(4, len(order)), len(order)}):
                    row = {"packing": packing, "cores": count, "archive_mib": archive.size / MIB}
                    row["plain_mib"] = archive.plain / MIB
                    row |= measured(url, archive, base / "work", order[:count])
                    rows.append(told(row))
                archive.path.unlink()
    return sorted(rows, key=lambda row: (row["packing"] != "one", row["cores"]))


def told(row: dict[str, Any]) -> dict[str, Any]:
    """The row, after it was printed."""
    row = {k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def table(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    lines = [f"{result['about']}\n"]
    if rows := result["scaling"]:
        lines.append(
            "| block, MiB | cores | seconds | times as fast as one core | of the ideal "
            "| CPU seconds | MB/s written | peak MiB | xz -dc alone, s |"
        )
        lines.append("|---" * 9 + "|")
    for row in rows:
        one = next(r["seconds"] for r in rows if r["block_mib"] == row["block_mib"])
        faster = one / row["seconds"]
        lines.append(
            f"| {row['block_mib']} | {row['cores']} | {row['seconds']:.2f} | {faster:.2f} "
            f"| {faster / row['cores']:.0%} | {row['cpu_seconds']:.1f} "
            f"| {row['plain_mib'] * 1.048576 / row['seconds']:.0f} | {row['peak_mib']:.0f} "
            f"| {row['xz_seconds'] or '-'} |"
        )
    if rows := result["memory"]:
        lines += ["", "| blocks | cores | archive, MiB | unpacked, MiB | peak MiB | seconds |"]
        lines += ["|---" * 6 + "|"]
    for row in rows:
        lines.append(
            f"| {row['packing']} | {row['cores']} | {row['archive_mib']:.0f} "
            f"| {row['plain_mib']:.0f} | {row['peak_mib']:.0f} | {row['seconds']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scaling", action="store_true", help="only this, if not --memory too")
    parser.add_argument("--memory", action="store_true", help="only this, if not --scaling too")
    parser.add_argument("--libs", type=Path, help="folder of libraries to pack")
    parser.add_argument("--unit", type=int, default=96, help="MiB in the smallest archive")
    parser.add_argument("--times", type=int, nargs="*", default=[1, 3, 9], help="archives' sizes")
    parser.add_argument("--blocks", type=int, nargs="*", default=[24, 8], help="MiB in a block")
    parser.add_argument("--repeat", type=int, default=2, help="the fastest run counts")
    parser.add_argument("--out", type=Path, help="write the tables as Markdown")
    parser.add_argument("--json", type=Path, help="write the results as JSON")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return road(*json.loads(options.one))
    both = options.scaling == options.memory
    first, unit = payload(options.libs, options.unit * MIB)
    result: dict[str, Any] = {"scaling": [], "memory": []}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-scaling-") as folder:
        if both or options.scaling:
            result["scaling"] = scaling(Path(folder), unit, options)
        if both or options.memory:
            result["memory"] = memory(Path(folder), unit, options)
    result["about"] = (
        f"Python {platform.python_version()}, {len(cores())} CPUs, load {load:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after. Archives: {options.unit} MiB of {first} and the others "
        f"with it, {', '.join(map(str, options.times))} times."
    )
    print(table(result), end="")
    if options.out:
        options.out.write_text(table(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
