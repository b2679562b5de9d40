"""How long an installation into a prefix takes, against the commands that it replaces.

A loopback server with a rate limit serves one cuDNN in three packings (xz of one block, xz of many
blocks, wheel), made from the real libraries of a JIT wheel, which uv or pip fetches. For each the
time of ``cudnn-doctor install`` stands beside ``curl``, ``sha256sum`` and ``tar xJf``, one after
the other. Run it from the checkout; it needs curl, tar, xz and uv.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests"))

from support import fakewheels, redist  # noqa: E402
from support.redist_server import serving  # noqa: E402

VERSION = "9.13.0.50"
PACKAGE = f"nvidia-cudnn-jit-cu12=={VERSION}"
SONAMES = ("libcudnn.so.9", "libcudnn_engines_runtime_compiled.so.9", "libcudnn_graph.so.9")


class Run(NamedTuple):
    """Wall seconds and, for our own runs, the largest resident set in MiB."""

    seconds: float
    peak_mib: float


def timed(command: list[str], environ: dict[str, str] | None = None) -> Run:
    """Run a command to its end; raises RuntimeError with its output when it fails."""
    with tempfile.TemporaryFile() as log:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            log.seek(0)
            raise RuntimeError(f"{command}: {log.read().decode()}")
    return Run(seconds, usage.ru_maxrss / 1024)


# -- what is served


def make_payload(base: Path, copies: int) -> dict[str, Path]:
    """Real libraries and headers, with ``copies`` of the largest library as ballast."""
    target = base / "wheel"
    uv = ["uv", "pip", "install", "-q", "--target", str(target), "--no-deps", PACKAGE]
    subprocess.run([*uv, "--python", sys.executable], check=True)
    home = target / "nvidia" / "cudnn_jit"
    files = {f"lib/{name}": home / "lib" / name for name in SONAMES}
    files |= {f"include/{path.name}": path for path in sorted((home / "include").glob("*.h"))}
    files |= {f"include/ballast-{n}.h": home / "lib" / SONAMES[1] for n in range(copies)}
    return files


def make_archive(root: Path, files: dict[str, Path], *, blocks: bool) -> Path:
    """An archive in NVIDIA's layout, with a static library as large as the largest shared one."""
    target = root / redist.archive_name(VERSION, "12")
    target.parent.mkdir(parents=True, exist_ok=True)
    plain = target.with_suffix(".tar")
    top = target.name.removesuffix(".tar.xz")
    with tarfile.open(plain, "w") as tar:
        for name, path in files.items():
            redist.add_file(tar, f"{top}/{name}", path.read_bytes())
        static = files[f"lib/{SONAMES[1]}"].read_bytes()
        redist.add_file(tar, f"{top}/lib/libcudnn_static.a", static)
    options = ["--threads=2", "--block-size=8MiB"] if blocks else ["--threads=1"]
    with target.open("wb") as out:
        subprocess.run(["xz", "-c", "-3", *options, str(plain)], check=True, stdout=out)
    plain.unlink()
    return target


def make_matrix(path: Path, archive: Path, wheel: Path) -> Path:
    """A matrix of the archive and the wheel."""
    import yaml

    key = (VERSION, "12")
    redist.write_matrix(path, {key: archive}, wheels={key: wheel})
    document = yaml.safe_load(path.read_text())
    document["releases"][0]["libraries"] = list(SONAMES)
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

    def __init__(self, base: Path, matrix: Path) -> None:
        self.base = base
        self.matrix = matrix

    def install(self, url: str, *more: str, environ: dict[str, str] | None = None) -> Run:
        """One installation from nothing."""
        for name in ("state", "cache", "prefix"):
            shutil.rmtree(self.base / name, ignore_errors=True)
        own = {
            "CUDNN_DOCTOR_STATE": str(self.base / "state"),
            "CUDNN_DOCTOR_CACHE": str(self.base / "cache"),
        }
        command = [sys.executable, "-m", "cudnn_doctor", "install", "--yes", "--arch", "x86_64"]
        command += ["--prefix", str(self.base / "prefix"), "--matrix", str(self.matrix)]
        command += ["--version", VERSION, *more]
        command += ["--mirror", url] if url else []
        return timed(command, {**os.environ, **own, **(environ or {})})

    def stages(self, url: str, archive: Path) -> dict[str, float]:
        """The commands that an installation replaces, in seconds."""
        folder = self.base / "plain"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        copy = folder / archive.name
        address = url + redist.archive_name(VERSION, "12")
        return {
            "curl": timed(["curl", "-sSfo", str(copy), address]).seconds,
            "sha256sum": timed(["sha256sum", str(copy)]).seconds,
            "tar": timed(["tar", "xJf", str(copy), "-C", str(folder)]).seconds,
        }


def best(repeat: int, measure: Callable[[], Run]) -> Run:
    """The fastest of several runs."""
    return min(measure() for _ in range(repeat))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=3, help="of a 28 MiB library, as ballast")
    parser.add_argument("--rates", type=float, nargs="*", default=[0, 20e6, 100e6])
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-install-") as folder:
        results = measure(Path(folder), options)
    text = json.dumps(results, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


def measure(base: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All measurements, as JSON values."""
    files = make_payload(base, options.copies)
    unpacked = sum(path.stat().st_size for path in files.values())
    results: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, no GPU",
        "unpacked_mb": round(unpacked / 1e6, 1),
        "runs": [],
    }
    for blocks in (False, True):
        root = base / ("many" if blocks else "one")
        root.mkdir()
        archive = make_archive(root, files, blocks=blocks)
        inside = {f"nvidia/cudnn/{name}": path for name, path in files.items()}
        wheel = fakewheels.build_wheel(root, "nvidia-cudnn-cu12", VERSION, inside)
        bench = Bench(base, make_matrix(base / "matrix.yaml", archive, wheel))
        for rate in options.rates:
            row = one_row(bench, root, archive, rate, options.repeat)
            row["archive"] = "many blocks" if blocks else "one block"
            results["runs"].append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    results["uv"] = against_uv(bench, root, options.repeat)
    return results


def one_row(bench: Bench, root: Path, archive: Path, rate: float, repeat: int) -> dict[str, Any]:
    """One archive at one rate: the plain commands, ours from the archive, ours from the wheel."""
    with server(root, rate) as url:
        stages = bench.stages(url, archive)
        ours = best(repeat, lambda: bench.install(url, "--source", "archive"))
        wheel = best(repeat, lambda: bench.install(url, "--source", "wheel"))
    sequence, slowest = sum(stages.values()), max(stages.values())
    return {
        "rate_mb_s": rate / 1e6 or None,
        "archive_mb": round(archive.stat().st_size / 1e6, 1),
        "stages_s": {name: round(seconds, 2) for name, seconds in stages.items()},
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
    """A prefix filled by uv against plain ``uv pip install --target``, caches empty."""
    environ = {"UV_FIND_LINKS": str(root), "UV_NO_INDEX": "1", "UV_CACHE_DIR": ""}

    def fresh() -> dict[str, str]:
        shutil.rmtree(bench.base / "uv", ignore_errors=True)
        return {**environ, "UV_CACHE_DIR": str(bench.base / "uv")}

    def plain() -> Run:
        shutil.rmtree(bench.base / "target", ignore_errors=True)
        command = ["uv", "pip", "install", "-q", "--target", str(bench.base / "target")]
        command += ["--python", sys.executable, "--no-deps", f"nvidia-cudnn-cu12=={VERSION}"]
        return timed(command, {**os.environ, **fresh()})

    uv = best(repeat, plain)
    ours = best(repeat, lambda: bench.install("", "--source", "wheel", environ=fresh()))
    return {
        "uv_pip_install_s": round(uv.seconds, 2),
        "install_s": round(ours.seconds, 2),
        "ratio": round(ours.seconds / uv.seconds, 2),
    }


if __name__ == "__main__":
    main()
