"""Verify a new copy as far as this machine allows, before it becomes the current one.

`verify` does it: the files, then opening them in a child process, and where a GPU is, work on it. A
CUDA library or driver that is absent here is no fault of the copy: a prefix may be filled before
CUDA is.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

import msgspec

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.plan import Prove
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.libraries import read_program
from cudnn_doctor.machine.model import LoaderConfig
from cudnn_doctor.matrix.load import load
from cudnn_doctor.verify import files
from cudnn_doctor.verify.choose import Chosen, from_folder
from cudnn_doctor.verify.model import StepResult, Target, Verdict
from cudnn_doctor.verify.prove import Options
from cudnn_doctor.verify.prove import prove as prove_copy

_ABSENT = re.compile(r"(\S+?\.so[.\d]*): cannot open shared object file")


def prove(step: Prove, progress: Progress) -> None:
    """Raise DoctorError (VERIFICATION_FAILED) when the copy in ``step.folder`` is not sound."""
    step = _located(step)
    chosen = _chosen(step)
    for result in files.judge(chosen.copy, chosen.libraries, step.sonames or None):
        if result.status == "fail":
            raise _fault(result.detail, step)
    machine = next((lib.machine for lib in chosen.libraries if lib.machine), None)
    if step.rungs == "files":
        return
    if machine != platform.machine():
        progress.say(f"not loaded: the libraries are for {machine}, this is {platform.machine()}")
        return
    options = Options(level="quick", expected=step.sonames or None)
    progress.say(_judged(prove_copy(chosen, Target(), options, load(None), os.environ), step))


def _located(step: Prove) -> Prove:
    """The step with its folder: the one in which its package put libcudnn.so.N."""
    if not step.listing:
        return step
    done = subprocess.run(step.listing, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        folder, _, name = line.strip().rpartition("/")
        if name.startswith("libcudnn.so."):
            return msgspec.structs.replace(step, folder=folder, listing=())
    raise _fault("its package holds no libcudnn.so", step)


def _chosen(step: Prove) -> Chosen:
    """The copy, as `verify` wants it told."""
    folder = os.path.realpath(step.folder)
    shim = f"{folder}/libcudnn.so.{step.version.partition('.')[0]}"
    libraries = read_program(Host(), shim, LoaderConfig()) if Path(shim).exists() else ()
    try:
        return from_folder(folder, libraries, label=f"cuDNN {step.version}", version=step.version)
    except DoctorError as error:
        raise _fault(error.what, step) from error


def _judged(verdict: Verdict, step: Prove) -> str:
    """What to say of a sound copy; raises for one that is not."""
    failed = [result for result in verdict.steps if result.status == "fail"]
    absent = sorted({name for result in failed for name in _absent(result)})
    real = [result.detail for result in failed if not _absent(result)]
    real += [f"the process ended at {d.step} ({d.how}) {d.cause}".strip() for d in verdict.deaths]
    if verdict.failed and not absent:
        raise _fault("; ".join(real), step)
    if absent:
        return f"not loaded whole: {', '.join(absent)} cannot be found here"
    count = len(verdict.copy.libraries)
    told = f"loaded: cuDNN {'.'.join(step.version.split('.')[:3])}, {count} libraries"
    worked = [rung for rung in verdict.rungs if rung.name == "convolve" and rung.status == "pass"]
    return f"{told}; it computes right on {verdict.gpu}" if worked else told


def _absent(result: StepResult) -> list[str]:
    """Libraries, not cuDNN's own, for want of which a step failed."""
    return [name for name in _ABSENT.findall(result.detail) if "libcudnn" not in name]


def _fault(what: str, step: Prove) -> DoctorError:
    return DoctorError(
        f"the new copy failed verification: {what}",
        where=step.folder,
        next_step="nothing was changed; fetch it anew (`cudnn-doctor cache clear`) or choose "
        "another --version",
        exit_code=ExitCode.VERIFICATION_FAILED,
    )
