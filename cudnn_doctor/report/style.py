"""Colour and signs of the terminal: none of either where they are not wanted or cannot be shown."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, TextIO

_CODES = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}
_CODE = f"(?:{'|'.join(_CODES.values())})"
_SIGNS = {
    "ok": ("\N{CHECK MARK}", "+"),
    "error": ("\N{BALLOT X}", "x"),
    "warning": ("!", "!"),
    "info": ("\N{MIDDLE DOT}", "-"),
    "skip": ("\N{EN DASH}", "-"),
    "dot": (" \N{MIDDLE DOT} ", " | "),
    "arrow": ("\N{RIGHTWARDS ARROW}", "->"),
    "child": ("\N{BOX DRAWINGS LIGHT UP AND RIGHT}", "`-"),
    "cut": ("\N{HORIZONTAL ELLIPSIS}", "..."),
}


_PAINT = re.compile(rf"(\x1b\[(?:0|{_CODE}(?:;{_CODE})*)m)")


class Style(NamedTuple):
    """How to paint: ``paint`` colours a text, ``sign`` gives a mark."""

    colour: bool = False
    unicode: bool = True

    @classmethod
    def of(cls, stream: TextIO) -> Style:
        """What a stream can show: colour only on a terminal and without NO_COLOR."""
        encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
        terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        colour = terminal and not os.environ.get("NO_COLOR")
        return cls(colour=colour, unicode=encoding.startswith("utf"))

    def paint(self, text: str, *names: str) -> str:
        """The text in the given colours."""
        if not self.colour:
            return text
        codes = ";".join(_CODES[name] for name in names)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def sign(self, name: str) -> str:
        """A mark, in ASCII where the encoding has no other."""
        return _SIGNS[name][0 if self.unicode else 1]

    def plain(self, text: str) -> str:
        """The painted text in what the encoding can show, without a thing that a terminal acts on
        but the colours."""
        parts = _PAINT.split(text) if self.colour else [text]
        parts[::2] = map(visible, parts[::2])
        text = "".join(parts)
        return text if self.unicode else text.encode("ascii", "backslashreplace").decode()


def visible(text: str) -> str:
    """The text with nothing in it that a terminal acts on: names, servers' answers and files come
    from others. Line ends and tabs stay, other control characters become ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )
