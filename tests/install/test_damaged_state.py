"""A state folder that somebody damaged ends in a documented code, never in a traceback."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Redist
from support.cli import Cli, tree

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install import executor
from cudnn_doctor.install.journal import Journal
from cudnn_doctor.install.plan import FromIndex, MakeFolder, Plan, Run, WriteFile
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import State, exclusive


@pytest.fixture
def state(tmp_path: Path) -> State:
    found = State(tmp_path / "state", tmp_path / "cache")
    found.folder.mkdir()
    return found


def written(base: Path) -> Plan:
    """A plan of two files."""
    steps = tuple(WriteFile(path=str(base / name), content=name) for name in ("one", "two"))
    return Plan(action="fix", method="wheel", version="", cuda="", target=str(base), steps=steps)


def interrupted(state: State, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the journal of a run that was killed after its first step."""
    with monkeypatch.context() as patched:

        def die(*_: object) -> None:
            raise SystemExit

        patched.setattr(executor, "_undo_all", lambda *_: None)
        patched.setitem(executor._DO, Run, die)
        patched.setattr(executor, "run", die)
        steps = (*written(base).steps[:1], Run(argv=("true",)))
        plan = Plan(action="fix", method="wheel", version="", cuda="", target="t", steps=steps)
        with pytest.raises(SystemExit):
            executor.execute(plan, state, Silent())


PLACES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("elsewhere"),
    "file": lambda path: path.write_text("text"),
}


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_a_lock_that_is_none(state: State, tmp_path: Path, kind: str) -> None:
    PLACES[kind](state.folder / "lock")
    with pytest.raises(DoctorError, match="lock") as caught:
        executor.execute(written(tmp_path), state, Silent())
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert caught.value.where == str(state.folder / "lock")


@pytest.mark.parametrize("kind", ["pipe", "link", "file"])
def test_a_journal_that_is_none(state: State, tmp_path: Path, kind: str) -> None:
    PLACES[kind](state.journal)
    with pytest.raises(DoctorError, match="no journal") as caught:
        executor.execute(written(tmp_path), state, Silent())
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("line", ["begin x", "begin", "begin -1", "begin 99", "what", "begin ²"])
def test_nothing_is_undone_on_the_word_of_a_damaged_log(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    interrupted(state, tmp_path, monkeypatch)
    log = state.journal / "log"
    whole = log.read_text()
    log.write_text(f"{whole}{line}\n")
    with pytest.raises(DoctorError, match="log") as caught:
        executor.execute(written(tmp_path), state, Silent())
    assert caught.value.exit_code == ExitCode.UNFINISHED
    assert (tmp_path / "one").exists()
    log.write_text(whole)
    with exclusive(state):
        assert executor.recover(state, Silent())
    assert not (tmp_path / "one").exists()


def test_a_step_is_undone_once(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(state, tmp_path, monkeypatch)
    (state.journal / "log").write_text("begin 0\n" * 100_000 + "undone 1\n")
    with exclusive(state):
        assert executor.recover(state, Silent())
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"[" * 100_000, b'{"x": ' + b"[" * 100_000, b"\xff\xfe{}"]
)
def test_a_damaged_plan_is_unfinished(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    interrupted(state, tmp_path, monkeypatch)
    (state.journal / "plan.json").write_bytes(text)
    with pytest.raises(DoctorError, match="cannot be read") as caught:
        executor.execute(written(tmp_path), state, Silent())
    assert caught.value.exit_code == ExitCode.UNFINISHED
    assert (tmp_path / "one").exists()


@pytest.mark.parametrize("name", ["../../escaped", "", "/etc/x", "20260101T000000Z-0/../x"])
def test_a_receipt_never_leaves_its_folder(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    interrupted(state, tmp_path, monkeypatch)
    (state.journal / "receipt").write_text(name)
    with (state.journal / "log").open("a") as log:
        log.write("commit\n")
    with exclusive(state):
        executor.recover(state, Silent())
    (receipt,) = state.receipts.iterdir()
    assert receipt.name[8] == "T" and (receipt / "plan.json").is_file()


@pytest.mark.parametrize("limit", [10, 200])
def test_a_state_folder_that_cannot_be_written(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """What the disk refuses at the log: nothing changed, or unfinished until it can be written."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(DoctorError) as caught:
            executor.execute(written(tmp_path), state, Silent())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert not (tmp_path / "one").exists()
    assert not list(state.folder.glob("journal*"))


def test_an_undo_that_cannot_be_logged_is_unfinished(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(state, tmp_path, monkeypatch)
    with monkeypatch.context() as patched:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr("cudnn_doctor.install.journal.Journal.note", full)
        with pytest.raises(DoctorError) as caught:
            executor.execute(written(tmp_path), state, Silent())
    assert caught.value.exit_code == ExitCode.UNFINISHED
    executor.execute(written(tmp_path), state, Silent())
    assert (tmp_path / "one").read_text() == "one"


@pytest.mark.parametrize("mask", [0o077, 0o000])
def test_what_root_makes_is_for_all_to_read_and_its_records_for_root_alone(
    cli: Cli, redist_tree: Redist, tmp_path: Path, mask: int
) -> None:
    what = ("--version", "9.10.2", "--cuda", "12", "--arch", "x86_64", "--source", "archive")
    where = ("--matrix", redist_tree.matrix, "--mirror", str(redist_tree.root))
    old = os.umask(mask)
    try:
        cli("install", *what, *where, "--prefix", tmp_path / "p", "--yes")
    finally:
        os.umask(old)
    modes = {p: stat.S_IMODE(p.lstat().st_mode) for p in tmp_path.rglob("*") if not p.is_symlink()}
    assert not [p for p, mode in modes.items() if mode & 0o002]
    (receipt,) = (tmp_path / "state/receipts").iterdir()
    assert modes[receipt / "plan.json"] == 0o600
    assert modes[receipt / "saved"] == 0o700
    if os.geteuid() == 0:
        installed = {p: m for p, m in modes.items() if tmp_path / "p" in p.parents}
        assert installed and not [p for p, mode in installed.items() if not mode & 0o004]


def test_damaged_receipts_are_told_and_passed_over(
    cli: Cli, redist_tree: Redist, tmp_path: Path
) -> None:
    what = ("--cuda", "12", "--arch", "x86_64", "--source", "archive", "--prefix", tmp_path / "p")
    where = ("--matrix", redist_tree.matrix, "--mirror", str(redist_tree.root), "--yes")
    cli("install", "--version", "9.1.0", *what, *where)
    before = tree(tmp_path / "p")
    cli("install", "--version", "9.10.2", *what, *where)
    receipts = tmp_path / "state/receipts"
    (receipts / "README").write_text("stray")
    (receipts / ".nfs0001").mkdir()
    (receipts / "20200101T000000Z-00").mkdir()
    (receipts / "20200101T000000Z-01").mkdir()
    (receipts / "20200101T000000Z-01/plan.json").write_text('{"action": 3}')
    listed = cli("list")
    assert "9.10.2-cuda12" in listed.stdout
    assert listed.stderr.count("20200101T000000Z") == 2
    assert "README" not in listed.stderr
    cli("use", "9.1.0", "--prefix", tmp_path / "p", "--yes")
    cli("rollback", "--yes")
    (receipts / "20990101T000000Z-00").mkdir()
    refused = cli("rollback", "--yes", code=7).stderr
    assert "20990101T000000Z-00" in refused and "next: " in refused
    (receipts / "20990101T000000Z-00").rmdir()
    cli("rollback", "--yes")
    assert tree(tmp_path / "p") == before


def test_receipts_are_in_order_though_the_clock_is_not(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = ("20991231T235959Z-99", "20991231T235959Z-07")
    for name in later:
        (state.receipts / name).mkdir(parents=True)
    (state.receipts / "README").write_text("stray")
    names = [executor.execute(written(tmp_path), state, Silent()).name for _ in range(2)]
    assert names == ["21000101T000000Z-00", "21000101T000000Z-01"]


def test_a_state_folder_that_holds_other_things(state: State, tmp_path: Path) -> None:
    (state.folder / "journal.md").write_text("mine")
    executor.execute(written(tmp_path), state, Silent())
    assert (state.folder / "journal.md").read_text() == "mine"
    state.journal.mkdir()
    (state.journal / "diary").write_text("mine")
    with pytest.raises(DoctorError, match="no journal"):
        executor.execute(written(tmp_path), state, Silent())
    assert (state.journal / "diary").read_text() == "mine"


@pytest.fixture
def hangups() -> Iterator[None]:
    """Let a hang-up stop the run although the tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("at", ["begin 0", "done 0", "begin 1", "done 1", "undone 0", "commit"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_ends_in_the_old_or_the_new_state(
    state: State,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    at: str,
    times: int,
) -> None:
    note = Journal.note

    def stopped(journal: Journal, line: str) -> None:
        note(journal, line)
        for _ in range(times if line == at else 0):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Journal, "note", stopped)
    try:
        executor.execute(written(tmp_path), state, Silent())
    except KeyboardInterrupt:
        assert not (tmp_path / "one").exists() and not (tmp_path / "two").exists()
    else:
        assert at in ("done 1", "undone 0", "commit")
        assert (tmp_path / "two").exists()
    assert not state.journal.exists()


def test_a_torn_line_is_written_over(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(state, tmp_path, monkeypatch)
    with (state.journal / "log").open("a") as log:
        log.write("beg")
    with exclusive(state):
        executor.recover(state, Silent())
    assert not (tmp_path / "one").exists()


def test_the_cache_is_cleared_of_its_own_files_alone(cli: Cli, tmp_path: Path) -> None:
    files = tmp_path / "cache/files"
    files.mkdir(parents=True)
    (files / "thesis.pdf").write_text("mine")
    (files / ("0" * 64)).symlink_to("nowhere")
    assert len(cli.json("cache", "list")["files"]) == 1
    cli("cache", "clear")
    assert [path.name for path in files.iterdir()] == ["thesis.pdf"]


def test_an_undo_that_removes_nothing_is_unfinished(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be removed any more, as after a remount."""

    def fill(step: FromIndex) -> None:
        Path(step.staging).mkdir()
        raise OSError(5, "Input/output error")

    def refuse(path: str) -> None:
        raise OSError(30, "Read-only file system", path)

    steps = (FromIndex(argv=("true",), requirement="x", staging=str(tmp_path / "staged")),)
    plan = Plan(action="install", method="wheel", version="", cuda="", target="t", steps=steps)
    monkeypatch.setattr("cudnn_doctor.install.wheels.fromindex.fill", fill)
    with monkeypatch.context() as patched, pytest.raises(DoctorError) as caught:
        patched.setattr("shutil.rmtree", refuse)
        executor.execute(plan, state, Silent())
    assert caught.value.exit_code == ExitCode.UNFINISHED
    with exclusive(state):
        assert executor.recover(state, Silent())
    assert not (tmp_path / "staged").exists()


def test_a_change_that_cannot_be_recorded_is_unfinished(state: State, tmp_path: Path) -> None:
    made = tmp_path / "made"
    steps = (MakeFolder(title="", path=str(made)),)
    plan = Plan(action="install", method="wheel", version="", cuda="", target="t", steps=steps)
    state.folder.mkdir(parents=True, exist_ok=True)
    state.receipts.write_text("no folder")
    with pytest.raises(DoctorError) as caught:
        executor.execute(plan, state, Silent())
    assert made.is_dir() and caught.value.exit_code == ExitCode.UNFINISHED
    state.receipts.unlink()
    with exclusive(state):
        assert executor.recover(state, Silent())
    assert len(list(state.receipts.iterdir())) == 1


def test_a_step_that_did_nothing_on_a_read_only_file_system_is_undone(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, unlinking what is absent is refused as well."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    steps = (WriteFile(title="", path=str(tmp_path / "file"), content="x"),)
    plan = Plan(action="install", method="wheel", version="", cuda="", target="t", steps=steps)
    with monkeypatch.context() as patched, pytest.raises(DoctorError) as caught:
        patched.setattr("cudnn_doctor.install.files._replace_file", refuse)
        unlink = os.unlink
        patched.setattr(
            os,
            "unlink",
            lambda path, **k: refuse() if "cudnn-doctor-new" in str(path) else unlink(path, **k),
        )
        executor.execute(plan, state, Silent())
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED


def test_a_cache_that_cannot_be_cleared_is_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "cache/files").mkdir(parents=True)
    mine = tmp_path / "cache/files" / ("0" * 64)
    mine.write_text("x")
    code = "import os, sys; from cudnn_doctor.__main__ import main\n"
    code += "def refuse(*_, **__): raise OSError(30, 'Read-only file system')\n"
    code += "os.unlink = refuse; sys.argv = ['cudnn-doctor', 'cache', 'clear']; main()"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=cli.environ, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.NOTHING_CHANGED and "Traceback" not in done.stderr
    assert "Read-only file system" in done.stderr and mine.exists()
