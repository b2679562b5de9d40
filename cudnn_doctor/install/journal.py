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
from cudnn_doctor.install import folders
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.state import State, make_folder

_LOG = "log"
_RECEIPT = "receipt"


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
        _write(fresh / _LOG, b"")
        fresh.rename(state.journal)
        folders.sync(state.folder)
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

    @staticmethod
    def exists(state: State) -> bool:
        """Whether a plan is unfinished; remains of a journal that was being removed go."""
        if (state.journal / _LOG).is_file():
            return True
        shutil.rmtree(state.journal, ignore_errors=True)
        return False

    def note(self, line: str) -> None:
        """Append a line and wait until it is on the disk."""
        fd = os.open(self.folder / _LOG, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(fd, f"{line}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)

    def lines(self) -> list[str]:
        """Complete lines of the log (a line torn by a kill is left out)."""
        text = (self.folder / _LOG).read_text("utf-8", "replace")
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
        target = receipts / self.receipt_name(state)
        if not target.exists():
            # A copy, because a folder in a lower layer of an overlay cannot be renamed.
            fresh = self.folder.with_name(f"{self.folder.name}.{os.getpid()}")
            folders.discard(str(fresh))
            folders.copy(str(self.folder), str(fresh))
            (fresh / _RECEIPT).unlink()
            fresh.rename(target)
            folders.sync(receipts)
        self.discard()
        self.folder = target
        return target

    def receipt_name(self, state: State) -> str:
        """Chosen once: who finishes a killed ``keep`` must not make a second receipt."""
        receipts = make_folder(state.receipts)
        chosen = self.folder / _RECEIPT
        if not chosen.exists():
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            count = sum(1 for entry in receipts.iterdir() if entry.name.startswith(stamp))
            fresh = self.folder / f"{_RECEIPT}.new"
            fresh.unlink(missing_ok=True)
            _write(fresh, f"{stamp}-{count:02d}".encode())
            fresh.rename(chosen)
            folders.sync(self.folder)
        return chosen.read_text("utf-8")

    def discard(self) -> None:
        """Remove the journal: it is none without its log."""
        (self.folder / _LOG).unlink(missing_ok=True)
        folders.sync(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
