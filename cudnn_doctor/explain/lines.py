"""From bytes to lines worth reading: numbers kept, decoration taken off, memory bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_CHUNK = 1 << 18
_MAX_LINE = 1 << 14
_ANSI = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[@-Z\\-_])"
    rb"|\x9b[0-?]*[ -/]*[@-~]"
)
_PREFIX = re.compile(
    r"""^(?:
      \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?\]?\s+
      (?:(?:stdout|stderr)\s+[FP]\s+)?
    | (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)?,?\s?[A-Z][a-z]{2}\s+\d{1,2}\s\d\d:\d\d:\d\d(?:\.\d+)?
      \s[\w.-]+\s[\w./@-]+(?:\[\d+\])?:\s
    | \[pod/[^\]]+\]\s+
    | [\w.-]{1,60}\s+\|\s
    | \[\s*\d+\.\d{6}\]\s
    | [\w-]{1,40}\[\d{1,7}\]:\s
    | \[(?:rank\d+|\d{1,3})\]:?\s
    | \(\w+(?:\s\w+)*\spid=\d+(?:,\sip=[\d.]+)?\)\s
    | \d{1,2}:\d\d:\d\d(?:[.,]\d+)?\s+
    | (?:>\s|\|\s|\u2502\s+)
    )""",
    re.VERBOSE,
)
_JSON_FIELDS = (
    "log",
    "message",
    "msg",
    "MESSAGE",
    "textPayload",
    "exception",
    "exc_info",
    "stack_trace",
    "stacktrace",
    "error",
    "err",
    "stderr",
    "line",
    "text",
    "body",
)


class Line(NamedTuple):
    """One line (or one part of it); ``number`` counts from 1."""

    number: int
    text: str


class Block(NamedTuple):
    """Whole lines as they came, and the number of the first one."""

    first: int
    data: bytes


def blocks(stream: BinaryIO) -> Iterator[Block]:
    """Cut a stream into blocks of whole lines (about 256 KiB); endless lines are cut."""
    number, rest = 1, b""
    while chunk := stream.read(_CHUNK):
        data = rest + chunk
        cut = data.rfind(b"\n") + 1
        if cut == 0 and len(data) < 4 * _CHUNK:
            rest = data
            continue
        cut = cut or len(data)
        data, rest = data[:cut], data[cut:]
        yield Block(number, data)
        number += data.count(b"\n")
    if rest:
        yield Block(number, rest)


def lines(block: Block) -> Iterator[Line]:
    """The lines of a block in plain text: no ANSI codes, prefixes or JSON around them.

    ``\\r`` parts (progress bars) are lines of their own with the same number.
    """
    data = _ANSI.sub(b"", block.data) if b"\x1b" in block.data else block.data
    data = data.replace(b"\x00", b"")
    for offset, raw in enumerate(data.split(b"\n")):
        for part in raw.split(b"\r"):
            if part.strip():
                text = part[:_MAX_LINE].decode("utf-8", "replace")
                for plain in _unwrap(text):
                    yield Line(block.first + offset, plain)


def _unwrap(text: str) -> Iterator[str]:
    """Take off prefixes; a JSON record becomes the lines of its messages."""
    plain = _strip_prefixes(text)
    brace = plain.lstrip()
    if brace.startswith("{") and brace.rstrip().endswith("}") and '"' in brace:
        inner = list(_json_messages(brace))
        if inner:
            for message in inner:
                for piece in message.splitlines():
                    yield _strip_prefixes(piece)
            return
    yield plain


def _strip_prefixes(text: str) -> str:
    for _ in range(4):
        found = _PREFIX.match(text)
        if found is None:
            break
        text = text[found.end() :]
    return text.rstrip()


def _json_messages(text: str) -> Iterator[str]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(record, dict):
        return
    for name in _JSON_FIELDS:
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            yield value
        elif isinstance(value, dict):
            yield from (item for item in value.values() if isinstance(item, str))
