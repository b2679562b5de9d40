"""What a download shows: a bar with rate and time left at a terminal, plain lines in a log."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading

import pytest
from conftest import Redist
from support.cli import Cli
from support.redist_server import RedistServer

from cudnn_doctor.report import progress as display
from cudnn_doctor.report.progress import Plain

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BAR = re.compile(r"[\d.]+/[\d.]+ [kM]B\s+[\d.]+ [kM]B/s\s+\d+:\d\d:\d\d")
COLOUR = re.compile(r"\x1b\[[0-9;]*3\dm|\x1b\[38;")


@pytest.fixture
def args(redist_tree: Redist, server: RedistServer, tmp_path) -> list[str]:  # type: ignore[no-untyped-def]
    """A download that takes about two seconds."""
    size = next(iter(redist_tree.archives.values())).stat().st_size
    server.rate = size / 2
    what = ["download", "--version", "9.10.2", "--cuda", "12", "--arch", "x86_64"]
    where = ["--matrix", str(redist_tree.matrix), "--mirror", server.url]
    return [*what, *where, "--dest", str(tmp_path / "stick")]


def on_a_terminal(cli: Cli, args: list[str], columns: int, **environ: str) -> str:
    """Run it on a terminal so wide; everything that was written to it."""
    try:
        child, terminal = pty.fork()
    except OSError:
        pytest.skip("this machine gives out no terminals")
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        own = {k: v for k, v in cli.environ.items() if k not in ("COLUMNS", "NO_COLOR", "CI")}
        own |= {"TERM": "xterm-256color", **environ}
        os.execve(sys.executable, cli.command(*args), own)
    output = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        output += data
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, output.decode()
    return output.decode("utf-8", "replace")


def test_a_terminal_shows_rate_and_time_left(cli: Cli, args: list[str]) -> None:
    shown = on_a_terminal(cli, args, 100)
    assert COLOUR.search(shown)
    seen = BAR.findall(ESCAPE.sub("", shown))
    assert len(set(seen)) >= 3, shown
    assert "━" in shown


def test_no_colour_where_it_is_not_wanted(cli: Cli, args: list[str]) -> None:
    shown = on_a_terminal(cli, args, 100, NO_COLOR="1")
    assert not COLOUR.search(shown)
    assert BAR.search(ESCAPE.sub("", shown))


@pytest.mark.parametrize("columns", [24, 44, 60])
def test_a_narrow_terminal_is_never_overrun(cli: Cli, args: list[str], columns: int) -> None:
    """A line that is too long would wrap, and the bar could not be drawn over itself."""
    shown = on_a_terminal(cli, args, columns)
    lines = re.split(r"[\r\n]+", ESCAPE.sub("", shown))
    bars = [line for line in lines if "━" in line or "kB" in line]
    assert bars and (columns < 44 or BAR.search("\n".join(bars)))
    assert all(len(line) <= columns for line in bars)


def test_a_dumb_terminal_gets_no_escapes(cli: Cli, args: list[str]) -> None:
    shown = on_a_terminal(cli, args, 80, TERM="dumb")
    assert "\x1b" not in shown


def test_a_log_gets_no_bar(cli: Cli, args: list[str]) -> None:
    done = cli(*args)
    assert "\r" not in done.stderr and "\x1b" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_a_long_download_tells_a_log_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    plain = Plain()
    for second in range(35):
        now[0] = 100.0 + second
        plain.bytes(second * 10_000_000, 600_000_000)
    plain.ended()
    lines = capsys.readouterr().err.split("\n")[:-1]
    assert [line.strip() for line in lines] == [
        "100 of 600 MB, 10.0 MB/s, 50 s left",
        "200 of 600 MB, 10.0 MB/s, 40 s left",
        "300 of 600 MB, 10.0 MB/s, 30 s left",
    ]


def test_what_was_there_before_does_not_count_as_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download that goes on where it broke off: 500 MB are there, 10 MB more in ten seconds."""
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    plain = Plain()
    plain.bytes(500_000_000, None)
    now[0] += 10
    plain.bytes(510_000_000, None)
    assert capsys.readouterr().err.strip() == "510 MB, 1.0 MB/s"


def test_threads_may_tell_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes come from the downloader's thread while the main one begins the next step."""
    monkeypatch.setenv("TERM", "dumb")
    bar = display.Terminal()
    threads = [threading.Thread(target=bar.bytes, args=(n, 10)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bar.ended()
    assert bar._bar is None
