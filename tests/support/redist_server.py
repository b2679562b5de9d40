"""A loopback HTTP server with NVIDIA's layout, which can misbehave in every way that servers do."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class RedistServer:
    """Serves ``root``; ``fault`` says how it misbehaves, ``served`` counts bodies' bytes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fault = ""
        self.faults_left = -1
        """How many more times it misbehaves; negative: always."""
        self.rate = 0.0
        """Bytes a second of all connections together; 0: no limit."""
        self.served = 0
        self.requests: list[str] = []
        self.authorization = ""
        """The header without which nothing is served; empty: none is needed."""
        self.retry_after = ""
        """The header of that name of its error answers."""
        self.at_once = 0
        self.most_at_once = 0
        """Requests under way, and the most there ever were."""
        self.lock = threading.Lock()
        self.ready_at = 0.0
        self.url = ""

    def misbehave(self) -> str:
        """The fault for this request."""
        with self.lock:
            if not self.fault or self.faults_left == 0:
                return ""
            self.faults_left -= 1
            return self.fault

    def wait_for(self, count: int) -> None:
        """Sleep so that the rate is kept, then count the bytes."""
        with self.lock:
            self.served += count
            if not self.rate:
                return
            self.ready_at = max(self.ready_at, time.monotonic()) + count / self.rate
            pause = self.ready_at - time.monotonic()
        time.sleep(max(0.0, pause))


@contextmanager
def serving(root: Path, certificate: tuple[Path, Path] | None = None) -> Iterator[RedistServer]:
    """Run a server in threads of this process; with a certificate and its key it speaks TLS."""
    redist = RedistServer(root)

    class Handler(_Handler):
        server_state = redist

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "https" if certificate else "http"
    redist.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield redist
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_state: RedistServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_CONNECT(self) -> None:
        """As a proxy for TLS it refuses."""
        self._empty(403)

    def do_GET(self) -> None:
        """Serve a file; asked for a whole URL, as proxies are, it serves that URL's path."""
        state = self.server_state
        with state.lock:
            state.at_once += 1
            state.most_at_once = max(state.most_at_once, state.at_once)
        try:
            self._answer()
        finally:
            with state.lock:
                state.at_once -= 1

    def _answer(self) -> None:
        state = self.server_state
        asked = self.headers.get("Range", "")
        state.requests.append(f"{self.path} {asked}")
        fault = state.misbehave()
        place = re.sub(r"^http://[^/]*", "", self.path)
        path = state.root / place.lstrip("/").split("?")[0]
        if state.authorization not in ("", self.headers.get("Authorization", "")):
            self._empty(401)
        elif fault == "loop":
            self._empty(302, Location=self.path)
        elif "://" in fault:
            self._empty(302, Location=fault)
        elif fault.isdigit():
            more = {"Retry-After": state.retry_after} if state.retry_after else {}
            self._empty(int(fault), **more)
        elif not path.is_file():
            self._empty(404)
        else:
            self._file(path, asked, fault)

    def _empty(self, code: int, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _file(self, path: Path, asked: str, fault: str) -> None:
        size = path.stat().st_size
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked) if fault != "no-ranges" else None
        start, end = (int(match[1]), min(int(match[2]) + 1, size)) if match else (0, size)
        if start >= size:
            self._empty(416)
            return
        with path.open("rb") as file:
            file.seek(start)
            body = file.read(end - start)
        told_size = {"lie": str(size + 7), "nonsense": "9" * 5000}.get(fault, str(size))
        self.send_response(206 if match else 200)
        if match:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{told_size}")
        self.send_header("Content-Length", str(len(body) + (7 if fault == "lie" else 0)))
        self.end_headers()
        self._body(body, fault)

    def _body(self, body: bytes, fault: str) -> None:
        if fault == "corrupt":
            body = body[:100] + bytes([body[100] ^ 1]) + body[101:]
        if fault in ("truncate", "reset", "drip"):
            self._send(body[: len(body) // 2])
            if fault == "drip":
                self._drip(body[len(body) // 2 :])
            if fault == "reset":
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        self._send(body)

    def _drip(self, body: bytes) -> None:
        for byte in body[:400]:
            try:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.05)

    def _send(self, body: bytes) -> None:
        piece = 1 << 16
        try:
            for at in range(0, len(body), piece):
                self.server_state.wait_for(len(body[at : at + piece]))
                self.wfile.write(body[at : at + piece])
        except OSError:
            self.close_connection = True
