"""A cuDNN copy and a driver that compute on the host, built by gcc, for `verify` without a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.elf import build_library

_SOURCES = Path(__file__).parents[1] / "verify"
PARTS = ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled",
         "engines_runtime_compiled")  # fmt: skip


_TOLD = {
    "graph": "unsigned long cudnnGetVersion(void) { return 91900; }"
    "int cudnnGraphVersionCheck(void) { return 0; }"
}
"""What sublibraries say of themselves."""


def compile_c(source: str, path: Path, *options: str) -> Path:
    """Build one of the C files of tests/verify."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-O2", "-w", "-o", str(path), str(_SOURCES / source)]
    subprocess.run([*command, f"-Wl,-soname,{path.name}", *options], check=True)
    return path


def fake_driver(folder: Path) -> Path:
    """A folder for LD_LIBRARY_PATH with a libcuda.so.1 whose device memory is the host's."""
    compile_c("fake_cuda.c", folder / "libcuda.so.1")
    return folder


def fake_copy(folder: Path) -> Path:
    """A complete 9.19.0 whose shim does all the work; its sublibraries are all but empty."""
    compile_c("fake_cudnn.c", folder / "libcudnn.so.9", "-lm")
    for part in PARTS:
        build_library(folder / f"libcudnn_{part}.so.9", source=_TOLD.get(part, ""))
    return folder
