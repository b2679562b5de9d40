"""The fault bench: who notices a broken cuDNN?

Makes broken set-ups out of real wheels in real environments, runs `cudnn-doctor check` and the
peers on the healthy and on the broken state, and prints who noticed and who cried wolf.

    python benchmarks/faults.py --lab DIR [--only NAME ...] [--no-peers] [--json FILE]

The lab keeps its environments (about 9 GB) between runs. `uv` and `gcc` are needed. A peer has
noticed when its exit code or its output (numbers of lines, times and the lab's paths apart) differs
from those on the healthy twin: that is generous. Ours must name the fault and exit 1, and must say
nothing and exit 0 on the healthy twin.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

BASES = {
    "cu12": [
        "torch==2.8.0",
        "numpy",
        "env-doctor",
        "cuda-doctor",
        "nvidia-cudnn-frontend==1.28.0",
        "cuda-pathfinder",
    ],
    "cu13-920": ["torch==2.12.1", "numpy"],
    "ort": [
        "onnxruntime-gpu==1.22.0",
        "nvidia-cudnn-cu12==9.10.2.21",
        "nvidia-cublas-cu12==12.8.4.1",
        "nvidia-cuda-nvrtc-cu12==12.8.93",
        "nvidia-cuda-runtime-cu12==12.8.90",
        "nvidia-cufft-cu12",
        "nvidia-curand-cu12",
    ],
    "jax": ["jax[cuda12]==0.7.2", "nvidia-cudnn-cu12==9.10.2.21"],
    "tf": ["tensorflow[and-cuda]==2.18.0"],
    "ct2": ["ctranslate2==4.5.0", "nvidia-cudnn-cu12==9.10.2.21", "nvidia-cublas-cu12==12.8.4.1"],
}
"""Environment -> what is installed in it."""

EXTRA = {
    "9.1.0": "nvidia-cudnn-cu12==9.1.0.70",
    "9.8.0": "nvidia-cudnn-cu12==9.8.0.87",
    "9.24.0": "nvidia-cudnn-cu12==9.24.0.43",
    "8.9.7": "nvidia-cudnn-cu12==8.9.7.29",
    "cu13": "nvidia-cudnn-cu13==9.12.0.46",
}
"""Further releases, unpacked side by side without an environment."""


class Lab:
    """The folder where environments are made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)

    def base(self, name: str) -> Path:
        """A healthy environment, made once."""
        env = self.folder / "base" / name
        if not (env / ".complete").exists():
            shutil.rmtree(env, ignore_errors=True)
            run(["uv", "venv", "-q", "--seed", str(env)])
            run(["uv", "pip", "install", "-q", "--python", str(env / "bin/python"), *BASES[name]])
            (env / ".complete").touch()
        return env

    def release(self, name: str) -> Path:
        """The `lib` folder of another cuDNN release."""
        target = self.folder / "release" / name
        if not (target / ".complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            run(["uv", "pip", "install", "-q", "--no-deps", "--target", str(target), EXTRA[name]])
            (target / ".complete").touch()
        return target / "nvidia/cudnn/lib"

    def copy(self, name: str) -> Path:
        """A fresh copy of a base environment (hard links: files must be replaced, not edited)."""
        env = self.folder / "copy" / name
        shutil.rmtree(env, ignore_errors=True)
        env.parent.mkdir(exist_ok=True)
        run(["cp", "-al", str(self.base(name)), str(env)])
        for script in (env / "bin").iterdir():
            if script.is_file() and not script.is_symlink() and script.stat().st_size < 1 << 16:
                text = script.read_text("utf-8", "replace")
                script.unlink()
                script.write_text(text.replace(str(self.base(name)), str(env)))
                script.chmod(0o755)
        return env

    def scratch(self, name: str) -> Path:
        """An empty folder."""
        folder = self.folder / "scratch" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


class Fault(NamedTuple):
    """One way to break an environment; `make` returns the environment variables to set."""

    name: str
    base: str
    make: Callable[[Lab, Path], dict[str, str]]
    wants: tuple[str, ...]
    """Ids of which one must be found; empty: this one is harmless and must stay silent."""


def run(argv: list[str], **kwargs: object) -> None:
    subprocess.run(argv, check=True, **kwargs)  # type: ignore[call-overload]


def site(env: Path) -> Path:
    return next((env / "lib").glob("python3*/site-packages"))


def cudnn(env: Path) -> Path:
    return site(env) / "nvidia/cudnn/lib"


def replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def pip(env: Path, *arguments: str) -> None:
    run(["uv", "pip", *arguments, "-q", "--python", str(env / "bin/python")])


# -- the faults


def missing(lab: Lab, env: Path) -> dict[str, str]:
    (cudnn(env) / "libcudnn_cnn.so.9").unlink()
    return {}


def mixed(lab: Lab, env: Path) -> dict[str, str]:
    name = "libcudnn_ops.so.9"
    replace(cudnn(env) / name, (lab.release("9.8.0") / name).read_bytes())
    return {}


def shadowed(lab: Lab, env: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(lab.release("9.1.0"))}


def same_copy_on_path(lab: Lab, env: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(cudnn(env))}


def stray(lab: Lab, env: Path) -> dict[str, str]:
    folder = lab.scratch("stray")
    name = "libcudnn_engines_tensor_ir.so.9"
    shutil.copy(lab.release("9.24.0") / name, folder / name)
    return {"LD_LIBRARY_PATH": str(folder)}


def truncated(lab: Lab, env: Path) -> dict[str, str]:
    path = cudnn(env) / "libcudnn_adv.so.9"
    replace(path, path.read_bytes()[: 1 << 20])
    return {}


def wrong_arch(lab: Lab, env: Path) -> dict[str, str]:
    path = cudnn(env) / "libcudnn_heuristic.so.9"
    data = bytearray(path.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # EM_AARCH64
    replace(path, bytes(data))
    return {}


def clobbered(lab: Lab, env: Path) -> dict[str, str]:
    pip(env, "install", "--no-deps", EXTRA["cu13"])
    return {}


def no_cublas(lab: Lab, env: Path) -> dict[str, str]:
    pip(env, "uninstall", "nvidia-cublas-cu12")
    return {}


def no_nvrtc(lab: Lab, env: Path) -> dict[str, str]:
    pip(env, "uninstall", "nvidia-cuda-nvrtc-cu12")
    return {}


def eight_beside_nine(lab: Lab, env: Path) -> dict[str, str]:
    folder = lab.scratch("eight")
    for path in lab.release("8.9.7").glob("libcudnn*.so.8"):
        (folder / path.name).symlink_to(path)
        (folder / path.name.removesuffix(".8")).symlink_to(path.name)
    return {"LD_LIBRARY_PATH": str(folder)}


def old_header(lab: Lab, env: Path) -> dict[str, str]:
    root = lab.scratch("root")
    shutil.copytree(lab.release("8.9.7").parent / "include", root / "include")
    (root / "lib").symlink_to(cudnn(env))
    return {"CUDNN_ROOT": str(root)}


def right_header(lab: Lab, env: Path) -> dict[str, str]:
    root = lab.scratch("root")
    shutil.copytree(cudnn(env).parent / "include", root / "include")
    (root / "lib").symlink_to(cudnn(env))
    return {"CUDNN_ROOT": str(root)}


def dangling(lab: Lab, env: Path) -> dict[str, str]:
    folder = lab.scratch("dangling")
    (folder / "libcudnn.so.9").symlink_to("libcudnn.so.9.7.1")
    return {"LD_LIBRARY_PATH": str(folder)}


def no_cudnn(lab: Lab, env: Path) -> dict[str, str]:
    pip(env, "uninstall", "nvidia-cudnn-cu12")
    return {}


def newer_on_path(lab: Lab, env: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(lab.release("9.24.0"))}


def both_wheels_mended(lab: Lab, env: Path) -> dict[str, str]:
    clobbered(lab, env)
    pip(env, "uninstall", "nvidia-cudnn-cu13")
    pip(env, "install", "--no-deps", "--reinstall", "nvidia-cudnn-cu12==9.10.2.21")
    return {}


def stub_libcuda(lab: Lab, env: Path) -> dict[str, str]:
    folder = lab.scratch("cuda") / "lib64/stubs"
    folder.mkdir(parents=True)
    argv = ["gcc", "-shared", "-x", "c", "-", "-o", str(folder / "libcuda.so.1")]
    source = b"int cuInit(unsigned flags) { return 34; }"
    run([*argv, "-Wl,-soname,libcuda.so.1"], input=source)
    return {"LD_LIBRARY_PATH": str(folder)}


def stub_for_linking(lab: Lab, env: Path) -> dict[str, str]:
    return {"LIBRARY_PATH": stub_libcuda(lab, env)["LD_LIBRARY_PATH"]}


def pinned_prefix(lab: Lab, env: Path) -> dict[str, str]:
    folder = lab.scratch("conda") / "lib"
    folder.mkdir()
    for path in lab.release("9.1.0").glob("libcudnn*.so.9"):
        (folder / f"{path.name}.1.0").symlink_to(path)
        (folder / path.name).symlink_to(f"{path.name}.1.0")
        (folder / path.name.removesuffix(".9")).symlink_to(path.name)
    return {"LD_LIBRARY_PATH": str(folder)}


def not_on_path(lab: Lab, env: Path) -> dict[str, str]:
    return {}


def on_path(lab: Lab, env: Path) -> dict[str, str]:
    folders = sorted((site(env) / "nvidia").glob("*/lib"))
    return {"LD_LIBRARY_PATH": ":".join(map(str, folders))}


def newer_elsewhere(lab: Lab, env: Path) -> dict[str, str]:
    folder = lab.scratch("prefix") / "lib"
    folder.mkdir()
    for path in lab.release("9.24.0").glob("libcudnn*.so.9"):
        (folder / path.name).symlink_to(path)
    return {}


def pins_broken(lab: Lab, env: Path) -> dict[str, str]:
    pip(env, "install", "--no-deps", EXTRA["9.8.0"])
    return {}


def fake_link(lab: Lab, env: Path) -> dict[str, str]:
    folder = lab.scratch("fake")
    (folder / "libcudnn.so.9").symlink_to(
        next((site(env) / "nvidia/cublas/lib").glob("libcublas.so*"))
    )
    return {"LD_LIBRARY_PATH": str(folder)}


def flattened(lab: Lab, env: Path) -> dict[str, str]:
    folder = lab.scratch("flat")
    for path in cudnn(env).glob("libcudnn*.so.9"):
        shutil.copy(path, folder / path.name)
        os.link(folder / path.name, folder / path.name.removesuffix(".9"))
    return {"LD_LIBRARY_PATH": str(folder)}


INCOMPLETE = ("cudnn-install-incomplete", "wheel-files-missing")
DAMAGED = ("cudnn-file-damaged", "cudnn-wrong-architecture", "download-corrupt")
MAJOR = ("cudnn-major-mismatch", "ld-library-path-shadow")
FOREIGN = ("ld-library-path-shadow", "mixed-cudnn-copies")
FAULTS = (
    Fault("1 a sublibrary missing", "cu12", missing, INCOMPLETE),
    Fault("2 one sublibrary of another 9.x", "cu12", mixed, ("cudnn-mixed-in-one-dir",)),
    Fault("3 another 9.x on LD_LIBRARY_PATH", "cu12", shadowed, FOREIGN),
    Fault(
        "4 stray tensor_ir, fatal to 9.20", "cu13-920", stray, (*FOREIGN, "cudnn-wheel-incomplete")
    ),
    Fault("5 a truncated file", "cu12", truncated, DAMAGED),
    Fault("6 a file of the wrong architecture", "cu12", wrong_arch, DAMAGED),
    Fault("7 two wheels over one folder", "cu12", clobbered, ("cudnn-wheel-clobbered",)),
    Fault(
        "8a cuBLAS unreachable",
        "cu12",
        no_cublas,
        ("other-cuda-lib-missing", "framework-deps-not-installed"),
    ),
    Fault(
        "8b NVRTC unreachable",
        "cu12",
        no_nvrtc,
        ("libnvrtc-missing", "framework-deps-not-installed"),
    ),
    Fault(
        "9 cuDNN 8 on LD_LIBRARY_PATH beside 9",
        "cu12",
        eight_beside_nine,
        MAJOR,
    ),
    Fault("10 header 8.9, library 9.10", "cu12", old_header, ("header-library-mismatch",)),
    Fault(
        "11 dangling link on LD_LIBRARY_PATH",
        "cu12",
        dangling,
        ("cudnn-dangling-link", "cudnn-install-incomplete"),
    ),
    Fault(
        "12 no cuDNN where one is needed",
        "cu12",
        no_cudnn,
        ("cudnn-not-installed", "framework-deps-not-installed"),
    ),
    Fault(
        "13 pins broken by an upgrade",
        "cu12",
        pins_broken,
        ("pip-pin-conflict", "cudnn-older-than-framework-build"),
    ),
    Fault("14 a fake link", "cu12", fake_link, ("cudnn-fake-symlink",)),
    Fault(
        "15 onnxruntime, wheel not on its path", "ort", not_on_path, ("cudnn-not-on-loader-path",)
    ),
    Fault("16 JAX over parts older than it asks for", "jax", shadowed, FOREIGN),
    Fault("17 JAX without its cuDNN", "jax", no_cudnn, ("framework-deps-not-installed",)),
    Fault("18 TensorFlow gets an older cuDNN", "tf", shadowed, FOREIGN),
    Fault("19 a stub libcuda on LD_LIBRARY_PATH", "cu12", stub_libcuda, ("libcuda-stub-shadow",)),
    Fault("20 a prefix with an older cuDNN", "cu12", pinned_prefix, FOREIGN),
    Fault("21 CTranslate2 with cuDNN 8 on its path", "ct2", eight_beside_nine, MAJOR),
    Fault("h1 the same copy on LD_LIBRARY_PATH", "cu12", same_copy_on_path, ()),
    Fault("h2 stray tensor_ir, harmless to 9.10", "cu12", stray, ()),
    Fault("h3 header and library agree", "cu12", right_header, ()),
    Fault("h4 onnxruntime, wheel on its path", "ort", on_path, ()),
    Fault("h5 another release that nobody loads", "cu12", newer_elsewhere, ()),
    Fault("h6 an identical copy, links flattened", "cu12", flattened, ()),
    Fault("h7 JAX over newer parts", "jax", newer_on_path, ()),
    Fault("h8 TensorFlow gets a newer cuDNN", "tf", newer_on_path, ()),
    Fault("h9 CTranslate2, wheels on its path", "ct2", on_path, ()),
    Fault("h10 two wheels, one taken out again", "cu12", both_wheels_mended, ()),
    Fault("h11 a stub libcuda for linking", "cu12", stub_for_linking, ()),
)


# -- the doctors


def peers(env: Path) -> dict[str, list[str]]:
    """Peer -> its command in this environment (those that are installed there)."""
    python = str(env / "bin/python")
    load = "from cuda.pathfinder import load_nvidia_dynamic_lib as l; print(l('cudnn'))"
    found = {
        "env-doctor": [str(env / "bin/env-doctor"), "check"],
        "cuda-doctor": [str(env / "bin/cuda-doctor"), "diagnose"],
        "cudnn.collect_env": [python, "-m", "cudnn.collect_env"],
        "cuda-pathfinder": [python, "-c", load],
        "pip check": [python, "-m", "pip", "check"],
        "torch.collect_env": [python, "-m", "torch.utils.collect_env"],
    }
    return found if (env / "bin/env-doctor").exists() else {}


def environ(env: Path, extra: dict[str, str]) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "CUDNN", "CUDA"))}
    clean["VIRTUAL_ENV"] = str(env)
    clean["PATH"] = f"{env / 'bin'}:{clean['PATH']}"
    return {**clean, **extra}


def outcome(argv: list[str], env: Path, extra: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        argv, env=environ(env, extra), capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, re.sub(r"[\d.:]+", "#", done.stdout + done.stderr)


def ours(env: Path, extra: dict[str, str]) -> tuple[int, list[str]]:
    """Exit code and ids of the errors found."""
    argv = [sys.executable, "-m", "cudnn_doctor", "check", "--no-gpu", "--json"]
    done = subprocess.run(
        argv, env=environ(env, extra), capture_output=True, text=True, timeout=120, check=False
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return done.returncode, [f"no JSON: {done.stderr.strip()[-200:]}"]
    here = [f for f in report["findings"] if f["severity"] == "error"]
    return done.returncode, [f["id"] for f in here]


def judge(fault: Fault, lab: Lab, with_peers: bool) -> dict[str, object]:
    """Break, look, and tell who saw it."""
    env = lab.copy(fault.base)
    before = (
        {name: outcome(argv, env, {}) for name, argv in peers(env).items()} if with_peers else {}
    )
    extra = fault.make(lab, env)
    code, found = ours(env, extra)
    if fault.wants:
        good = code == 1 and bool(set(found) & set(fault.wants))
    else:
        good = code == 0 and not found
    noticed = {
        name: outcome(argv, env, extra) != before[name]
        for name, argv in (peers(env).items() if with_peers else ())
    }
    return {"fault": fault.name, "ours": good, "exit": code, "found": found, "peers": noticed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lab", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lab = Lab(options.lab)
    rows = []
    for base in BASES:
        code, found = ours(lab.copy(base), {}) if base != "ort" else (0, [])
        rows.append(
            {
                "fault": f"healthy {base}",
                "ours": code == 0,
                "exit": code,
                "found": found,
                "peers": {},
            }
        )
        print(f"{'ok ' if code == 0 else 'BAD'} healthy {base}: exit {code} {found}")
    for fault in FAULTS:
        if options.only and not any(fault.name.startswith(o) for o in options.only):
            continue
        row = judge(fault, lab, not options.no_peers)
        rows.append(row)
        who = [name for name, saw in row["peers"].items() if saw]  # type: ignore[attr-defined]
        print(f"{'ok ' if row['ours'] else 'BAD'} {fault.name}: exit {row['exit']} {row['found']}")
        if not options.no_peers:
            print(f"      peers whose output changed: {', '.join(who) or 'none'}")
    good = sum(bool(row["ours"]) for row in rows)
    print(f"\ncudnn-doctor: {good} of {len(rows)} right")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
