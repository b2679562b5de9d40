"""A file that the user brought: which release it is, by its hash alone."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import stat
from typing import Literal, NamedTuple

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install.archives.unpack import described
from cudnn_doctor.matrix.model import Matrix

_PIECE = 1 << 20
_BEGIN = 64


class Known(NamedTuple):
    """What the matrix says about a file with a certain hash."""

    version: str
    cuda: str
    platform: str
    flavour: Literal["full", "jit"]
    sha256: str = ""

    def __str__(self) -> str:
        jit = " JIT" if self.flavour == "jit" else ""
        return f"cuDNN{jit} {self.version} for CUDA {self.cuda} on {self.platform}"


def identify(path: str, matrix: Matrix) -> Known:
    """Which release an archive or wheel is.

    Raises DoctorError (NOTHING_CHANGED) when it cannot be read or is none that NVIDIA published, as
    far as the matrix knows.
    """
    try:
        state = os.stat(path)
        if not stat.S_ISREG(state.st_mode):  # a pipe would be waited for, a device has no end
            raise OSError(errno.EINVAL, "it is no regular file")
        digest = _digest(os.path.abspath(path), state.st_mtime_ns, state.st_size)
        known = _known(digest, matrix)
        begin = b"" if known else _begin(path)
    except OSError as error:
        raise NothingChanged(
            f"cannot read the archive: {error.strerror}",
            where=path,
            next_step="name the file that was downloaded",
        ) from error
    if known:
        return known
    looks = described(begin)
    raise NothingChanged(
        "this file is no archive or wheel of cuDNN that NVIDIA published "
        + (f"(it is {looks})" if looks else f"(SHA-256 {digest})"),
        where=path,
        next_step="fetch it again with `cudnn-doctor download`; for a newer release run "
        "`cudnn-doctor matrix update` first",
    )


def _known(digest: str, matrix: Matrix) -> Known | None:
    for release in matrix.releases:
        for archive in release.archives:
            if archive.sha256 == digest:
                version = archive.version or release.build or release.version
                cuda = archive.cuda.split(".")[0]
                return Known(version, cuda, archive.platform, archive.flavour, digest)
        for wheel in release.wheels:
            if wheel.sha256 == digest:
                cuda = wheel.package.rpartition("cu")[2]
                platform = "linux-sbsa" if wheel.arch == "aarch64" else f"linux-{wheel.arch}"
                flavour: Literal["full", "jit"] = "jit" if "-jit-" in wheel.package else "full"
                version = wheel.version.partition(".post")[0]
                return Known(version, cuda, platform, flavour, digest)
    return None


@functools.lru_cache
def _digest(path: str, _changed: int, _size: int) -> str:
    """SHA-256 of a file, read once while it stays as it is."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(_PIECE):
            digest.update(data)
    return digest.hexdigest()


def _begin(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_BEGIN)
