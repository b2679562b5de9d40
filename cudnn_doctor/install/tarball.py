"""Plans for a prefix: NVIDIA's archive, a mirror's or a local copy of it, or a wheel's contents."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO
from urllib.parse import urljoin

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install import prefix as prefixes
from cudnn_doctor.install.plan import AnyStep, Fetch, MakeFolder, MoveTree, Plan, Prove, Unpack
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.unpack import free_space_for
from cudnn_doctor.matrix.model import Archive, Matrix, Release


def plan_tarball(request: InstallRequest, matrix: Matrix) -> Plan:
    """A plan that puts one version into a prefix and makes it current.

    Raises DoctorError (NOTHING_CHANGED) when the matrix knows no archive for the request, or the
    version is there already.
    """
    prefix = os.path.abspath(request.prefix or prefixes.default())
    name = prefixes.folder_name(request.release, request.cuda)
    final, staging = f"{prefix}/{name}", f"{prefix}/.{name}.new"
    if os.path.lexists(final):
        raise DoctorError(
            f"cuDNN {request.release} for CUDA {request.cuda} is installed there already",
            where=final,
            next_step=f"make it current with `cudnn-doctor use {name} --prefix {prefix}`, "
            "or check its files with `cudnn-doctor repair`",
            exit_code=ExitCode.NOTHING_CHANGED,
        )
    source = fetch_for(request, matrix)
    as_root = prefix == prefixes.SYSTEM and os.geteuid() == 0
    steps: tuple[AnyStep, ...] = (
        MakeFolder(title=f"create {prefix}", path=prefix, needs_root=not _may_write(prefix)),
        Unpack(
            title=f"unpack {source.name}",
            source=source,
            staging=staging,
            members="static" if request.static else "shared",
        ),
        MakeFolder(title="create the folder for pkg-config", path=f"{staging}/lib/pkgconfig"),
        prefixes.pkgconfig(staging, request.release),
        Prove(
            title="check the files and load them", folder=f"{staging}/lib", version=request.version
        ),
        MoveTree(title=f"put it in place as {name}", source=staging, target=final),
        *prefixes.make_current(prefix, name, ldconfig=as_root),
    )
    size = source.size or 0
    return Plan(
        action="install",
        method="tarball",
        version=request.version,
        cuda=request.cuda,
        target=prefix,
        steps=steps,
        reasons=request.reasons,
        space_needed={prefix: free_space_for(size)} if size else {},
    )


def _may_write(path: str) -> bool:
    place = Path(path)
    while not place.exists():
        place = place.parent
    return os.access(place, os.W_OK)


def fetch_for(request: InstallRequest, matrix: Matrix) -> Fetch:
    """The download that the request needs, with its hash from the matrix."""
    if request.archive is not None:
        return _local(request.archive, request, matrix)
    archive = archive_for(request, matrix)
    if archive is None or archive.sha256 is None:
        raise DoctorError(
            f"no archive of cuDNN {request.version} for CUDA {request.cuda} on {request.platform} "
            "is known with its SHA-256",
            next_step="see `cudnn-doctor matrix show "
            f"{request.release}`; run `cudnn-doctor matrix update` for newer releases, or give the "
            "file with --archive",
            exit_code=ExitCode.NOTHING_CHANGED,
        )
    base = matrix.legacy_base if archive.legacy else matrix.redist_base
    urls = tuple(_join(mirror, archive.path) for mirror in (*request.mirrors, base))
    return Fetch(
        title=f"download {os.path.basename(archive.path)}",
        urls=urls[:-1] if request.mirrors else urls,
        sha256=archive.sha256,
        size=archive.size,
        name=os.path.basename(archive.path),
    )


def archive_for(request: InstallRequest, matrix: Matrix) -> Archive | None:
    """The archive record of the matrix that fits version, CUDA, platform and flavour."""
    for release in matrix.releases:
        if release.version != request.release:
            continue
        fitting = [a for a in release.archives if _fits(a, release, request)]
        return max(fitting, key=lambda a: [int(n) for n in a.cuda.split(".")], default=None)
    return None


def _fits(archive: Archive, release: Release, request: InstallRequest) -> bool:
    version = archive.version or release.build
    return (
        archive.platform == request.platform
        and archive.flavour == request.flavour
        and archive.cuda.split(".")[0] == request.cuda.split(".")[0]
        and version == request.version
    )


def _join(mirror: str, path: str) -> str:
    """A mirror (URL or folder) with NVIDIA's layout, and a path in it."""
    if "://" not in mirror:
        return (Path(mirror).resolve() / path).as_uri()
    return urljoin(mirror.rstrip("/") + "/", path)


def _local(path: str, request: InstallRequest, matrix: Matrix) -> Fetch:
    """A file that the user brought: its hash must be one that the matrix knows."""
    try:
        with open(path, "rb") as file:
            digest = _digest(file)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise DoctorError(
            f"cannot read the archive: {error.strerror}",
            where=path,
            exit_code=ExitCode.NOTHING_CHANGED,
        ) from error
    releases = [r for r in matrix.releases if r.version == request.release]
    known = {archive.sha256 for release in releases for archive in release.archives}
    known |= {wheel.sha256 for release in releases for wheel in release.wheels}
    if digest not in known:
        raise DoctorError(
            f"this file is no archive or wheel of cuDNN {request.release} that NVIDIA published "
            f"(SHA-256 {digest})",
            where=path,
            next_step="fetch it again with `cudnn-doctor download`; for a newer release run "
            "`cudnn-doctor matrix update` first",
            exit_code=ExitCode.NOTHING_CHANGED,
        )
    return Fetch(
        title=f"take {os.path.basename(path)}",
        urls=(Path(path).resolve().as_uri(),),
        sha256=digest,
        size=size,
        name=os.path.basename(path),
    )


def _digest(file: IO[bytes]) -> str:
    """SHA-256 of an open file (hashlib.file_digest came with Python 3.11)."""
    digest = hashlib.sha256()
    while data := file.read(1 << 20):
        digest.update(data)
    return digest.hexdigest()
