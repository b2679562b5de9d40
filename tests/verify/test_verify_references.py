"""Float64 references against a definition written out in loops."""

from __future__ import annotations

import itertools

import numpy
import pytest

from cudnn_doctor.verify import references
from cudnn_doctor.verify.binding.graph import Window, channels_last, row_major
from cudnn_doctor.verify.workloads import Convolution, output_dims

SHAPES = (
    Convolution("plain", (2, 4, 6, 7), (6, 4, 3, 2), Window((1, 0), (1, 1), (1, 1))),
    Convolution("strided", (1, 3, 9, 8), (4, 3, 3, 3), Window((1, 2), (2, 3), (1, 1))),
    Convolution("dilated", (1, 2, 9, 9), (2, 2, 3, 3), Window((2, 2), (1, 1), (2, 3))),
    Convolution("grouped", (2, 6, 5, 5), (4, 3, 3, 3), Window((1, 1), (1, 1), (1, 1)), groups=2),
    Convolution("depthwise", (1, 4, 5, 5), (4, 1, 3, 3), Window((1, 1), (1, 1), (1, 1)), groups=4),
    Convolution("3d", (1, 2, 4, 5, 3), (3, 2, 2, 3, 1), Window((0, 1, 0), (1, 2, 1), (1, 1, 1))),
)


def products(shape: Convolution) -> list[tuple[tuple[int, ...], ...]]:
    """Indices (into x, w, y) of every product, by the definition of a convolution."""
    window, found = shape.window, []
    y = output_dims(shape.x, shape.w, window)
    per_group = shape.w[0] // shape.groups
    for n, k, c in itertools.product(range(y[0]), range(y[1]), range(shape.w[1])):
        channel = c + k // per_group * shape.w[1]
        for at in itertools.product(*(range(s) for s in y[2:])):
            for tap in itertools.product(*(range(s) for s in shape.w[2:])):
                where = tuple(
                    a * s - p + t * d
                    for a, s, p, t, d in zip(
                        at, window.stride, window.padding, tap, window.dilation, strict=True
                    )
                )
                if all(0 <= i < size for i, size in zip(where, shape.x[2:], strict=True)):
                    found.append(((n, channel, *where), (k, c, *tap), (n, k, *at)))
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_all_three_directions_follow_the_definition(shape: Convolution) -> None:
    numbers = numpy.random.default_rng(5)
    dims = output_dims(shape.x, shape.w, shape.window)
    x, w, dy = (numbers.standard_normal(d) for d in (shape.x, shape.w, dims))
    y, dx, dw = numpy.zeros(dims), numpy.zeros(shape.x), numpy.zeros(shape.w)
    for at_x, at_w, at_y in products(shape):
        y[at_y] += x[at_x] * w[at_w]
        dx[at_x] += dy[at_y] * w[at_w]
        dw[at_w] += dy[at_y] * x[at_x]
    made = references.convolution_forward(x, w, shape.window, shape.groups, numpy)
    numpy.testing.assert_allclose(made, y, atol=1e-12)
    numpy.testing.assert_allclose(references.convolution_data(w, dy, shape, numpy), dx, atol=1e-12)
    numpy.testing.assert_allclose(
        references.convolution_filter(x, dy, shape, numpy), dw, atol=1e-12
    )


def test_strides_of_both_memory_orders() -> None:
    assert row_major((2, 3, 4, 5)) == (60, 20, 5, 1)
    assert channels_last((2, 3, 4, 5)) == (60, 1, 15, 3)
    assert channels_last((2, 3, 4, 5, 6)) == (360, 1, 90, 18, 3)


def test_softmax_and_sigmoid() -> None:
    x = numpy.array([[0.0, numpy.log(3.0)]])
    numpy.testing.assert_allclose(references.softmax(x, 1, numpy), [[0.25, 0.75]])
    numpy.testing.assert_allclose(references.sigmoid(numpy.log(3.0), numpy), 0.75)
