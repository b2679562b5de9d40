"""How far a result may be from the exact one, and the comparison that decides.

The data are normally distributed, so the n products of a sum have random signs and its partial
sums are those of a random walk: of size Q, the square root of the sum of (x_i * w_i)^2, and not of
S, the sum of |x_i * w_i|, which is up to sqrt(n) times as much. A sum y computed in floating point
is then off by at most

    (p * min(sqrt(n), L) + a * g(n)) * Q + p * |y| + r * |y|

to first order, where p is the relative error of one product (nothing where the product of two
short numbers fits the accumulator; two shortenings to 11 bits for TF32), a that of one addition
and r that of storing the result.

* Products: errors of random sign add up to L * p * Q at most, but for a probability of
  2 * exp(-L^2 / 2) (Hoeffding; below 2e-13 for L = 7.5); never to more than p * S. Inputs that are
  cut off and not rounded also shrink y itself, by p.
* Additions: rounding errors of random sign, each a times a partial sum, add up to g(n) = R *
  sqrt(n), where R is the product of how far the partial sums exceed Q and how far the errors exceed
  their spread. Both tails together give a probability of about exp(-2 * R * sqrt(1.23 / 2)), 1e-11
  for R = 16 (the model of Higham and Mary, SIAM J. Sci. Comput. 41, 2019, for random data). It is
  never more than n * S, so R is at most n.
* Tensor cores cut off instead of rounding, always towards zero: that adds up in proportion to the
  number of additions. With four products or more an addition and partial sums up to 4 Q it is n
  more.

Two per cent are added for second-order terms, and the type's smallest normal number for results
that underflow. On an H200 the largest of some 10^5 fp32 errors is about a sixth of this, TF32 a
eighth; for 16-bit results storing dominates and it is 0.5 to 0.98.

Algorithms that work in a transformed domain (FFT, Winograd) mix all of a tile's elements, so their
errors follow the tile's largest sum and not each element's own: Q is replaced by its maximum times
`TRANSFORM`, for the growth of Winograd's largest tiles (the H200's come to a tenth of that).

Some engines keep partial sums in the 16-bit type of the result (cuDNN's numerical note
REDUCED_PRECISION_REDUCTION, which the legacy interface does not tell). With each rounded once the
sum is off by r * S, at most r * sqrt(n) * Q, more. That is `reduced_bound`; it only serves results
where so many elements are beyond the first bound that it must be the engine's way, and the report
says so: see `reduces`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from cudnn_doctor.verify.formats import Format

LAMBDA = 8.0
SECOND_ORDER = 1.02
TRANSFORM = 8.0
_PRODUCTS, _ADDITIONS = 7.5, 16.0
"""L and R of the module's text."""
_TINY = {"fp16": 2.0**-14, "fp8": 2.0**-6}
_TINY_FP32 = 2.0**-126
_MANY, _SHARE = 8, 5e-4
"""From so many elements and such a share of all on, errors are an engine's way of computing."""


def growth(terms: int) -> float:
    """Errors of a sum of so many terms against S, in errors of one addition.

    The worst case, or 8 * sqrt(n) where that is smaller (exceeded with a probability below 2e-14).
    """
    return min(float(terms), LAMBDA * math.sqrt(terms))


def relative_error(terms: int, arithmetic: Format) -> float:
    """Error of a sum of products in units of Q, without storing it."""
    root = math.sqrt(terms)
    additions = root * min(float(terms), _ADDITIONS) + (terms if arithmetic.cuts_off else 0)
    return arithmetic.product * min(root, _PRODUCTS) + arithmetic.accumulation * additions


def sum_bound(
    exact: Any,
    spread: Any,
    *,
    terms: int,
    arithmetic: Format,
    stored: Format,
    transforms: bool = False,
) -> Any:
    """Bound of |computed - exact| for each element; ``spread`` is Q of the module's text."""
    if transforms:
        spread = TRANSFORM * spread.max()
    tiny = _TINY.get(stored.name, _TINY_FP32)
    own = (arithmetic.product + stored.rounding) * abs(exact)
    return SECOND_ORDER * (relative_error(terms, arithmetic) * spread + own) + tiny


def reduced_bound(bound: Any, spread: Any, *, terms: int, stored: Format) -> Any:
    """`sum_bound` widened for partial sums kept in the type of the result."""
    return bound + SECOND_ORDER * stored.rounding * math.sqrt(terms) * spread


def reduces(comparison: Comparison, stored: Format) -> bool:
    """Whether a failed comparison looks like 16-bit partial sums and not like wrong elements."""
    many = max(_MANY, _SHARE * comparison.elements)
    return (
        stored.name in ("fp16", "bf16") and not comparison.not_finite and comparison.wrong >= many
    )


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
