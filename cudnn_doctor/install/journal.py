"""The journal: what is about to be done is on the disk before it is done.

One folder: ``plan.json`` (the whole plan), ``log`` (lines ``begin N``, ``done N``, ``commit``; each
on the disk before the next action) and ``saved/`` (what steps put aside, one folder a step).
While the folder exists without ``commit`` the plan is unfinished and is undone by whoever comes
next; with ``commit`` it is finished and becomes a receipt.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import msgspec

from cudnn_doctor.errors import BadInput
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.state import State, make_folder


class Journal:
    """The log of one plan, in its folder."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan

    @classmethod
    def start(cls, state: State, plan: Plan) -> Journal:
        """Write a new journal; the caller holds the lock and no journal exists."""
        make_folder(state.folder)
        fresh = state.folder / f"journal.{os.getpid()}"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o755)
        _write(fresh / "plan.json", msgspec.json.format(msgspec.json.encode(plan)))
        _write(fresh / "log", b"")
        fresh.rename(state.journal)
        _sync(state.folder)
        return cls(state.journal, plan)

    @classmethod
    def open(cls, folder: Path) -> Journal:
        """Read a journal or receipt; raises BadInput when its files are damaged."""
        path = folder / "plan.json"
        try:
            plan = msgspec.json.decode(path.read_bytes(), type=Plan)
        except (OSError, msgspec.MsgspecError) as error:
            raise BadInput(
                f"the record of an earlier run cannot be read: {error}",
                where=str(path),
                next_step=f"look into {folder}; move it away when its changes are settled by hand",
            ) from error
        return cls(folder, plan)

    def note(self, line: str) -> None:
        """Append a line and wait until it is on the disk."""
        fd = os.open(self.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(fd, f"{line}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)

    def lines(self) -> list[str]:
        """Complete lines of the log (a line torn by a kill is left out)."""
        text = (self.folder / "log").read_text("utf-8", "replace")
        return [line for line in text.split("\n")[:-1] if line]

    @property
    def committed(self) -> bool:
        return "commit" in self.lines()

    def begun(self) -> list[int]:
        """Numbers of the steps that were begun and not undone, in order."""
        begun: list[int] = []
        for line in self.lines():
            word, _, number = line.partition(" ")
            if word == "begin":
                begun.append(int(number))
            elif word == "undone":
                begun.remove(int(number))
        return begun

    def saved(self, number: int) -> Path:
        """Folder in which step ``number`` puts aside what it replaces."""
        return self.folder / "saved" / str(number)

    def keep(self, state: State) -> Path:
        """Turn the committed journal into a receipt; returns the receipt's folder."""
        receipts = make_folder(state.receipts)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        count = sum(1 for entry in receipts.iterdir() if entry.name.startswith(stamp))
        target = receipts / f"{stamp}-{count:02d}"
        self.folder.rename(target)
        _sync(receipts)
        self.folder = target
        return target

    def discard(self) -> None:
        """Remove the journal of a plan that was undone."""
        aside = self.folder.with_name(f"{self.folder.name}.done.{os.getpid()}")
        self.folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
