"""The proof of the simulation: cuDNN really opened, in a child process with a time limit.

The child says what it is about to do before it does it, so that a death by signal (a missing
sublibrary aborts the process, a truncated one kills it by SIGBUS) still tells where.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from cudnn_doctor.errors import DoctorError
from cudnn_doctor.machine.consumers import PLAIN, PROGRAM
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.loads import Consumer, Traced
from cudnn_doctor.machine.model import Environment
from cudnn_doctor.machine.names import soname
from cudnn_doctor.versions import CudnnVersion

_CHILD = Path(__file__).with_name("trace_child.py")
_MAX_ERROR = 500
FRAMEWORK_SECONDS = 120.0
"""Importing TensorFlow from a cold network disk takes a minute."""
LIBRARY_SECONDS = 30.0


def trace(
    host: Host,
    consumer: Consumer,
    environments: tuple[Environment, ...] = (),
    *,
    environ: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Traced:
    """Make a consumer load cuDNN and tell what got mapped.

    Raises DoctorError where nothing can be run: under ``--root``, for a native program, or for an
    environment without an interpreter.
    """
    _must_be_live(host)
    if consumer.scheme == PROGRAM:
        raise DoctorError(
            "a native program is not run to trace it",
            where=consumer.name,
            next_step="run it with LD_DEBUG=libs, or name one of its libraries' frameworks",
        )
    env = dict(host.environ if environ is None else environ)
    if consumer.scheme == PLAIN:
        name = soname("", consumer.major)
        return _told(consumer, _run([sys.executable], "library", name, env, timeout or 30.0))
    python = next((e.executable for e in environments if e.prefix == consumer.environment), None)
    if python is None:
        raise DoctorError(
            f"the interpreter of {consumer.name}'s environment was not found",
            where=consumer.environment,
            next_step="name it with --python",
        )
    heard = _run([python], "framework", consumer.name, env, timeout or FRAMEWORK_SECONDS)
    return _told(consumer, heard)


def trace_library(
    host: Host,
    path: str,
    *,
    environ: Mapping[str, str] | None = None,
    timeout: float = LIBRARY_SECONDS,
) -> Traced:
    """Open one named shim and let it open its sublibraries. Raises DoctorError under ``--root``."""
    _must_be_live(host)
    env = dict(host.environ if environ is None else environ)
    consumer = Consumer(name=path, scheme=PLAIN)
    return _told(consumer, _run([sys.executable], "library", path, env, timeout))


def ask_version(host: Host, path: str, *, timeout: float = LIBRARY_SECONDS) -> str | None:
    """The release that the shim at ``path`` reports with the sublibraries that it opens by
    itself (LD_LIBRARY_PATH and LD_PRELOAD are left out); None when it cannot be asked."""
    if not host.live:
        return None
    quiet = {k: v for k, v in host.environ.items() if k not in {"LD_LIBRARY_PATH", "LD_PRELOAD"}}
    version = trace_library(host, path, environ=quiet, timeout=timeout).version
    return CudnnVersion.decode(version).short if version else None


def _must_be_live(host: Host) -> None:
    if not host.live:
        raise DoctorError(
            "nothing is run in a mounted root file system",
            where=host.root,
            next_step="run cudnn-doctor inside it, or leave out --trace",
        )


class _Line(msgspec.Struct):
    """One line of the child."""

    step: str | None = None
    mapped: tuple[str, ...] | None = None
    version: int | None = None
    error: str | None = None
    done: bool = False


class _Heard(NamedTuple):
    mapped: tuple[str, ...]
    version: int | None
    error: str


def _run(
    python: list[str], mode: str, name: str, environ: Mapping[str, str], timeout: float
) -> _Heard:
    """Run the child and put its lines together with the way in which it ended."""
    with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as messages:
        argv = [*python, str(_CHILD), str(answers.fileno()), mode, name]
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                env=dict(environ),
                pass_fds=[answers.fileno()],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return _Heard((), None, f"{python[0]} cannot be run: {error}")
        try:
            code: int | None = child.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        answers.seek(0)
        messages.seek(0)
        return _heard(answers.read(), messages.read(), code, timeout)


def _heard(answers: bytes, messages: bytes, code: int | None, timeout: float) -> _Heard:
    mapped: tuple[str, ...] = ()
    version, error, step, done = None, "", "start", False
    for raw in answers.splitlines():
        try:
            line = msgspec.json.decode(raw, type=_Line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        step = line.step or step
        mapped = mapped if line.mapped is None else line.mapped
        version = version if line.version is None else line.version
        error = line.error or error
        done = done or line.done
    if not done and not error:
        how = f"took more than {timeout:.0f} s" if code is None else _death(code)
        tail = " ".join(messages.decode("utf-8", "replace").split())[-_MAX_ERROR:]
        error = f"{how} at: {step}" + (f" ({tail})" if tail else "")
    return _Heard(mapped, version, error)


def _death(code: int) -> str:
    if code < 0:
        try:
            return f"died of {signal.Signals(-code).name}"
        except ValueError:
            return f"died of signal {-code}"
    return f"ended with code {code}"


def _told(consumer: Consumer, heard: _Heard) -> Traced:
    return Traced(
        consumer=consumer,
        ok=not heard.error,
        mapped=heard.mapped,
        version=heard.version,
        error=heard.error,
    )
