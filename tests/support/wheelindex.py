"""A loopback package index (PEP 503 and 691) over a folder of wheels, that can be made to fail."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar


class WheelIndex:
    """Serves ``folder``; ``url`` is what pip and uv are given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failing = False
        self.fault = ""
        """How files are served: ``404``, ``403``, ``truncated``, ``redirects`` or ``stalls``."""
        self.asked: list[str] = []
        handler = type("Handler", (_Handler,), {"index": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/simple/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def file(self, path: str) -> bytes:
        """The contents of a wheel, nothing where there is none."""
        self.asked.append(path)
        file = self.folder / path.removeprefix("/files/")
        return file.read_bytes() if file.is_file() else b""

    def listing(self, path: str, *, as_json: bool) -> bytes | None:
        """The page of one project, None for 404; only the JSON one tells sizes."""
        self.asked.append(path)
        name = path.removeprefix("/simple/").strip("/")
        files = [
            {"filename": file.name, "url": f"/files/{file.name}", "size": file.stat().st_size}
            | {"hashes": {"sha256": digest(file)}}
            for file in sorted((*self.folder.glob("*.whl"), *self.folder.glob("*.tar.gz")))
            if re.sub(r"[-_.]+", "-", file.name.split("-")[0]).lower() == name
        ]
        if not files:
            return None
        if as_json:
            page = {"meta": {"api-version": "1.1"}, "name": name, "files": files}
            return json.dumps({**page, "versions": []}).encode()
        links = [
            f'<a href="{f["url"]}#sha256={f["hashes"]["sha256"]}">{f["filename"]}</a>'
            for f in files
        ]
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()


def digest(file: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    index: ClassVar[WheelIndex]

    def do_GET(self) -> None:
        if self.index.failing:
            return self.answer(503)
        if self.path.startswith("/simple/"):
            as_json = "application/vnd.pypi.simple.v1+json" in self.headers.get("Accept", "")
            kind = "application/vnd.pypi.simple.v1+json" if as_json else "text/html"
            page = self.index.listing(self.path, as_json=as_json)
            return self.answer(404 if page is None else 200, page or b"", kind)
        data = self.index.file(self.path)
        fault = self.index.fault
        if fault.isdigit() or not data:
            return self.answer(int(fault or 404))
        if fault == "redirects":
            return self.answer(302)
        return self.answer(200, data, "application/zip", part=bool(fault))

    def answer(self, code: int, data: bytes = b"", kind: str = "", *, part: bool = False) -> None:
        """Send an answer; ``part``: half of it, then wait or hang up."""
        self.send_response(code)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(data)))
        if code == 302:
            self.send_header("Location", self.path)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[: len(data) // 2] if part else data)
            if part and self.index.fault == "stalls":
                self.wfile.flush()
                time.sleep(3)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass
