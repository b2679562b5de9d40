"""Everything of `verify` that needs a GPU, in sessions of some three minutes.

Usage: python benchmarks/gpu_session.py OUT [NAME...]

NAMEs choose steps by how their names begin: ``healthy``, ``faults``, ``rest``, ``gpus`` (two
or more of them), ``last`` (the wheel on two or more GPUs, in some 90 seconds; only where it is
named). Each step's output goes to a file of its own, all of them into OUT/verify.tar.gz;
one line a step is printed. A step that fails or hangs does not keep the others from running. THIRD
and CU12 in the environment name the folders of a further copy and of one for CUDA 12.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DISTRO = Path("/usr/lib/x86_64-linux-gnu")
SCRATCH = Path("/tmp/cudnn-doctor-session")
CLI = [sys.executable, "-m", "cudnn_doctor", "verify"]
SEED = ["--seed", "20261130"]
TESTS = [
    sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider",
    str(ROOT / "tests/verify/test_verify_gpu.py"),
]  # fmt: skip


def wheel_folder() -> Path | None:
    """Folder of the cuDNN wheel in this environment."""
    spec = importlib.util.find_spec("nvidia.cudnn")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) / "lib" if places else None


def copy_of(folder: Path, name: str) -> Path:
    """A folder of links to a copy's libraries, with its wheel's RECORD, to be damaged."""
    made = SCRATCH / name / "nvidia" / "cudnn" / "lib"
    shutil.rmtree(SCRATCH / name, ignore_errors=True)
    made.mkdir(parents=True)
    for path in folder.glob("libcudnn*.so.*"):
        if path.name.count(".") == 2:
            (made / path.name).symlink_to(path.resolve())
    for info in folder.parents[2].glob("nvidia_cudnn*.dist-info"):
        shutil.copytree(info, SCRATCH / name / info.name)
    return made


def own(folder: Path, library: str) -> Path:
    """Make one link a file of its own."""
    path = folder / library
    real = path.resolve()
    path.unlink()
    shutil.copyfile(real, path)
    return path


def without(folder: Path, part: str) -> Path:
    made = copy_of(folder, f"without-{part}")
    (made / f"libcudnn_{part}.so.9").unlink()
    return made


def foreign(folder: Path, part: str, other: Path) -> Path:
    made = copy_of(folder, f"foreign-{part}")
    path = made / f"libcudnn_{part}.so.9"
    path.unlink()
    path.symlink_to((other / path.name).resolve())
    return made


def truncated(folder: Path, part: str) -> Path:
    made = copy_of(folder, f"truncated-{part}")
    path = own(made, f"libcudnn_{part}.so.9")
    os.truncate(path, path.stat().st_size // 2)
    return made


def flipped(folder: Path, part: str, every: int = 1 << 16) -> Path:
    """One bit in every so many bytes of the GPU code, or of the code where there is none."""
    sys.path.insert(0, str(ROOT))
    from cudnn_doctor.machine.elf import section_range

    made = copy_of(folder, f"flipped-{part}")
    path = own(made, f"libcudnn_{part}.so.9")
    start, size = (
        section_range(str(path), ".nv_fatbin") or section_range(str(path), ".text") or (0, 0)
    )
    with path.open("r+b") as file:
        for at in range(start + 5000, start + size, every):
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 16]))
    return made


def garbage(folder: Path, name: str) -> Path:
    """A run-time library that cannot be opened lies where it is looked for first."""
    made = copy_of(folder, f"garbage-{name.split('.')[0]}")
    for version in ("", ".13", ".12", ".11.2"):
        (made / f"{name}{version}").write_bytes(b"\x7fELF not really")
    return made


def shimmed(folder: Path) -> Path:
    made = copy_of(folder, "shimmed")
    (made / "libcudnn.so.9").unlink()
    parts = [f"-l:libcudnn_{p}.so.9" for p in ("cnn", "adv", "ops", "graph")]
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", str(made / "libcudnn.so.9"),
         str(ROOT / "tests/verify/faulty_cudnn.c"), "-Wl,-soname,libcudnn.so.9",
         "-Wl,--no-as-needed", f"-L{made}", *parts, f"-Wl,-rpath,{made}",
         "-Wl,--allow-shlib-undefined", "-ldl"],
        check=True,
    )  # fmt: skip
    return made


FILL = """
import ctypes, sys, time
sys.path.insert(0, {root!r})
from cudnn_doctor.verify.cuda import Driver, Buffer
d = Driver(); d.start(); held = []
size = d.memory()[0]
while size > 1 << 20:
    try: held.append(Buffer(d, size))
    except Exception: size //= 2
print("held", sum(b.size for b in held) >> 20, "MiB; free", d.memory()[0] >> 20, flush=True)
time.sleep(60)
"""

Step = tuple[str, list[str], dict[str, str]]


def copies() -> dict[str, Path]:
    """The copies on this machine: the wheel's, the distribution's and $THIRD."""
    found = {}
    if wheel := wheel_folder():
        found["wheel"] = wheel
    if list(DISTRO.glob("libcudnn.so.*")):
        found["distro"] = DISTRO
    if third := os.environ.get("THIRD"):
        found["third"] = Path(third)
        _beside(Path(third), wheel)
    return found


def _beside(third: Path, wheel: Path | None) -> None:
    """The wheel's CUDA libraries where a wheel of the third copy would have them."""
    link = third.parent.parent / "cu13"
    if wheel and not link.exists() and (wheel.parent.parent / "cu13").is_dir():
        link.symlink_to(wheel.parent.parent / "cu13")


def steps(chosen: list[str]) -> Iterator[Step]:
    found = copies()
    groups: dict[str, Callable[[], Iterator[Step]]] = {
        "healthy": lambda: named("healthy-", healthy(found)),
        "faults": lambda: faults(found["wheel"], found.get("distro")),
        "rest": lambda: named("rest-", rest(found)),
        "gpus": lambda: named("gpus-", gpus(found)),
        "last": lambda: named("last-", last(found)),
    }
    for group, make in groups.items():
        if (not chosen and group != "last") or any(name.startswith(group) for name in chosen):
            yield from make()


def named(prefix: str, listed: Iterator[Step]) -> Iterator[Step]:
    return ((prefix + name, command, environ) for name, command, environ in listed)


def gpus(found: dict[str, Path]) -> Iterator[Step]:
    """All GPUs side by side."""
    for name, folder in found.items():
        lib = ["--lib", str(folder), *SEED, "--all-gpus", "--json"]
        yield f"all-gpus-quick-{name}", [*CLI, *lib, "--quick"], {}
        yield f"all-gpus-default-{name}", [*CLI, *lib], {}


def healthy(found: dict[str, Path]) -> Iterator[Step]:
    yield "machine", ["nvidia-smi", "-q"], {}
    for name, folder in found.items():
        lib = ["--lib", str(folder), *SEED]
        yield f"quick-{name}", [*CLI, *lib, "--quick", "--json"], {}
        yield f"default-{name}", [*CLI, *lib, "--json"], {}
    if "wheel" in found:
        lib = ["--lib", str(found["wheel"]), *SEED]
        yield "plain-wheel", [*CLI, *lib, "--quick", "--json", "--references", "plain"], {}
        yield "torch", [*CLI, "--framework", "torch", *SEED, "--quick", "-v"], {}
        if "distro" in found:
            other = ["--compare", str(found["distro"])]
            yield "compare", [*CLI, *lib, *other, "--quick"], {}
    yield "loader", [*CLI, *SEED, "--quick", "-v"], {}
    yield "all-gpus", [*CLI, *SEED, "--quick", "--all-gpus", "--json"], {}
    yield "benchmark", [sys.executable, str(HERE / "verify.py"), "--json"], {}
    explore = [sys.executable, str(HERE / "explore_engines.py")]
    for name, folder in found.items():
        yield f"explore-{name}", [*explore, str(folder)], {}


def rest(found: dict[str, Path]) -> Iterator[Step]:
    """What is proven last: known faults, the newest copy in full, references by CuPy, damage that
    only a record tells, NVRTC out of reach, a copy for another CUDA, the tests for GPUs."""
    for name in ("distro", "third"):
        if name in found:
            yield f"default-{name}", [*CLI, "--lib", str(found[name]), *SEED, "--json"], {}
    yield from faults(found["wheel"], found.get("distro"), _AGAIN)
    if cu12 := os.environ.get("CU12"):
        yield "faults-cuda-12", [*CLI, "--lib", cu12, *SEED, "--quick", "--json"], {}
    lib = ["--lib", str(found["wheel"]), *SEED]
    log = str(SCRATCH / "out" / "cudnn.log")
    yield "log-wheel", [*CLI, *lib, "--quick", "--json", "--cudnn-log", log], {}
    yield "cupy-wheel", [*CLI, *lib, "--json", "--references", "cupy"], {}
    if "third" in found:
        other = ["--compare", str(found["third"])]
        yield "compare", [*CLI, *lib, *other], {}
    yield "pytest", TESTS, {}
    for name in ("third", "wheel"):
        if name in found:
            yield f"full-{name}", [*CLI, "--lib", str(found[name]), *SEED, "--full", "--json"], {}


def last(found: dict[str, Path]) -> Iterator[Step]:
    """The wheel on all GPUs side by side, NVRTC out of reach, the tests for GPUs."""
    yield from gpus({"wheel": found["wheel"]})
    yield from faults(found["wheel"], None, ("garbage-libnvrtc",))
    yield "pytest", TESTS, {}


_AGAIN = (
    "without-engines_precompiled", "foreign-engines_precompiled", "garbage-libnvrtc",
    "garbage-libcublasLt", "flipped-engines_precompiled", "onebit-ops", "onebit-cnn",
)  # fmt: skip
PARTS = (
    "graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled",
)  # fmt: skip
_NEEDS_DEFAULT = ("without-adv", "libnvrtc", "libcublasLt", "flipped-", "onebit-")


def faults(wheel: Path, distro: Path | None, only: tuple[str, ...] = ()) -> Iterator[Step]:
    """Damaged copies and machines; each is made when its turn has come."""
    for name, make, environ in damages(wheel, distro):
        if only and name not in only:
            continue
        level = [] if any(part in name for part in _NEEDS_DEFAULT) else ["--quick"]
        level += ["--timeout", "10"] if name == "shim-hang" else []
        yield f"faults-{name}", [*CLI, "--lib", str(make()), *SEED, *level, "--json"], environ


def damages(
    wheel: Path, distro: Path | None
) -> Iterator[tuple[str, Callable[[], Path], dict[str, str]]]:
    """Name, what makes the folder, environment."""
    for part in PARTS:
        yield f"without-{part}", partial(without, wheel, part), {}
    if distro:
        for part in ("ops", "cnn", "engines_precompiled"):
            yield f"foreign-{part}", partial(foreign, wheel, part, distro), {}
    for part in ("cnn", "graph", "engines_precompiled"):
        yield f"truncated-{part}", partial(truncated, wheel, part), {}
    for part in ("engines_precompiled", "adv"):
        yield f"flipped-{part}", partial(flipped, wheel, part), {}
    for part in ("ops", "cnn"):
        yield f"onebit-{part}", partial(flipped, wheel, part, every=1 << 40), {}
    for name in ("libnvrtc.so", "libcublasLt.so"):
        yield f"garbage-{name.split('.')[0]}", partial(garbage, wheel, name), {}
    yield "hidden-gpu", lambda: wheel, {"CUDA_VISIBLE_DEVICES": ""}
    yield "memory-full", lambda: wheel, {}
    for mode in ("perturb", "silent", "abort", "hang"):
        yield f"shim-{mode}", partial(shimmed, wheel), {"FAULTY_CUDNN": mode}


_LONG = ("default", "benchmark", "full", "cupy", "compare", "pytest")


def _expected(name: str) -> int:
    """6 of damaged copies; 1 where the distribution's 9.14 is tried for its known fault."""
    if "faults-" in name:
        return 6
    return 1 if name.endswith("default-distro") else 0


def run(out: Path, step: Step) -> None:
    name, command, environ = step
    start = time.perf_counter()
    holder = None
    if name.endswith("faults-memory-full"):
        source = FILL.format(root=str(ROOT))
        holder = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        print("   ", holder.stdout.readline().strip())
    limit = 120 if any(w in name for w in _LONG) else 45
    with (out / f"{name}.out").open("wb") as stdout, (out / f"{name}.err").open("wb") as stderr:
        try:
            code: object = subprocess.run(
                command, stdout=stdout, stderr=stderr, timeout=limit, cwd=ROOT, check=False,
                env={**os.environ, **environ},
            ).returncode  # fmt: skip
        except (subprocess.TimeoutExpired, OSError) as error:
            code = type(error).__name__
    if holder:
        holder.kill()
    mark = "" if code == _expected(name) else "   NOT EXPECTED"
    print(f"{name:32} exit {code!s:8} {time.perf_counter() - start:6.2f} s{mark}", flush=True)


def main() -> None:
    out, chosen = Path(sys.argv[1]), sys.argv[2:]
    work = SCRATCH / "out"
    work.mkdir(parents=True, exist_ok=True)
    listed = steps(chosen)
    while True:
        try:
            step = next(listed)
        except StopIteration:
            break
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"the steps that are left cannot be made here: {error}")
            break
        if not chosen or any(step[0].startswith(prefix) for prefix in chosen):
            run(work, step)
            with tarfile.open(out / "verify.tar.gz", "w:gz") as tar:  # each time: it may be cut off
                tar.add(work, arcname="verify")


if __name__ == "__main__":
    main()
