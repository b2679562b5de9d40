"""A real headless Chromium, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
]


class Page:
    """One tab: shows a file at a size, collects what its console says and what it requests."""

    def __init__(self, address: str) -> None:
        self.socket = websocket.create_connection(address, timeout=30, max_size=None)
        self.number = 0
        self.console: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Result of a command; events that come meanwhile are noted."""
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message["method"] == "Runtime.consoleAPICalled":
            self.console.append(str(params["args"]))
        elif message["method"] == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded":
            self.console.append(params["entry"]["text"])
        elif message["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def show(self, path: Path, width: int, *, dark: bool = False, phone: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=850,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.call("Page.navigate", url=path.as_uri())
        for _ in range(100):
            if self.run("document.readyState") == "complete":
                return
            time.sleep(0.05)
        raise AssertionError("the page did not load")

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression; promises are waited for."""
        answer = self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A fresh browser whose profile lies in ``folder``."""
    assert PROGRAM is not None
    profile = folder / "profile"
    process = subprocess.Popen(
        [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Page(_address(profile / "DevToolsActivePort", process))
    finally:
        process.terminate()
        process.wait(20)


def _address(port_file: Path, process: subprocess.Popen[bytes]) -> str:
    import urllib.request

    for _ in range(400):
        assert process.poll() is None, "the browser ended"
        if port_file.exists() and (lines := port_file.read_text().splitlines()):
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list") as answer:
                pages = [page for page in json.load(answer) if page["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise AssertionError("the browser did not start")
