"""Settings of a project: ``cudnn-doctor.toml``, or ``[tool.cudnn-doctor]`` in pyproject.toml."""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from cudnn_doctor.errors import BadInput

_T = TypeVar("_T")
_OWN, _SHARED = "cudnn-doctor.toml", "pyproject.toml"


class Settings(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    """What a project may set; a command-line option of the same name wins."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    suppress: tuple[str, ...] = ()
    """``ID=REASON@DATE`` each."""


class _Tool(msgspec.Struct, frozen=True):
    settings: Settings | None = msgspec.field(default=None, name="cudnn-doctor")


class _Pyproject(msgspec.Struct, frozen=True):
    tool: _Tool = _Tool()


def read_settings() -> Settings:
    """The settings of the nearest folder, from the current one upwards, that has any.

    Raises BadInput, with the file and the field, where they cannot be read.
    """
    try:
        folder = os.getcwd()
    except OSError:
        return Settings()
    while True:
        found = _own(f"{folder}/{_OWN}") or _shared(f"{folder}/{_SHARED}")
        parent = os.path.dirname(folder)
        if found or parent == folder:
            return found or Settings()
        folder = parent


def _own(path: str) -> Settings | None:
    data = _read(path)
    return None if data is None else _decode(data, Settings, path)


def _shared(path: str) -> Settings | None:
    data = _read(path)
    if data is None or b"cudnn-doctor" not in data:
        return None
    return _decode(data, _Pyproject, path).tool.settings


def _decode(data: bytes, kind: type[_T], path: str) -> _T:
    import msgspec.toml

    try:
        return msgspec.toml.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(
            f"settings cannot be used: {error}",
            where=path,
            next_step="only, skip and suppress are lists of strings",
        ) from error


def _read(path: str) -> bytes | None:
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", where=path) from error
