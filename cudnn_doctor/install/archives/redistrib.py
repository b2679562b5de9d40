"""Fetching of NVIDIA's ``redistrib_*.json`` manifests from a file, a folder, or a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from cudnn_doctor.errors import BadInput, DoctorError, NothingChanged

if TYPE_CHECKING:
    import requests

MANIFEST = re.compile(r"redistrib_(\d+(?:\.\d+){2,3})\.json")
_REDIST = "compute/cudnn/redist"
_MAX_BYTES = 8 << 20
_TIMEOUT = (15.0, 30.0)
"""Seconds to connect, and without any data."""


def manifests(source: str) -> Iterator[tuple[str, bytes]]:
    """Name and text of each manifest that ``source`` has.

    ``source`` is a manifest, a folder or an address of either; the folder may be the redist folder
    itself or the root of a mirror of it. Raises BadInput where a file is missing, DoctorError where
    a server does not answer.
    """
    if urlsplit(source).scheme in ("http", "https"):
        yield from _from_server(source)
        return
    path = Path(source)
    if path.is_dir():
        inner = path / _REDIST
        folder = inner if inner.is_dir() else path
        files = sorted(file for file in folder.iterdir() if MANIFEST.fullmatch(file.name))
        if not files:
            raise BadInput(f"{source}: holds no redistrib_*.json, nor does {inner}")
        yield from ((file.name, _read(file)) for file in files)
    else:
        yield path.name, _read(path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error


def _from_server(source: str) -> Iterator[tuple[str, bytes]]:
    import requests

    with requests.Session() as session:
        if source.endswith(".json"):
            yield source.rpartition("/")[2], _get(session, source)
            return
        folder = source if source.endswith("/") else source + "/"
        names = _listed(session, folder)
        if not names and _REDIST not in folder:
            folder = urljoin(folder, _REDIST + "/")
            names = _listed(session, folder)
        if not names:
            raise BadInput(
                f"{source}: lists no redistrib_*.json",
                next_step="give the address of one manifest, .../redistrib_<version>.json",
            )
        for name in sorted(names):
            yield name, _get(session, urljoin(folder, name))


def _listed(session: requests.Session, folder: str) -> set[str]:
    """Names of the manifests in a folder's listing; none where there is no listing."""
    try:
        page = _get(session, folder).decode(errors="replace")
    except DoctorError as error:
        if "HTTP 404" in error.what or "HTTP 403" in error.what:
            return set()
        raise
    return {match[0] for match in MANIFEST.finditer(page)}


def _get(session: requests.Session, url: str) -> bytes:
    import requests

    try:
        with session.get(url, timeout=_TIMEOUT, stream=True) as response:
            if urlsplit(url).scheme == "https" and urlsplit(response.url).scheme != "https":
                raise _failed(url, "it was led away from https")
            if response.status_code != 200:
                raise _failed(url, f"HTTP {response.status_code} {response.reason}")
            text = b""
            for block in response.iter_content(1 << 16):
                text += block
                if len(text) > _MAX_BYTES:
                    raise _failed(url, f"more than {_MAX_BYTES >> 20} MiB")
            return text
    except requests.exceptions.SSLError as error:
        raise _failed(url, f"the server's certificate is not trusted ({error})") from error
    except requests.RequestException as error:
        raise _failed(url, type(error).__name__) from error


def _failed(url: str, why: str) -> DoctorError:
    return NothingChanged(
        f"cannot read {url}: {why}",
        next_step="check the network and proxy (HTTPS_PROXY), or give a file or folder instead",
    )
