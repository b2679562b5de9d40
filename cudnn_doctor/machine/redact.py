"""`redact`: a `Machine` without what names a person, a computer or a secret.

Works on values, never on keys. Equal values stay equal (a GPU's UUID in NVML's answer and in
CUDA_VISIBLE_DEVICES still match), and paths stay absolute, so that the loader's search can be
worked out on the redacted snapshot as well.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from cudnn_doctor.machine.model import Machine

_HOME = re.compile(r"/(?:home|Users)/(?!user\b)[^/:\s\"']+|/root(?=[/:\s\"']|$)|(?<![\w/])~\w+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
USERINFO = re.compile(
    r"(?<=//)(?:[^/@\s:\"']*:(?!\d+(?:[/?#\s\"']|$))[^\s\"'<>]*|[^/\s\"'<>]*)@"
    r"|(?<![\w./@%+:-])[\w.%+-]+:[^\s/@:\"']+@(?!sha\d)(?=\w)"
)
"""What stands before the host in an address, even where its password has ``/`` or ``@`` in it."""
_NAME = (
    r"(?:token|secret|passw(?:or)?d|passphrase|pwd"
    r"|(?:api|access|private|secret|auth)[_-]?key(?:[_-]?id)?)"
)
_SECRET = re.compile(
    rf"(?i)((?:{_NAME}[\"']?\s?[=:]|(?:key|sig|signature|credentials?)=)\s?[\"']?)"
    r"(?!redacted)[^&\s\"';,}]+"
)
_KNOWN_TOKENS = re.compile(
    r"\b(?:gh[pousr]_\w{16,}|github_pat_\w{16,}|hf_\w{16,}"
    r"|gl(?:pat|cbt|ptt|dt|rt|soat|ft|imt|agent|oas)-[\w-]{16,}"
    r"|pypi-Ag[\w-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}|nvapi-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|sk-(?=[\w-]*\d)[\w-]{20,}|dckr_[a-z]+_[\w-]{16,}|npm_\w{16,}|ya29\.[\w-]{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+)|(?<=/t/)[A-Za-z]{2}-[\w-]{8,}(?=/)"
)
_FLAG = re.compile(
    rf"(?i)(--?[\w-]*?(?:{_NAME}|key)\s+|\bBearer\s+|\bBasic\s+|\s(?:-u|--user)\s+[^\s:/]+:)"
    r"(?!redacted)[^\s\"';-][^\s\"';]*"
)
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_SYSTEM_USERS = {"root", "user", "ubuntu", "nobody", "daemon", "lib", "opt", "usr", "var", "tmp"}


def redact(machine: Machine) -> Machine:
    """A copy of ``machine`` fit to be pasted into a public bug report."""
    clean = _cleaner(machine)
    data = _walk(msgspec.to_builtins(machine), clean)
    if data.get("system", {}).get("user"):
        data["system"]["user"] = "user"
    for name in data.get("environ", {}):
        if name.lower().endswith("_proxy") and name.lower() != "no_proxy":
            data["environ"][name] = "http://redacted"
        elif name.lower() == "no_proxy":
            data["environ"][name] = "redacted"
        elif name in ("HOSTNAME", "HOST"):
            data["environ"][name] = "host"
        elif name in ("USER", "LOGNAME"):
            data["environ"][name] = "user"
    return msgspec.convert(data, Machine)


S = TypeVar("S", bound=msgspec.Struct)


def without_secrets(text: str) -> str:
    """The text without credentials in addresses, passwords, keys and tokens of known shapes."""
    text = USERINFO.sub("redacted@", text)
    text = _SECRET.sub(r"\1redacted", text)
    text = _FLAG.sub(r"\1redacted", text)
    return _KNOWN_TOKENS.sub("redacted", text)


def hide_secrets(facts: S) -> S:
    """A copy of the facts in which no text holds a secret; names and paths stay."""
    told = msgspec.structs.replace(facts, libraries=()) if isinstance(facts, Machine) else facts
    text = msgspec.json.encode(told).decode()
    for escaped in ("\\n", "\\t", "\\"):
        text = text.replace(escaped, " " if len(escaped) > 1 else "")
    if without_secrets(text) == text:
        return facts  # libraries, the bulk of it, are paths and names in ELF headers
    return msgspec.convert(_walk(msgspec.to_builtins(facts), without_secrets), type(facts))


def printable(facts: S) -> S:
    """The facts, with bytes that are no UTF-8 (names of files, variables) written as ``\\xff``."""
    try:
        msgspec.json.encode(facts)
    except UnicodeEncodeError:
        return msgspec.convert(_walk(msgspec.to_builtins(facts), _escaped), type(facts))
    return facts


def _escaped(text: str) -> str:
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def _walk(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: _walk(item, clean) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(item, clean) for item in value]
    return value


def _hashed(match: re.Match[str]) -> str:
    digest = hashlib.sha256(match.group().lower().encode()).hexdigest()[:12]
    return f"00000000-0000-0000-0000-{digest}"


def _cleaner(machine: Machine) -> Callable[[str], str]:
    environ = machine.environ
    users = {machine.system.user, environ.get("USER"), environ.get("LOGNAME")}
    hosts = {environ.get("HOSTNAME"), environ.get("HOST")}
    users.add(environ.get("HOME", "").rstrip("/").rpartition("/")[2])
    words = {name: "user" for name in users if name and name not in _SYSTEM_USERS}
    words |= {name: "host" for name in hosts if name and name != "localhost"}
    pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    names = re.compile(rf"(?<![\w.-])(?:{pattern})(?![\w-])") if words else None

    def clean(text: str) -> str:
        text = _UUID.sub(_hashed, text)
        text = without_secrets(text)
        text = _EMAIL.sub(
            lambda m: m.group() if m.group().startswith("redacted@") else "someone@redacted", text
        )
        text = _HOME.sub("/home/user", text)
        return names.sub(lambda m: words[m.group()], text) if names else text

    return clean
