"""Downloads into a content-addressed cache: readable while they arrive, hashed on arrival.

Whoever needs the bytes reads them in order behind the frontier (`Arriving`), so hashing and
unpacking go on while the rest arrives. Only a file whose SHA-256 is right ever gets its final name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cudnn_doctor.errors import DoctorError, NothingChanged
from cudnn_doctor.install.archives.transfer import MirrorError, Transfer, redacted
from cudnn_doctor.install.plan import Fetch
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.install.state import State, make_folder

_PIECE = 8 << 20
_HASHED_PIECE = 1 << 20
_PATIENCE_SECONDS = 3.0

_CACHED = re.compile(r"\.?[0-9a-f]{64}(\.part|\.new)?")
"""Names of its files; what else lies in the cache is not this tool's."""


def cached(state: State, sha256: str) -> Path:
    """Where the file with this hash is, or would be, in the cache."""
    return state.cache / "files" / sha256


def cached_files(state: State) -> list[tuple[Path, int]]:
    """Files of the cache with their sizes in bytes, unfinished ones included."""
    folder = state.cache / "files"
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [folder / name for name in names if _CACHED.fullmatch(name)]
    return [(path, path.lstat().st_size) for path in paths]


def fetch(step: Fetch, state: State, progress: Progress) -> Path:
    """Bring the file into the cache (or find it there, or on this machine) and return its path.

    Raises DoctorError with NOTHING_CHANGED: no mirror gave it, or what came has another hash.
    """
    with Arriving(step, state, progress) as arriving:
        return arriving.finish()


def download_to(step: Fetch, state: State, folder: str, progress: Progress) -> Path:
    """Bring the file into a folder, through the cache; returns its path there."""
    source, target = fetch(step, state, progress), Path(folder) / step.name
    fresh = target.with_name(f".{target.name}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, fresh)
        os.replace(fresh, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise NothingChanged(
            f"cannot write it: {error.strerror}",
            where=str(target),
            next_step="give another folder with --dest",
        ) from error
    return target


class Arriving:
    """A file that is being downloaded: readable in order while it arrives.

    ``read`` blocks until bytes are there; ``finish`` waits for the end, checks the hash and gives
    the file its final name. Local files are read where they are.
    """

    def __init__(self, step: Fetch, state: State, progress: Progress) -> None:
        self.step = step
        self.progress = progress
        self.final = cached(state, step.sha256)
        self.part = self.final.with_name(step.sha256 + ".part")
        self._hash = hashlib.sha256()
        self._hasher = threading.Thread(target=self._digest, daemon=True)
        self._position = 0
        self._frontier = 0
        self._error: BaseException | None = None
        self._ended = False
        self._news = threading.Condition()
        self._fd = -1
        self._path = self.final
        self._transfer: Transfer | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Arriving:
        self._path = self._present() or self.part
        flags = os.O_RDONLY if self._path is not self.part else os.O_RDWR | os.O_CREAT
        try:
            if self._path is self.part:
                make_folder(self.part.parent)
            self._fd = os.open(self._path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise NothingChanged(
                f"cannot open it: {error.strerror}", where=str(self._path)
            ) from error
        if self._path is self.part:
            self._transfer = Transfer(self._fd, self.step.size, self._advance)
            self._thread = threading.Thread(target=self._download, daemon=True)
            self._thread.start()
        else:
            size = os.fstat(self._fd).st_size
            self._advance(size, size)
            self._ended = True
        self._hasher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.break_off()
        self.progress.ended()
        self._hasher.join()
        if self._transfer is not None and self._thread is not None:
            self._transfer.stop()
            self._thread.join(_PATIENCE_SECONDS)
            if self._thread.is_alive():
                return  # it waits for an answer and may yet write: the file stays open
        os.close(self._fd)

    def _present(self) -> Path | None:
        """The file in the cache, or a local mirror's."""
        local = [urlsplit(url) for url in self.step.urls if url.startswith("file:")]
        paths = [self.final, *(Path(unquote(parts.path)) for parts in local)]
        return next((path for path in paths if path.is_file()), None)

    # -- the reader's side

    def read(self, size: int = -1) -> bytes:
        """The next bytes in order, at most ``size``; empty at the end of the file."""
        if size < 0:
            return b"".join(iter(lambda: self.read(_PIECE), b""))
        data = self._some(self._position, size)
        self._position += len(data)
        return data

    def at(self, position: int, size: int) -> bytes:
        """All of these bytes, once they are there; fewer at the end of the file. Several threads
        may ask."""
        parts = []
        while size and (data := self._some(position, size)):
            parts.append(data)
            position, size = position + len(data), size - len(data)
        return b"".join(parts)

    def break_off(self) -> None:
        """Give up: whoever waits for bytes gets an error."""
        with self._news:
            self._error = self._error or NothingChanged("it was broken off", where=str(self._path))
            self._ended = False
            self._frontier = 0
            self._news.notify_all()

    def _some(self, position: int, size: int) -> bytes:
        """Bytes from ``position`` on, once one is there; empty at the end of the file."""
        with self._news:
            while position >= self._frontier and not self._ended and self._error is None:
                self._news.wait()
            if position >= self._frontier and self._error is not None:
                raise self._error
            return os.pread(self._fd, min(size, self._frontier - position), position)

    def _digest(self) -> None:
        """Hash everything, in order, beside the reader (in a thread of its own)."""
        position = 0
        try:
            while data := self._some(position, _HASHED_PIECE):
                self._hash.update(data)
                position += len(data)
        except (OSError, DoctorError):
            return  # the reader meets the same

    def finish(self) -> Path:
        """Read what is left, check the hash, give the file its name; returns the path."""
        while self.read(_PIECE):
            pass
        self._hasher.join()
        if self._hash.hexdigest() != self.step.sha256:
            raise self._wrong_hash()
        if self._path is self.part:
            os.replace(self.part, self.final)
            self._path = self.final
        return self._path

    def _wrong_hash(self) -> DoctorError:
        found = f"SHA-256 {self._hash.hexdigest()}, expected {self.step.sha256}"
        if self._path in (self.part, self.final):
            self._path.unlink(missing_ok=True)
        if self._path is self.final:
            return NothingChanged(
                f"the cached {self.step.name} was damaged and is removed ({found})",
                where=str(self.final),
                next_step="run it again to download it anew",
            )
        return NothingChanged(
            f"this {self.step.name} is not the file that NVIDIA published ({found})",
            where=redacted(self.step.urls[0]),
            next_step="run it again; if it stays so, a proxy or mirror alters files: try another "
            "--mirror, or bring the file with --archive",
        )

    # -- the downloader's side

    def _advance(self, frontier: int, total: int | None) -> None:
        with self._news:
            self._frontier = frontier
            self._news.notify_all()
        self.progress.bytes(frontier, total)

    def _download(self) -> None:
        """Try the mirrors in order (in a thread of its own)."""
        errors: list[str] = []
        try:
            for url in self.step.urls:
                try:
                    self._from(url)
                    return
                except MirrorError as error:
                    errors.append(f"{redacted(url)}: {error}")
            raise NothingChanged(
                f"cannot download {self.step.name}:\n  " + "\n  ".join(errors),
                next_step="check the network and proxy (HTTPS_PROXY); or take --source wheel, from "
                "the package index; or fetch it elsewhere (`cudnn-doctor download`) for --archive",
            )
        except OSError as error:
            self._error = NothingChanged(
                f"cannot write the cache: {error.strerror}",
                where=str(self.part),
                next_step="free some space there, or point CUDNN_DOCTOR_CACHE elsewhere",
            )
        except BaseException as error:
            self._error = error
        finally:
            with self._news:
                self._news.notify_all()

    def _from(self, url: str) -> None:
        if url.startswith("file:"):
            raise MirrorError("no such file")
        if self._transfer is not None:
            self._transfer.run(url)
        with self._news:
            self._ended = True
