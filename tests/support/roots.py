"""Run code inside a root folder: real package managers work on it and the machine stays as it is.

The code has namespaces of its own for mounts and processes and sees this Python and this project at
their usual places. However it dies, all that it started dies with it and its root is unmounted: an
overlay that is mounted twice over one upper shows rubbish.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_CLONE_NEWNS, _CLONE_NEWPID = 0x20000, 0x20000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_LIBC = ctypes.CDLL(None, use_errno=True)
_PROJECT = Path(__file__).resolve().parents[2]


class Overlay(NamedTuple):
    """This machine's own root folder, with all changes kept in ``base/upper``."""

    base: Path
    below: tuple[Path, ...] = ()
    """Uppers of earlier overlays, the newest first: the layers between."""

    @property
    def upper(self) -> Path:
        """The folder in which changed and added files lie."""
        return self.base / "upper"


def start(root: Path | Overlay, function: Callable[..., Any], *args: Any) -> tuple[int, int]:
    """Call ``function`` inside ``root``, in a process of its own.

    Returns the id of the process that mounts the root, and unmounts it when all who were at work
    in it are gone, daemons too; and the descriptor from which ``result`` reads.
    """
    import ssl  # noqa: F401  (loaded before the libraries of the root are all there is)

    import requests  # noqa: F401

    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    mounted = None
    try:
        os.close(reading)
        os.setsid()
        _check(_LIBC.unshare(_CLONE_NEWNS | _CLONE_NEWPID))
        mounted = _mount(root)
        first = os.fork()
        if first == 0:
            _be_first(mounted, writing, function, args)
        os.waitpid(first, 0)
    except BaseException as error:
        _answer(writing, False, error)
    finally:
        if isinstance(root, Overlay) and mounted:
            _unmount(mounted)
        os._exit(0)


def _be_first(root: Path, writing: int, function: Callable[..., Any], args: Any) -> None:
    """As the first process of a process namespace: when it ends, all others there do."""
    worker = os.fork()
    if worker:
        os.close(writing)
        while os.wait()[0] != worker:
            pass
        os._exit(0)
    try:
        _enter(root)
        _answer(writing, True, function(*args))
    except BaseException as error:
        _answer(writing, False, error)
    finally:
        os._exit(0)


def _answer(writing: int, done: bool, value: Any) -> None:
    if not done:
        traceback.print_exception(value)
    with os.fdopen(writing, "wb") as pipe:
        pickle.dump((done, value), pipe)


def result(child: int, reading: int) -> Any:
    """What the child returned or raised; None when it was killed."""
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    if not data:
        return None
    done, value = pickle.loads(data)
    if not done:
        raise value
    return value


def kill(child: int) -> None:
    """Kill the function and all that it started, at once."""
    children = Path(f"/proc/{child}/task/{child}/children").read_text()
    os.kill(int(children.split()[0]), signal.SIGKILL)


def inside(root: Path | Overlay, function: Callable[..., Any], *args: Any) -> Any:
    """Call ``function`` inside ``root`` and return (or raise) what it returns (or raises)."""
    return result(*start(root, function, *args))


def _mount(root: Path | Overlay) -> Path:
    """Mount what the root needs, in a namespace of its own; returns the folder to enter."""
    _check(_LIBC.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    place = _mount_overlay(root) if isinstance(root, Overlay) else root
    for path in dict.fromkeys((sys.base_prefix, sys.prefix, str(_PROJECT), "/dev")):
        if not Path(path).is_relative_to("/usr"):
            target = place / path.lstrip("/")
            target.mkdir(parents=True, exist_ok=True)
            _check(_LIBC.mount(path.encode(), os.fsencode(target), None, _MS_BIND | _MS_REC, None))
    (place / "proc").mkdir(exist_ok=True)
    return place


def _unmount(place: Path) -> None:
    """Unmount a root, what is mounted in it first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    for path in reversed([line.split()[4] for line in lines]):
        if Path(path).is_relative_to(place):
            while _LIBC.umount2(os.fsencode(path), 0) and ctypes.get_errno() == errno.EBUSY:
                time.sleep(0.01)


def _enter(root: Path) -> None:
    _check(_LIBC.mount(b"proc", os.fsencode(root / "proc"), b"proc", 0, None))
    os.chroot(root)
    os.chdir("/")
    os.environ.update(HOME="/root", PATH="/usr/sbin:/usr/bin:/sbin:/bin", TMPDIR="/tmp")
    for name in [n for n in os.environ if n.startswith(("LD_", "CUDNN_DOCTOR_STATE"))]:
        del os.environ[name]
    import tempfile

    tempfile.tempdir = None


def _mount_overlay(root: Overlay) -> Path:
    # What a killed child left in its work folder would disturb the next one.
    merged, work = root.base / "merged", root.base / f"work-{os.getpid()}"
    for folder in (merged, work, root.upper):
        folder.mkdir(parents=True, exist_ok=True)
    lower = ":".join(map(str, (*root.below, "/")))
    options = f"lowerdir={lower},upperdir={root.upper},workdir={work}".encode()
    _check(_LIBC.mount(b"overlay", os.fsencode(merged), b"overlay", 0, options))
    return merged


def _check(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), "the root folder could not be entered")
