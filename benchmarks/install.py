"""How long an installation into a prefix takes, against the commands that it replaces.

A loopback server with a rate limit serves one cuDNN in three packings (xz of one block, xz of many
blocks, wheel), made from real libraries: those of a folder (``--libs``), or of a JIT wheel that uv
fetches. As in NVIDIA's archives, static libraries take as much room as the shared ones; their bytes
are those of the shared ones. For each the time of ``cudnn-doctor install`` stands beside ``curl``,
``sha256sum`` and ``tar xJf``, one after the other, all taking turns; medians count. Run it from the
checkout; it needs curl, tar and xz, and uv for the comparison with it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests"))

from support import fakewheels, redist, xzpack  # noqa: E402
from support.redist_server import serving  # noqa: E402

VERSION = "9.13.0.50"
BLOCK = 8 << 20
PACKAGE = f"nvidia-cudnn-jit-cu12=={VERSION}"


class Run(NamedTuple):
    """Wall seconds and the program's own largest resident set in MiB, children not counted."""

    seconds: float
    peak_mib: float


def timed(command: list[str], environ: dict[str, str] | None = None) -> Run:
    """Run a command to its end; raises RuntimeError with its output when it fails."""
    with tempfile.TemporaryFile() as log:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        peak = 0.0
        while child.poll() is None:
            peak = max(peak, _peak(child.pid))
            time.sleep(0.01)
        seconds = time.perf_counter() - start
        if child.returncode:
            log.seek(0)
            raise RuntimeError(f"{command}: {log.read().decode()}")
    return Run(seconds, peak)


def _peak(pid: int) -> float:
    """VmHWM of a process in MiB; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) / 1024 if found else 0.0


# -- what is served


def make_payload(base: Path, libs: Path | None) -> dict[str, Path]:
    """Real libraries and headers, by their place in a version's folder."""
    if libs is None:
        target = base / "jit"
        uv = ["uv", "pip", "install", "-q", "--target", str(target), "--no-deps", PACKAGE]
        subprocess.run([*uv, "--python", sys.executable], check=True)
        libs = target / "nvidia" / "cudnn_jit" / "lib"
    files = {f"lib/{path.name}": path.resolve() for path in sorted(libs.glob("libcudnn*.so.*"))}
    headers = sorted((libs.parent / "include").glob("*.h"))
    return files | {f"include/{path.name}": path.resolve() for path in headers}


def make_archive(root: Path, version: str, files: dict[str, Path], *, blocks: bool) -> Path:
    """An archive in NVIDIA's layout, each library as a static one as well."""
    target = root / redist.archive_name(version, "12")
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    top = target.name.removesuffix(".tar.xz")
    plain, fresh = target.with_suffix(".tar"), target.with_suffix(".new")
    with tarfile.open(plain, mode="w", dereference=True) as tar:
        for name, path in files.items():
            tar.add(path, f"{top}/{name}")
            if name.startswith("lib/"):
                static = name.partition(".so")[0] + "_static.a"
                tar.add(path, f"{top}/{static}")
    chunks = list(xzpack.compress(pieces(plain, BLOCK)))
    with fresh.open("wb") as out:
        if blocks:
            xzpack.write_blocks(chunks, out)
        else:
            xzpack.write_one(chunks, pieces(plain, BLOCK), out)
    plain.unlink()
    return fresh.rename(target)


def pieces(path: Path, size: int) -> Iterator[bytes]:
    """A file's bytes, so many at a time."""
    with path.open("rb") as file:
        while data := file.read(size):
            yield data


def make_wheel(root: Path, version: str, files: dict[str, Path]) -> Path:
    """The wheel of the same libraries and headers."""
    inside = {f"nvidia/cudnn/{name}": path for name, path in files.items()}
    inside["nvidia/cudnn/lib/__init__.py"] = inside["nvidia/cudnn/include/__init__.py"] = ""
    made = list(root.glob("*.whl"))
    return made[0] if made else fakewheels.build_wheel(root, "nvidia-cudnn-cu12", version, inside)


def make_matrix(path: Path, version: str, names: list[str], archive: Path, wheel: Path) -> Path:
    """A matrix of the archive and the wheel, which hold the libraries ``names``."""
    import yaml

    key = (version, "12")
    redist.write_matrix(path, {key: archive}, wheels={key: wheel})
    document = yaml.safe_load(path.read_text())
    document["releases"][0]["libraries"] = names
    path.write_text(yaml.safe_dump(document))
    return path


def _serve(root: Path, rate: float, pipe: Connection) -> None:
    with serving(root) as server:
        server.rate = rate
        pipe.send(server.url)
        pipe.recv()


@contextmanager
def server(root: Path, rate: float) -> Any:
    """The address of a server in a process of its own; ``rate`` in bytes a second, 0 for none."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_serve, args=(root, rate, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join()


# -- what is measured


class Bench:
    """Measures in a scratch folder."""

    def __init__(self, base: Path, version: str, matrix: Path) -> None:
        self.base = base
        self.version = version
        self.matrix = matrix

    def install(self, url: str, *more: str) -> Run:
        """One installation from nothing."""
        for name in ("state", "cache", "prefix"):
            shutil.rmtree(self.base / name, ignore_errors=True)
        own = {
            "CUDNN_DOCTOR_STATE": str(self.base / "state"),
            "CUDNN_DOCTOR_CACHE": str(self.base / "cache"),
        }
        command = [sys.executable, "-m", "cudnn_doctor", "install", "--yes", "--arch", "x86_64"]
        command += ["--prefix", str(self.base / "prefix"), "--matrix", str(self.matrix)]
        command += ["--version", self.version, "--mirror", url, *more]
        return timed(command, {**os.environ, **own})

    def stages(self, url: str, archive: Path) -> dict[str, float]:
        """The commands that an installation replaces, in seconds."""
        folder = self.base / "plain"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        copy = folder / archive.name
        address = url + redist.archive_name(self.version, "12")
        return {
            "curl": timed(["curl", "-sSfo", str(copy), address]).seconds,
            "sha256sum": timed(["sha256sum", str(copy)]).seconds,
            "tar": timed(["tar", "xJf", str(copy), "-C", str(folder)]).seconds,
        }


def middle(runs: Sequence[Run]) -> Run:
    """Median seconds, and the largest peak."""
    seconds = statistics.median(run.seconds for run in runs)
    return Run(seconds, max(run.peak_mib for run in runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libs", type=Path, help="folder of cuDNN libraries to serve")
    parser.add_argument("--version", default=VERSION, help="of those libraries, with the build")
    parser.add_argument("--rates", type=float, nargs="*", default=[0, 20e6, 100e6])
    parser.add_argument("--packings", nargs="*", default=["one", "many"], help="one, many blocks")
    parser.add_argument("--repeat", type=int, default=3, help="turns; medians count")
    parser.add_argument("--work", type=Path, help="scratch folder, kept for the next run")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-install-") as folder:
        results = measure(options.work or Path(folder), options)
    text = json.dumps(results, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


def measure(base: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All measurements, as JSON values."""
    version = options.version
    files = make_payload(base, options.libs)
    names = [name.removeprefix("lib/") for name in files if name.startswith("lib/")]
    results: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} cores",
        "load_before": os.getloadavg(),
        "shared_mb": round(sum(path.stat().st_size for path in files.values()) / 1e6, 1),
        "runs": [],
    }
    wheel = make_wheel(base / "wheel", version, files)
    for packing in options.packings:
        root = base / packing
        archive = make_archive(root, version, files, blocks=packing == "many")
        if not (root / wheel.name).exists():
            os.link(wheel, root / wheel.name)
        matrix = make_matrix(base / "matrix.yaml", version, names, archive, wheel)
        bench = Bench(base, version, matrix)
        for rate in options.rates:
            row = {"archive": f"{packing} block(s)"}
            row |= one_row(bench, root, archive, rate, options.repeat)
            results["runs"].append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    results["uv"] = against_uv(bench, root, options.repeat) if shutil.which("uv") else None
    results["load_after"] = os.getloadavg()
    return results


def one_row(bench: Bench, root: Path, archive: Path, rate: float, repeat: int) -> dict[str, Any]:
    """One archive at one rate: the plain commands, ours from the archive, ours from the wheel,
    taking turns; medians."""
    turns = []
    with server(root, rate) as url:
        for _ in range(repeat):
            plain = bench.stages(url, archive)
            own = [bench.install(url, "--source", source) for source in ("archive", "wheel")]
            turns.append((plain, *own))
    stages = {name: statistics.median(turn[0][name] for turn in turns) for name in turns[0][0]}
    ours, wheel = middle([turn[1] for turn in turns]), middle([turn[2] for turn in turns])
    sequence, slowest = sum(stages.values()), max(stages.values())
    return {
        "rate_mb_s": rate / 1e6 or None,
        "archive_mb": round(archive.stat().st_size / 1e6, 1),
        "stages_s": {name: round(seconds, 2) for name, seconds in stages.items()},
        "slowest_stage": max(stages, key=lambda name: stages[name]),
        "sequence_s": round(sequence, 2),
        "install_s": round(ours.seconds, 2),
        "install_peak_mib": round(ours.peak_mib),
        "against_slowest_stage": round(ours.seconds / slowest, 2),
        "faster_than_sequence": round(sequence / ours.seconds, 2),
        "wheel_s": round(wheel.seconds, 2),
        "wheel_faster_than_sequence": round(sequence / wheel.seconds, 2),
        "wheel_faster_than_archive": round(ours.seconds / wheel.seconds, 2),
    }


def against_uv(bench: Bench, root: Path, repeat: int) -> dict[str, float]:
    """The wheel into a new environment, by uv and by ``install --method wheel``; caches empty."""
    for name in ("cublas", "cuda-nvrtc"):
        place, soname = f"nvidia/{name.replace('-', '_')}/lib", f"lib{name.split('-')[-1]}.so.12"
        fakewheels.cuda_wheel(root, f"nvidia-{name}-cu12", "12.9.1.4", place, [soname])
    environ = {**os.environ, "UV_FIND_LINKS": str(root), "UV_NO_INDEX": "1"}
    environ |= {"UV_CACHE_DIR": str(bench.base / "uv")}
    environ |= {"CUDNN_DOCTOR_STATE": str(bench.base / "state")}
    wanted = f"nvidia-cudnn-cu12=={bench.version}"

    def into_venv(*command: str) -> Run:
        for name in ("venv", "uv", "state"):
            shutil.rmtree(bench.base / name, ignore_errors=True)
        venv = str(bench.base / "venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        return timed([*command, "--python", venv], environ)

    uv = ["uv", "pip", "install", "-q", wanted, "nvidia-cublas-cu12", "nvidia-cuda-nvrtc-cu12"]
    ours = [sys.executable, "-m", "cudnn_doctor", "install", "--yes", "--method", "wheel"]
    ours += ["--version", bench.version, "--cuda", "12", "--no-gpu", "--matrix", str(bench.matrix)]
    turns = [(into_venv(*uv), into_venv(*ours)) for _ in range(repeat)]
    plain, own = middle([turn[0] for turn in turns]), middle([turn[1] for turn in turns])
    return {
        "uv_pip_install_s": round(plain.seconds, 2),
        "install_s": round(own.seconds, 2),
        "ratio": round(own.seconds / plain.seconds, 2),
    }


if __name__ == "__main__":
    main()
