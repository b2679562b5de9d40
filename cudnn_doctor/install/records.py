"""JSON documents that this tool wrote earlier, read as if somebody had damaged them since."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

from cudnn_doctor.errors import BadInput

T = TypeVar("T")


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
