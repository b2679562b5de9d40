"""Old state or new state, whatever happens on the way: kills, signals, servers, disks, two runs."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Redist
from support.cli import Cli, tree
from support.redist_server import RedistServer

import cudnn_doctor
from cudnn_doctor.cli import run
from cudnn_doctor.install.executor import recover
from cudnn_doctor.install.journal import Journal
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import State, exclusive


def run_and_die(cli: Cli, args: list[str], at: int, *, before: bool) -> int:
    """Run the command line in a fork that kills itself at the ``at``-th journal line, before or
    after that line is on the disk; returns the exit status, negative for a signal."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.environ.update(cli.environ)
        sys.argv = ["cudnn-doctor", *args]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        _die_at(at, before=before)
        run()
    except SystemExit as end:
        os._exit(int(end.code or 0))
    finally:
        os._exit(99)


def _die_at(at: int, *, before: bool) -> None:
    count, real = 0, Journal.note

    def note(self: Journal, line: str) -> None:
        nonlocal count
        count += 1
        if count == at and before:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, line)
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.note = note  # type: ignore[method-assign]


class Job:
    """One installation into ``base/p``, from the small redist tree."""

    def __init__(self, base: Path, redist: Redist, server: RedistServer) -> None:
        self.cli = Cli(base)
        self.prefix = base / "p"
        self.redist = redist
        self.server = server

    def args(self, version: str, *more: str | Path) -> list[str]:
        where = ("--prefix", self.prefix, "--matrix", self.redist.matrix)
        what = ("--version", version, "--cuda", "12", "--arch", "x86_64", "--source", "archive")
        return [*map(str, ("install", *what, *where, "--mirror", self.server.url, "--yes", *more))]

    def start(self, version: str, *more: str, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.cli.command(*self.args(version, *more)),
            env=self.cli.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )


@pytest.fixture
def job(tmp_path: Path, redist_tree: Redist, server: RedistServer) -> Job:
    return Job(tmp_path, redist_tree, server)


def settled(job: Job, old: dict[str, str]) -> bool:
    """Whether, after the next command, the new version is there; else all must be as before."""
    state = State(job.cli.base / "state", job.cli.base / "cache")
    with exclusive(state):
        recover(state, Silent())
    assert not state.journal.exists()
    now = tree(job.prefix)
    if now == old:
        return False
    assert now["current"] == "-> 9.10.2-cuda12"
    assert (job.prefix / "lib" / "libcudnn.so").resolve().name == "libcudnn.so.9.10.2"
    assert now.keys() >= old.keys()
    return True


@pytest.mark.parametrize("before", [True, False])
def test_a_kill_at_any_journal_line(
    tmp_path: Path, redist_tree: Redist, server: RedistServer, before: bool
) -> None:
    template = Job(tmp_path / "template", redist_tree, server)
    template.cli(*template.args("9.1.0"))
    outcomes = []
    for at in range(1, 60):
        job = Job(tmp_path / str(at), redist_tree, server)
        shutil.copytree(template.cli.base, job.cli.base, symlinks=True)
        old = tree(job.prefix)
        status = run_and_die(job.cli, job.args("9.10.2"), at, before=before)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        outcomes.append(settled(job, old))
    assert len(outcomes) > 10
    assert outcomes == sorted(outcomes)  # old states first, then (after the commit) new ones


def test_a_kill_while_it_downloads(job: Job) -> None:
    job.server.rate = 200_000
    running = job.start("9.10.2")
    while job.server.served < 100_000:
        time.sleep(0.01)
    running.kill()
    running.communicate()
    assert settled(job, {}) is False
    job.server.rate = 0
    job.cli(*job.args("9.10.2"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_undoes_everything(job: Job, number: signal.Signals) -> None:
    job.cli(*job.args("9.1.0"))
    old = tree(job.prefix)
    job.server.rate = 200_000
    served = job.server.served
    running = job.start("9.10.2")
    while job.server.served < served + 100_000:
        time.sleep(0.01)
    running.send_signal(number)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "interrupted" in errors
    assert tree(job.prefix) == old
    assert not (job.cli.base / "state" / "journal").exists()


def test_two_runs_at_once(job: Job) -> None:
    job.server.rate = 300_000
    first = job.start("9.10.2")
    while job.server.served < 50_000:
        time.sleep(0.01)
    refused = job.cli(*job.args("9.1.0"), code=5)
    assert f"process {first.pid}" in refused.stderr
    assert "--wait" in refused.stderr
    job.server.rate = 0
    job.cli(*job.args("9.1.0", "--wait", "60"))
    assert first.wait() == 0
    first.communicate()
    assert {p.name for p in job.prefix.glob("9.*")} == {"9.10.2-cuda12", "9.1.0-cuda12"}


@pytest.mark.parametrize(
    ("fault", "says"),
    [("404", "HTTP 404"), ("loop", "circle"), ("corrupt", "cannot unpack|not the file")],
)
def test_a_bad_server_changes_nothing(job: Job, fault: str, says: str) -> None:
    import re

    job.cli(*job.args("9.1.0"))
    old = tree(job.prefix)
    job.server.fault = fault
    errors = job.cli(*job.args("9.10.2"), code=5).stderr
    assert re.search(says, errors)
    assert "next: " in errors
    assert "Traceback" not in errors
    assert tree(job.prefix) == old


def test_a_copy_that_fails_verification_never_becomes_current(job: Job, tmp_path: Path) -> None:
    """The archive is whole and its hash right, but a library of the release is not in it."""
    job.cli(*job.args("9.1.0"))
    old = tree(job.prefix)
    text = job.redist.matrix.read_text()
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(text.replace("- libcudnn_ops.so.9", "- libcudnn_more.so.9"))
    errors = job.cli(*job.args("9.10.2", "--matrix", matrix), code=6).stderr
    assert "libcudnn_more.so.9" in errors
    assert tree(job.prefix) == old


def test_without_a_terminal_it_asks_for_yes(job: Job) -> None:
    args = [argument for argument in job.args("9.10.2") if argument != "--yes"]
    done = job.cli(*args, code=2)
    assert "--yes" in done.stderr and "--dry-run" in done.stderr
    assert not job.prefix.exists()


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--version", "7.7.7"), 4),
        (("--arch", "vax"), 2),
        (("--format", "poem"), 2),
        (("--frozen",), 2),
        (("--matrix", "/nonexistent.yaml"), 7),
        (("--archive", "/nonexistent.tar.xz"), 5),
    ],
)
def test_exit_codes(job: Job, more: tuple[str, ...], code: int) -> None:
    done = job.cli(*job.args("9.10.2", *more), code=code)
    assert "Traceback" not in done.stderr
    assert not job.prefix.exists()


# -- disks and rights


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("told", [True, False])
def test_no_space(job: Job, small_disk: Path, tmp_path: Path, told: bool) -> None:
    """Seen before anything is begun where sizes are known; undone where they are not."""
    job.prefix = small_disk / "p"
    matrix = tmp_path / "matrix.yaml"
    lines = job.redist.matrix.read_text().splitlines()
    matrix.write_text("\n".join(x for x in lines if told or "size:" not in x))
    (small_disk / "ballast").write_bytes(bytes(4040 << 10))
    errors = job.cli(*job.args("9.10.2", "--matrix", matrix), code=5).stderr
    assert ("not enough space" if told else "No space left") in errors
    assert not job.prefix.exists()
    assert job.server.requests == [] or not told


@pytest.mark.root
def test_no_space_for_the_download(job: Job, small_disk: Path) -> None:
    job.cli.environ["CUDNN_DOCTOR_CACHE"] = str(small_disk / "cache")
    (small_disk / "ballast").write_bytes(bytes(4040 << 10))
    errors = job.cli(*job.args("9.10.2"), code=5).stderr
    assert "not enough space" in errors and "CUDNN_DOCTOR_CACHE" in errors


@pytest.mark.root
def test_no_space_for_temporary_files(job: Job, small_disk: Path, tmp_path: Path) -> None:
    """pip puts a wheel there that it fetches."""
    job.cli.environ |= {"TMPDIR": str(small_disk), "PATH": str(pip_alone(tmp_path))}
    (small_disk / "ballast").write_bytes(bytes(4088 << 10))
    args = job.args("9.10.2", "--source", "wheel")
    at = args.index("--mirror")
    errors = job.cli(*args[:at], *args[at + 2 :], code=5).stderr
    assert "not enough space" in errors and "TMPDIR" in errors
    assert not job.prefix.exists()


@pytest.mark.parametrize("mirror", ["s3://bucket/redist", "http://[::1", "ftp://u:s3cret@host/"])
def test_a_mirror_that_is_none(job: Job, mirror: str) -> None:
    errors = job.cli(*job.args("9.10.2", "--mirror", mirror), code=2).stderr
    assert "--mirror" in errors and "s3cret" not in errors


def test_a_lock_that_cannot_be_written_is_known_beforehand(job: Job, tmp_path: Path) -> None:
    lock = tmp_path / "absent" / "cudnn.lock"
    errors = job.cli(*job.args("9.10.2", "--lock", str(lock)), code=5).stderr
    assert str(lock) in errors
    assert not job.prefix.exists()


def pip_alone(tmp_path: Path) -> Path:
    """A folder of programs in which pip is the only one that installs."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "pip3").write_text(f'#!/bin/sh\nexec {sys.executable} -m pip "$@"\n')
    (programs / "pip3").chmod(0o755)
    return programs


@pytest.mark.root
def test_a_read_only_target(job: Job, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    job.prefix = small_disk / "p"
    errors = job.cli(*job.args("9.10.2", "--matrix", job.redist.matrix), code=5).stderr
    assert "ead-only file system" in errors and "--prefix" in errors


@pytest.mark.root
def test_no_permission(job: Job, tmp_path: Path) -> None:
    """As nobody, in a fork: the modules are there before, for nobody may not read them."""
    for module in pkgutil.walk_packages(cudnn_doctor.__path__, "cudnn_doctor."):
        if module.name != "cudnn_doctor.__main__":
            importlib.import_module(module.name)
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        parent.chmod(parent.stat().st_mode | 0o055)
    for folder in ("state", "cache", "home"):
        (tmp_path / folder).mkdir()
        os.chown(tmp_path / folder, 65534, 65534)
    (tmp_path / "closed").mkdir(mode=0o755)
    job.prefix = tmp_path / "closed" / "p"
    matrix = shutil.copy(job.redist.matrix, tmp_path / "matrix.yaml")
    code, errors = as_nobody(job.cli, job.args("9.10.2", "--matrix", matrix))
    assert code == 5, errors
    assert "this needs root" in errors and "--sudo" in errors
    assert not list((tmp_path / "closed").iterdir())
    (tmp_path / "closed").chmod(0o700)
    assert as_nobody(job.cli, ["list", "--prefix", str(job.prefix)])[0] == 0
    job.cli.environ["CUDNN_DOCTOR_STATE"] = str(tmp_path / "closed")
    code, errors = as_nobody(job.cli, ["rollback", "--yes"])
    assert code == 5 and "cannot take this tool's lock" in errors


def as_nobody(cli: Cli, args: list[str]) -> tuple[int, str]:
    """Run the command line in a fork with the rights of nobody; exit code and stderr."""
    log = cli.base / "stderr"
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, log.read_text()
    try:
        sys.stdout = sys.stderr = log.open("w", buffering=1)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.environ.update(cli.environ)
        sys.argv = ["cudnn-doctor", *args]
        run()
    except SystemExit as end:
        sys.stderr.flush()
        os._exit(int(end.code or 0))
    finally:
        os._exit(99)
