"""JSON documents of this tool: written whole or not at all, read as if damaged since."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

from cudnn_doctor.errors import BadInput

T = TypeVar("T")


def write(path: Path, document: object) -> None:
    """Write a document and the folder for it; raises OSError, also for a name that is no UTF-8."""
    try:
        data = msgspec.json.encode(document)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ), str(path)) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(data)
    fresh.rename(path)


def read(path: Path, kind: type[T]) -> T:
    """The document; raises BadInput for whatever else is there, or where nothing is."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # opening a pipe would wait for ever
            raise ValueError("it is no regular file")
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(
            f"a record of this tool cannot be read: {why}",
            where=str(path),
            next_step=f"look into {path.parent}; move it away when its changes are settled by hand",
        ) from error
