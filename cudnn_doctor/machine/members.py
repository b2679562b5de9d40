"""The parts of a cuDNN wheel, archive or folder that tell what it contains, one after the other."""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from cudnn_doctor.errors import BadInput
from cudnn_doctor.machine.names import parse_cudnn

_TEXTS = ("cudnn_version.h", "METADATA")
_MAX_TEXT = 1 << 20
_MAX_LIBRARY = 8 << 30
"""The largest library measured has 0.63 GB; more is no cuDNN library."""
_MAX_MEMBERS = 20_000
_PIECE = 1 << 20
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError)
_UNUSUAL = (RuntimeError, ValueError, OverflowError, struct.error)
"""What zipfile and tarfile raise for encryption, unknown methods and absurd fields."""


class Member(NamedTuple):
    """A file; a library lies at ``path`` until the next member is asked for."""

    name: str
    """Where it is in the wheel, archive or folder."""
    path: str | None = None


class Text(NamedTuple):
    """A file whose text tells something (header, metadata)."""

    name: str
    text: str


def members(source: Path) -> Iterator[Member | Text]:
    """All files at ``source``. Raises BadInput when it is damaged or of another kind, and when the
    folder for temporary files is too small."""
    try:
        if source.is_dir():
            yield from _folder(source)
        elif not source.is_file():
            raise BadInput("no such file or folder", where=str(source))
        elif zipfile.is_zipfile(source):
            yield from _packed(_zip(source))
        elif tarfile.is_tarfile(source):
            yield from _packed(_tar(source))
        else:
            raise BadInput(
                "neither a wheel nor a .tar.xz or .tgz archive (or it is cut short)",
                where=str(source),
            )
    except _DAMAGE as error:
        raise BadInput(f"it is damaged: {error}", where=str(source)) from error
    except _UNUSUAL as error:
        raise BadInput(f"it cannot be unpacked: {error}", where=str(source)) from error
    except OSError as error:
        place = str(error.filename or source)
        raise BadInput(f"cannot be read: {error.strerror or error}", where=place) from error


def _is_library(name: str) -> bool:
    return parse_cudnn(PurePosixPath(name).name) is not None


def _folder(source: Path) -> Iterator[Member | Text]:
    """Each library once: links to a file that is there too are left out."""
    seen: set[tuple[int, int]] = set()
    count = 0
    for folder, folders, files in os.walk(source):
        folders.sort()
        for base in sorted(files):
            path = Path(folder, base)
            info = path.stat() if path.exists() else None
            if info is None or not stat.S_ISREG(info.st_mode):
                continue
            count += 1
            if count > _MAX_MEMBERS:
                raise BadInput("far more files than a cuDNN release holds", where=str(source))
            name = path.relative_to(source).as_posix()
            if _is_library(name):
                if (info.st_dev, info.st_ino) not in seen:
                    yield Member(name, str(path))
                seen.add((info.st_dev, info.st_ino))
            elif base in _TEXTS:
                with path.open("rb") as file:
                    yield _text(name, file)
            else:
                yield Member(name)


def _zip(source: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    with zipfile.ZipFile(source) as archive:
        for info in archive.infolist():
            if info.filename and not info.filename.endswith("/"):
                yield info.filename, info.file_size, archive.open(info)


def _tar(source: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Read once, in order; a link has its file elsewhere in the archive."""
    with tarfile.open(source, "r|*") as archive:
        for info in archive:
            file = archive.extractfile(info) if info.isreg() else None
            if file is not None:
                yield info.name, info.size, file


def _packed(files: Iterator[tuple[str, int, IO[bytes]]]) -> Iterator[Member | Text]:
    """Unpack what is wanted of (name, size, bytes); a library only until the next one."""
    with tempfile.TemporaryDirectory(prefix="cudnn-doctor-") as folder:
        for count, (name, size, file) in enumerate(files):
            if count == _MAX_MEMBERS:
                raise BadInput("far more files than a cuDNN release holds")
            with file:
                if _is_library(name):
                    path = os.path.join(folder, "library")
                    _unpack(file, size, path, name)
                    yield Member(name, path)
                    os.unlink(path)
                elif PurePosixPath(name).name in _TEXTS:
                    yield _text(name, file)
                else:
                    yield Member(name)


def _unpack(file: IO[bytes], size: int, path: str, name: str) -> None:
    free = shutil.disk_usage(os.path.dirname(path)).free
    if size > _MAX_LIBRARY:
        raise BadInput(f"{size / 2**30:.0f} GiB are no cuDNN library", where=name)
    if size > free:
        raise BadInput(
            f"{size / 2**20:.0f} MiB are needed for a moment, {free / 2**20:.0f} MiB are free",
            where=tempfile.gettempdir(),
            next_step="set TMPDIR to a folder with more room",
        )
    with open(path, "xb") as out:
        while size > 0 and (piece := file.read(min(_PIECE, size))):
            size -= len(piece)
            out.write(piece)


def _text(name: str, file: IO[bytes]) -> Text:
    return Text(name, file.read(_MAX_TEXT).decode("utf-8", "replace"))
