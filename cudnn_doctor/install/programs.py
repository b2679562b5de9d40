"""Run the programs of a plan: without a shell, in English, and with this tool's lock to inherit."""

from __future__ import annotations

import os
import subprocess

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install.plan import Run
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.install.state import held
from cudnn_doctor.interpreter import apart


def run(step: Run, progress: Progress) -> None:
    """Run the step's program; its output goes to the progress.

    Raises DoctorError (NOTHING_CHANGED) where it fails, unless the step may.
    """
    try:
        done = subprocess.run(
            apart(step.argv),
            input=step.stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C", **step.environ},
            pass_fds=held(),
            check=False,
        )
    except OSError as error:
        raise NothingChanged(
            f"cannot run {step.argv[0]}: {os.strerror(error.errno or 0)}",
            where=" ".join(step.argv),
            next_step=f"install {os.path.basename(step.argv[0])} or choose another --method",
        ) from error
    output = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode and not step.may_fail:
        tail = "\n".join(output.splitlines()[-15:])
        raise NothingChanged(
            f"{os.path.basename(step.argv[0])} failed (exit {done.returncode}):\n{tail}",
            where=" ".join(step.argv),
            next_step="run `cudnn-doctor explain` on this output for the cause",
        )
    if output and not step.quiet:
        progress.say(output)
