"""The journal: what is about to be done is on the disk before it is done.

One folder: ``plan.json`` (the whole plan), ``log`` (lines ``begin N``, ``done N``, ``commit``; each
on the disk before the next action) and ``saved/`` (what steps put aside, one folder a step).
While the folder exists without ``commit`` the plan is unfinished and is undone by whoever comes
next; with ``commit`` it is finished and becomes a receipt.
"""

from __future__ import annotations

import calendar
import errno
import os
import re
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from cudnn_doctor.errors import BadInput, NothingChanged
from cudnn_doctor.install import folders, records
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.state import State, make_folder

RECEIPT_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9]{2}")
"""When the change was made, and which of that second."""
_STAMP = "%Y%m%dT%H%M%SZ"
_LOG, _SAVED = "log", "saved"
_RECEIPT = "receipt"
_LINE = re.compile(r"(begin|done|undone) ([0-9]{1,6})|commit")


class Journal:
    """The log of one plan, in its folder."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan

    @classmethod
    def start(cls, state: State, plan: Plan) -> Journal:
        """Write a new journal; the caller holds the lock and no journal exists.

        Raises DoctorError (NOTHING_CHANGED) where it cannot be written.
        """
        fresh = state.folder / f"journal.{os.getpid()}"
        try:
            data = msgspec.json.format(msgspec.json.encode(plan))
            folders.discard(str(fresh))
            fresh.mkdir(mode=0o755)
            (fresh / _SAVED).mkdir(mode=0o700)
            _write(fresh / "plan.json", data)
            _write(fresh / _LOG, b"")
            fresh.rename(state.journal)
            folders.sync(state.folder)
        except (OSError, UnicodeEncodeError) as error:
            folders.let_go(str(fresh))
            why = error.strerror if isinstance(error, OSError) else "a path in it is no UTF-8 text"
            raise NothingChanged(
                f"the plan cannot be written down, so nothing was begun: {why}",
                where=str(state.folder),
                next_step="choose other paths, free some space, or set CUDNN_DOCTOR_STATE to "
                "another folder",
            ) from error
        return cls(state.journal, plan)

    @classmethod
    def open(cls, folder: Path) -> Journal:
        """Read a journal or receipt; raises BadInput when its files are damaged."""
        return cls(folder, records.read(folder / "plan.json", Plan))

    @staticmethod
    def exists(state: State) -> bool:
        """Whether a plan is unfinished; remains of a journal that was being removed go.

        Raises DoctorError (NOTHING_CHANGED) where something else stands in its place.
        """
        if (state.journal / _LOG).is_file():
            return True
        if _is_remains(state.journal):
            folders.discard(str(state.journal))
        if os.path.lexists(state.journal):
            raise NothingChanged(
                "something that is no journal stands in its place",
                where=str(state.journal),
                next_step="move it away",
            )
        return False

    def note(self, line: str) -> None:
        """Append a line and wait until it is on the disk; a torn line before it goes."""
        data = f"{line}\n".encode()
        log = self.folder / _LOG
        end = log.read_bytes().rfind(b"\n") + 1
        fd = os.open(log, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, end)
            if os.pwrite(fd, data, end) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
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
        """Numbers of the steps that were begun and not undone, in order.

        Raises BadInput where the log is none: on its word nothing may be undone.
        """
        begun: dict[int, None] = {}
        for line in self.lines():
            match = _LINE.fullmatch(line)
            if not match or int(match[2] or -1) >= len(self.plan.steps):
                raise BadInput(f"{line[:40]!r} is no line of its log")
            if match[1] == "begin":
                begun[int(match[2])] = None
            elif match[1] == "undone":
                begun.pop(int(match[2]), None)
        return list(begun)

    def saved(self, number: int) -> Path:
        """Folder in which step ``number`` puts aside what it replaces."""
        return self.folder / _SAVED / str(number)

    def keep(self, state: State) -> Path:
        """Turn the committed journal into a receipt; returns the receipt's folder."""
        receipts = make_folder(state.receipts)
        target = receipts / self.receipt_name(state)
        if not target.exists() and not folders.renamed(str(self.folder), str(target)):
            # A folder in a lower layer of an overlay cannot be renamed.
            fresh = self.folder.with_name(f"{self.folder.name}.{os.getpid()}")
            folders.discard(str(fresh))
            folders.copy(str(self.folder), str(fresh))
            fresh.rename(target)
        folders.sync(receipts)
        if self.folder.exists():
            self.discard()
        self.folder = target
        return target

    def receipt_name(self, state: State) -> str:
        """Chosen once: who finishes a killed ``keep`` must not make a second receipt."""
        receipts = make_folder(state.receipts)
        chosen = self.folder / _RECEIPT
        name = chosen.read_text("utf-8", "replace") if chosen.is_file() else ""
        if not RECEIPT_ID.fullmatch(name):
            name = _next_id(os.listdir(receipts))
            fresh = self.folder / f"{_RECEIPT}.new"
            fresh.unlink(missing_ok=True)
            _write(fresh, name.encode())
            fresh.rename(chosen)
            folders.sync(self.folder)
        return name

    def discard(self) -> None:
        """Remove the journal: it is none without its log."""
        (self.folder / _LOG).unlink(missing_ok=True)
        folders.sync(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def _next_id(ids: Iterable[str]) -> str:
    """After all that there are, also where the clock was set back."""
    newest, _, count = max(filter(RECEIPT_ID.fullmatch, ids), default="--").partition("-")
    now = time.strftime(_STAMP, time.gmtime())
    if now > newest:
        return f"{now}-00"
    if count < "99":
        return f"{newest}-{int(count) + 1:02d}"
    later = calendar.timegm(time.strptime(newest, _STAMP)) + 1
    return f"{time.strftime(_STAMP, time.gmtime(later))}-00"


def _is_remains(folder: Path) -> bool:
    """Whether it is a folder with nothing in it but parts of a journal."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    return set(os.listdir(folder)) <= {"plan.json", _SAVED, _RECEIPT, f"{_RECEIPT}.new"}


def _write(path: Path, data: bytes) -> None:
    """For its owner alone: the address of a mirror may hold a password."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
