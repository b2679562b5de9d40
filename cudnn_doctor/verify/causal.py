"""Rung 5: causal convolution along a sequence, the work of the ext library."""

from __future__ import annotations

from typing import Any

from cudnn_doctor.verify import bounds
from cudnn_doctor.verify.binding import ext
from cudnn_doctor.verify.binding.ext import Causal
from cudnn_doctor.verify.convolve import require
from cudnn_doctor.verify.formats import FORMATS
from cudnn_doctor.verify.lab import Lab, run_twice

_SHAPE = Causal(batch=2, channels=64, length=512, taps=4)


def convolution(lab: Lab, kind: str, shape: Causal = _SHAPE) -> dict[str, Any]:
    """Forward, checked against shifted sums; raises Unsupported where the release has none."""
    require(lab, kind)
    xp, form = lab.xp, FORMATS[kind]
    dims = (shape.batch, shape.channels, shape.length)
    x = lab.operand(lab.random("causal/x", dims), form)
    w = lab.operand(lab.random("causal/w", (shape.channels, shape.taps)), form)
    bias = lab.operand(lab.random("causal/bias", (shape.channels,)), form)
    exact, squares = xp.zeros(dims), xp.zeros(dims)
    for back in range(shape.taps):
        tap = w.exact[:, shape.taps - 1 - back, None]
        met = x.exact[..., : shape.length - back] * tap
        exact[..., back:] += met
        squares[..., back:] += met**2
    exact += bias.exact[:, None]
    squares += bias.exact[:, None] ** 2
    y = lab.output(dims, form)
    pointers = (x.pointer, w.pointer, bias.pointer, y.pointer)
    contents, repeatable = run_twice(
        {"y": y}, lambda: ext.causal_convolution(lab.cudnn, shape, form.dtype, pointers)
    )
    bound = bounds.sum_bound(
        exact, xp.sqrt(squares), terms=shape.taps + 1, arithmetic=form, stored=form
    )
    compared = lab.check(lab.decode(contents["y"], dims, form), exact, bound)
    return {
        "worst": round(compared.worst, 4),
        "elements": compared.elements,
        "repeatable": repeatable,
    }
