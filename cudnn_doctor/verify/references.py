"""Exact results in float64 by means that share nothing with cuDNN.

Convolutions are sums over the filter's taps, each tap one matrix product of a shifted view; ``xp``
is NumPy or CuPy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from cudnn_doctor.verify.binding.graph import Window
from cudnn_doctor.verify.workloads import Convolution, output_dims

Index = tuple[Any, ...]
_WHOLE = (slice(None),) * 3


def _taps(
    w: tuple[int, ...], out: tuple[int, ...], window: Window
) -> Iterator[tuple[Index, Index]]:
    """For each tap its index in the filter, and in the grouped input the slices it meets."""
    for tap in itertools.product(*(range(n) for n in w[2:])):
        starts = [t * d for t, d in zip(tap, window.dilation, strict=True)]
        met = (
            slice(start, start + (n - 1) * step + 1, step)
            for start, n, step in zip(starts, out[2:], window.stride, strict=True)
        )
        yield (Ellipsis, *tap), (*_WHOLE, *met)


def _grouped(a: Any, groups: int) -> Any:
    """(N, C, ...) as (groups, C/groups, N, ...)."""
    split = a.reshape(a.shape[0], groups, -1, *a.shape[2:])
    return split.swapaxes(0, 1).swapaxes(1, 2)


def _ungrouped(a: Any, xp: Any) -> Any:
    """The inverse of `_grouped`."""
    back = a.swapaxes(1, 2).swapaxes(0, 1)
    return xp.ascontiguousarray(back).reshape(back.shape[0], -1, *back.shape[3:])


def _padded(x: Any, window: Window, xp: Any) -> Any:
    return xp.pad(x, ((0, 0), (0, 0), *((p, p) for p in window.padding)))


def convolution_forward(x: Any, w: Any, window: Window, groups: int, xp: Any) -> Any:
    """y of x (N, C, ...) and w (K, C/groups, ...)."""
    out = output_dims(x.shape, w.shape, window)
    source = _grouped(_padded(x, window, xp), groups)
    filters = w.reshape(groups, -1, *w.shape[1:])
    points = out[0]
    for n in out[2:]:
        points *= n
    y = xp.zeros((groups, w.shape[0] // groups, points))
    for tap, where in _taps(w.shape, out, window):
        seen = source[where]
        y += filters[tap] @ seen.reshape(groups, -1, points)
    return _ungrouped(y.reshape(groups, -1, out[0], *out[2:]), xp)


def convolution_data(w: Any, dy: Any, shape: Convolution, xp: Any) -> Any:
    """dx: the gradient with respect to the input."""
    x_dims, window, groups = shape.x, shape.window, shape.groups
    filters = w.reshape(groups, -1, *w.shape[1:])
    given = _grouped(dy, groups)
    flat = given.reshape(groups, given.shape[1], -1)
    padded = (n + 2 * p for n, p in zip(x_dims[2:], window.padding, strict=True))
    dx = xp.zeros((groups, x_dims[1] // groups, x_dims[0], *padded))
    for tap, where in _taps(w.shape, dy.shape, window):
        part = filters[tap].swapaxes(1, 2) @ flat
        dx[where] += part.reshape(groups, -1, x_dims[0], *dy.shape[2:])
    inner = (slice(p, p + n) for n, p in zip(x_dims[2:], window.padding, strict=True))
    return _ungrouped(dx[_WHOLE + tuple(inner)], xp)


def convolution_filter(x: Any, dy: Any, shape: Convolution, xp: Any) -> Any:
    """dw: the gradient with respect to the filter."""
    w_dims, window, groups = shape.w, shape.window, shape.groups
    source = _grouped(_padded(x, window, xp), groups)
    given = _grouped(dy, groups)
    flat = given.reshape(groups, given.shape[1], -1)
    dw = xp.zeros((groups, w_dims[0] // groups, *w_dims[1:]))
    for tap, where in _taps(w_dims, dy.shape, window):
        seen = source[where]
        dw[tap] = flat @ seen.reshape(groups, w_dims[1], -1).swapaxes(1, 2)
    return dw.reshape(w_dims)


def softmax(x: Any, axis: int, xp: Any) -> Any:
    shifted = xp.exp(x - x.max(axis=axis, keepdims=True))
    return shifted / shifted.sum(axis=axis, keepdims=True)


def sigmoid(x: Any, xp: Any) -> Any:
    return 1 / (1 + xp.exp(-x))
