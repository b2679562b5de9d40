"""How long `cudnn-doctor check` takes beside the field's other doctors, and how that grows.

    python benchmarks/check.py --lab DIR [--runs N] [--json FILE] [--table FILE]

The lab keeps two environments between runs: one with this checkout installed as a user has it, one
with the peers (PyTorch among them, about 5 GB). `uv` is needed. Every program runs once unseen,
then the programs take turns; the median of the wall time counts. Growth: virtual environments in a
home of their own, each with PyTorch's metadata, and cuDNN copies (hard links) in some of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("torch==2.8.0", "numpy", "env-doctor", "cuda-doctor", "nvidia-cudnn-frontend==1.28.0")
GROWTH = ((0, 0), (20, 0), (20, 10), (20, 20), (40, 40))
"""Environments, and copies of cuDNN in them."""


class Program(NamedTuple):
    """A program and its command line."""

    name: str
    argv: tuple[str, ...]


def run(*argv: str | Path) -> None:
    subprocess.run(argv, check=True)


def environment(folder: Path, *requirements: str | Path) -> Path:
    """The Python of an environment with these installed, byte-compiled as pip leaves them."""
    python = folder / "bin/python"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        run("uv", "venv", "-q", folder)
        install = ("uv", "pip", "install", "-q", "--compile-bytecode", "--python", python)
        run(*install, *requirements)
        (folder / ".complete").touch()
    return python


def ours(lab: Path) -> Path:
    """This checkout, installed anew."""
    (lab / "ours/.complete").unlink(missing_ok=True)
    return environment(lab / "ours", ROOT)


def programs(lab: Path) -> list[Program]:
    """All of them, ours first; nvidia-smi where it is there."""
    mine, peers = ours(lab), environment(lab / "peers", *PEERS)
    smi = shutil.which("nvidia-smi")
    gpu = () if smi else ("--no-gpu",)
    found = [
        Program("cudnn-doctor check", (str(mine.parent / "cudnn-doctor"), "check", *gpu)),
        Program("torch.utils.collect_env", (str(peers), "-m", "torch.utils.collect_env")),
        Program("cudnn.collect_env 1.28", (str(peers), "-m", "cudnn.collect_env")),
        Program("env-doctor check", (str(peers.parent / "env-doctor"), "check")),
        Program("cuda-doctor diagnose", (str(peers.parent / "cuda-doctor"), "diagnose")),
        Program("python -c pass", (str(mine), "-c", "pass")),
    ]
    return [*found, Program("nvidia-smi", (smi,))] if smi else found


def seconds(argv: Sequence[str], environ: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(
        argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False
    )
    return time.perf_counter() - start


def clean_environ(**more: str) -> dict[str, str]:
    hidden = ("LD_", "CUDNN", "CUDA_", "PYTHON", "VIRTUAL_ENV", "CONDA")
    return {**{k: v for k, v in os.environ.items() if not k.startswith(hidden)}, **more}


def compare(found: Sequence[Program], runs: int) -> dict[str, list[float]]:
    """Times of each program, taking turns, the first (cold) turn left out."""
    times: dict[str, list[float]] = {program.name: [] for program in found}
    for turn in range(runs + 1):
        for program in found:
            taken = seconds(program.argv, clean_environ())
            if turn:
                times[program.name].append(taken)
    return times


def home(lab: Path, environments: int, copies: int) -> Path:
    """A home with that many virtual environments, the first ones with a cuDNN."""
    folder = lab / "home"
    shutil.rmtree(folder, ignore_errors=True)
    site = next((lab / "peers/lib").glob("python3*/site-packages"))
    for number in range(environments):
        prefix = folder / f".virtualenvs/env{number}"
        run(sys.executable, "-m", "venv", "--without-pip", prefix)
        target = next((prefix / "lib").glob("python3*/site-packages"))
        wanted = [*site.glob("torch-*.dist-info")]
        if number < copies:
            wanted += [*site.glob("nvidia_cudnn_cu12-*.dist-info"), site / "nvidia/cudnn"]
        for path in wanted:
            shutil.copytree(path, target / path.relative_to(site), copy_function=os.link)
    folder.mkdir(exist_ok=True)
    return folder


def growth(lab: Path, program: Program, runs: int) -> list[dict[str, float]]:
    """Median time by number of environments and copies."""
    rows = []
    for environments, copies in GROWTH:
        environ = clean_environ(HOME=str(home(lab, environments, copies)))
        taken = [seconds(program.argv, environ) for _ in range(runs + 1)][1:]
        rows.append(
            {
                "environments": environments,
                "copies": copies,
                "median_s": round(statistics.median(taken), 3),
            }
        )
    return rows


def table(times: dict[str, list[float]], grown: Sequence[dict[str, float]]) -> str:
    """The result as Markdown."""
    mine = statistics.median(times["cudnn-doctor check"])
    lines = ["| program | median s | fastest s | times ours |", "|---|---|---|---|"]
    for name, taken in times.items():
        median = statistics.median(taken)
        lines.append(f"| {name} | {median:.3f} | {min(taken):.3f} | {median / mine:.2f} |")
    lines += ["", "| environments | cuDNN copies | check, median s |", "|---|---|---|"]
    lines += [f"| {r['environments']} | {r['copies']} | {r['median_s']:.3f} |" for r in grown]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lab", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    lab = options.lab.resolve()
    lab.mkdir(parents=True, exist_ok=True)
    found = programs(lab)
    times = compare(found, options.runs)
    grown = growth(lab, found[0], options.runs)
    text = table(times, grown)
    about = f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.runs} runs"
    print(f"{about}\n\n{text}", end="")
    if options.table:
        options.table.write_text(f"{about}\n\n{text}")
    if options.json:
        result = {"about": about, "times_s": times, "growth": grown}
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
