"""The scan: a stream of bytes becomes observations, in one pass and bounded memory.

The fixed parts of the signatures are looked up in whole blocks of text (fast substring search);
patterns run only on the lines where a fixed part stands, and on such a line glued to the next ones,
for messages that a terminal wrapped.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import BinaryIO, NamedTuple

from cudnn_doctor.explain.catalogue import load_signatures
from cudnn_doctor.explain.lines import Line, blocks, lines
from cudnn_doctor.explain.model import Observation, Signature

_KEEP = {"cause": 200, "symptom": 40, "noise": 20, "fact": 40}
"""Observations kept for one signature; what only tells facts is not looked for any more then."""
_FACTS = 2000
"""Hits after which a signature that only tells facts is given up."""
_SAME = 3
"""Observations kept of one signature with the same fields."""
_ALIKE = 5
"""Lines that differ in digits only are read this often."""
_SHAPES = 20_000
_WRAP_MIN, _WRAP_MAX = 50, 220
_LOOK = 8
"""Following lines that are at hand when a line is read."""
_EDGE = 48
"""Characters on each side of a line's end that are searched for a fixed part cut in two."""
_WORDS = re.compile(r"[A-Za-z_]{3,}")
_DIGITS = re.compile(r"\d+")


class Scan(NamedTuple):
    """What a log holds: observations in order of lines, and the number of lines."""

    observations: tuple[Observation, ...]
    lines: int


def scan(stream: BinaryIO) -> Scan:
    """Read ``stream`` to its end and collect what the signatures recognise."""
    collector = _Collector(load_signatures())
    last = 0
    tail: list[Line] = []
    for block in blocks(stream):
        last = block.first + block.data.count(b"\n") - block.data.endswith(b"\n")
        read = [*tail, *lines(block)]
        collector.read(read, done=max(len(read) - _LOOK, 0))
        tail = read[-_LOOK:]
    collector.read(tail, done=len(tail))
    return Scan(collector.result(), last)


class _Collector:
    def __init__(self, signatures: tuple[Signature, ...]) -> None:
        self.by_anchor: dict[str, list[Signature]] = {}
        for signature in signatures:
            for anchor in signature.any:
                self.by_anchor.setdefault(anchor, []).append(signature)
        self.kept: dict[str, list[Observation]] = {}
        self.hits: dict[str, int] = {}
        self.shapes: dict[str, int] = {}
        self.glued: set[tuple[str, int]] = set()

    def read(self, items: list[Line], done: int) -> None:
        """Look for signatures in the first ``done`` lines; the rest is there to be glued on."""
        texts = [line.text for line in items]
        fresh = [not self._known_shape(text) for text in texts[:done]]
        whole = self._anchored(
            [text if new else "" for text, new in zip(texts, fresh, strict=False)]
        )
        edges = self._anchored(_edges(texts, fresh))
        for index in sorted(whole.keys() | edges.keys()):
            text = texts[index]
            found = whole.get(index, {})
            matched = {s.id for s in found.values() if self._try(s, items[index].number, text)}
            if _may_be_wrapped(texts, index):
                near = {**edges.get(index, {}), **found}
                for later in range(index + 1, index + 1 + _chain(items, index)):
                    near |= {**whole.get(later, {}), **edges.get(later, {})}
                wanted = [s for s in near.values() if s.role != "fact" and s.id not in matched]
                self._glue(items, index, wanted)

    def _anchored(self, texts: list[str]) -> dict[int, dict[str, Signature]]:
        """Index of a text -> the signatures of which a fixed part stands in it."""
        joined = "\n".join(texts)
        starts = [0, *accumulate(len(text) + 1 for text in texts)]
        words = "\n".join(set(_WORDS.findall(joined)))
        ascii_only = joined.isascii()
        found: dict[int, dict[str, Signature]] = {}
        for anchor, signatures in self.by_anchor.items():
            if _longest_word(anchor) not in words or (ascii_only and not anchor.isascii()):
                continue
            place = joined.find(anchor)
            while place >= 0:
                index = bisect_right(starts, place) - 1
                here = found.setdefault(index, {})
                for signature in signatures:
                    here[signature.id] = signature
                place = joined.find(anchor, starts[index + 1])
        return found

    def _known_shape(self, text: str) -> bool:
        shape = _DIGITS.sub("0", text[:400])
        seen = self.shapes.get(shape, 0)
        if seen == 0 and len(self.shapes) >= _SHAPES:
            self.shapes.clear()
        self.shapes[shape] = seen + 1
        return seen >= _ALIKE

    def _glue(self, items: list[Line], index: int, candidates: list[Signature]) -> None:
        """Try the line with the next ones, without and with a blank between them."""
        number, text = items[index].number, items[index].text
        pieces = [line.text for line in items[index : index + 1 + _chain(items, index)]]
        start = pieces[1].lstrip()
        joins = [text + start, f"{text} {start}"]
        if len(pieces) > 2:
            joins.append(_unfold(pieces))
        for signature in candidates:
            if (signature.id, number - 1) in self.glued:
                continue
            for joined in joins:
                hit = signature.regex.search(joined)
                if hit and hit.start() < len(text) < hit.end():
                    self.glued.add((signature.id, number))
                    self._add(signature, number, joined, hit)
                    break

    def _try(self, signature: Signature, number: int, text: str) -> bool:
        matched = False
        for count, hit in enumerate(signature.regex.finditer(text)):
            matched = True
            if count == 8:
                break
            self._add(signature, number, text, hit)
        return matched

    def _add(self, signature: Signature, number: int, text: str, hit: re.Match[str]) -> None:
        kept = self.kept.setdefault(signature.id, [])
        self.hits[signature.id] = self.hits.get(signature.id, 0) + 1
        if len(kept) >= _KEEP[signature.role] or self.hits[signature.id] > _FACTS:
            self._drop(signature)
        if len(kept) >= _KEEP[signature.role]:
            return
        named = {name: value for name, value in hit.groupdict().items() if value}
        fields = {**signature.set, **named}
        same = [old.line for old in kept if old.fields == fields]
        if len(same) < _SAME and number not in same:
            kept.append(
                Observation(signature=signature, line=number, text=text[:500], fields=fields)
            )

    def _drop(self, signature: Signature) -> None:
        """Stop looking for a signature that can tell nothing new."""
        if signature.role not in ("fact", "noise"):
            return
        for anchor in signature.any:
            rest = [other for other in self.by_anchor.get(anchor, ()) if other is not signature]
            if rest:
                self.by_anchor[anchor] = rest
            else:
                self.by_anchor.pop(anchor, None)

    def result(self) -> tuple[Observation, ...]:
        found = [observation for kept in self.kept.values() for observation in kept]
        return tuple(sorted(found, key=lambda observation: observation.line))


def _may_be_wrapped(texts: list[str], index: int) -> bool:
    return index + 1 < len(texts) and _WRAP_MIN <= len(texts[index]) <= _WRAP_MAX


def _chain(items: list[Line], index: int) -> int:
    """How many following lines may belong to this one: up to the first that is not full."""
    width = len(items[index].text)
    length = 1
    for line in items[index + 1 : index + _LOOK]:
        if abs(len(line.text) - width) > 1:
            break
        length += 1
    return min(length, len(items) - index - 1)


def _edges(texts: list[str], fresh: list[bool]) -> list[str]:
    """For each line its end with the start of the next one, empty where it is not wrapped."""
    return [
        _seam(texts[i][-_EDGE:], texts[i + 1].lstrip()[:_EDGE])
        if new and _may_be_wrapped(texts, i)
        else ""
        for i, new in enumerate(fresh)
    ]


def _seam(end: str, start: str) -> str:
    return f"{end}{start}\t{end} {start}"


def _unfold(pieces: list[str]) -> str:
    """Lines cut at one width as one text; a blank at the cut was stripped and comes back."""
    width = max(len(piece) for piece in pieces)
    full = [piece + " " if len(piece) == width - 1 else piece for piece in pieces[:-1]]
    return "".join([*full, pieces[-1]])


@lru_cache(maxsize=4096)
def _longest_word(anchor: str) -> str:
    """A word that every text with this fixed part has; empty when it has none."""
    return max(_WORDS.findall(anchor), key=len, default="")
