"""Old state or new state, never between: failures and kills at every journal line."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install import executor, folders, manifest
from cudnn_doctor.install.plan import (
    GuardPackages,
    MakeFolder,
    MoveTree,
    Plan,
    RemoveTree,
    Run,
    SwitchLink,
    WriteFile,
)
from cudnn_doctor.install.state import State, exclusive
from cudnn_doctor.install.wheels import fromindex


class Silent:
    def step(self, number: int, total: int, step: object) -> None: ...
    def bytes(self, done: int, total: int | None) -> None: ...

    def ended(self) -> None: ...
    def say(self, text: str) -> None: ...


def tree(folder: Path) -> dict[str, str]:
    """Everything under a folder: path -> contents, link text or '/'."""
    seen: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            seen[name] = f"-> {os.readlink(path)}"
        elif path.is_dir():
            seen[name] = "/"
        else:
            seen[name] = path.read_text()
    return seen


def old_world(base: Path) -> Path:
    prefix = base / "prefix"
    (prefix / "9.1.0").mkdir(parents=True)
    (prefix / "9.1.0" / "lib").write_text("old")
    manifest.write(prefix / "9.1.0", {})
    (prefix / "current").symlink_to("9.1.0")
    (prefix / "env.sh").write_text("old env")
    (base / "staged").mkdir()
    (base / "staged" / "lib").write_text("new")
    return prefix


def a_plan(base: Path, *extra: object) -> Plan:
    prefix = base / "prefix"
    return Plan(
        action="install",
        method="tarball",
        version="9.10.2.21",
        cuda="12",
        target=str(prefix),
        steps=(
            MakeFolder(path=str(prefix / "a" / "b")),
            MoveTree(source=str(base / "staged"), target=str(prefix / "9.10.2")),
            WriteFile(path=str(prefix / "env.sh"), content="new env"),
            WriteFile(path=str(prefix / "cudnn.pc"), content="pc"),
            RemoveTree(path=str(prefix / "9.1.0")),
            SwitchLink(path=str(prefix / "current"), target="9.10.2"),
            SwitchLink(path=str(prefix / "lib"), target="current/lib"),
            *extra,  # type: ignore[arg-type]
        ),
    )


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state", tmp_path / "cache")


def test_a_plan_leads_to_the_new_state_and_a_receipt(tmp_path: Path, state: State) -> None:
    prefix = old_world(tmp_path)
    receipt = executor.execute(a_plan(tmp_path), state, Silent())
    assert tree(prefix) == {
        "9.10.2": "/",
        "9.10.2/lib": "new",
        "a": "/",
        "a/b": "/",
        "cudnn.pc": "pc",
        "current": "-> 9.10.2",
        "env.sh": "new env",
        "lib": "-> current/lib",
    }
    assert (receipt / "plan.json").is_file()
    assert not state.journal.exists()


def test_a_failing_step_brings_everything_back(tmp_path: Path, state: State) -> None:
    prefix = old_world(tmp_path)
    before = tree(prefix)
    plan = a_plan(tmp_path, Run(argv=(sys.executable, "-c", "raise SystemExit('no luck')")))
    with pytest.raises(DoctorError, match="no luck") as caught:
        executor.execute(plan, state, Silent())
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert tree(prefix) == before
    assert not state.journal.exists()


def test_what_stands_in_the_way_is_not_replaced(tmp_path: Path, state: State) -> None:
    prefix = old_world(tmp_path)
    (prefix / "9.10.2").mkdir()
    (prefix / "9.10.2" / "mine").write_text("mine")
    before = tree(prefix)
    with pytest.raises(DoctorError, match="already there"):
        executor.execute(a_plan(tmp_path), state, Silent())
    assert tree(prefix) == before


KILLER = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_executor import Silent, a_plan
from cudnn_doctor.install import executor, journal
from cudnn_doctor.install.state import State
count, real = 0, journal.Journal.note
def note(self, line):
    global count
    count += 1
    if count == {at} and {before}:
        os.kill(os.getpid(), signal.SIGKILL)
    real(self, line)
    if count == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
journal.Journal.note = note
base = Path({base!r})
executor.execute(a_plan(base), State(base / "state", base / "cache"), Silent())
"""


@pytest.mark.parametrize("before", [True, False])
def test_a_kill_at_any_journal_line_ends_in_the_old_or_the_new_state(
    tmp_path: Path, before: bool
) -> None:
    reached_end = False
    for at in range(1, 40):
        base = tmp_path / str(at)
        base.mkdir()
        prefix = old_world(base)
        old = tree(prefix)
        script = textwrap.dedent(KILLER).format(
            tests=str(Path(__file__).parent), at=at, before=before, base=str(base)
        )
        code = subprocess.run([sys.executable, "-c", script], check=False).returncode
        state = State(base / "state", base / "cache")
        with exclusive(state):
            executor.recover(state, Silent())
        now = tree(prefix)
        assert not state.journal.exists()
        if code == 0:
            reached_end = True
            break
        assert code == -signal.SIGKILL
        committed = any(state.receipts.glob("*"))
        if committed:
            assert now["current"] == "-> 9.10.2"
            assert "9.1.0" not in now
        else:
            assert now == old
    assert reached_end


def test_a_second_run_says_that_the_first_is_busy(tmp_path: Path, state: State) -> None:
    old_world(tmp_path)
    with exclusive(state), pytest.raises(DoctorError, match=f"process {os.getpid()}"):
        executor.execute(a_plan(tmp_path), state, Silent())


def test_a_run_that_waits_goes_on_when_the_other_ends(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.folder.mkdir(parents=True)
    other = os.open(state.folder / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)
    monkeypatch.setattr(time, "sleep", lambda _: os.close(other))
    with exclusive(state, wait=60), pytest.raises(OSError):
        os.fstat(other)


def test_too_little_space_is_seen_before_anything_is_begun(tmp_path: Path, state: State) -> None:
    prefix = old_world(tmp_path)
    before = tree(prefix)
    plan = Plan(
        action="install",
        method="tarball",
        version="9.10.2.21",
        cuda="12",
        target=str(prefix),
        steps=a_plan(tmp_path).steps,
        space_needed={str(prefix / "not" / "yet"): 1 << 60},
    )
    with pytest.raises(DoctorError, match="not enough space"):
        executor.execute(plan, state, Silent())
    assert tree(prefix) == before


def test_nothing_of_the_current_folder_is_run(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pip", "runpy", "encodings"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    run = Run(argv=(sys.executable, "-m", "pip", "--version"))
    plan = Plan(action="fix", method="wheel", version="", cuda="", target="t", steps=(run,))
    executor.execute(plan, state, Silent())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fromindex.installer() == (sys.executable, "-m", "pip")
    assert not (tmp_path / "PWNED").exists()


def test_no_undo_goes_through_a_link(tmp_path: Path, state: State) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    (elsewhere / "empty").mkdir(parents=True)
    site.mkdir()
    (site / "nvidia").symlink_to(elsewhere)
    guard = GuardPackages(site_packages=str(site), names=("nvidia",))
    steps = (guard, Run(argv=("false",)))
    plan = Plan(action="install", method="wheel", version="", cuda="", target="t", steps=steps)
    with pytest.raises(DoctorError, match="leads to a folder elsewhere") as caught:
        executor.execute(plan, state, Silent())
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert (elsewhere / "empty").is_dir()


def test_what_came_closed_is_opened_to_readers(tmp_path: Path) -> None:
    (tmp_path / "v/lib").mkdir(parents=True)
    (tmp_path / "v/lib/libcudnn.so.9").touch(mode=0o600)
    (tmp_path / "v/lib/libcudnn.so").symlink_to("libcudnn.so.9")
    (tmp_path / "v/lib").chmod(0o700)
    folders.open_to_readers(str(tmp_path / "v"))
    modes = [(tmp_path / "v" / name).stat().st_mode & 0o777 for name in ("lib", "lib/libcudnn.so")]
    assert modes == [0o755, 0o644]
