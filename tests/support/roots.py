"""Run code inside a root folder: real package managers work on it and the machine stays as it is.

The child lives in a mount namespace of its own, sees this Python and this project at their usual
places, and takes its mounts with it when it dies, however it dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_CLONE_NEWNS = 0x20000
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
    """Fork a child that calls ``function`` inside ``root``, as leader of its own process group.

    Returns its process id and the descriptor from which ``result`` reads.
    """
    import ssl  # noqa: F401  (loaded before the libraries of the root are all there is)

    import requests  # noqa: F401

    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    try:
        os.close(reading)
        os.setsid()
        _enter(root)
        answer: tuple[bool, Any] = (True, function(*args))
    except BaseException as error:
        traceback.print_exc()
        answer = (False, error)
    try:
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
    finally:
        os._exit(0)


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
    """Kill the child and all that it started, and wait until nobody is left who holds its mounts:
    an overlay that is mounted twice over one upper shows rubbish."""
    namespace = os.readlink(f"/proc/{child}/ns/mnt")
    os.killpg(child, signal.SIGKILL)
    while left := _members(namespace):  # daemons, such as gpg-agent, have left the group
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    time.sleep(0.05)  # the kernel unmounts after the last one's end


def _members(namespace: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if os.readlink(process / "ns/mnt") == namespace:
                found.append(int(process.name))
    return found


def inside(root: Path | Overlay, function: Callable[..., Any], *args: Any) -> Any:
    """Call ``function`` inside ``root`` and return (or raise) what it returns (or raises)."""
    return result(*start(root, function, *args))


def _enter(root: Path | Overlay) -> None:
    _check(_LIBC.unshare(_CLONE_NEWNS))
    _check(_LIBC.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    if isinstance(root, Overlay):
        root = _mount_overlay(root)
    for path in dict.fromkeys((sys.base_prefix, sys.prefix, str(_PROJECT), "/dev")):
        if not Path(path).is_relative_to("/usr"):
            target = root / path.lstrip("/")
            target.mkdir(parents=True, exist_ok=True)
            _check(_LIBC.mount(path.encode(), os.fsencode(target), None, _MS_BIND | _MS_REC, None))
    (root / "proc").mkdir(exist_ok=True)
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
