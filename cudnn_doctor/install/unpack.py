"""Unpack an archive or wheel into a staging folder; archives are hostile until proved otherwise.

Whatever the layout (``<name>-archive/lib``, ``cuda/lib64``, ``cuda/targets/*/lib`` or a wheel's
``nvidia/cudnn/lib``), the result is ``include/``, ``lib/`` and the licence. Refused: absolute
paths, ``..``, links that leave the folder, device nodes, names told twice, more data than the
archive can honestly hold. Modes are ours: setuid and write bits of others never come through.
"""

from __future__ import annotations

import itertools
import lzma
import os
import re
import tarfile
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import IO, cast

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install import manifest
from cudnn_doctor.install.download import Arriving
from cudnn_doctor.install.files import failed
from cudnn_doctor.install.plan import Unpack
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.install.state import State

_PIECE = 1 << 20
_MAX_BYTES = 24 << 30
_MAX_RATIO = 40
"""cuDNN archives unpack to 2 to 4 times their size."""
_MAX_MEMBERS = 4096
_LIBRARY = re.compile(r"(lib[\w-]+)\.so(\.\d+)*")


class Refused(Exception):
    """The archive holds something that an honest one does not."""


def unpack(step: Unpack, state: State, progress: Progress) -> None:
    """Fetch the step's source (or find it cached) and unpack it while it arrives.

    Raises DoctorError (NOTHING_CHANGED) when the archive is damaged, hostile or not cuDNN's, or the
    disk refuses; the staging folder is then for the caller to discard.
    """
    staging = Path(step.staging)
    try:
        staging.mkdir(parents=True, mode=0o755)
        sink = _Sink(staging, step)
        with Arriving(step.source, state, progress) as arriving:
            if step.source.name.endswith((".whl", ".zip")):
                _unzip(arriving.finish(), sink)
            else:
                _untar(arriving, step.source.name, sink)
                arriving.finish()
        sink.finish()
    except OSError as error:
        raise failed("cannot unpack", str(error.filename or staging), error) from error
    except (Refused, tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error) as error:
        raise DoctorError(
            f"cannot unpack {step.source.name}: {error}",
            where=step.staging,
            next_step="fetch the archive anew (`cudnn-doctor cache clear`), or use another source",
            exit_code=ExitCode.NOTHING_CHANGED,
        ) from error


class _Sink:
    """The staging folder: takes members one by one and says no to what it should not hold."""

    def __init__(self, folder: Path, step: Unpack) -> None:
        self.folder = folder
        self.step = step
        self.limit = (
            min(_MAX_BYTES, _MAX_RATIO * step.source.size) if step.source.size else _MAX_BYTES
        )
        self.written = 0
        self.seen: set[str] = set()
        self.links: dict[str, str] = {}

    def place(self, name: str) -> str | None:
        """Where a member goes in the normal layout, None when it is not wanted."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
            raise Refused(f"it holds a path that leads outside: {name!r}")
        whole = self.step.members == "all"
        place = "/".join(path.parts[1:]) if whole else self._normal(path)
        if not place:
            return None
        if place in self.seen:
            raise Refused(f"it holds {name!r} twice")
        self.seen.add(place)
        if len(self.seen) > _MAX_MEMBERS:
            raise Refused("it holds far more files than a cuDNN archive")
        return place

    def _normal(self, path: PurePosixPath) -> str | None:
        parts = list(path.parts)
        base = parts[-1] if parts else ""
        if base == "__init__.py":
            return None
        for index, part in enumerate(parts[:-1]):
            if part == "include":
                return "/".join(["include", *parts[index + 1 :]])
            if part in ("lib", "lib64") and index + 2 == len(parts):
                wanted = _LIBRARY.fullmatch(base) is not None
                if self.step.members == "static":
                    wanted = wanted or base.endswith(".a")
                return f"lib/{base}" if wanted else None
        licence = re.fullmatch(r"(LICENSE|License|NVIDIA_SLA.*)(\.txt)?", base)
        return "LICENSE" if licence and "LICENSE" not in self.seen else None

    def write(self, place: str, source: IO[bytes]) -> None:
        """Copy a member's bytes into its place."""
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        mode = 0o755 if ".so" in path.name else 0o644
        fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode
        )
        with os.fdopen(fd, "wb", buffering=0) as file:
            while data := source.read(_PIECE):
                self.written += len(data)
                if self.written > self.limit:
                    raise Refused("it unpacks to far more than a cuDNN archive holds")
                file.write(data)

    def link(self, place: str, target: str) -> None:
        """Remember a link; it is made when all files are there."""
        if place.startswith("lib/") and "/" in target:
            # Old layouts link across folders; after normalising all libraries share one.
            target = self._sibling(place, target)
        self.links[place] = target

    @staticmethod
    def _sibling(place: str, target: str) -> str:
        if target.startswith("/") or os.path.normpath(f"{place}/../{target}").startswith(".."):
            raise Refused(f"the link {place!r} leads outside, to {target!r}")
        return target.rpartition("/")[2]

    def finish(self) -> None:
        """Make the links, archive's own first, then those that a build expects."""
        for place, target in self.links.items():
            self._make_link(place, target)
        library_folder = self.folder / "lib"
        names = sorted(p.name for p in library_folder.iterdir()) if library_folder.is_dir() else []
        if not any(name.startswith("libcudnn.so.") for name in names):
            raise Refused("it holds no libcudnn.so")
        if self.step.links:
            complete_links(library_folder)
        manifest.write(self.folder)

    def _make_link(self, place: str, target: str) -> None:
        inside = os.path.normpath(os.path.join(os.path.dirname(place), target))
        if target.startswith("/") or inside.startswith(".."):
            raise Refused(f"the link {place!r} leads outside, to {target!r}")
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        os.symlink(target, path)
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise Refused(f"the link {place!r} leads outside, to {target!r}")


def complete_links(folder: Path) -> None:
    """``libX.so -> libX.so.9 -> libX.so.9.10.2``, where a file of a longer name is there."""
    for name in sorted(path.name for path in folder.iterdir()):
        match = _LIBRARY.fullmatch(name)
        if match is None or match[2] is None:
            continue
        stem, digits = match[1], name[len(match[1]) + 4 :].split(".")
        chain = [f"{stem}.so", f"{stem}.so.{digits[0]}", name]
        for link, target in itertools.pairwise(chain):
            if link != target and not os.path.lexists(folder / link):
                os.symlink(target, folder / link)


def _untar(arriving: Arriving, name: str, sink: _Sink) -> None:
    """Read the tar stream once, in order."""
    if name.endswith((".xz", ".txz")):
        from cudnn_doctor.install.xz import XzReader

        with (
            XzReader(arriving) as raw,
            tarfile.open(fileobj=raw, mode="r|", bufsize=_PIECE) as archive,
        ):
            _members(archive, sink)
    else:
        stream = cast("IO[bytes]", arriving)
        with tarfile.open(fileobj=stream, mode="r|gz", bufsize=_PIECE) as archive:
            _members(archive, sink)


def _members(archive: tarfile.TarFile, sink: _Sink) -> None:
    for member in archive:
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
            source = archive.extractfile(member)
            if source is None:
                raise Refused(f"{member.name!r} cannot be read")
            sink.write(place, source)


def _unzip(path: Path, sink: _Sink) -> None:
    """A wheel: its members are independent, so they are inflated side by side."""
    with zipfile.ZipFile(path) as archive:
        wanted: list[tuple[str, str]] = []
        for info in archive.infolist():
            if info.is_dir():
                continue
            kind = info.external_attr >> 16 & 0o170000
            if kind not in (0, 0o100000):
                raise Refused(f"it holds {info.filename!r}, which is not a plain file")
            if place := sink.place(info.filename):
                wanted.append((info.filename, place))
        if sum(archive.getinfo(name).file_size for name, _ in wanted) > sink.limit:
            raise Refused("it unpacks to far more than a cuDNN archive holds")

    def one(item: tuple[str, str]) -> None:
        with zipfile.ZipFile(path) as own, own.open(item[0]) as source:
            sink.write(item[1], source)

    wanted.sort(key=lambda item: item[1])
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(one, wanted))


def free_space_for(size: int, *, static: bool = False) -> int:
    """Bytes to have free for unpacking an archive of ``size`` bytes.

    The libraries take 1.6 times the size of the wheel that holds them alone (measured); an archive
    with static libraries unpacks to less than 4 times its size.
    """
    return (4 if static else 2) * size
