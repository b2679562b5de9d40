"""Where a version's files come from: NVIDIA's archive, a mirror's or a local copy, or a wheel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from cudnn_doctor.errors import DoctorError, ExitCode, NothingChanged
from cudnn_doctor.install.archives.download import cached
from cudnn_doctor.install.archives.unpack import free_space_for
from cudnn_doctor.install.plan import Fetch, FromIndex, Unpack
from cudnn_doctor.install.prefixes.brought import Known, identify
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.state import locate
from cudnn_doctor.install.wheels import fromindex
from cudnn_doctor.install.wheels.space import space_of
from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.model import Archive, Matrix, Wheel


class Source(NamedTuple):
    """Where a version's files come from: a step that fills the staging folder."""

    step: Unpack | FromIndex
    why: str
    space_needed: dict[str, int]


def source_for(request: InstallRequest, matrix: Matrix, prefix: str, staging: str) -> Source:
    """Choose between archive and wheel: what is at hand, else the faster of those that suffice.

    Raises DoctorError (NOTHING_CHANGED) when neither is known or can be had.
    """
    if request.archive is not None:
        return _unpacked(_local(request.archive, request, matrix), request, prefix, staging)
    archive, auto = archive_for(request, matrix), request.source == "auto"
    known = archive.sha256 if archive else None
    wheel = None if request.static or request.source == "archive" else _wheel_for(request, matrix)
    if request.source == "wheel" and wheel is None:
        why = "wheels hold no static libraries" if request.static else "no wheel of it is known"
        raise NothingChanged(
            f"it cannot come from a wheel: {why}", next_step="use --source archive"
        )
    mirrored = request.source == "wheel" and request.mirrors
    if wheel and (mirrored or _in_cache(wheel.sha256, request)):
        return _unpacked(_wheel_file(wheel, request), request, prefix, staging)
    if wheel and not request.mirrors and not (auto and _in_cache(known, request)):
        command = _installer(request, archive_will_do=auto and known is not None)
        if command:
            return _from_index(wheel, command, request, prefix, staging)
        if not auto or known is None:
            other = ", or use --source archive" if known else " of them"
            raise NothingChanged(
                "neither uv nor pip is here to fetch the wheel", next_step=f"install one{other}"
            )
    return _unpacked(archive_fetch(request, matrix), request, prefix, staging)


def _in_cache(sha256: str | None, request: InstallRequest) -> bool:
    """Whether the file is in this machine's cache already, and the plan is for this machine."""
    return sha256 is not None and not request.fresh and cached(locate(), sha256).exists()


def _installer(request: InstallRequest, *, archive_will_do: bool) -> tuple[str, ...] | None:
    """uv or pip of this machine; an image has neither until its recipe says so."""
    if not request.fresh:
        return fromindex.installer()
    return None if archive_will_do else ("python3", "-m", "pip")


def wheel_fetch(request: InstallRequest, matrix: Matrix) -> tuple[Wheel, Fetch]:
    """The wheel for a request, and its file: that of the mirrors named, else of the cache.

    Raises DoctorError (NOTHING_CHANGED) when the matrix knows none with its SHA-256.
    """
    wheel = _wheel_for(request, matrix)
    if wheel is None:
        raise NothingChanged(
            f"no wheel of cuDNN {request.version} for CUDA {request.cuda} on {request.platform} "
            "is known with its SHA-256",
            next_step="use --source archive",
        )
    return wheel, _wheel_file(wheel, request)


def _wheel_for(request: InstallRequest, matrix: Matrix) -> Wheel | None:
    found = query.wheel_for(matrix, request.version, request.cuda, request.arch, request.flavour)
    return found if found and found.sha256 else None


def _unpacked(fetch: Fetch, request: InstallRequest, prefix: str, staging: str) -> Source:
    size = fetch.size or 0
    step = Unpack(
        title=f"unpack {fetch.name}",
        source=fetch,
        staging=staging,
        members="static" if request.static else "shared",
    )
    needs = {prefix: free_space_for(size, static=request.static)} if size else {}
    if _in_cache(fetch.sha256, request):
        how = "from the cache"
    elif all(url.startswith("file:") for url in fetch.urls):
        how = "a local file"
    else:
        how = "downloaded"
        needs |= {str(locate().cache): size} if size else {}
    return Source(step, f"{fetch.name}, {how}", needs)


def _from_index(
    wheel: Wheel, command: tuple[str, ...], request: InstallRequest, prefix: str, staging: str
) -> Source:
    is_uv, size = fromindex.is_uv(command), 0 if request.fresh else wheel.size or 0
    needs = space_of(size, prefix, command, is_uv=is_uv)
    why = f"the wheel's contents ({wheel.file}): faster than NVIDIA's archive and as good here"
    return Source(fromindex.step_for(wheel, staging, command), why, needs)


def archive_fetch(request: InstallRequest, matrix: Matrix) -> Fetch:
    """The download of the archive for a request.

    Raises DoctorError (NOTHING_CHANGED) when the matrix knows none with its SHA-256.
    """
    archive = archive_for(request, matrix)
    if archive is None or archive.sha256 is None:
        raise NothingChanged(
            f"no archive of cuDNN {request.version} for CUDA {request.cuda} on {request.platform} "
            "is known with its SHA-256",
            next_step=f"see `cudnn-doctor matrix show {request.release}`; run "
            "`cudnn-doctor matrix update` for newer releases, or give the file with --archive",
        )
    name = os.path.basename(archive.path)
    base = matrix.legacy_base if archive.legacy else matrix.redist_base
    return Fetch(
        title=f"download {name}",
        urls=tuple(_join(mirror, archive.path) for mirror in request.mirrors or (base,)),
        sha256=archive.sha256,
        size=archive.size,
        name=name,
    )


def _wheel_file(wheel: Wheel, request: InstallRequest) -> Fetch:
    """A wheel of the mirrors, or else of the cache."""
    sha256 = wheel.sha256 or ""
    urls = tuple(_join(mirror, wheel.file) for mirror in request.mirrors)
    return Fetch(
        title=f"download {wheel.file}",
        urls=urls or (cached(locate(), sha256).as_uri(),),
        sha256=sha256,
        size=wheel.size,
        name=wheel.file,
    )


def archive_for(request: InstallRequest, matrix: Matrix) -> Archive | None:
    """The archive record of the matrix that fits version, CUDA, platform and flavour."""
    return query.archive_for(
        matrix, request.version, request.cuda, request.platform, request.flavour
    )


def _join(mirror: str, path: str) -> str:
    """A mirror (URL or folder) with NVIDIA's layout, and a path in it; raises DoctorError."""
    if "://" not in mirror:
        return (Path(mirror).resolve() / path).as_uri()
    try:
        if urlsplit(mirror).scheme in ("http", "https", "file"):
            return urljoin(mirror.rstrip("/") + "/", path)
    except ValueError:
        pass
    raise DoctorError(
        "this mirror is neither a folder nor a URL of http, https or file",
        where=mirror.rpartition("@")[2],
        next_step="mend --mirror",
        exit_code=ExitCode.USAGE,
    )


def _local(path: str, request: InstallRequest, matrix: Matrix) -> Fetch:
    """A file that the user brought: the matrix must know it, as what the request asks for."""
    known = identify(path, matrix)
    asked = Known(request.version, request.cuda, request.platform, request.flavour, known.sha256)
    if known != asked:
        raise NothingChanged(
            f"this is {known}, not {asked}",
            where=path,
            next_step="leave --version and --cuda out, or bring the other file",
        )
    wheels = {wheel.sha256 for release in matrix.releases for wheel in release.wheels}
    if request.static and known.sha256 in wheels:
        raise NothingChanged(
            "wheels hold no static libraries", where=path, next_step="bring NVIDIA's archive"
        )
    return Fetch(
        title=f"take {os.path.basename(path)}",
        urls=(Path(path).resolve().as_uri(),),
        sha256=known.sha256,
        size=os.path.getsize(path),
        name=os.path.basename(path),
    )
