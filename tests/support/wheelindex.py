"""A loopback package index (PEP 503) over a folder of wheels, that can be made to fail."""

from __future__ import annotations

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar


class WheelIndex:
    """Serves ``folder``; ``url`` is what pip and uv are given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failing = False
        self.asked: list[str] = []
        handler = type("Handler", (_Handler,), {"index": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/simple/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def page(self, path: str) -> bytes | None:
        """The answer to a request, None for 404."""
        self.asked.append(path)
        if path.startswith("/files/"):
            file = self.folder / path.removeprefix("/files/")
            return file.read_bytes() if file.is_file() else None
        name = path.removeprefix("/simple/").strip("/")
        links = [
            f'<a href="/files/{file.name}#sha256={digest(file)}">{file.name}</a>'
            for file in sorted(self.folder.glob("*.whl"))
            if re.sub(r"[-_.]+", "-", file.name.split("-")[0]).lower() == name
        ]
        return (
            f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode() if links else None
        )


def digest(file: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    index: ClassVar[WheelIndex]

    def do_GET(self) -> None:
        data = None if self.index.failing else self.index.page(self.path)
        self.send_response(503 if self.index.failing else 404 if data is None else 200)
        kind = "text/html" if self.path.startswith("/simple/") else "application/zip"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data or b"")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass
