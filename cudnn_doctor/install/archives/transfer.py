"""One file from one server into a part file: several connections, retries, a stall limit.

The file is cut into blocks that a few connections fetch. Bytes up to the frontier are there in
order, those of the block under way included; a part file of an earlier run is taken up again where
it is surely whole.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    import requests

BLOCK = 4 << 20
CONNECTIONS = 4
WINDOW = 2 * CONNECTIONS
"""Blocks under way at once: after a kill only the last so many can have holes."""
CONNECT_SECONDS = 15.0
STALL_SECONDS = 30.0
"""A connection that brings less than a piece in this time is given up; the whole has no limit."""
PIECE, LARGE_PIECE = 1 << 16, 1 << 20
"""Bytes taken from a connection at once: many where a block comes within a second."""
TRIES = 4
BACK_OFF_SECONDS = 0.3
LONGEST_PAUSE_SECONDS = 60.0
MAX_REDIRECTS = 8
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


class MirrorError(Exception):
    """This server cannot give the file; the text says why."""


class _PassingError(Exception):
    """Another try may help, after so many seconds where the server told them."""

    def __init__(self, text: str, seconds: float | None = None) -> None:
        super().__init__(text)
        self.seconds = seconds


class Transfer:
    """Fills a file (``fd``) and tells ``advance(frontier, total)`` how far it is."""

    def __init__(
        self, fd: int, size: int | None, advance: Callable[[int, int | None], None]
    ) -> None:
        self._fd = fd
        self._size = size
        self._total = size
        self._tell = advance
        self._frontier = 0
        self._head = 0
        """Start of the block that the frontier is in: its bytes count as they arrive."""
        self._stopped = threading.Event()
        self._live: dict[requests.Response, float] = {}
        self._piece = PIECE

    def run(self, url: str) -> None:
        """Get all that is missing; raises MirrorError, or OSError when the disk refuses.

        Returns early, without an error, when it was stopped.
        """
        import requests
        import urllib3

        watch = threading.Thread(target=self._watch, daemon=True)
        watch.start()
        tries = 0
        with requests.Session() as session:
            session.max_redirects = MAX_REDIRECTS
            session.hooks["response"].append(_stay_encrypted)
            while True:
                before = self._frontier
                try:
                    return self._get_all(session, url)
                except (_PassingError, requests.RequestException) as error:
                    tries = 0 if self._frontier > before else tries + 1
                    if self._stopped.is_set():
                        return None
                    if tries >= TRIES or not _passes(error):
                        raise MirrorError(reason(error)) from error
                    told = error.seconds if isinstance(error, _PassingError) else None
                except (ValueError, urllib3.exceptions.HTTPError) as error:
                    raise MirrorError(f"its address or answer makes no sense: {error}") from error
                except OSError as error:
                    if error.errno is None:  # not the disk's: requests finds no CA certificates
                        raise MirrorError(str(error)) from error
                    raise
                self._pause(BACK_OFF_SECONDS * 2**tries if told is None else told)

    def _pause(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    def stop(self) -> None:
        """End it soon, from another thread: connections are shut."""
        self._stopped.set()
        for response in list(self._live):
            _shut(response)

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, STALL_SECONDS / 4)):
            for response, since in list(self._live.items()):
                if time.monotonic() - since > STALL_SECONDS:
                    _shut(response)

    # -- the parts of a run

    def _get_all(self, session: requests.Session, url: str) -> None:
        have = self._frontier or self._left_before()
        with self._get(session, url, have, have + BLOCK) as response:
            if response.status_code == 416 and have:
                os.ftruncate(self._fd, 0)
                raise _PassingError("the part of an earlier run did not fit")
            if response.status_code in _TRY_AGAIN:
                raise _refusal(response)
            if response.status_code >= 400:
                raise MirrorError(f"HTTP {response.status_code} {response.reason}")
            if response.status_code != 206:
                self._whole(response)
                return
            total = self._total_of(response, have)
            self._advance(have)
            self._head = have
            end = min(have + BLOCK, total)
            self._save(response, have, end)
            resolved = response.url
        self._head = end
        self._rest(session, resolved, end, total)

    def _rest(self, session: requests.Session, url: str, start: int, total: int) -> None:
        """Blocks from ``start`` to the end, several at a time, announced in order."""

        def block(offset: int) -> int:
            end = min(offset + BLOCK, total)
            with self._get(session, url, offset, end) as response:
                if response.status_code != 206:
                    raise _PassingError(f"HTTP {response.status_code} for a part of the file")
                self._save(response, offset, end)
            return end

        pool = ThreadPoolExecutor(CONNECTIONS)
        try:
            for end in _in_order(pool, block, range(start, total, BLOCK)):
                if self._stopped.is_set():
                    return
                self._advance(end)
                self._head = end
        finally:
            pool.shutdown(cancel_futures=True)

    def _whole(self, response: requests.Response) -> None:
        """A server without ranges: one connection, from the start."""
        length = response.headers.get("Content-Length", "")
        self._check_size(int(length) if length.isdigit() else None)
        done = 0
        for data in self._pieces(response):
            if self._total is not None and done + len(data) > self._total:
                raise MirrorError("the server sends more than it announced")
            _write(self._fd, data, done)
            done += len(data)
            if done > self._frontier:
                self._advance(done)
        if done < (self._total or 0):
            raise _PassingError(f"the connection ended after {done} of {self._total} bytes")
        os.ftruncate(self._fd, done)

    def _save(self, response: requests.Response, start: int, end: int) -> None:
        offset, began = start, time.monotonic()
        for data in self._pieces(response):
            if offset + len(data) > end:
                raise MirrorError("the server sends more than it was asked for")
            _write(self._fd, data, offset)
            offset += len(data)
            if start == self._head:
                self._advance(offset)
        if offset < end:
            raise _PassingError(f"the connection ended after {offset} of {self._total} bytes")
        self._piece = LARGE_PIECE if time.monotonic() - began < 1 else PIECE

    # -- details

    @contextlib.contextmanager
    def _get(
        self, session: requests.Session, url: str, start: int, end: int
    ) -> Iterator[requests.Response]:
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        response = session.get(
            url, headers=headers, stream=True, timeout=(CONNECT_SECONDS, STALL_SECONDS)
        )
        self._live[response] = time.monotonic()
        try:
            if self._stopped.is_set():
                raise _PassingError("stopped")
            yield response
        finally:
            del self._live[response]
            response.close()

    def _pieces(self, response: requests.Response) -> Iterator[bytes]:
        for data in response.iter_content(self._piece):
            if self._stopped.is_set():
                raise _PassingError("stopped")
            self._live[response] = time.monotonic()
            yield data

    def _total_of(self, response: requests.Response, have: int) -> int:
        answer = response.headers.get("Content-Range", "")
        total = answer.rpartition("/")[2]
        if not answer.startswith(f"bytes {have}-") or not total.isdigit():
            raise MirrorError(f"nonsense in Content-Range: {answer!r}")
        self._check_size(int(total))
        return int(total)

    def _check_size(self, total: int | None) -> None:
        if self._size is not None and total not in (None, self._size):
            raise MirrorError(f"the file there has {total} bytes, the published one {self._size}")
        self._total = total if total is not None else self._size

    def _advance(self, frontier: int) -> None:
        self._frontier = frontier
        self._tell(frontier, self._total)

    def _left_before(self) -> int:
        """Bytes of an earlier run's part file that are surely there, in order."""
        have = os.fstat(self._fd).st_size // BLOCK * BLOCK - WINDOW * BLOCK
        return have if 0 < have < (self._size or have + 1) else 0


def _stay_encrypted(response: requests.Response, **_: Any) -> None:
    """Before a redirect is followed: what was asked for over TLS never goes on in the clear."""
    target = urljoin(response.url, response.headers.get("location", ""))
    schemes = urlsplit(response.url).scheme, urlsplit(target).scheme
    if response.is_redirect and schemes[0] == "https" and schemes[1] != "https":
        raise MirrorError("it was led away from https")


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


def _refusal(response: requests.Response) -> _PassingError:
    """A refusal for now; servers may tell in seconds when to come again (RFC 9110, 10.2.3)."""
    told = response.headers.get("Retry-After", "")
    pause = min(float(told), LONGEST_PAUSE_SECONDS) if told.isdecimal() else None
    return _PassingError(f"HTTP {response.status_code} {response.reason}", pause)


def _write(fd: int, data: bytes, offset: int) -> None:
    """Write all of it: where space runs out the system first writes a part."""
    while data:
        done = os.pwrite(fd, data, offset)
        data, offset = data[done:], offset + done


def _shut(response: requests.Response) -> None:
    """Wake the thread that waits for this connection's bytes: it sees the end of them."""
    connection = getattr(response.raw, "_connection", None)
    sock = getattr(connection, "sock", None)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _passes(error: Exception) -> bool:
    """Whether another try may help."""
    from requests import exceptions

    if isinstance(error, exceptions.SSLError | exceptions.ProxyError):
        return False
    passing = (exceptions.ConnectionError, exceptions.Timeout, exceptions.ChunkedEncodingError)
    return isinstance(error, (_PassingError, *passing))


def reason(error: Exception) -> str:
    """An error of requests in one short line."""
    from requests import exceptions

    reasons: tuple[tuple[type[Exception], str], ...] = (
        (
            exceptions.SSLError,
            "its TLS certificate is not trusted (an intercepting proxy? see REQUESTS_CA_BUNDLE)",
        ),
        (exceptions.ProxyError, "the proxy refused or cannot be reached"),
        (exceptions.TooManyRedirects, "redirected in a circle"),
        (exceptions.Timeout, "it stopped sending"),
        (exceptions.ChunkedEncodingError, "the connection broke off, or stalled"),
        (exceptions.ConnectionError, "cannot connect, or the connection broke off"),
    )
    return next((text for kind, text in reasons if isinstance(error, kind)), str(error))


def redacted(url: str) -> str:
    """The URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
