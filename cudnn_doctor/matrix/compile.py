"""Writing of the compiled matrix: ``python -m cudnn_doctor.matrix.compile``."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.matrix.load import Compiled, compiled_path, default_path, from_yaml, read


def compile_matrix(source: Path | None = None, target: Path | None = None) -> Path:
    """Write the compiled form of ``source`` (the default matrix) and return its path.

    Raises BadInput where the matrix is wrong, DoctorError where ``target`` cannot be written.
    """
    source = source or default_path()
    target = target or compiled_path(source)
    text = read(source)
    matrix = msgspec.Raw(msgspec.msgpack.encode(from_yaml(text, source.name)))
    compiled = Compiled(sha256=hashlib.sha256(text).hexdigest(), matrix=matrix)
    try:
        target.write_bytes(msgspec.msgpack.encode(compiled))
    except OSError as error:
        raise NothingChanged(f"cannot write {target}: {error.strerror}") from error
    return target


if __name__ == "__main__":
    print(compile_matrix())
