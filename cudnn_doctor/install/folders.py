"""Move folders so that a kill at any point can be told and taken back, on overlayfs too.

A folder that lies in a lower layer of an overlay, as everything does that an earlier layer of a
container image holds, cannot be renamed (EXDEV): it is copied and then removed. What stands where
is told by a note in the step's own folder of the journal::

    renaming    the source is whole, or it was renamed and the target is
    copying     the source is whole; what there is of the target is worth nothing
    removing    the target is whole; what is left of the source is worth nothing

Without a note nothing was begun.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import shutil
import stat
from pathlib import Path

_NOTE = "move"
_RENAMING, _COPYING, _REMOVING = "renaming", "copying", "removing"


def move(source: str, target: str, saved: Path) -> None:
    """Move a folder or file to a path where nothing is, in the same folder system."""
    _write_note(saved, _RENAMING)
    if renamed(source, target):
        return
    _write_note(saved, _COPYING)
    copy(source, target)
    _write_note(saved, _REMOVING)
    discard(source)


def move_back(source: str, target: str, saved: Path) -> None:
    """Undo of ``move``, wherever it stopped; may itself be stopped and called again."""
    note = _read_note(saved)
    if note == _RENAMING and os.path.lexists(target) and not os.path.lexists(source):
        if renamed(target, source):
            return
        note = _REMOVING
        _write_note(saved, note)
    if note == _REMOVING and os.path.lexists(target):
        discard(source)
        if renamed(target, source):
            return
        copy(target, source)
        note = _COPYING
        _write_note(saved, note)
    if note == _COPYING:
        discard(target)


def copy(source: str, target: str) -> None:
    """Copy a folder or file, with owners, modes and times, and wait until it is on the disk."""
    if os.path.isdir(source) and not os.path.islink(source):
        os.mkdir(target, 0o700)
        for name in sorted(os.listdir(source)):
            copy(os.path.join(source, name), os.path.join(target, name))
    else:
        shutil.copyfile(source, target, follow_symlinks=False)
    owner = os.lstat(source)
    with contextlib.suppress(OSError):  # only root may give files away
        os.chown(target, owner.st_uid, owner.st_gid, follow_symlinks=False)
    shutil.copystat(source, target, follow_symlinks=False)
    if not os.path.islink(target):
        sync(target)


def discard(path: str) -> None:
    """Delete a file, link or folder, whatever it is; absent is fine. Raises OSError."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):  # rmtree would open a pipe and wait
        os.unlink(path)


def let_go(path: str) -> None:
    """Delete it as far as that can be done: nothing depends on it any more."""
    with contextlib.suppress(OSError):
        discard(path)


def open_to_readers(folder: str) -> None:
    """Let all read what is in there and enter its folders."""
    for base, _, names in os.walk(folder):
        os.chmod(base, stat.S_IMODE(os.stat(base).st_mode) | 0o555)  # noqa: S103 - it is for all
        for path in (os.path.join(base, name) for name in names):
            if not os.path.islink(path):
                os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | 0o444)


def nearest(path: str) -> str:
    """The folder itself, or the closest of those above it that there is."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def listed(folder: str | Path, pattern: str) -> list[Path]:
    """What in a folder has a name like that, sorted; nothing where it may not be read."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [Path(folder, name) for name in sorted(fnmatch.filter(names, pattern))]


def sync(path: str | Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def renamed(source: str, target: str) -> bool:
    """Whether the rename was done; False where it must be a copy."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _write_note(saved: Path, word: str) -> None:
    saved.mkdir(parents=True, exist_ok=True)
    fresh = saved / f"{_NOTE}.new"
    fresh.write_text(word, "utf-8")
    sync(fresh)
    os.replace(fresh, saved / _NOTE)
    sync(saved)


def _read_note(saved: Path) -> str:
    try:
        return (saved / _NOTE).read_text("utf-8")
    except FileNotFoundError:
        return ""
