"""Files that the user named for output: whole or not at all, links followed, devices kept."""

from __future__ import annotations

import contextlib
import errno
import os


def write_whole(path: str, data: bytes) -> None:
    """Write a file in one go; a device or a pipe is written into, never replaced.

    A new file gets mode 0644 less the umask, an old one keeps its own. Raises OSError.
    """
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as file:
            file.write(data)
        return
    mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o644 & ~_umask()
    descriptor, fresh = _beside(target)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(fresh, mode)
        os.replace(fresh, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise


def try_out(path: str) -> None:
    """Raise OSError now where `write_whole` would later, as far as can be told."""
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.path.exists(target) or os.path.isfile(target):
        descriptor, fresh = _beside(target)
        os.close(descriptor)
        os.unlink(fresh)


def _beside(target: str) -> tuple[int, str]:
    import tempfile  # imports much

    folder, name = os.path.split(target)
    return tempfile.mkstemp(dir=folder, prefix=f".{name[:100]}.")


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
