"""RECORD files of wheels, and their comparison with the disk by size and by SHA-256."""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Sequence
from typing import NamedTuple

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import RecordProblem

_CHUNK = 1 << 20
_CUDNN_FILE = re.compile(r"(.*/)?(libcudnn[^/]*|cudnn[^/]*\.h)")


def is_cudnn_file(path: str) -> bool:
    """Whether a file is one of cuDNN's libraries, archives or headers, by its name."""
    return _CUDNN_FILE.fullmatch(path) is not None


class RecordEntry(NamedTuple):
    """One line of RECORD."""

    path: str
    digest: str = ""
    """``sha256=<urlsafe base64 without padding>``, or empty."""
    size: int | None = None

    @property
    def is_library(self) -> bool:
        """A shared library, by its name."""
        name = self.path.rpartition("/")[2]
        return name.endswith(".so") or ".so." in name

    @property
    def is_cudnn(self) -> bool:
        """One of cuDNN's libraries or headers, by its name."""
        return is_cudnn_file(self.path)


def parse_record(text: str) -> list[RecordEntry]:
    """Read RECORD; never raises. Lines that are no record, and paths that leave the folder of
    the distribution (scripts, or worse), are left out."""
    return _parse(text.splitlines())


def parse_libraries(text: str) -> list[RecordEntry]:
    """Like `parse_record`, but only the shared libraries and what has to do with cuDNN: a
    framework's RECORD has some 20,000 lines, of which a hundred are wanted."""
    lines = [line for line in text.splitlines() if ".so" in line or "cudnn" in line or '"' in line]
    return [entry for entry in _parse(lines) if entry.is_library or entry.is_cudnn]


def _parse(lines: Sequence[str]) -> list[RecordEntry]:
    entries = []
    for line in lines:
        fields = line.rsplit(",", 2) if '"' not in line else _quoted(line)
        if len(fields) != 3:
            continue
        path, digest, size = fields
        if not path or path.startswith("/") or "\0" in path or ".." in path.split("/"):
            continue
        entries.append(RecordEntry(path, digest, _number(size)))
    return entries


def _quoted(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


class Comparer:
    """Compares recorded files with the disk; with ``hashes`` reads each file once, however many
    environments share it by hard links."""

    def __init__(self, host: Host, hashes: bool = False) -> None:
        self._host = host
        self._hashes = hashes
        self._known: dict[tuple[int, int, int, int], str] = {}

    def compare(self, folder: str, entries: Sequence[RecordEntry]) -> tuple[RecordProblem, ...]:
        """Problems of the entries, whose paths are relative to ``folder``, in their order."""
        problems = [self._by_size(folder, entry) for entry in entries]
        if self._hashes:
            good = [e for e, p in zip(entries, problems, strict=True) if p is None]
            problems += self._by_hash(folder, [e for e in good if e.digest.startswith("sha256=")])
        return tuple(problem for problem in problems if problem)

    def _by_size(self, folder: str, entry: RecordEntry) -> RecordProblem | None:
        info = self._host.stat(f"{folder}/{entry.path}")
        if info is None:
            link = self._host.link(f"{folder}/{entry.path}")
            found = f"dangling link to {link}" if link else ""
            return RecordProblem(path=entry.path, problem="missing", found=found)
        if not stat.S_ISREG(info.st_mode):
            return RecordProblem(path=entry.path, problem="unreadable", found="not a file")
        if entry.size is not None and info.st_size != entry.size:
            return RecordProblem(
                path=entry.path,
                problem="size",
                expected=str(entry.size),
                found=str(info.st_size),
            )
        return None

    def _by_hash(self, folder: str, entries: Sequence[RecordEntry]) -> list[RecordProblem | None]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            return list(pool.map(lambda entry: self._check_hash(folder, entry), entries))

    def _check_hash(self, folder: str, entry: RecordEntry) -> RecordProblem | None:
        try:
            found = self._digest(self._host.outer(f"{folder}/{entry.path}"))
        except OSError as error:
            why = error.strerror or str(error)
            return RecordProblem(path=entry.path, problem="unreadable", found=why)
        if found == entry.digest:
            return None
        return RecordProblem(path=entry.path, problem="hash", expected=entry.digest, found=found)

    def _digest(self, outer: str) -> str:
        import base64
        import hashlib

        fd = os.open(outer, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb", buffering=0) as file:
            info = os.fstat(fd)
            key = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
            if key not in self._known:
                digest = hashlib.sha256()
                buffer = memoryview(bytearray(_CHUNK))
                while count := file.readinto(buffer):
                    digest.update(buffer[:count])
                text = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
                self._known[key] = f"sha256={text}"
        return self._known[key]
