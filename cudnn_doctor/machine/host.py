"""`Host`: the one door through which probes read the machine.

With ``root`` other than ``/`` it reads a mounted file system (image, chroot): links are resolved
inside that root and no program is ever run.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cudnn_doctor.machine.model import ProbeFailure

_MAX_LINKS = 40


class Ran(NamedTuple):
    """Outcome of a program: ``code`` is None when it could not be run or timed out."""

    code: int | None
    out: str
    err: str


class Host:
    """Reads files, folders and programs of one machine; remembers what could not be read."""

    def __init__(self, root: str = "/", environ: Mapping[str, str] | None = None) -> None:
        self.root = os.path.abspath(root)
        self.live = self.root == "/"
        if environ is None:
            environ = os.environ if self.live else {}
        self.environ: dict[str, str] = dict(environ)
        self.failures: list[ProbeFailure] = []

    def fail(self, probe: str, why: str) -> None:
        """Record that (a part of) a probe could not be done."""
        self.failures.append(ProbeFailure(probe=probe, why=why))

    # -- paths: callers speak in paths of the probed system, `outer` is where they really are

    def outer(self, path: str) -> str:
        """The path on this system that stands for ``path`` of the probed one; links resolved
        so that none leaves the root."""
        if self.live:
            return path
        return self._join(self.real(path, strict=False) or path)

    def _join(self, path: str) -> str:
        return self.root if path == "/" else self.root + path

    def real(self, path: str, *, strict: bool = True) -> str | None:
        """Resolve all links of an absolute path; None when ``strict`` and it does not exist."""
        if self.live:
            if strict and not os.path.exists(path):
                return None
            return os.path.realpath(path)
        todo = [part for part in reversed(path.split("/")) if part]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                if done:
                    done.pop()
                continue
            here = self._join("/" + "/".join([*done, part]))
            try:
                target = os.readlink(here)
            except OSError:
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                return None
            if target.startswith("/"):
                done = []
            todo.extend(p for p in reversed(target.split("/")) if p)
        result = "/" + "/".join(done)
        return result if not strict or os.path.lexists(self._join(result)) else None

    def _outer_parent(self, path: str) -> str:
        """Like `outer`, but a link at the end is not followed."""
        if self.live:
            return path
        folder, name = os.path.split(path)
        return os.path.join(self.outer(folder), name)

    def exists(self, path: str) -> bool:
        return os.path.exists(self.outer(path))

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(self.outer(path))

    def lstat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(self._outer_parent(path))
        except (OSError, ValueError):
            return None

    def stat(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(self.outer(path))
        except (OSError, ValueError):
            return None

    def link(self, path: str) -> str | None:
        """Text of the symbolic link at ``path``, None when it is not one."""
        info = self.lstat(path)
        if info is None or not stat.S_ISLNK(info.st_mode):
            return None
        try:
            return os.readlink(self._outer_parent(path))
        except OSError:
            return None

    def names(self, folder: str) -> list[str]:
        """Sorted names in a folder; empty when it cannot be read."""
        try:
            return sorted(os.listdir(self.outer(folder)))
        except (OSError, ValueError):
            return []

    def glob(self, pattern: str, base: str = "") -> list[str]:
        """Paths that match a pattern below ``base`` (a folder taken literally, by default the
        root), sorted; ``*`` never crosses a slash."""
        import fnmatch

        found = [base]
        for part in pattern.strip("/").split("/"):
            if any(c in part for c in "*?["):
                found = [
                    f"{base}/{name}"
                    for base in found
                    for name in self.names(base or "/")
                    if fnmatch.fnmatchcase(name, part)
                ]
            else:
                found = [f"{base}/{part}" for base in found]
        return sorted(p for p in found if self.lstat(p) is not None)

    def text(self, path: str, limit: int = 1 << 20) -> str | None:
        """Up to ``limit`` bytes of a regular file (or /proc, /sys file) as text, else None."""
        data = self.bytes(path, limit)
        return None if data is None else data.decode("utf-8", "replace")

    def bytes(self, path: str, limit: int = 1 << 24) -> bytes | None:
        """Up to ``limit`` bytes of a file; None when it cannot be read or is no regular file."""
        try:
            fd = os.open(self.outer(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            with os.fdopen(fd, "rb", closefd=False) as file:
                return file.read(limit)
        except OSError:
            return None
        finally:
            os.close(fd)

    # -- programs

    def run(self, argv: Sequence[str], timeout: float = 5.0) -> Ran:
        """Run a program of the live machine, without a shell; never raises.

        ``timeout`` is in seconds. What a program that ran out of time had printed is kept.
        """
        if not self.live:
            return Ran(None, "", "not run: probing a root folder")
        try:
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**self.environ, "LC_ALL": "C"},
            )
        except (OSError, ValueError) as error:
            return Ran(None, "", str(error))
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as late:
            _abandon(child)
            return Ran(None, _text(late.output), f"no answer in {timeout:g} s")
        return Ran(child.returncode, _text(out), _text(err))

    def which(self, program: str) -> str | None:
        """Path of a program on the probed system's PATH."""
        path = (
            self.environ.get("PATH")
            or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        )
        for folder in path.split(":"):
            candidate = f"{folder}/{program}"
            if not folder.startswith("/"):
                continue
            info = self.stat(candidate)
            if info and stat.S_ISREG(info.st_mode) and info.st_mode & 0o111:
                return candidate
        return None

    @property
    def home(self) -> str:
        """The user's home folder, as seen from inside the root."""
        return self.environ.get("HOME") or (str(Path.home()) if self.live else "/root")


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """Kill a child, but do not wait long: one that hangs inside the kernel cannot die yet."""
    child.kill()
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(0.5)
