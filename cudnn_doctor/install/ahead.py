"""Files fetched ahead, for a machine without a network."""

from __future__ import annotations

from pathlib import Path

import msgspec

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install.archives.download import cached, download_to
from cudnn_doctor.install.choose import Wish
from cudnn_doctor.install.lock import Lock, request_from
from cudnn_doctor.install.prefixes.source import archive_fetch, wheel_fetch
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.state import State
from cudnn_doctor.install.wheels import fromindex
from cudnn_doctor.matrix.model import Matrix


def fetch_ahead(
    request: InstallRequest, matrix: Matrix, folder: str, state: State, progress: Progress
) -> Path:
    """Bring the archive or the wheel (the request's source) into a folder; returns its path there.

    With the wheel come the companions that a lock names. Raises DoctorError (NOTHING_CHANGED).
    """
    if request.source != "wheel":
        return download_to(archive_fetch(request, matrix), state, folder, progress)
    wheel, fetch = wheel_fetch(request, matrix)
    if request.mirrors or cached(state, fetch.sha256).exists():
        path = download_to(fetch, state, folder, progress)
    else:
        path = fromindex.download(wheel, folder)
    if request.companions:
        fromindex.download_lines(request.companions, wheel.arch, folder)
    return path


def request_of(lock: Lock, wish: Wish, matrix: Matrix) -> InstallRequest:
    """The request for the file that a lock names.

    Raises DoctorError (NOTHING_CHANGED) when it names packages, or the matrix another file.
    """
    if lock.method == "package":
        raise NothingChanged(
            "this lock file names packages, which their package manager downloads",
            next_step="make a lock with --method tarball or wheel",
        )
    source = "wheel" if "wheel" in (lock.method, lock.source) else "archive"
    request = msgspec.structs.replace(request_from(lock, wish), source=source)
    fetch = wheel_fetch(request, matrix)[1] if source == "wheel" else archive_fetch(request, matrix)
    if f"sha256:{fetch.sha256}" not in lock.pinned:
        raise NothingChanged(
            f"the lock file does not name {fetch.name} as the matrix knows it",
            next_step="use the tool and matrix that wrote the lock",
        )
    return request
