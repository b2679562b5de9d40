"""Verify a new copy as far as this machine allows, before it becomes the current one.

The first rung looks at the files: all sublibraries of the release, whole, for one architecture,
no link that leads nowhere. The second opens them in a child process and asks the version. A CUDA
library or driver that is absent here is no fault of the copy: a prefix may be filled before CUDA
is.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.plan import Prove
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.machine.elf import read_elf
from cudnn_doctor.versions import CudnnVersion

_SECONDS = 120.0
_LIBRARY = re.compile(r"libcudnn\w*\.so\.\d+")
_MISSING = re.compile(r"(\S+?\.so[.\d]*): cannot open shared object file")

_CHILD = """
import ctypes, sys
def tell(text):
    print(text, flush=True)
for path in sys.argv[1:]:
    tell("open " + path)
    try:
        library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    except OSError as error:
        tell("failed " + str(error))
        continue
    if path.rpartition("/")[2].startswith("libcudnn.so"):
        shim = library
tell("ask cudnnGetVersion")
shim.cudnnGetVersion.restype = ctypes.c_size_t
tell("version " + str(shim.cudnnGetVersion()))
"""


def prove(step: Prove, progress: Progress) -> None:
    """Raise DoctorError (VERIFICATION_FAILED) when the copy in ``step.folder`` is not sound."""
    step = _located(step)
    libraries = _check_files(step)
    if step.rungs == "files":
        return
    machine = read_elf(str(libraries[0])).machine
    if machine != platform.machine():
        progress.say(f"not loaded: the libraries are for {machine}, this is {platform.machine()}")
        return
    _load(step, libraries, progress)


def _located(step: Prove) -> Prove:
    """The step with its folder: the one in which its package put libcudnn.so.N."""
    if not step.listing:
        return step
    done = subprocess.run(step.listing, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        folder, _, name = line.strip().rpartition("/")
        if name.startswith("libcudnn.so."):
            return Prove(
                folder=folder, version=step.version, sonames=step.sonames, rungs=step.rungs
            )
    raise _fault("its package holds no libcudnn.so", step)


def _check_files(step: Prove) -> list[Path]:
    folder = Path(step.folder)
    major = step.version.partition(".")[0]
    found = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    names = [name for name in found if name.startswith("libcudnn")]
    for name in names:
        path = folder / name
        if path.is_symlink() and not path.exists():
            raise _fault(f"the link {name} leads nowhere ({os.readlink(path)})", step)
    present = [n for n in names if _LIBRARY.fullmatch(n) and n.endswith(f".{major}")]
    missing = sorted(set(step.sonames) - set(present))
    if missing or not any(name.startswith("libcudnn.so.") for name in present):
        raise _fault(f"libraries are missing: {', '.join(missing) or 'libcudnn.so'}", step)
    machines = set()
    for name in present:
        elf = read_elf(str(folder / name))
        if elf.status != "ok":
            raise _fault(f"{name} is {elf.status}", step)
        if elf.soname not in (None, name):
            raise _fault(f"{name} calls itself {elf.soname}", step)
        machines.add(elf.machine)
    if len(machines) > 1:
        raise _fault(f"libraries of several architectures: {machines}", step)
    present.sort(key=lambda name: (not name.startswith("libcudnn.so."), name))
    return [folder / name for name in present]


def _load(step: Prove, libraries: list[Path], progress: Progress) -> None:
    """Open all libraries in a child, the shim last: it aborts where a sublibrary is absent."""
    argv = [sys.executable, "-I", "-c", _CHILD, *map(str, (*libraries[1:], libraries[0]))]
    try:
        child = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C", "LD_LIBRARY_PATH": step.folder},
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _fault(f"loading it took longer than {_SECONDS:g} s", step) from error
    lines = child.stdout.decode("utf-8", "replace").splitlines()
    outside = _judge_failures(lines, step)
    if child.returncode:
        last = next((line for line in reversed(lines) if line.startswith(("open", "ask"))), "start")
        if outside:
            progress.say(f"not loaded whole: {', '.join(sorted(outside))} cannot be found here")
            return
        raise _fault(f"the process died at: {last} (exit {child.returncode})", step)
    number = next((line.split()[1] for line in lines if line.startswith("version ")), "0")
    found = CudnnVersion.decode(int(number))
    if found.release != CudnnVersion.parse(step.version).release:
        raise _fault(f"it says that it is cuDNN {found.short}, not {step.version}", step)
    if outside:
        progress.say(f"loaded as far as possible: no {', '.join(sorted(outside))} here")
    else:
        progress.say(f"loaded: cuDNN {found.short}, {len(libraries)} libraries")


def _judge_failures(lines: list[str], step: Prove) -> set[str]:
    """Libraries of CUDA or the driver that are absent; any other failure is a fault."""
    outside = set()
    for line in lines:
        if not line.startswith("failed "):
            continue
        match = _MISSING.search(line)
        if match is None or "libcudnn" in match[1]:
            raise _fault(line.removeprefix("failed "), step)
        outside.add(match[1])
    return outside


def _fault(what: str, step: Prove) -> DoctorError:
    return DoctorError(
        f"the new copy failed verification: {what}",
        where=step.folder,
        next_step="nothing was changed; fetch it anew (`cudnn-doctor cache clear`) or choose "
        "another --version",
        exit_code=ExitCode.VERIFICATION_FAILED,
    )
