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

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.download import Arriving
from cudnn_doctor.install.files import failed
from cudnn_doctor.install.plan import Unpack
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.install.sink import Refused, Sink
from cudnn_doctor.install.state import State
from cudnn_doctor.install.tarstream import Forward, members
from cudnn_doctor.install.unzip import unzip
from cudnn_doctor.install.xz import XzReader

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
            _fill(sink, arriving, step.source.name)
        sink.finish()
    except (*_BROKEN, zlib.error, EOFError) as error:
        raise DoctorError(
            f"cannot unpack {step.source.name}: {error}",
            where=step.staging,
            next_step="fetch the archive anew (`cudnn-doctor cache clear`), or use another source",
            exit_code=ExitCode.NOTHING_CHANGED,
        ) from error
    except OSError as error:
        raise failed("cannot unpack", str(error.filename or staging), error) from error


def _fill(sink: Sink, arriving: Arriving, name: str) -> None:
    if name.endswith((".whl", ".zip")):
        return unzip(arriving, sink, min(8, len(os.sched_getaffinity(0))))
    if name.endswith((".xz", ".txz")):
        with XzReader(arriving) as plain:
            _untar(Forward(plain), sink)
    else:
        with gzip.GzipFile(fileobj=cast("IO[bytes]", arriving)) as plain:
            _untar(Forward(plain), sink)
    arriving.finish()
    return None


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
