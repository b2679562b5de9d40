"""Comparison and bounds: right results pass, a wrong element never does."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_doctor.verify import bounds, formats
from cudnn_doctor.verify.formats import FORMATS

TERMS = 576


def sums(kind: str, rows: int = 4000, seed: int = 7) -> tuple[numpy.ndarray, ...]:
    """Sums of products computed in fp32 and stored in ``kind``; exact values; their bound."""
    form = FORMATS[kind]
    numbers = numpy.random.default_rng(seed)
    x, w = (numbers.standard_normal((rows, TERMS), dtype=numpy.float32) for _ in range(2))
    x, w = (formats.decode(formats.encode(a, form, numpy), form, numpy) for a in (x, w))
    exact = (x * w).sum(axis=1)
    spread = numpy.sqrt(((x * w) ** 2).sum(axis=1))
    total = numpy.zeros(rows, numpy.float32)
    for column in range(TERMS):  # one after another: the order with the largest errors
        total += (x[:, column] * w[:, column]).astype(numpy.float32)
    got = formats.decode(formats.encode(total, form, numpy), form, numpy)
    bound = bounds.sum_bound(exact, spread, terms=TERMS, arithmetic=form, stored=form)
    return got, exact, bound, spread


@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16"])
def test_honest_rounding_passes_and_is_not_far_below_its_bound(kind: str) -> None:
    got, exact, bound, _ = sums(kind)
    compared = bounds.compare(got, exact, bound, numpy)
    assert compared.ok, str(compared)
    assert compared.worst > 0.1


@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16"])
def test_one_perturbed_element_in_a_million_is_caught(kind: str) -> None:
    got, exact, bound, _ = sums(kind)
    got, exact, bound = (numpy.resize(a, 1_000_000) for a in (got, exact, bound))
    got[654_321] *= 1 + 2.0**-6
    compared = bounds.compare(got, exact, bound, numpy)
    assert not compared.ok
    assert (compared.wrong, compared.where) == (1, (654_321,))
    assert not bounds.reduces(compared, FORMATS[kind])


@pytest.mark.parametrize("poison", [numpy.nan, numpy.inf, -numpy.inf])
def test_nan_and_infinity_never_pass_even_with_an_infinite_bound(poison: float) -> None:
    got = numpy.zeros(10)
    got[3] = poison
    compared = bounds.compare(got, numpy.zeros(10), numpy.inf, numpy)
    assert not compared.ok
    assert (compared.not_finite, compared.where) == (1, (3,))


@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16"])
def test_zeros_in_place_of_a_result_are_caught(kind: str) -> None:
    _, exact, bound, _ = sums(kind)
    compared = bounds.compare(numpy.zeros_like(exact), exact, bound, numpy)
    assert compared.wrong > 0.95 * exact.size


def test_sixteen_bit_partial_sums_are_known_as_the_engines_way() -> None:
    form = FORMATS["fp16"]
    numbers = numpy.random.default_rng(3)
    x, w = (numbers.standard_normal((4000, TERMS)).astype(numpy.float16) for _ in range(2))
    products = x.astype(float) * w.astype(float)
    halves = products.reshape(4000, 4, -1).sum(axis=2).astype(numpy.float16)
    got = halves.astype(float).sum(axis=1).astype(numpy.float16).astype(float)
    exact, spread = products.sum(axis=1), numpy.sqrt((products**2).sum(axis=1))
    bound = bounds.sum_bound(exact, spread, terms=TERMS, arithmetic=form, stored=form)
    strict = bounds.compare(got, exact, bound, numpy)
    assert not strict.ok
    assert bounds.reduces(strict, form)
    wide = bounds.reduced_bound(bound, spread, terms=TERMS, stored=form)
    assert bounds.compare(got, exact, wide, numpy).ok


def test_fp32_results_are_never_excused_by_reduced_partial_sums() -> None:
    got, exact, bound, _ = sums("fp32")
    compared = bounds.compare(got * 1.01, exact, bound, numpy)
    assert compared.wrong > 1000
    assert not bounds.reduces(compared, FORMATS["fp32"])


def test_differing_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        bounds.compare(numpy.zeros(3), numpy.zeros((3, 1)), 1.0, numpy)


@given(st.integers(1, 10**7))
def test_more_terms_never_have_a_smaller_bound(terms: int) -> None:
    for kind in FORMATS.values():
        here, there = (bounds.relative_error(n, kind) for n in (terms, terms + 1))
        assert here <= there
    assert bounds.growth(terms) <= terms


@settings(max_examples=300)
@given(st.floats(-60000, 60000, width=32))
def test_formats_round_to_the_nearest_number_that_they_have(value: float) -> None:
    one = numpy.array([value], numpy.float32)
    for name, most in (("fp16", 2.0**-11), ("bf16", 2.0**-8), ("fp32", 0.0)):
        form = FORMATS[name]
        back = float(formats.decode(formats.encode(one, form, numpy), form, numpy)[0])
        assert abs(back - value) <= most * abs(value) + 2.0**-25


def test_fp8_codes_come_back_as_themselves() -> None:
    form = FORMATS["fp8"]
    codes = numpy.array([c for c in range(256) if c & 127 != 127], numpy.uint8)
    values = formats.decode(codes, form, numpy).astype(numpy.float32)
    assert (formats.encode(values, form, numpy) == codes).all()
    assert math.isnan(formats.E4M3[127])
    assert max(v for v in formats.E4M3 if v == v) == 448
