"""Whether a copy that compiles kernels at run time can get at the NVRTC that it opens by name.

Without one its heuristics propose no run-time compiled engine, and no call fails: the operations
that have no other engine (attention, layer normalisation) are "not supported".
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

from cudnn_doctor.machine.opens import COMPANIONS, Release, companion_soname, tags
from cudnn_doctor.verify.model import Copy

_PART = "engines_runtime_compiled"
_OWN_COMPILER_SINCE: Release = (9, 24, 0)
"""From here on libcudnn_graph carries a compiler of its own: its strings hold
``cudnn_nvrtc_version``, and no file name of NVRTC. Measured on the wheels of 9.20.0 and 9.24.0."""
_COMPILES_SINCE = (8, 0)
"""Compute capability from which every release with the part proposes a run-time compiled engine for
a fp16 convolution; below it that is not known."""
_NVRTC = next(c for c in COMPANIONS if c.name.startswith("libnvrtc.") and _PART in c.by)


def missing(copy: Copy, release: Release, cuda: str, cc: tuple[int, int]) -> str:
    """Why run-time compilation is impossible, for a copy that proposes no engine which does it:
    what was looked for, where, and what brings it. Empty where NVRTC is not the cause.

    ``cuda`` is the copy's CUDA major, empty where it is not known. Opens NVRTC in this process, as
    the copy would.
    """
    ships = any(name.startswith(f"libcudnn_{_PART}.") for name in copy.libraries)
    name = companion_soname(_NVRTC, cuda)
    if not ships or not name or release >= _OWN_COMPILER_SINCE or cc < _COMPILES_SINCE:
        return ""
    folders = _folders(copy, release, cuda)
    errors = []
    for tried in (name, "libnvrtc.so"):
        error = _refusal(tried, folders)
        if not error:
            return ""
        errors.append(error)
    wheel = f"'nvidia-cuda-nvrtc=={cuda}.*'" if int(cuda) >= 13 else f"nvidia-cuda-nvrtc-cu{cuda}"
    return (
        "kernels cannot be compiled at run time: libnvrtc is missing or cannot be opened "
        f"({'; '.join(errors)}; looked for in LD_LIBRARY_PATH, {', '.join(folders)} and the "
        f"loader's own folders). In this copy's environment: python -m pip install {wheel}; "
        f"for a system's copy: NVRTC of the toolkit for CUDA {cuda}"
    )


def _folders(copy: Copy, release: Release, cuda: str) -> list[str]:
    """The folders of the DT_RUNPATH of the part that opens it."""
    runpath = tags(_PART, release, cuda).runpath or "$ORIGIN"
    return [os.path.normpath(p.replace("$ORIGIN", copy.folder)) for p in runpath.split(":")]


def _refusal(name: str, folders: list[str]) -> str:
    """The loader's error; empty where it opens. Like the loader, goes on behind a place where there
    is no such file, and not behind a file that it cannot use."""
    for path in _places(name, folders):
        try:
            ctypes.CDLL(path)
        except OSError as error:
            if "No such file" not in str(error):
                return str(error)
            continue
        return ""
    return f"{name}: no such file"


def _places(name: str, folders: list[str]) -> Iterator[str]:
    yield name  # LD_LIBRARY_PATH, the cache, the default folders
    yield from (os.path.join(folder, name) for folder in folders)
