"""Downloads into a content-addressed cache: resumable, several connections, hashed on arrival.

A file is cut into blocks that a few connections fetch; whoever needs the bytes reads them in order
behind the frontier (`Arriving`), so hashing and unpacking go on while the rest arrives. What is
there stays in a part file and is taken up again by the next run. Only a file whose SHA-256 is right
ever gets its final name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.plan import Fetch
from cudnn_doctor.install.progress import Progress
from cudnn_doctor.install.state import State, make_folder

if TYPE_CHECKING:
    import requests

BLOCK = 8 << 20
CONNECTIONS = 4
WINDOW = 2 * CONNECTIONS
"""Blocks under way at once: after a kill only the last so many can have holes."""
CONNECT_SECONDS = 15.0
STALL_SECONDS = 30.0
"""A connection that sends nothing for so long is given up; there is no limit on the whole."""
TRIES = 4
MAX_REDIRECTS = 8


def cached(state: State, sha256: str) -> Path:
    """Where the file with this hash is, or would be, in the cache."""
    return state.cache / "files" / sha256


def fetch(step: Fetch, state: State, progress: Progress) -> Path:
    """Bring the file into the cache (or find it there) and return its path.

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
        fresh.unlink(missing_ok=True)
        raise _failed(f"cannot write it: {error.strerror}", str(target)) from error
    return target


def cached_files(state: State) -> list[tuple[Path, int]]:
    """Files of the cache with their sizes in bytes, unfinished ones included."""
    folder = state.cache / "files"
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [(path, path.stat().st_size) for path in paths]


class Arriving:
    """A file that is being downloaded: readable in order while it arrives.

    ``read`` blocks until bytes are there; ``finish`` waits for the end, checks length and hash and
    gives the file its final name.
    """

    def __init__(self, step: Fetch, state: State, progress: Progress) -> None:
        self.step = step
        self.progress = progress
        self.final = cached(state, step.sha256)
        make_folder(self.final.parent)
        self.part = self.final.with_name(step.sha256 + ".part")
        self._hash = hashlib.sha256()
        self._position = 0
        self._frontier = 0
        self._total: int | None = step.size
        self._error: BaseException | None = None
        self._ended = False
        self._stop = False
        self._news = threading.Condition()
        self._fd = -1
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Arriving:
        source = self.final if self.final.exists() else self.part
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = os.open(source, flags, 0o644)
        except OSError as error:
            raise _failed(f"cannot write the cache: {error.strerror}", str(source)) from error
        if source is self.final:
            self._advance(os.fstat(self._fd).st_size)
            self._ended = True
            return self
        self._thread = threading.Thread(target=self._download, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        if self._thread is not None:
            self._thread.join()
        os.close(self._fd)

    # -- the reader's side

    def read(self, size: int = -1) -> bytes:
        """The next bytes in order, at most ``size``; empty at the end of the file."""
        if size < 0:
            return b"".join(iter(lambda: self.read(BLOCK), b""))
        with self._news:
            while self._position >= self._frontier and not self._ended and self._error is None:
                self._news.wait()
            if self._position >= self._frontier and self._error is not None:
                raise self._error
            size = min(size, self._frontier - self._position)
        data = os.pread(self._fd, size, self._position)
        self._position += len(data)
        self._hash.update(data)
        return data

    def finish(self) -> Path:
        """Read what is left, check the hash, give the file its name; returns the path."""
        while self.read(BLOCK):
            pass
        if self._hash.hexdigest() != self.step.sha256:
            os.unlink(self.part if self._thread is not None else self.final)
            raise _failed(
                f"the downloaded {self.step.name} is not the file that NVIDIA published "
                f"(SHA-256 {self._hash.hexdigest()}, expected {self.step.sha256})",
                redacted(self.step.urls[0]),
                "run it again; if it stays so, a proxy or mirror alters files: try another "
                "--mirror, or bring the file with --archive",
            )
        if self._thread is not None:
            os.replace(self.part, self.final)
        return self.final

    # -- the downloader's side

    def _advance(self, frontier: int) -> None:
        with self._news:
            self._frontier = frontier
            self._news.notify_all()
        self.progress.bytes(frontier, self._total)

    def _download(self) -> None:
        errors: list[str] = []
        try:
            for url in self.step.urls:
                try:
                    self._from(url)
                except _MirrorError as error:
                    errors.append(f"{redacted(url)}: {error}")
                    if self._stop:
                        return
                    continue
                with self._news:
                    self._ended = True
                    self._news.notify_all()
                return
            raise _failed(
                f"cannot download {self.step.name}:\n  " + "\n  ".join(errors),
                "",
                "check the network and proxy (HTTPS_PROXY); or fetch it elsewhere with "
                "`cudnn-doctor download` and give it with --archive",
            )
        except BaseException as error:
            with self._news:
                self._error = error
                self._news.notify_all()

    def _from(self, url: str) -> None:
        """Get everything that is missing from one mirror."""
        if urlsplit(url).scheme == "file":
            self._copy(Path(unquote(urlsplit(url).path)))
            return
        import requests

        with requests.Session() as session:
            session.max_redirects = MAX_REDIRECTS
            for attempt in range(TRIES):
                try:
                    self._get_all(session, url)
                    return
                except (_Passing, requests.ConnectionError, requests.Timeout) as error:
                    if attempt == TRIES - 1 or _hopeless(error):
                        raise _MirrorError(_reason(error)) from error
                    if threading.Event().wait(0.3 * 2**attempt) or self._stop:
                        return
                except requests.RequestException as error:
                    raise _MirrorError(_reason(error)) from error

    def _copy(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._total = os.fstat(file.fileno()).st_size
                self._check_total()
                done = 0
                while (data := file.read(BLOCK)) and not self._stop:
                    os.pwrite(self._fd, data, done)
                    done += len(data)
                    self._advance(done)
                os.ftruncate(self._fd, done)
        except OSError as error:
            if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
                raise _MirrorError(error.strerror) from error
            raise _failed(f"cannot write the cache: {error.strerror}", str(self.part)) from error

    def _check_total(self) -> None:
        if self.step.size is not None and self._total not in (None, self.step.size):
            raise _MirrorError(
                f"the file there has {self._total} bytes, the published one {self.step.size}"
            )

    def _get_all(self, session: requests.Session, url: str) -> None:
        have = self._resume_point()
        headers = {"Range": f"bytes={have}-{have + BLOCK - 1}", "Accept-Encoding": "identity"}
        with session.get(
            url, headers=headers, stream=True, timeout=(CONNECT_SECONDS, STALL_SECONDS)
        ) as response:
            if response.status_code == 416 and have:
                os.ftruncate(self._fd, 0)
                raise _Passing("the part of an earlier run did not fit")
            if response.status_code >= 400:
                kind = _Passing if response.status_code in (408, 429, 500, 502, 503, 504) else None
                raise (kind or _MirrorError)(f"HTTP {response.status_code} {response.reason}")
            if response.status_code != 206:
                self._whole(response)
                return
            unit = response.headers.get("Content-Range", "")
            total = unit.rpartition("/")[2]
            if not unit.startswith(f"bytes {have}-") or not total.isdigit():
                raise _MirrorError(f"nonsense in Content-Range: {unit!r}")
            self._total = int(total)
            self._check_total()
            self._save(response, have, min(have + BLOCK, self._total))
            resolved = response.url
        self._advance(min(have + BLOCK, self._total))
        self._rest(session, resolved, min(have + BLOCK, self._total), self._total)

    def _whole(self, response: requests.Response) -> None:
        """A server without ranges: one connection, from the start."""
        length = response.headers.get("Content-Length", "")
        self._total = int(length) if length.isdigit() else None
        self._check_total()
        done = 0
        for data in response.iter_content(1 << 18):
            if self._stop:
                return
            if self._total is not None and done + len(data) > self._total:
                raise _MirrorError("the server sends more than it announced")
            self._write(data, done)
            done += len(data)
            if done > self._frontier:
                self._advance(done)
        if done < (self._total or 0):
            raise _Passing(f"the connection ended after {done} of {self._total} bytes")
        os.ftruncate(self._fd, done)

    def _rest(self, session: requests.Session, url: str, start: int, total: int) -> None:
        """Blocks from ``start`` to the end, several at a time, announced in order."""

        def block(offset: int) -> int:
            end = min(offset + BLOCK, total)
            headers = {"Range": f"bytes={offset}-{end - 1}", "Accept-Encoding": "identity"}
            with session.get(
                url, headers=headers, stream=True, timeout=(CONNECT_SECONDS, STALL_SECONDS)
            ) as response:
                if response.status_code != 206:
                    raise _Passing(f"HTTP {response.status_code} for a part of the file")
                self._save(response, offset, end)
            return end

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            for end in _in_order(pool, block, range(start, total, BLOCK)):
                if self._stop:
                    return
                self._advance(end)

    def _save(self, response: requests.Response, start: int, end: int) -> None:
        offset = start
        for data in response.iter_content(1 << 18):
            if self._stop:
                return
            if offset + len(data) > end:
                raise _MirrorError("the server sends more than it was asked for")
            self._write(data, offset)
            offset += len(data)
        if offset < end:
            raise _Passing(f"the connection ended after {offset} of {self._total} bytes")

    def _write(self, data: bytes, offset: int) -> None:
        try:
            os.pwrite(self._fd, data, offset)
        except OSError as error:
            raise _failed(
                f"cannot write the cache: {error.strerror}",
                str(self.part),
                "free some space there, or point CUDNN_DOCTOR_CACHE elsewhere",
            ) from error

    def _resume_point(self) -> int:
        """Bytes that are surely there in order: whole blocks announced in this run, or those of
        a part file left by an earlier one (a final hash judges them)."""
        if self._frontier:
            return self._frontier
        have = os.fstat(self._fd).st_size // BLOCK * BLOCK
        if self._total is not None and have >= self._total:
            have = 0
        have = max(0, have - WINDOW * BLOCK)
        if have:
            self._advance(have)
        return have


def _in_order(
    pool: ThreadPoolExecutor, block: Callable[[int], int], offsets: range
) -> Iterator[int]:
    """Results of ``block`` in order, with a bounded number under way."""
    waiting: deque[Future[int]] = deque()
    for offset in offsets:
        waiting.append(pool.submit(block, offset))
        if len(waiting) >= WINDOW:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _MirrorError(Exception):
    """This mirror cannot give the file."""


class _Passing(Exception):
    """Another try may help."""


def _hopeless(error: Exception) -> bool:
    import requests

    return isinstance(error, requests.exceptions.SSLError | requests.exceptions.ProxyError)


def _reason(error: Exception) -> str:
    import requests

    if isinstance(error, requests.exceptions.SSLError):
        return "its TLS certificate is not trusted (an intercepting proxy? see REQUESTS_CA_BUNDLE)"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy refused or cannot be reached"
    if isinstance(error, requests.exceptions.TooManyRedirects):
        return "redirected in a circle"
    if isinstance(error, requests.Timeout):
        return "it stopped sending"
    if isinstance(error, requests.ConnectionError):
        return "cannot connect"
    return str(error)


def redacted(url: str) -> str:
    """The URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _failed(what: str, where: str, next_step: str = "") -> DoctorError:
    return DoctorError(what, where=where, next_step=next_step, exit_code=ExitCode.NOTHING_CHANGED)
