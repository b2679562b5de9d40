"""Steps on files and folders: how each is done, undone and, later, taken back.

Every ``undo`` may meet a step that was only half done, or done and already undone once: it looks at
what is there and never assumes. ``saved`` is the step's own folder in the journal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from cudnn_doctor.errors import DoctorError, NothingChanged
from cudnn_doctor.install import folders
from cudnn_doctor.install.folders import discard
from cudnn_doctor.install.packages import guard as package_guard
from cudnn_doctor.install.plan import (
    AnyStep,
    FetchKey,
    FromIndex,
    GuardSystem,
    MakeFolder,
    MoveTree,
    RemoveFolder,
    RemoveTree,
    Run,
    SwitchLink,
    Unpack,
    WriteFile,
)
from cudnn_doctor.install.prefixes import ours

_REMOVED, _KEPT = ".cudnn-doctor-removed", ".cudnn-doctor-kept"
_OLD_FILE, _OLD_LINK, _MADE = "old", "link", "made"


def failed(what: str, path: str, error: OSError) -> DoctorError:
    """The error for a file operation that the system refused, with the next thing to do."""
    advice = {
        errno.EACCES: "choose a --prefix that you may write, or run it as root",
        errno.EPERM: "choose a --prefix that you may write, or run it as root",
        errno.EROFS: "the file system is read-only: choose another --prefix or remount it",
        errno.ENOSPC: "free some space there, or choose another --prefix",
        errno.EDQUOT: "your disk quota is used up: free some space or choose another --prefix",
    }
    return NothingChanged(
        f"{what}: {error.strerror or error}",
        where=path,
        next_step=advice.get(error.errno or 0, ""),
    )


# -- folders


def make_folder(step: MakeFolder, saved: Path) -> None:
    path = Path(step.path)
    missing = [p for p in (path, *path.parents) if not os.path.exists(p)]
    saved.mkdir(parents=True, exist_ok=True)
    (saved / _MADE).write_text("\0".join(map(str, missing)), "utf-8")
    try:
        for folder in reversed(missing):
            folder.mkdir(mode=step.mode)
            folder.chmod(step.mode)
    except OSError as error:
        raise failed("cannot create the folder", step.path, error) from error


def unmake_folder(step: MakeFolder, saved: Path) -> None:
    for folder in _made(saved):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return  # somebody else's files are in it by now


def _made(saved: Path) -> list[str]:
    record = saved / _MADE
    made = record.read_text("utf-8").split("\0") if record.exists() else []
    return [folder for folder in made if folder]


def claim(step: Unpack | FromIndex, saved: Path) -> None:
    """From here on the staging folders are this run's, and are removed when it is undone."""
    for folder in _staging(step):
        _check_free(folder)
    saved.mkdir(parents=True, exist_ok=True)


def unclaim(step: Unpack | FromIndex, saved: Path) -> None:
    for folder in _staging(step) if saved.is_dir() else ():
        discard(folder)


def _staging(step: Unpack | FromIndex) -> tuple[str, str]:
    return step.staging, f"{step.staging}.index"


def _check_free(path: str) -> None:
    if os.path.lexists(path):
        raise NothingChanged(
            "something is already there, and it is not replaced unasked",
            where=path,
            next_step="remove it, or give another --prefix",
        )


def move_tree(step: MoveTree, saved: Path) -> None:
    _check_free(step.target)
    try:
        folders.move(step.source, step.target, saved)
    except OSError as error:
        raise failed("cannot move the new version into place", step.target, error) from error


def unmove_tree(step: MoveTree, saved: Path) -> None:
    folders.move_back(step.source, step.target, saved)


def aside(step: RemoveTree) -> str:
    """Where a folder goes that is taken away."""
    folder, name = os.path.split(step.path.rstrip("/"))
    return os.path.join(folder, f".{name}{_KEPT if step.keep else _REMOVED}")


def kept(prefix: str) -> list[Path]:
    """Folders that were set aside in a prefix for a rollback."""
    return folders.listed(prefix, f".*{_KEPT}")


def remove_tree(step: RemoveTree, saved: Path) -> None:
    is_folder = os.path.isdir(step.path) and not os.path.islink(step.path)
    if is_folder:
        ours.check_removal(step.path)
    try:
        if is_folder:
            discard(aside(step))
            folders.move(step.path, aside(step), saved)
        elif os.path.lexists(step.path):
            _keep(step.path, saved)
            os.unlink(step.path)
    except OSError as error:
        raise failed("cannot remove", step.path, error) from error


def unremove_tree(step: RemoveTree, saved: Path) -> None:
    if _holds_old(saved):
        restore(step, saved)
    else:
        folders.move_back(step.path, aside(step), saved)


def finish_remove_tree(step: RemoveTree) -> None:
    """After the commit: what was put aside goes for good, unless it is kept for a rollback."""
    if not step.keep:
        folders.let_go(aside(step))


def finish_remove_folder(step: RemoveFolder) -> None:
    """After the commit: an empty folder goes, one with somebody's files stays."""
    with contextlib.suppress(OSError):
        os.rmdir(step.path)


# -- files and links


def write_file(step: WriteFile, saved: Path) -> None:
    try:
        _keep(step.path, saved)
        _replace_file(step.path, step.data, step.mode)
    except OSError as error:
        raise failed("cannot write", step.path, error) from error


def switch_link(step: SwitchLink, saved: Path) -> None:
    if os.path.isdir(step.path) and not os.path.islink(step.path):
        raise NothingChanged(
            "a folder stands where a link is wanted, and it is not replaced unasked",
            where=step.path,
            next_step="move that folder away, or give another --prefix",
        )
    try:
        _keep(step.path, saved)
        if step.target:
            _replace_link(step.path, step.target)
        elif os.path.islink(step.path):
            os.unlink(step.path)
    except OSError as error:
        raise failed("cannot switch the link", step.path, error) from error


def _holds_old(saved: Path) -> bool:
    return os.path.lexists(saved / _OLD_LINK) or (saved / _OLD_FILE).is_file()


def restore(step: WriteFile | SwitchLink | FetchKey | RemoveTree, saved: Path) -> None:
    """Undo of all that put one file or link in place: what stood there comes back, or nothing."""
    if not saved.is_dir():
        return  # killed before anything was changed
    discard(_fresh(step.path))
    link, old = saved / _OLD_LINK, saved / _OLD_FILE
    if link.is_symlink():
        _replace_link(step.path, os.readlink(link))
    elif old.is_file():
        _replace_file(step.path, old.read_bytes(), old.stat().st_mode & 0o7777)
    elif os.path.lexists(step.path):
        os.unlink(step.path)


def _keep(path: str, saved: Path) -> None:
    """Copy what stands at ``path`` into ``saved``, which appears complete or not at all."""
    fresh = saved.with_name(saved.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), fresh / _OLD_LINK)
    elif os.path.exists(path):
        shutil.copy2(path, fresh / _OLD_FILE)
    fresh.rename(saved)


def _fresh(path: str) -> str:
    return f"{path}.cudnn-doctor-new"


def _replace_file(path: str, data: bytes, mode: int) -> None:
    fresh = _fresh(path)
    discard(fresh)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        os.fchmod(fd, mode)
        file.flush()
        os.fsync(fd)
    os.replace(fresh, path)


def _replace_link(path: str, target: str) -> None:
    fresh = _fresh(path)
    discard(fresh)
    os.symlink(target, fresh)
    os.replace(fresh, path)


def inverse(  # noqa: PLR0911
    step: AnyStep, saved: Path
) -> list[AnyStep]:
    """The steps that take a finished one back later (``rollback``)."""
    if isinstance(step, MakeFolder):
        made = _made(saved)
        return [RemoveFolder(title=f"remove {p} if it is empty", path=p) for p in made]
    if isinstance(step, MoveTree):
        return [RemoveTree(title=f"remove {step.target}", path=step.target)]
    if isinstance(step, GuardSystem):
        return package_guard.inverse(step, saved)
    if isinstance(step, Run):
        return [*step.rollback] or [
            Run(title=" ".join(argv), argv=argv, environ=step.environ, may_fail=step.may_fail)
            for argv in step.undo
        ]
    if isinstance(step, RemoveFolder | RemoveTree):
        return _inverse_of_removal(step, saved)
    if not isinstance(step, WriteFile | SwitchLink | FetchKey):
        return []
    return [_inverse_of_write(step.path, saved)]


def _inverse_of_removal(step: RemoveFolder | RemoveTree, saved: Path) -> list[AnyStep]:
    if isinstance(step, RemoveFolder):
        there = os.path.isdir(step.path)
        return [] if there else [MakeFolder(title=f"create {step.path}", path=step.path)]
    if _holds_old(saved):
        return [_inverse_of_write(step.path, saved)]
    if not os.path.lexists(aside(step)):
        return []
    return [MoveTree(title=f"restore {step.path}", source=aside(step), target=step.path)]


def _inverse_of_write(path: str, saved: Path) -> AnyStep:
    link, old = saved / _OLD_LINK, saved / _OLD_FILE
    if link.is_symlink():
        return SwitchLink(title=f"restore {path}", path=path, target=os.readlink(link))
    if old.is_file():
        mode = old.stat().st_mode & 0o7777
        return WriteFile.of(f"restore {path}", path, old.read_bytes(), mode)
    return RemoveTree(title=f"remove {path}", path=path)
