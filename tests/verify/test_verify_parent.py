"""The parent of a child process: whatever the child does, an outcome comes back."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cudnn_doctor.verify.binding.library import mapped_files
from cudnn_doctor.verify.model import Copy, Job
from cudnn_doctor.verify.parent import Outcome, run_child

JOB = Job(copy=Copy(folder="/c", shim="libcudnn.so.9"), rungs=("load",))
BEGIN = """
import os, signal, sys, time
fd = int(sys.argv[1])
def say(line): os.write(fd, line.encode() + b"\\n")
say('{"event": "fact", "data": {"cudnn": 91900}}')
say('{"event": "begin", "rung": "convolve", "step": "one"}')
"""
END = """say('{"event": "end", "rung": "convolve", "step": "one", "status": "pass"}')\n"""


def child(script: str, timeout: float = 20.0) -> Outcome:
    return run_child(
        JOB, environ=os.environ, timeout=timeout, command=(sys.executable, "-c", BEGIN + script)
    )


def test_steps_and_facts_come_back() -> None:
    outcome = child(END)
    assert outcome.death is None
    assert outcome.facts == {"cudnn": 91900}
    assert [(s.rung, s.step, s.status) for s in outcome.steps] == [("convolve", "one", "pass")]


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGKILL"])
def test_a_signal_is_named_with_the_step_it_struck(name: str) -> None:
    death = child(f"os.kill(os.getpid(), signal.{name})").death
    assert death is not None
    assert (death.how, death.rung, death.step) == (name, "convolve", "one")
    assert death.cause


def test_between_steps_no_step_is_blamed() -> None:
    death = child(END + "os.abort()").death
    assert death is not None
    assert (death.how, death.step) == ("SIGABRT", "")


def test_a_hang_ends_at_the_limit_with_its_output() -> None:
    death = child("print('waiting', flush=True); time.sleep(60)", timeout=1.0).death
    assert death is not None
    assert (death.how, death.step, death.log) == ("no answer for 1 s", "one", "waiting")


def test_a_child_that_closes_its_pipe_and_lingers_is_ended_too() -> None:
    death = child("os.close(fd); time.sleep(60)", timeout=1.0).death
    assert death is not None
    assert death.how == "no end for 1 s"


def test_an_exit_status_and_garbage_are_deaths() -> None:
    death = child("sys.exit(3)").death
    assert death is not None
    assert death.how == "exit status 3"
    death = child("say('no JSON')").death
    assert death is not None
    assert death.how.startswith("unreadable answer")


def test_a_library_that_ends_the_process_in_a_step_does_not_pass() -> None:
    death = child("os._exit(0)").death
    assert death is not None
    assert (death.how, death.rung, death.step) == ("exit status 0", "convolve", "one")


def test_the_end_of_the_output_names_the_missing_library() -> None:
    log = "Unable to load any of {libcudnn_cnn.so.9.19.0, libcudnn_cnn.so.9}"
    death = child(f"print({log!r}, flush=True); os.abort()").death
    assert death is not None
    assert death.cause == "libcudnn_cnn.so.9.19.0 could not be loaded"
    assert death.log == log


def test_a_child_that_cannot_start_is_a_death() -> None:
    outcome = run_child(JOB, environ={}, timeout=5, command=("/bin/false",))
    assert outcome.death is not None
    assert (outcome.death.how, outcome.death.rung) == ("exit status 1", "load")


def test_nothing_is_imported_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cudnn_doctor", "msgspec", "ctypes"):
        (tmp_path / f"{name}.py").write_text("open('executed', 'w')")
    monkeypatch.chdir(tmp_path)
    outcome = run_child(JOB, environ=os.environ, timeout=20)
    assert outcome.steps
    assert not (tmp_path / "executed").exists()


def test_a_bare_chroot_tells_of_no_mapped_files(tmp_path: Path) -> None:
    assert mapped_files("libc", maps=str(tmp_path / "maps")) == []
    assert mapped_files("libc")
