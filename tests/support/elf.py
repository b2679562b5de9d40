"""Tiny real ELF libraries, built by gcc, with the dynamic tags that a test wants."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal


def build_library(
    path: Path,
    *,
    soname: str | None = None,
    needed: Sequence[Path] = (),
    rpath: str | None = None,
    tag: Literal["rpath", "runpath"] = "runpath",
    source: str = "",
) -> Path:
    """Compile a shared library; ``needed`` are libraries whose SONAMEs become DT_NEEDED."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-O0", "-s", "-x", "c", "-", "-o", str(path)]
    command += [f"-Wl,-soname,{soname or path.name}"]
    if rpath is not None:
        dtags = "--enable-new-dtags" if tag == "runpath" else "--disable-new-dtags"
        command += [f"-Wl,{dtags},-rpath,{rpath}"]
    if needed:
        command += ["-x", "none", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
        command += [str(library) for library in needed]
    subprocess.run(command, input=source or "int marker;", text=True, check=True)
    return path


def stub(folder: Path, soname: str, source: str = "") -> Path:
    """A library to link against, so that its SONAME lands in DT_NEEDED; built once a folder."""
    path = folder / soname
    return path if path.exists() else build_library(path, source=source)
