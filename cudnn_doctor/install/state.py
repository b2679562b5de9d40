"""Where this tool keeps its own state: journal, receipts, lock and download cache."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cudnn_doctor.errors import DoctorError, NothingChanged

_HELD: set[int] = set()


class State(NamedTuple):
    """Folders of this tool's state, by the XDG rules (root: under /var)."""

    folder: Path
    cache: Path

    @property
    def journal(self) -> Path:
        """The plan under way, if any: a folder."""
        return self.folder / "journal"

    @property
    def receipts(self) -> Path:
        """One folder for each plan that was carried out."""
        return self.folder / "receipts"


def locate() -> State:
    """State and cache folders of this user; ``CUDNN_DOCTOR_STATE`` and ``CUDNN_DOCTOR_CACHE``
    override them."""
    env = os.environ
    if env.get("CUDNN_DOCTOR_STATE") and env.get("CUDNN_DOCTOR_CACHE"):
        return State(Path(env["CUDNN_DOCTOR_STATE"]), Path(env["CUDNN_DOCTOR_CACHE"]))
    if os.geteuid() == 0:
        state, cache = Path("/var/lib/cudnn-doctor"), Path("/var/cache/cudnn-doctor")
    else:
        state = Path(env.get("XDG_STATE_HOME") or home() / ".local/state") / "cudnn-doctor"
        cache = Path(env.get("XDG_CACHE_HOME") or home() / ".cache") / "cudnn-doctor"
    return State(
        Path(env.get("CUDNN_DOCTOR_STATE") or state),
        Path(env.get("CUDNN_DOCTOR_CACHE") or cache),
    )


def home() -> Path:
    """The user's home; raises DoctorError where they have none (a container's odd uid)."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise NothingChanged(
            "this user has no home folder, so that there is no place for this tool's files",
            next_step="set HOME; or CUDNN_DOCTOR_STATE and CUDNN_DOCTOR_CACHE, and give --prefix",
        ) from error


def make_folder(path: Path) -> Path:
    """Create one of this tool's own folders, private to its owner; raises DoctorError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise NothingChanged(
            f"cannot create the folder for this tool's state: {os.strerror(error.errno or 0)}",
            where=str(path),
            next_step="set CUDNN_DOCTOR_STATE (or CUDNN_DOCTOR_CACHE) to a folder you may write",
        ) from error
    return path


@contextlib.contextmanager
def exclusive(state: State, wait: float = 0.0) -> Iterator[None]:
    """Hold this tool's lock; another run that holds it is waited for, then named in the error.

    ``wait`` is in seconds. The lock is the kernel's (flock): it never outlives its process and the
    programs that inherited it (`held`). Whatever changes the machine holds it, so that here also
    the umask is set.
    """
    with _umask(), contextlib.ExitStack() as stack:
        path = make_folder(state.folder) / "lock"
        try:
            fd = _opened(path)
            stack.callback(os.close, fd)
            _acquire(fd, path, time.monotonic() + wait)
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
        except OSError as error:
            raise NothingChanged(
                f"cannot take this tool's lock: {error.strerror}",
                where=str(path),
                next_step="look what is there; move it away when no cudnn-doctor is running",
            ) from error
        _HELD.add(fd)
        stack.callback(_HELD.discard, fd)
        yield


@contextlib.contextmanager
def _umask() -> Iterator[None]:
    """What root installs is for all to read; nothing is ever for all to write."""
    old = os.umask(0o022)
    if os.geteuid() != 0:
        os.umask(old | 0o002)
    try:
        yield
    finally:
        os.umask(old)


def _opened(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file")
    return fd


def _acquire(fd: int, path: Path, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if time.monotonic() >= deadline:
                raise _busy(fd, path) from error
        time.sleep(0.1)


def held() -> tuple[int, ...]:
    """Descriptors of the locks held, for programs to inherit: where this process is killed, nobody
    undoes anything while a pip or dpkg of its is still at work."""
    return tuple(_HELD)


def _busy(fd: int, path: Path) -> DoctorError:
    holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
    return NothingChanged(
        f"another cudnn-doctor (process {holder}), or a program that it started, is changing this "
        "machine",
        where=str(path),
        next_step="wait until it ends, or run again with --wait SECONDS",
    )
