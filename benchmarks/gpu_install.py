"""Install a newer cuDNN than those of a machine, prove it on the GPU, and take it back.

Usage: python benchmarks/gpu_install.py OUT --wheel FILE [--venv DIR] [--quick]

Two roads, both offline: a prefix filled from the wheel, and the wheel into a copy of the Python
environment that runs this (or into the environment DIR itself). Prints one line a step and writes
OUT/install.json: command, exit code, the code that was wanted, seconds, end of the output.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = Path("/tmp/cudnn-doctor-install")
CLI = [sys.executable, "-m", "cudnn_doctor"]
_WHEEL = re.compile(r"nvidia_cudnn_cu(\d+)-([\d.]+)-")
_END = 1500
TORCH = """
import torch
x = torch.randn(8, 64, 56, 56, device="cuda", dtype=torch.bfloat16, requires_grad=True)
w = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.bfloat16, requires_grad=True)
y = torch.nn.functional.conv2d(x, w, padding=1)
y.sum().backward()
exact = torch.nn.functional.conv2d(x.double().cpu(), w.double().cpu(), padding=1)
worst = float(((y.double().cpu() - exact).abs() / (exact.abs() + 24)).max().detach())
print("cuDNN", torch.backends.cudnn.version(), "largest relative error", worst)
assert worst < 2**-7
"""


class Session:
    """Runs the steps and keeps what they gave."""

    def __init__(self, wheel: Path, level: list[str]) -> None:
        match = _WHEEL.match(wheel.name)
        if match is None:
            sys.exit(f"{wheel.name} is no wheel of cuDNN")
        self.wheel, self.level = wheel.resolve(), level
        self.cuda, self.version = match.groups()
        self.results: list[dict[str, Any]] = []
        self.environ = {
            **os.environ,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheel.parent),
            "UV_OFFLINE": "1",
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(self.wheel.parent),
            "CUDNN_DOCTOR_STATE": str(SCRATCH / "state"),
        }

    def step(self, name: str, command: list[str], wanted: tuple[int, ...] = (0,)) -> str:
        """Run one command; its output."""
        start = time.perf_counter()
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=240,
                env=self.environ,
            )  # fmt: skip
            code, said = done.returncode, done.stdout + done.stderr
        except (subprocess.TimeoutExpired, OSError) as error:
            code, said = -1, str(error)
        seconds = time.perf_counter() - start
        mark = "" if code in wanted else "   NOT EXPECTED"
        print(f"{name:44} exit {code:3} {seconds:7.2f} s{mark}", flush=True)
        if mark:
            print("    " + "\n    ".join(said.strip().splitlines()[-8:]), flush=True)
        self.results.append({
            "step": name, "command": " ".join(command[3:] or command), "exit": code,
            "wanted": wanted, "seconds": round(seconds, 2), "output": said[-_END:],
        })  # fmt: skip
        return said

    def cli(self, name: str, *arguments: str, wanted: tuple[int, ...] = (0,)) -> str:
        return self.step(name, [*CLI, *arguments], wanted)

    def verify(self, name: str, folder: Path, wanted: tuple[int, ...]) -> None:
        self.cli(name, "verify", "--lib", str(folder), *self.level, wanted=wanted)

    def check(self, name: str, good: bool) -> None:
        """Something that must hold; told like a step."""
        mark = "" if good else "   NOT EXPECTED"
        print(f"{name:44} {'yes' if good else 'no':8}{mark}", flush=True)
        self.results.append({"step": name, "exit": 0 if good else 1, "wanted": (0,)})


def prefix_road(session: Session, passes: tuple[int, ...]) -> None:
    prefix = SCRATCH / "prefix"
    said = session.cli(
        "prefix: install from the wheel",
        "install", "--method", "tarball", "--source", "wheel", "--archive", str(session.wheel),
        "--version", session.version, "--cuda", session.cuda, "--prefix", str(prefix), "--yes",
    )  # fmt: skip
    session.verify("prefix: verify it", prefix / "current" / "lib", passes)
    session.cli("prefix: install it again: nothing to do",
        "install", "--method", "tarball", "--source", "wheel", "--archive", str(session.wheel),
        "--version", session.version, "--cuda", session.cuda, "--prefix", str(prefix), "--yes",
    )  # fmt: skip
    name = Path(os.path.realpath(prefix / "current")).name
    session.cli("prefix: use it", "use", name, "--prefix", str(prefix), "--yes")
    session.cli("prefix: list", "list", "--prefix", str(prefix))
    receipt = re.search(r"rollback (\d{8}T\S+)", said)
    session.cli("prefix: rollback", "rollback", *([receipt[1]] if receipt else []), "--yes")
    session.check("prefix: is gone", not prefix.exists())


def copy_environment(target: Path) -> Path:
    """A copy of the environment that runs this: cuDNN as files, all the rest as links to files."""
    source = Path(sys.prefix)
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-as", str(source), str(target)], check=True)
    for site in target.glob("lib/python3*/site-packages"):
        for folder in (*site.glob("nvidia/cudnn"), *site.glob("nvidia_cudnn*.dist-info")):
            shutil.rmtree(folder)
            shutil.copytree(source / folder.relative_to(target), folder)
    for link in (target / "pyvenv.cfg", *target.glob("bin/python*")):
        real = link.resolve()
        link.unlink()
        if link.suffix == ".cfg":
            shutil.copyfile(real, link)
        else:
            link.symlink_to(real)
    return target


def wheel_road(session: Session, venv: Path, passes: tuple[int, ...]) -> None:
    site = next(venv.glob("lib/python3*/site-packages"))
    folder = site / "nvidia" / "cudnn" / "lib"
    before = {path.name: path.stat().st_size for path in folder.glob("libcudnn*")}
    install = [
        "install", "--method", "wheel", "--python", str(venv), "--version", session.version,
        "--cuda", session.cuda, "--yes",
    ]  # fmt: skip
    session.cli("wheel: refused, a framework pins another", *install, wanted=(4,))
    session.check("wheel: nothing was changed", _sizes(folder) == before)
    said = session.cli("wheel: install with --break-pins", *install, "--break-pins")
    session.check("wheel: the files are others now", _sizes(folder) != before)
    session.verify("wheel: verify it", folder, passes)
    if passes == (0,):
        session.step("wheel: PyTorch convolves with it", [str(venv / "bin/python"), "-c", TORCH])
    session.cli("wheel: check tells the broken pin", "check", "--python", str(venv), wanted=(1,))
    receipt = re.search(r"rollback (\d{8}T\S+)", said)
    session.cli("wheel: list tells what is kept", "list")
    session.cli("wheel: rollback", "rollback", *([receipt[1]] if receipt else []), "--yes")
    session.check("wheel: the old files are back", _sizes(folder) == before)
    session.verify("wheel: verify after the rollback", folder, passes)
    if passes == (0,):
        session.step("wheel: PyTorch convolves again", [str(venv / "bin/python"), "-c", TORCH])


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.glob("libcudnn*")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--venv", type=Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    session = Session(arguments.wheel, ["--quick"] if arguments.quick else [])
    shutil.rmtree(SCRATCH, ignore_errors=True)
    has_gpu = shutil.which("nvidia-smi") is not None
    passes = (0,) if has_gpu else (3,)
    prefix_road(session, passes)
    venv = arguments.venv or copy_environment(SCRATCH / "venv")
    wheel_road(session, venv, passes)
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": session.version, "steps": session.results}, indent=1)
    (arguments.out / "install.json").write_text(text + "\n")
    wrong = [r["step"] for r in session.results if r["exit"] not in r["wanted"]]
    print(f"{len(session.results)} steps, not as expected: {', '.join(wrong) or 'none'}")


if __name__ == "__main__":
    main()
