"""Minimal conflicts and relaxations, computed on bit sets of candidates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

_BOUND = 200_000
"""Combinations tried before settling for a minimal instead of a smallest set."""


def allowed(masks: Mapping[str, int], names: Sequence[str], everything: int) -> int:
    """Bit set of the candidates that none of the named constraints rules out."""
    left = everything
    for name in names:
        left &= masks[name]
    return left


def smallest_conflict(masks: Mapping[str, int], everything: int) -> tuple[str, ...]:
    """A smallest set of constraints that together rule everything out.

    Exact as long as the search stays within its bound; beyond it the set is still minimal (no
    constraint can be left out), found by deletion.
    """
    names = list(masks)
    tried = 0
    for size in range(1, len(names) + 1):
        for subset in itertools.combinations(names, size):
            if not allowed(masks, subset, everything):
                return subset
            tried += 1
        if tried > _BOUND:
            break
    return _by_deletion(masks, names, everything)


def _by_deletion(masks: Mapping[str, int], names: list[str], everything: int) -> tuple[str, ...]:
    kept = list(names)
    for name in reversed(names):
        rest = [other for other in kept if other != name]
        if not allowed(masks, rest, everything):
            kept = rest
    return tuple(kept)


def relaxations(
    masks: Mapping[str, int], everything: int, limit: int = 3
) -> Iterator[tuple[tuple[str, ...], int]]:
    """The smallest sets of constraints to lift, each with the candidates that this frees.

    Only sets of the least size are given, and none larger than ``limit``.
    """
    names = list(masks)
    for size in range(1, limit + 1):
        found = False
        for subset in itertools.combinations(names, size):
            left = allowed(masks, [name for name in names if name not in subset], everything)
            if left:
                found = True
                yield subset, left
        if found:
            return
