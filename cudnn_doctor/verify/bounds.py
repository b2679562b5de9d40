"""How far a result may be from the exact one, and the comparison that decides.

A sum of n products computed in floating point differs from the exact sum y by at most

    (p + g(n) * a) * S + r * |y|,    S = sum of |x_i| * |w_i|

to first order, where p is the relative error of one product (nothing where the product of two
short numbers fits the accumulator; two roundings to 11 bits for TF32), a that of one addition
(tensor cores cut off instead of rounding), r that of storing the result, and g(n) the growth over
n additions: n in the worst case; 8 * sqrt(n) where that is smaller, which random rounding errors
exceed with a probability below 2e-14 an element (the probabilistic bound of Higham and Mary,
SIAM J. Sci. Comput. 41, 2019). Tensor cores that add many products at once (`Format.chunk`) make
fewer additions, and cut off up to four units within each. Two per cent are added for second-order
terms, and the type's smallest normal number for results that underflow.

Algorithms that work in a transformed domain (FFT, Winograd) mix all of a tile's elements, so their
errors follow the tile's largest sum and not each element's own; `TRANSFORM` widens S to its maximum
times that factor.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from cudnn_doctor.verify.formats import Format

LAMBDA = 8.0
SECOND_ORDER = 1.02
TRANSFORM = 32.0
_TINY = {"fp16": 2.0**-14, "fp8": 2.0**-6}
_TINY_FP32 = 2.0**-126


def growth(terms: int) -> float:
    """Rounding errors accumulated over a sum of so many terms, in errors of one addition."""
    return min(float(terms), LAMBDA * math.sqrt(terms))


def sum_bound(
    exact: Any,
    magnitude: Any,
    *,
    terms: int,
    arithmetic: Format,
    stored: Format,
    transforms: bool = False,
) -> Any:
    """Bound of |computed - exact| for each element; ``magnitude`` is S of the module's text."""
    additions = growth(-(-terms // arithmetic.chunk) + (4 if arithmetic.chunk > 1 else 0))
    relative = arithmetic.product + additions * arithmetic.accumulation
    if transforms:
        magnitude = TRANSFORM * magnitude.max()
    tiny = _TINY.get(stored.name, _TINY_FP32)
    return SECOND_ORDER * (relative * magnitude + stored.rounding * abs(exact)) + tiny


class Comparison(NamedTuple):
    """Outcome of comparing a result with its reference."""

    ok: bool
    elements: int
    wrong: int
    """Elements beyond their bound, NaN and infinite ones counted."""
    not_finite: int
    worst: float
    """Largest error as a fraction of its bound."""
    error: float
    """Largest absolute error among finite elements."""
    where: tuple[int, ...]
    """Index of the worst element."""
    got: float
    expected: float

    def __str__(self) -> str:
        if self.ok:
            return f"largest error {self.worst:.2f} of its bound, {self.elements} elements"
        nan = f", {self.not_finite} of them NaN or infinite" if self.not_finite else ""
        return (
            f"{self.wrong} of {self.elements} elements are wrong{nan}; "
            f"the worst, {list(self.where)}, is {self.got:.7g} instead of {self.expected:.7g}"
        )


def compare(result: Any, exact: Any, bound: Any, xp: Any) -> Comparison:
    """Compare element by element; anything not finite is wrong, whatever the bound."""
    if result.shape != exact.shape:
        raise ValueError(f"shapes differ: {result.shape} and {exact.shape}")
    finite = xp.isfinite(result)
    error = xp.where(finite, xp.abs(result - exact), 0.0)
    bound = xp.broadcast_to(bound, error.shape)
    ratio = xp.where(finite, error / xp.maximum(bound, 1e-300), xp.inf)
    wrong = ~(finite & (error <= bound))
    at = int(xp.argmax(ratio))
    where = tuple(int(i) for i in xp.unravel_index(xp.asarray(at), result.shape))
    return Comparison(
        ok=not bool(wrong.any()),
        elements=int(result.size),
        wrong=int(wrong.sum()),
        not_finite=int((~finite).sum()),
        worst=float(ratio.ravel()[at]),
        error=float(error.max()),
        where=where,
        got=float(result.ravel()[at]),
        expected=float(exact.ravel()[at]),
    )
