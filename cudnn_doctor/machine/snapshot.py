"""Snapshots: a `Machine` written to a file, read back, or told by hand.

`load_snapshot` takes our own JSON, the JSON report of ``check --json`` (its ``machine`` object), a
part of either in JSON or YAML, or a loose description (see `cudnn_doctor.machine.described`).
"""

from __future__ import annotations

import difflib
import sys
from typing import Any

import msgspec

from cudnn_doctor.errors import BadInput, NothingChanged
from cudnn_doctor.machine.described import describe, is_loose
from cudnn_doctor.machine.model import SCHEMA, Machine
from cudnn_doctor.machine.redact import redact
from cudnn_doctor.outfile import write_whole

__all__ = ["load_snapshot", "redact", "save_snapshot"]

_MAX_BYTES = 256 << 20
_MAX_YAML_BYTES = 4 << 20
_HINT = "take a snapshot with `cudnn-doctor check --snapshot-out machine.json`"


def load_snapshot(path: str) -> Machine:
    """Read a snapshot or description; ``-`` is standard input. Raises BadInput."""
    where = "standard input" if path == "-" else path
    data = _parse(_read(path, where), where)
    try:
        return _to_machine(data, where)
    except RecursionError:
        raise BadInput("the snapshot is nested too deeply", where=where, next_step=_HINT) from None


def save_snapshot(machine: Machine, path: str) -> None:
    """Write ``machine`` as JSON, whole or not at all; ``-`` is standard output.

    A new file gets mode 0644 less the umask. Raises DoctorError when it cannot be written.
    """
    text = msgspec.json.format(msgspec.json.encode(machine), indent=2) + b"\n"
    if path == "-":
        sys.stdout.write(text.decode())
        return
    try:
        write_whole(path, text)
    except OSError as error:
        raise NothingChanged(
            f"cannot write the snapshot: {error.strerror or error}",
            where=path,
            next_step="name a file in a folder that you may write to",
        ) from error


def _read(path: str, where: str) -> bytes:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(
            f"cannot read the snapshot: {reason}", where=where, next_step=_HINT
        ) from None
    if len(data) > _MAX_BYTES:
        raise BadInput("the snapshot is larger than 256 MiB", where=where, next_step=_HINT)
    if not data.strip():
        raise BadInput("the snapshot is empty", where=where, next_step=_HINT)
    return data


def _parse(data: bytes, where: str) -> dict[str, Any]:
    """The file as a mapping: JSON if it parses as such, else YAML."""
    try:
        parsed = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if data.lstrip()[:1] in (b"{", b"[") and (b'"' in data[:4096] or len(data) < 3):
            place = _json_place(data, str(error))
            raise BadInput(
                f"not valid JSON: {error}", where=f"{where}{place}", next_step=_HINT
            ) from None
        parsed = _yaml(data, where)
    if not isinstance(parsed, dict):
        raise BadInput(
            "a snapshot is a mapping of facts, this is something else",
            where=where,
            next_step=_HINT,
        )
    return {str(key): value for key, value in parsed.items()}


def _json_place(data: bytes, message: str) -> str:
    """``, line N`` for a msgspec message that ends in ``(byte N)``."""
    digits = message.rpartition("(byte ")[2].rstrip(")")
    if not digits.isdigit():
        return ""
    return f", line {data.count(bytes([10]), 0, int(digits)) + 1}"


def _yaml(data: bytes, where: str) -> object:
    import yaml

    class Loader(yaml.SafeLoader):
        """Numbers stay text (9.10 is not 9.1); aliases are refused (they can grow without end)."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=mark)
            return super().compose_node(parent, index)

    wanted = {"tag:yaml.org,2002:null", "tag:yaml.org,2002:bool"}
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if tag in wanted]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    if len(data) > _MAX_YAML_BYTES:
        raise BadInput("neither JSON nor a short YAML file", where=where, next_step=_HINT)
    try:
        return yaml.load(data.decode("utf-8"), Loader)  # noqa: S506 - a SafeLoader
    except UnicodeDecodeError:
        raise BadInput("not a text file", where=where, next_step=_HINT) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}, line {mark.line + 1}" if mark else where
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise BadInput(f"neither JSON nor YAML: {problem}", where=place, next_step=_HINT) from None
    except (RecursionError, ValueError, TypeError) as error:
        raise BadInput(f"not a snapshot: {error}", where=where, next_step=_HINT) from None


def _to_machine(data: dict[str, Any], where: str) -> Machine:
    inner = data.get("machine")
    if isinstance(inner, dict):
        data = {str(key): value for key, value in inner.items()}
    if is_loose(data):
        return describe(data)
    schema = data.get("schema", SCHEMA)
    if not isinstance(schema, int) or isinstance(schema, bool):
        schema = int(schema) if isinstance(schema, str) and schema.isdecimal() else -1
    if schema != SCHEMA:
        raise BadInput(
            f"unknown snapshot schema {data.get('schema')!r}, this version reads {SCHEMA}",
            where=where,
            next_step="use the cudnn-doctor release that wrote it, or a newer one",
        )
    whole = isinstance(data.get("tool"), str) and bool(data["tool"])
    if not whole:
        _refuse_unknown(data, where)
    try:
        machine = msgspec.convert(data, Machine, strict=False)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise BadInput(f"not a snapshot: {error}", where=where, next_step=_HINT) from None
    return machine if whole else msgspec.structs.replace(machine, partial=True)


def _refuse_unknown(data: dict[str, Any], where: str) -> None:
    known = Machine.__struct_fields__
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise BadInput(f"unknown fact {key[:60]!r}{hint}", where=where, next_step=_HINT)
