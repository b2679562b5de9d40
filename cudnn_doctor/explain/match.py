"""The scan: a stream of bytes becomes observations, in one pass and bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from cudnn_doctor.explain.catalogue import load_signatures
from cudnn_doctor.explain.lines import Line, blocks, lines
from cudnn_doctor.explain.model import Observation, Signature

_KEEP = 40
"""Observations kept for one signature; more are only counted."""
_SEEN = 20_000
_WRAP_MIN, _WRAP_MAX = 50, 400
_DIGITS = re.compile(r"\d+")


class Scan(NamedTuple):
    """What a log holds: observations in order of lines, and the number of lines."""

    observations: tuple[Observation, ...]
    lines: int


def scan(stream: BinaryIO) -> Scan:
    """Read ``stream`` to its end and collect what the signatures recognise."""
    collector = _Collector(load_signatures())
    last = 0
    for block in blocks(stream):
        last = block.first + block.data.count(b"\n") - block.data.endswith(b"\n")
        if any(anchor in block.data for anchor in collector.raw_anchors):
            for line, following in _with_next(lines(block)):
                collector.read(line, following)
    return Scan(collector.result(), last)


def _with_next(items: Iterator[Line]) -> Iterator[tuple[Line, tuple[str, ...]]]:
    """Each line with the texts of the two after it (a terminal may have wrapped it)."""
    window: list[Line] = []
    for item in items:
        window.append(item)
        if len(window) == 3:
            yield window[0], (window[1].text, window[2].text)
            del window[0]
    for index, item in enumerate(window):
        yield item, tuple(later.text for later in window[index + 1 :])


class _Collector:
    def __init__(self, signatures: tuple[Signature, ...]) -> None:
        anchors = sorted({anchor for s in signatures for anchor in s.any})
        self.raw_anchors = [anchor.encode() for anchor in anchors]
        self.by_anchor: dict[str, list[Signature]] = {anchor: [] for anchor in anchors}
        for signature in signatures:
            for anchor in signature.any:
                self.by_anchor[anchor].append(signature)
        self.kept: dict[str, list[Observation]] = {}
        self.counts: dict[str, int] = {}
        self.seen: set[str] = set()
        self.wrapped: set[tuple[str, int]] = set()

    def read(self, line: Line, following: tuple[str, ...]) -> None:
        text = line.text
        found = self._candidates(text)
        key = _DIGITS.sub("0", text) if found else ""
        if found and key in self.seen and self._kept_enough(found):
            for signature in found:
                self.counts[signature.id] = self.counts.get(signature.id, 0) + 1
            return
        if found and len(self.seen) < _SEEN:
            self.seen.add(key)
        matched = {s.id for s in found if self._try(s, line.number, text)}
        if _WRAP_MIN <= len(text) <= _WRAP_MAX and following:
            self._read_joined(line, following, matched)

    def _kept_enough(self, found: list[Signature]) -> bool:
        return all(len(self.kept.get(s.id, ())) > 3 for s in found)

    def _candidates(self, text: str) -> list[Signature]:
        found: dict[str, Signature] = {}
        for anchor, signatures in self.by_anchor.items():
            if anchor in text:
                for signature in signatures:
                    found[signature.id] = signature
        return list(found.values())

    def _read_joined(self, line: Line, following: tuple[str, ...], matched: set[str]) -> None:
        """Try the line glued to the next ones, for messages that were wrapped."""
        joins = [line.text + following[0].lstrip(), f"{line.text} {following[0].lstrip()}"]
        if len(following) > 1:
            joins.append("".join([line.text, *(text.lstrip() for text in following)]))
        border = len(line.text)
        for text in joins:
            for signature in self._candidates(text):
                if signature.id in matched or (signature.id, line.number - 1) in self.wrapped:
                    continue
                hit = signature.regex.search(text)
                if hit and hit.start() < border < hit.end():
                    matched.add(signature.id)
                    self.wrapped.add((signature.id, line.number))
                    self._add(signature, line.number, text, hit)

    def _try(self, signature: Signature, number: int, text: str) -> bool:
        hits = list(signature.regex.finditer(text))
        for hit in hits[:8]:
            self._add(signature, number, text, hit)
        return bool(hits)

    def _add(self, signature: Signature, number: int, text: str, hit: re.Match[str]) -> None:
        self.counts[signature.id] = self.counts.get(signature.id, 0) + 1
        kept = self.kept.setdefault(signature.id, [])
        if len(kept) >= _KEEP:
            return
        named = {name: value for name, value in hit.groupdict().items() if value}
        fields = {**signature.set, **named}
        if not any(old.fields == fields and old.line == number for old in kept):
            kept.append(
                Observation(signature=signature, line=number, text=text[:500], fields=fields)
            )

    def result(self) -> tuple[Observation, ...]:
        found = [observation for kept in self.kept.values() for observation in kept]
        return tuple(sorted(found, key=lambda observation: observation.line))
