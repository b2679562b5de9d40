"""Real failures: made with real programs, explained, and mended.

Breaks environments with real torch, JAX, TensorFlow, onnxruntime, CTranslate2, pip, uv, apt, gcc
and ld.so, runs the failing command, keeps what it printed, asks `cudnn-doctor explain` for the
cause, and, where a program can mend it, lets `cudnn-doctor fix` do so and runs the command again.

    python benchmarks/real_failures.py --lab DIR [--only NAME ...] [--logs DIR] [--table FILE]

The lab is that of `faults.py` (`uv` and `gcc` are needed). A failure is explained when the first
diagnosis is one of those that are wanted; it is mended when the same command then succeeds in a
new shell.
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
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import faults
from faults import Lab, cudnn, pip, replace, site

faults.BASES |= {
    "jax": ["jax[cuda12]==0.6.2", "numpy"],
    "ct2": ["ctranslate2==4.6.0"],
    "tf": ["tensorflow==2.19.0"],
    "empty": ["packaging"],
}
TORCH = "python -c 'import torch; print(torch.backends.cudnn.version())'"
JAX = "JAX_PLATFORMS=cuda python -c 'import jax; print(jax.devices())'"
TENSORFLOW = (
    'python -c \'import tensorflow as tf; d = tf.config.list_physical_devices("GPU");'
    " print(d); raise SystemExit(not d)'"
)
CTRANSLATE2 = (
    "python -c 'import ctranslate2; print(ctranslate2.get_supported_compute_types(\"cuda\"))'"
)
ORT = (
    "ldd $VIRTUAL_ENV/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime_providers_cuda.so"
    " | tee /dev/stderr | { ! grep -q 'not found'; }"
)
BY_PATH = (
    "python -c 'import ctypes, nvidia.cudnn as c;"
    ' print(ctypes.CDLL(c.__path__[0] + "/lib/libcudnn.so.9").cudnnGetVersion())\''
)
WRONG_HASH = (
    f"echo 'nvidia-cudnn-frontend==1.14.0 --hash=sha256:{'0' * 64}' > $VIRTUAL_ENV/r.txt;"
    " python -m pip install --no-deps -r $VIRTUAL_ENV/r.txt"
)
LINK = "gcc -shared -o /dev/null -L $CUDNN_ROOT/lib -lcudnn"


class Failure(NamedTuple):
    """One way to fail: what is broken, what is run, what explains it."""

    name: str
    base: str
    make: Callable[[Lab, Path], dict[str, str]]
    """Breaks the environment; returns variables to set."""
    command: str
    wants: tuple[str, ...]
    """Diagnoses of which the first given must be one."""
    fix: bool = False
    """Whether `fix` must make the command succeed."""


# -- what is broken


def nothing(lab: Lab, env: Path) -> dict[str, str]:
    return {}


def without(name: str) -> Callable[[Lab, Path], dict[str, str]]:
    def make(lab: Lab, env: Path) -> dict[str, str]:
        (cudnn(env) / name).unlink()
        return {}

    return make


def cut(name: str, size: int) -> Callable[[Lab, Path], dict[str, str]]:
    def make(lab: Lab, env: Path) -> dict[str, str]:
        path = cudnn(env) / name
        replace(path, path.read_bytes()[:size])
        return {}

    return make


def page(lab: Lab, env: Path) -> dict[str, str]:
    """What a proxy sends instead of a file."""
    replace(cudnn(env) / "libcudnn.so.9", b"<html><body>403 Forbidden</body></html>\n" * 40)
    return {}


def other_arch(lab: Lab, env: Path) -> dict[str, str]:
    path = cudnn(env) / "libcudnn_graph.so.9"
    data = bytearray(path.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # EM_AARCH64
    replace(path, bytes(data))
    return {}


def twin_removed(lab: Lab, env: Path) -> dict[str, str]:
    """The advice that makes it worse: one of two wheels with the same files is uninstalled."""
    pip(env, "install", "--no-deps", faults.EXTRA["cu13"])
    pip(env, "uninstall", "nvidia-cudnn-cu13")
    return {}


def uninstalled(*names: str) -> Callable[[Lab, Path], dict[str, str]]:
    def make(lab: Lab, env: Path) -> dict[str, str]:
        pip(env, "uninstall", *names)
        return {}

    return make


def wheel_8(lab: Lab, env: Path) -> dict[str, str]:
    pip(env, "install", "--no-deps", faults.EXTRA["8.9.7"])
    return {}


def fake_link(lab: Lab, env: Path) -> dict[str, str]:
    """A link of cuDNN's name to another library, before the folders of the wheels."""
    folder = faults.fake_link(lab, env)["LD_LIBRARY_PATH"]
    return {"LD_LIBRARY_PATH": f"{folder}:{faults.on_path(lab, env)['LD_LIBRARY_PATH']}"}


def half_removed(lab: Lab, env: Path) -> dict[str, str]:
    """A killed pip: the metadata are there, the files are not."""
    shutil.rmtree(cudnn(env))
    return {}


def root_variable(lab: Lab, env: Path) -> dict[str, str]:
    return {"CUDNN_ROOT": str(cudnn(env).parent)}


def stub(lab: Lab, env: Path) -> dict[str, str]:
    """A library that answers as the toolkit's stub does (error 34)."""
    folder = lab.scratch("stubs")
    names = re.findall(
        r"\bcu[A-Z]\w+",
        subprocess.run(
            ["nm", "-D", "--undefined-only", *map(str, (site(env) / "torch/lib").glob("*.so"))],
            capture_output=True,
            text=True,
            check=False,
        ).stdout,
    )
    source = folder / "stub.c"
    wanted = sorted({*names, "cuInit", "cuDriverGetVersion", "cuGetProcAddress_v2"})
    source.write_text("\n".join(f"int {name}(void) {{ return 34; }}" for name in wanted))
    faults.run(["gcc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so"), str(source)])
    shutil.copy(folder / "libcuda.so", folder / "libcuda.so.1")
    return {"LD_LIBRARY_PATH": str(folder)}


def small_tmp(lab: Lab, env: Path) -> dict[str, str]:
    folder = lab.folder / "small"
    folder.mkdir(exist_ok=True)
    if not os.path.ismount(folder):
        faults.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", str(folder)])
    return {"TMPDIR": str(folder)}


def program_8(lab: Lab, env: Path) -> dict[str, str]:
    """A program linked to a libcudnn.so.8 that is not there any more."""
    folder = lab.scratch("linked")
    (folder / "c.c").write_text("int cudnnGetVersion(void) { return 8907; }")
    (folder / "m.c").write_text(
        "int cudnnGetVersion(void); int main(void) { return cudnnGetVersion(); }"
    )
    library = folder / "libcudnn.so.8"
    faults.run(
        ["gcc", "-shared", "-Wl,-soname,libcudnn.so.8", "-o", str(library), str(folder / "c.c")]
    )
    faults.run(["gcc", "-o", str(folder / "train"), str(folder / "m.c"), str(library)])
    library.unlink()
    return {"PROGRAM": str(folder / "train")}


def apt_tree(lab: Lab, env: Path) -> dict[str, str]:
    """A repository of our own with packages as NVIDIA names them, the development files of one
    release and the libraries of another; apt gets its own folders."""
    folder = lab.scratch("apt")
    for name, version, depends in (
        ("libcudnn8", "8.9.6.50-1+cuda12.2", ""),
        ("libcudnn8-dev", "8.9.7.29-1+cuda12.2", "libcudnn8 (= 8.9.7.29-1+cuda12.2)"),
    ):
        tree = folder / name
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: x <x@x>\n"
            + (f"Depends: {depends}\n" if depends else "")
            + "Description: cuDNN\n"
        )
        faults.run(
            ["dpkg-deb", "-b", str(tree), str(folder / f"{name}.deb")], stdout=subprocess.DEVNULL
        )
    packages = subprocess.run(
        ["dpkg-scanpackages", "."], cwd=folder, capture_output=True, text=True, check=False
    ).stdout
    (folder / "Packages").write_text(packages)
    for name in ("state/lists/partial", "cache/archives/partial", "etc", "log"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb [trusted=yes] file:{folder} ./\n")
    (folder / "apt.conf").write_text(
        f'Dir::State "{folder}/state"; Dir::State::status "{folder}/status";\n'
        f'Dir::Cache "{folder}/cache"; Dir::Log "{folder}/log"; Dir::Etc "{folder}/etc";\n'
        f'Dir::Etc::sourcelist "{folder}/sources.list"; Dir::Etc::sourceparts "-";\n'
        'APT::Architecture "amd64"; APT::Sandbox::User "root";\n'
    )
    faults.run(
        ["apt-get", "-qq", "update"], env={**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
    )
    return {"APT_CONFIG": str(folder / "apt.conf")}


INCOMPLETE = ("cudnn-install-incomplete", "wheel-files-missing")
DAMAGED = ("cudnn-file-damaged",)
NO_DRIVER = ("driver-not-installed", "no-nvidia-gpu", "container-without-gpu")
DEPS = ("framework-deps-not-installed", "cudnn-not-installed", "other-cuda-lib-missing")
FAILURES = (
    Failure("torch-shim-missing", "cu12", without("libcudnn.so.9"), TORCH, INCOMPLETE, True),
    Failure("torch-graph-missing", "cu12", without("libcudnn_graph.so.9"), TORCH, INCOMPLETE, True),
    Failure(
        "torch-graph-truncated", "cu12", cut("libcudnn_graph.so.9", 1 << 20), TORCH, DAMAGED, True
    ),
    Failure("torch-shim-empty", "cu12", cut("libcudnn.so.9", 0), TORCH, DAMAGED, True),
    Failure("torch-shim-is-a-page", "cu12", page, TORCH, DAMAGED, True),
    Failure("torch-graph-of-arm", "cu12", other_arch, TORCH, ("cudnn-wrong-architecture",), True),
    Failure("torch-shadowed", "cu12", faults.shadowed, TORCH, ("ld-library-path-shadow",), True),
    Failure("torch-twin-removed", "cu12", twin_removed, TORCH, INCOMPLETE, True),
    Failure("torch-pip-killed", "cu12", half_removed, TORCH, INCOMPLETE, True),
    Failure("torch-without-cublas", "cu12", uninstalled("nvidia-cublas-cu12"), TORCH, DEPS, True),
    Failure("torch-without-cudnn", "cu12", faults.no_cudnn, TORCH, DEPS, True),
    Failure(
        "torch-over-cudnn-8",
        "cu12",
        wheel_8,
        TORCH,
        ("cudnn-major-mismatch", "pip-pin-conflict"),
        True,
    ),
    Failure(
        "torch-stub-libcuda",
        "cu12",
        stub,
        "python -c 'import torch; torch.zeros(1).cuda()'",
        ("libcuda-stub-shadow",),
    ),
    Failure(
        "torch-no-driver",
        "cu12",
        nothing,
        "python -c 'import torch; torch.zeros(1).cuda()'",
        NO_DRIVER,
    ),
    Failure("ort-wheel-not-on-path", "ort", nothing, ORT, ("cudnn-not-on-loader-path",), True),
    Failure(
        "ort-fake-link",
        "ort",
        fake_link,
        "python -c 'import ctypes; ctypes.CDLL(\"libcudnn.so.9\").cudnnGetVersion()'",
        ("cudnn-fake-symlink",),
        True,
    ),
    Failure(
        "by-path-graph-missing", "ort", without("libcudnn_graph.so.9"), BY_PATH, INCOMPLETE, True
    ),
    Failure("by-path-shim-cut", "ort", cut("libcudnn.so.9", 0), BY_PATH, DAMAGED, True),
    Failure(
        "by-path-graph-cut", "ort", cut("libcudnn_graph.so.9", 1 << 20), BY_PATH, DAMAGED, True
    ),
    Failure("by-path-shim-is-a-page", "ort", page, BY_PATH, DAMAGED, True),
    Failure(
        "by-path-graph-of-arm", "ort", other_arch, BY_PATH, ("cudnn-wrong-architecture",), True
    ),
    Failure("by-path-pip-killed", "ort", half_removed, BY_PATH, INCOMPLETE, True),
    Failure("by-path-shim-gone", "ort", without("libcudnn.so.9"), BY_PATH, INCOMPLETE, True),
    Failure("link-unversioned", "ort", root_variable, LINK, ("wheel-no-unversioned-so",), True),
    Failure("jax-without-cudnn", "jax", faults.no_cudnn, JAX, DEPS, False),
    Failure("jax-no-driver", "jax", nothing, JAX, NO_DRIVER),
    Failure("tensorflow-no-driver", "tf", nothing, TENSORFLOW, NO_DRIVER),
    Failure("ctranslate2-no-driver", "ct2", nothing, CTRANSLATE2, NO_DRIVER),
    Failure(
        "pip-placeholder",
        "empty",
        nothing,
        "python -m pip install --no-cache-dir nvidia-cudnn",
        ("pypi-placeholder-package",),
    ),
    Failure(
        "pip-no-such-version",
        "empty",
        nothing,
        "python -m pip install nvidia-cudnn-cu12==9.10.2.99",
        ("index-lacks-pinned-version",),
    ),
    Failure(
        "uv-no-such-version",
        "empty",
        nothing,
        "uv pip install nvidia-cudnn-cu12==9.10.2.99",
        ("index-lacks-pinned-version",),
    ),
    Failure(
        "pip-pin-conflict",
        "empty",
        nothing,
        "python -m pip install --dry-run torch==2.8.0 nvidia-cudnn-cu12==9.8.0.87",
        ("pip-pin-conflict",),
    ),
    Failure(
        "uv-pin-conflict",
        "empty",
        nothing,
        "uv pip install --dry-run torch==2.8.0 nvidia-cudnn-cu12==9.8.0.87",
        ("pip-pin-conflict",),
    ),
    Failure(
        "pip-hash",
        "empty",
        nothing,
        WRONG_HASH,
        ("download-corrupt",),
    ),
    Failure(
        "pip-no-space",
        "empty",
        small_tmp,
        "python -m pip install --no-cache-dir --no-deps nvidia-cuda-nvrtc-cu12==12.8.93",
        ("tmp-full", "disk-full"),
    ),
    Failure(
        "pip-refused",
        "empty",
        nothing,
        "python -m pip install --retries 1 --index-url http://127.0.0.1:9/simple nvidia-cudnn-cu12",
        ("network-blocked",),
    ),
    Failure(
        "apt-exact-version",
        "empty",
        apt_tree,
        "apt-get -s install libcudnn8-dev",
        ("apt-version-pin-conflict",),
    ),
    Failure(
        "ldso-wants-8",
        "empty",
        program_8,
        "$PROGRAM",
        ("cudnn-not-installed", "cudnn-major-mismatch", "cudnn-not-on-loader-path"),
    ),
)


# -- run, explain, mend


def shell(env: Path, extra: dict[str, str], command: str) -> tuple[int, str]:
    """The command in a new shell in which the environment is activated."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f". {env}/bin/activate; {command}; exit $?"],
        env=faults.environ(env, extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def doctor(env: Path, extra: dict[str, str], *arguments: str) -> tuple[int, str]:
    """`cudnn-doctor` in a shell of the environment, with a state of its own."""
    variables = faults.environ(env, extra) | {"CUDNN_DOCTOR_STATE": str(env.parent / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "cudnn_doctor", *arguments],
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


def neutral(text: str, lab: Lab) -> str:
    """Without this machine's paths, and without the bars of downloads."""
    text = text.replace(f"{lab.folder}/copy/", "/home/user/envs/").replace(
        f"{lab.folder}/", "/data/"
    )
    text = re.sub(r"/[\w./-]*/benchmarks/", "/home/user/", text)
    text = re.sub(r"/[\w/]*\.pyenv/versions/[\d.]+", "/usr/local", text)
    text = re.sub(r"https://[\w.]+/packages/\S*/", "https://index.example/", text)
    text = re.sub(r"/tmp/pip-\S*/", "/tmp/pip-x/", text)
    lines = (line.rpartition("\r")[2] for line in text.split("\n"))
    local = ("━", "Looking in ", "WARNING: Location 'file:", "Processing /")
    return "\n".join(line for line in lines if not any(word in line for word in local))


def judge(failure: Failure, lab: Lab, logs: Path | None) -> dict[str, object]:
    """Break, run, explain, mend, run again."""
    env = lab.copy(failure.base)
    extra = failure.make(lab, env)
    code, text = shell(env, extra, failure.command)
    log = lab.folder / "failure.log"
    log.write_text(text)
    if logs is not None:
        (logs / f"{failure.name}.log").write_text(neutral(text, lab))
    began = time.perf_counter()
    _, answer = doctor(env, extra, "explain", "--json", str(log))
    seconds = time.perf_counter() - began
    try:
        found = [d["id"] for d in json.loads(answer)["diagnoses"]]
    except ValueError:
        found = [answer[-200:]]
    row: dict[str, object] = {
        "name": failure.name,
        "exit": code,
        "last": (neutral(text, lab).strip().splitlines() or [""])[-1][:160],
        "found": found[:3],
        "explained": bool(found) and found[0] in failure.wants and code != 0,
        "seconds": round(seconds, 2),
    }
    if failure.fix:
        _, told = doctor(env, extra, "fix", "--yes", "--no-gpu", "--log", str(log))
        again, text = shell(env, extra, failure.command)
        row |= {"mended": again == 0 and code != 0, "told": told if again else ""}
    return row


def table(rows: list[dict[str, object]]) -> str:
    """As Markdown."""
    lines = [
        "| failure | exit | last line | first diagnosis | right | mended by fix |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        found = row["found"][0] if row["found"] else ""  # type: ignore[index]
        mended = {True: "yes", False: "no"}.get(row.get("mended"), "")  # type: ignore[arg-type]
        last = str(row["last"]).replace("|", "\\|")
        right = "yes" if row["explained"] else "no"
        lines.append(f"| {row['name']} | {row['exit']} | {last} | {found} | {right} | {mended} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lab", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--logs", type=Path, help="keep what the commands printed here")
    parser.add_argument("--table", type=Path, help="write the results as Markdown")
    options = parser.parse_args()
    lab = Lab(options.lab)
    rows = []
    for failure in FAILURES:
        if options.only and not any(failure.name.startswith(name) for name in options.only):
            continue
        row = judge(failure, lab, options.logs)
        rows.append(row)
        good = row["explained"] and row.get("mended", True)
        print(f"{'ok ' if good else 'BAD'} {json.dumps(row)}", flush=True)
    explained = sum(bool(row["explained"]) for row in rows)
    mended = sum(bool(row.get("mended")) for row in rows)
    wanted = sum("mended" in row for row in rows)
    print(f"\n{explained} of {len(rows)} explained, {mended} of {wanted} mended")
    if options.table:
        options.table.write_text(table(rows))
    return 0 if explained == len(rows) and mended == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
