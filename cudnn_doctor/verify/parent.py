"""Runs a job in a child process with a time limit and gathers what it says. Never dies with it."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from cudnn_doctor.interpreter import running
from cudnn_doctor.verify.causes import death_cause
from cudnn_doctor.verify.model import Death, Event, Job, StepResult

Progress = Callable[[str], None]
_LOG_END = 4000


class Outcome(NamedTuple):
    """What one child process gave."""

    steps: tuple[StepResult, ...]
    facts: dict[str, Any]
    death: Death | None


class _Listener:
    """Turns the child's lines into results."""

    def __init__(self, progress: Progress | None) -> None:
        self.steps: list[StepResult] = []
        self.facts: dict[str, Any] = {}
        self.doing: Event | None = None
        self._progress = progress
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(msgspec.json.decode(line, type=Event))

    def _take(self, event: Event) -> None:
        if event.event == "fact":
            self.facts |= event.data
        elif event.event == "begin":
            self.doing = event
            if self._progress:
                self._progress(f"{event.rung}: {event.step}")
        else:
            self.doing = None
            self.steps.append(
                StepResult(
                    rung=event.rung,
                    step=event.step,
                    status=event.status,
                    detail=event.detail,
                    seconds=event.seconds,
                    data=event.data,
                )
            )


def run_child(
    job: Job,
    *,
    environ: Mapping[str, str],
    timeout: float,
    progress: Progress | None = None,
    command: tuple[str, ...] = (),
) -> Outcome:
    """Run one job; a crash, a hang or garbage from the child is a `Death`, never an exception.

    ``timeout`` is in seconds for the whole child; ``command`` replaces the interpreter and module
    (for tests).
    """
    listener = _Listener(progress)
    read_end, write_end = os.pipe()
    argv = command or running("cudnn_doctor.verify.child")
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            [*argv, str(write_end)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
            env=dict(environ),
            start_new_session=True,
        )
        os.close(write_end)
        try:
            broken = _listen(child, job, read_end, listener, timeout)
        finally:
            os.close(read_end)
            _end(child)
        how = broken or _ending(child.returncode, in_a_step=listener.doing is not None)
        death = _death(how, job, listener, _tail(log)) if how else None
    return Outcome(tuple(listener.steps), listener.facts, death)


def _listen(
    child: subprocess.Popen[bytes], job: Job, pipe: int, listener: _Listener, timeout: float
) -> str:
    """Feed the job and read events until the end; why it was broken off, if it was."""
    deadline = time.monotonic() + timeout
    try:
        assert child.stdin is not None
        with child.stdin:
            child.stdin.write(msgspec.json.encode(job))
    except BrokenPipeError:
        pass  # it died at once; its status tells why
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                break
            data = os.read(pipe, 1 << 16)
            if not data:
                return _wait(child, max(left, 1.0), timeout)
            try:
                listener.feed(data)
            except msgspec.MsgspecError as error:
                return f"unreadable answer: {error}"
    return f"no answer for {timeout:g} s"


def _wait(child: subprocess.Popen[bytes], left: float, timeout: float) -> str:
    try:
        child.wait(left)
    except subprocess.TimeoutExpired:
        return f"no end for {timeout:g} s"
    return ""


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's own process group, whatever is left of it."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _ending(code: int, *, in_a_step: bool) -> str:
    """How it ended, empty for as it should: a library that ends the process in the middle of a
    step does so with any status."""
    if code == 0 and not in_a_step:
        return ""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _tail(log: Any) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _LOG_END))
    text: str = log.read().decode("utf-8", "replace")
    return text.strip()


def _death(how: str, job: Job, listener: _Listener, log: str) -> Death:
    """A child that never came to its first step fails its first rung."""
    doing = listener.doing
    first = "" if listener.steps else job.rungs[0]
    return Death(
        how=how,
        rung=doing.rung if doing else first,
        step=doing.step if doing else "",
        cause=death_cause(how, log, listener.facts),
        log=log,
    )
