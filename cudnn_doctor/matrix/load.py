"""Loading of the matrix: the compiled form where it fits the YAML, else the YAML itself."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cudnn_doctor.errors import BadInput
from cudnn_doctor.matrix.model import SCHEMA, Matrix, Source

if TYPE_CHECKING:
    from cudnn_doctor.matrix.source import Document, Field

VARIABLE = "CUDNN_DOCTOR_MATRIX"
"""Environment variable that names a matrix of one's own."""
COMPILED = Path(__file__).with_name("compiled.msgpack")
_BARE = ("got `float`", "got `int`", "got `bool`", "got `date`")


class Compiled(msgspec.Struct):
    """What ``compiled.msgpack`` holds."""

    sha256: str
    """Of the YAML file it was made from."""
    matrix: msgspec.Raw


def default_path() -> Path:
    """The matrix shipped in the wheel, or the top-level one of the checkout."""
    shipped = Path(__file__).with_name("compat_matrix.yaml")
    return shipped if shipped.exists() else Path(__file__).parents[2] / "compat_matrix.yaml"


def chosen_path() -> Path:
    """The matrix that CUDNN_DOCTOR_MATRIX names, else the shipped one."""
    own = os.environ.get(VARIABLE)
    return Path(own) if own else default_path()


def load(path: str | os.PathLike[str] | None = None) -> Matrix:
    """The matrix at ``path``, else the one that CUDNN_DOCTOR_MATRIX names, else the shipped one.

    Raises BadInput, with file, line and field, where it cannot be used.
    """
    file = Path(path) if path else chosen_path()
    text = read(file)
    return from_compiled(text, compiled_path(file)) or from_yaml(text, file.name)


def compiled_path(source: Path) -> Path:
    """Where the compiled form of a YAML file is: inside the package, or beside one's own file."""
    return COMPILED if source == default_path() else source.with_suffix(".msgpack")


def from_compiled(text: bytes, path: Path = COMPILED) -> Matrix | None:
    """The compiled matrix, if it was made from this YAML text."""
    try:
        compiled = msgspec.msgpack.decode(path.read_bytes(), type=Compiled)
        if compiled.sha256 == hashlib.sha256(text).hexdigest():
            return msgspec.msgpack.decode(compiled.matrix, type=Matrix)
    except (OSError, msgspec.MsgspecError):
        return None  # missing, or of another version of the tool: the YAML is the source
    return None


def from_yaml(text: bytes, name: str) -> Matrix:
    """Parse, convert and validate YAML text; raises BadInput for the first mistake."""
    from cudnn_doctor.matrix.validate import problems

    document, matrix = _parse(text, name)
    for field, message in problems(matrix):
        raise document.error(field, message)
    return matrix


def mistakes(text: bytes, name: str) -> tuple[str, ...]:
    """All mistakes in YAML text; one of syntax or type hides the others."""
    from cudnn_doctor.matrix.validate import problems

    try:
        document, matrix = _parse(text, name)
    except BadInput as error:
        return (error.what,)
    return tuple(document.describe(field, message) for field, message in problems(matrix))


def read(path: Path) -> bytes:
    """The text of a matrix file; raises BadInput where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error


def _parse(text: bytes, name: str) -> tuple[Document, Matrix]:
    from cudnn_doctor.matrix.source import Document

    document = Document(text, name)
    schema = document.data.get("schema") if isinstance(document.data, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise document.error(
            ("schema",), f"{schema} is newer than this tool reads ({SCHEMA}): update cudnn-doctor"
        )
    try:
        return document, msgspec.convert(document.data, type=Matrix)
    except msgspec.ValidationError as error:
        field, message = _explain(str(error), document.data)
        raise document.error(field, message) from error


def _explain(text: str, data: Any) -> tuple[Field, str]:
    """Field and wording of msgspec's message; it leaves the key of a table out (``[...]``)."""
    from cudnn_doctor.matrix.source import parse_path

    what, _, path = text.partition(" - at `")
    before, table, after = path.removeprefix("key in ").rstrip("`").partition("[...]")
    field = parse_path(before)
    if table:
        field = (*field, _wrong_key(data, field), *parse_path("$" + after))
    hint = " (quote it)" if what.startswith("Expected `str") and what.endswith(_BARE) else ""
    return field, what[:1].lower() + what[1:] + hint


def _wrong_key(data: Any, field: Field) -> str:
    """The first key of a table whose value is not of the table's type."""
    for step in field:
        data = data[step]
    for key, value in data.items():
        try:
            msgspec.convert(value, type=Source if field == ("sources",) else str)
        except msgspec.ValidationError:
            return str(key)
    return ""
