"""Unpack an archive or wheel into a staging folder while it arrives.

Archives are hostile until proved otherwise: see `sink`.
"""

from __future__ import annotations

import gzip
import lzma
import os
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, cast

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install.archives import xz
from cudnn_doctor.install.archives.download import Arriving
from cudnn_doctor.install.archives.sink import Refused, Sink
from cudnn_doctor.install.archives.tarstream import Forward, members
from cudnn_doctor.install.archives.unzip import unzip
from cudnn_doctor.install.files import failed
from cudnn_doctor.install.plan import Unpack
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.install.state import State

_ZIP, _GZIP = b"PK\x03\x04", b"\x1f\x8b"
_BEGIN = 64
_BROKEN = (Refused, tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError)


def unpack(step: Unpack, state: State, progress: Progress) -> None:
    """Fetch the step's source (or find it cached) and unpack it while it arrives.

    Raises DoctorError (NOTHING_CHANGED) when the archive is damaged, hostile or not cuDNN's, or the
    disk refuses; the staging folder is then for the caller to discard.
    """
    staging = Path(step.staging)
    try:
        staging.mkdir(parents=True, mode=0o755)
        sink = Sink(staging, step)
        with Arriving(step.source, state, progress) as arriving:
            _fill(sink, arriving)
        sink.finish()
    except (*_BROKEN, zlib.error, EOFError) as error:
        raise NothingChanged(
            f"cannot unpack {step.source.name}: {error}",
            where=step.staging,
            next_step="fetch the archive anew (`cudnn-doctor cache clear`), or use another source",
        ) from error
    except OSError as error:
        raise failed("cannot unpack", str(error.filename or staging), error) from error


def _fill(sink: Sink, arriving: Arriving) -> None:
    """Whatever its name, the first bytes tell what a file is."""
    begin = arriving.at(0, _BEGIN)
    if begin.startswith(_ZIP):
        return unzip(arriving, sink, min(8, len(os.sched_getaffinity(0))))
    if begin.startswith(xz.MAGIC):
        with xz.XzReader(arriving) as plain:
            _untar(Forward(plain), sink)
    elif begin.startswith(_GZIP):
        with gzip.GzipFile(fileobj=cast("IO[bytes]", arriving)) as plain:
            _untar(Forward(plain), sink)
    else:
        raise Refused(f"it is {described(begin)}")
    arriving.finish()
    return None


def described(begin: bytes) -> str:
    """What a file looks like by its first bytes; empty for an archive or wheel."""
    if begin.startswith((_ZIP, xz.MAGIC, _GZIP)):
        return ""
    if begin.lstrip().startswith(b"<"):
        return "a web page, such as a login or an error, saved in the archive's place"
    return "neither a .tar.xz, a .tgz nor a wheel" if begin else "empty"


def _untar(stream: Forward, sink: Sink) -> None:
    for member in members(stream):
        if member.isdir():
            continue
        if not (member.isreg() or member.issym()):
            raise Refused(f"it holds {member.name!r}, which is neither a file nor a symbolic link")
        place = sink.place(member.name)
        if place is None:
            continue
        if member.issym():
            sink.link(place, member.linkname)
        else:
            sink.reserve(member.size)
            sink.write(place, stream.take(member.size))


def free_space_for(size: int, *, static: bool = False) -> int:
    """Bytes to have free for unpacking an archive of ``size`` bytes.

    The libraries take 1.6 times the size of the wheel that holds them alone (measured); an archive
    with static libraries unpacks to less than 4 times its size.
    """
    return (4 if static else 2) * size
