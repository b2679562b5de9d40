"""Progress of an installation on stderr: a bar at a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from cudnn_doctor.install.plan import AnyStep
from cudnn_doctor.install.progress import Progress, Silent
from cudnn_doctor.report.style import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


_PLAIN_SECONDS = 10.0
_TEXT_WIDTH = 37
"""Columns that ``131.1/529.6 MB 38.1 MB/s 0:00:11`` needs beside the bar."""


def progress(*, quiet: bool = False) -> Progress:
    """The progress that suits stderr."""
    if quiet:
        return Silent()
    return Terminal() if sys.stderr.isatty() else Plain()


class Plain:
    """One line a step, for logs, and one every ten seconds of a download."""

    def __init__(self) -> None:
        self._began = self._told = 0.0
        self._before = 0

    def step(self, number: int, total: int, step: AnyStep) -> None:
        print(f"[{number + 1}/{total}] {visible(step.title)}", file=sys.stderr, flush=True)

    def bytes(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if not self._began:
            self._began, self._told, self._before = now, now, done
        if now - self._told < _PLAIN_SECONDS:
            return
        self._told = now
        rate = (done - self._before) / (now - self._began)
        text = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB" if total else f"{done / 1e6:.0f} MB"
        left = f", {(total - done) / rate:.0f} s left" if total and rate else ""
        self.say(f"{text}, {rate / 1e6:.1f} MB/s{left}")

    def ended(self) -> None:
        self._began = 0.0

    def say(self, text: str) -> None:
        lines = [f"    {visible(line)}" for line in text.splitlines()]
        print("\n".join(lines), file=sys.stderr, flush=True)


class Terminal:
    """A line a step, and for a download a bar with rate and time left."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def step(self, number: int, total: int, step: AnyStep) -> None:
        self._end_bar()
        self._console.print(f"[bold]\\[{number + 1}/{total}][/bold] {_plain(step.title)}")

    def bytes(self, done: int, total: int | None) -> None:
        if self._bar is None or self._task is None:
            self._begin_bar()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)

    def ended(self) -> None:
        self._end_bar()

    def say(self, text: str) -> None:
        self._end_bar()
        for line in text.splitlines():
            self._console.print(f"    {_plain(line)}", style="dim")

    def _begin_bar(self) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bar
        from rich.table import Column

        width = max(4, min(40, self._console.width - _TEXT_WIDTH))
        columns = (
            BarColumn(width),
            DownloadColumn(table_column=Column(no_wrap=True)),
            TransferSpeedColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
        )
        self._bar = Bar(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("", total=None)
        self._bar.start()

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(visible(text))
