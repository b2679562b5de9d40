"""Fetch a repository's signing key and let it in only with the fingerprint that is expected."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install import files
from cudnn_doctor.install.archives.transfer import reason, redacted
from cudnn_doctor.install.packages import openpgp
from cudnn_doctor.install.plan import FetchKey, WriteFile

_LIMIT = 1 << 20
_SECONDS = 30.0


def fetch_key(step: FetchKey, saved: Path) -> None:
    """Do the step; raises DoctorError (NOTHING_CHANGED) when no mirror gives that key."""
    errors = []
    for url in step.urls:
        try:
            text = checked(_read(url), step.fingerprint)
        except (OSError, ValueError) as error:
            errors.append(f"{redacted(url)}: {reason(error)}")
            continue
        files.write_file(WriteFile(path=step.path, content=text), saved)
        return
    raise NothingChanged(
        "cannot get the signing key of NVIDIA's repository:\n  " + "\n  ".join(errors),
        where=step.path,
        next_step="check the network, proxy or --mirror; never install a key that does not match",
    )


def checked(data: bytes, fingerprint: str) -> str:
    """The armoured key, if ``data`` is exactly one key with this fingerprint; ValueError if not."""
    binary = openpgp.dearmour(data)
    found = openpgp.fingerprints(binary)
    if found != [fingerprint.replace(" ", "").upper()]:
        raise ValueError(f"its fingerprint is {', '.join(found) or 'none'}, not {fingerprint}")
    return openpgp.armour(binary)


def _read(url: str) -> bytes:
    """At most ``_LIMIT`` bytes; raises OSError (requests' errors are such)."""
    if urlsplit(url).scheme == "file":
        with open(unquote(urlsplit(url).path), "rb") as file:
            return file.read(_LIMIT)
    import requests

    with requests.get(url, stream=True, timeout=(15.0, _SECONDS)) as response:
        response.raise_for_status()
        data = b""
        for part in response.iter_content(1 << 16):
            data += part
            if len(data) > _LIMIT:
                raise ValueError("it is far too large for a key")
        return data
