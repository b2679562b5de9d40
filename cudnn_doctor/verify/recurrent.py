"""Rung 5: a one-layer LSTM through the adv library, forward and backward, in fp32."""

from __future__ import annotations

from typing import Any

from cudnn_doctor.verify import references
from cudnn_doctor.verify.binding.adv import Lstm, LstmShape
from cudnn_doctor.verify.cuda import Buffer
from cudnn_doctor.verify.formats import FORMATS
from cudnn_doctor.verify.lab import Lab, run_twice

_FP32 = FORMATS["fp32"]
_MARGIN = 16.0
_SHAPE = LstmShape(steps=8, batch=16, inputs=64, hidden=64)


class _Reference:
    """Forward and backward pass in float64; gates in cuDNN's order: input, forget, new, output."""

    def __init__(self, xp: Any, x: Any, parameters: list[tuple[Any, Any]]) -> None:
        self.xp, self.x, self.parameters = xp, x, parameters
        steps, batch, _ = x.shape
        hidden = parameters[0][0].shape[0]
        h = c = xp.zeros((batch, hidden), x.dtype)
        self.h, self.c, self.gates = [h], [c], []
        for t in range(steps):
            i, f, g, o = (self._gate(gate, x[t], h) for gate in range(4))
            c = f * c + i * g
            h = o * xp.tanh(c)
            self.h.append(h)
            self.c.append(c)
            self.gates.append((i, f, g, o))

    def _gate(self, gate: int, x: Any, h: Any) -> Any:
        (w, b), (r, rb) = self.parameters[gate], self.parameters[gate + 4]
        total = x @ w.T + b + h @ r.T + rb
        return self.xp.tanh(total) if gate == 2 else references.sigmoid(total, self.xp)

    def backward(self, dy: Any) -> tuple[Any, list[tuple[Any, Any]]]:
        """dx, and the gradients of the parameters."""
        xp = self.xp
        dx = xp.zeros_like(self.x)
        grads = [(xp.zeros_like(m), xp.zeros_like(b)) for m, b in self.parameters]
        dh = dc = xp.zeros_like(self.h[0])
        for t in reversed(range(self.x.shape[0])):
            i, f, g, o = self.gates[t]
            dh = dh + dy[t]
            tanh = xp.tanh(self.c[t + 1])
            dc = dc + dh * o * (1 - tanh**2)
            slopes = (
                dc * g * i * (1 - i),
                dc * self.c[t] * f * (1 - f),
                dc * i * (1 - g**2),
                dh * tanh * o * (1 - o),
            )
            dh, dc = xp.zeros_like(dh), dc * f
            for gate, slope in enumerate(slopes):
                for at, source in ((gate, self.x[t]), (gate + 4, self.h[t])):
                    grads[at][0][...] += slope.T @ source
                    grads[at][1][...] += slope.sum(axis=0)
                dx[t] += slope @ self.parameters[gate][0]
                dh = dh + slope @ self.parameters[gate + 4][0]
        return dx, grads


def lstm(lab: Lab) -> dict[str, Any]:
    """Outputs and all gradients, checked.

    The yardstick is the error that the same formulas make in fp32 outside cuDNN on the same data:
    each result may be `_MARGIN` times as far off as the worst element of that, which allows for
    another order of sums and for fast exponentials.
    """
    xp, shape = lab.xp, _SHAPE
    net = Lstm(lab.cudnn, shape)
    x = lab.operand(lab.random("lstm/x", (shape.steps, shape.batch, shape.inputs)), _FP32)
    wide = (shape.steps, shape.batch, shape.hidden)
    dy = lab.operand(lab.random("lstm/dy", wide), _FP32)
    count = net.weight_bytes // 4
    weights = lab.operand(lab.random("lstm/w", (count,), shape.hidden**-0.5), _FP32)
    offsets = net.parameter_offsets(weights.pointer)
    parameters = [_slice(weights.exact, at, gate, shape) for gate, at in enumerate(offsets)]
    outputs = {
        "y": lab.output(wide, _FP32),
        "hy": lab.output(wide[1:], _FP32),
        "cy": lab.output(wide[1:], _FP32),
        "dx": lab.output((shape.steps, shape.batch, shape.inputs), _FP32),
    }
    dweights = Buffer(lab.driver, net.weight_bytes)
    scratch = {
        "work": Buffer(lab.driver, net.work_bytes),
        "reserve": Buffer(lab.driver, net.reserve_bytes),
        "lengths": Buffer(lab.driver, 4 * shape.batch).write(bytes(net.lengths)),
    }
    pointers = {name: b.pointer for name, b in (outputs | scratch).items()}
    pointers |= {
        "x": x.pointer, "dy": dy.pointer, "weights": weights.pointer, "dweights": dweights.pointer,
    }  # fmt: skip

    def run() -> None:
        dweights.fill(0)
        net.forward(pointers)
        net.backward(pointers)

    contents, repeatable = run_twice(outputs, run)
    dims = {"y": wide, "hy": wide[1:], "cy": wide[1:], "dx": x.exact.shape}
    got = {name: lab.decode(contents[name], dims[name], _FP32) for name in outputs}
    exact, grads = _results(xp, x.exact, dy.exact, parameters)
    narrow = [(m.astype(xp.float32), b.astype(xp.float32)) for m, b in parameters]
    rough, rough_grads = _results(
        xp, x.exact.astype(xp.float32), dy.exact.astype(xp.float32), narrow
    )
    flat = lab.read(dweights, (count,), _FP32)
    for gate, (at, matrix) in enumerate(zip(offsets, grads, strict=True)):
        names = f"dW{gate}", f"db{gate}"
        exact |= zip(names, matrix, strict=True)
        rough |= zip(names, rough_grads[gate], strict=True)
        got |= zip(names, _slice(flat, at, gate, shape), strict=True)
    worst = 0.0
    for name, value in exact.items():
        bound = _MARGIN * (abs(rough[name] - value).max() + 2.0**-24 * abs(value).max())
        worst = max(worst, lab.check(got[name], value, bound, name).worst)
    return {
        "worst": round(worst, 4), "elements": exact["y"].size + count, "repeatable": repeatable,
    }  # fmt: skip


def _results(
    xp: Any, x: Any, dy: Any, parameters: list[tuple[Any, Any]]
) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
    """Outputs and gradients by name, and the parameters' gradients, in the type of the inputs."""
    reference = _Reference(xp, x, parameters)
    dx, grads = reference.backward(dy)
    y = xp.stack(reference.h[1:])
    return {"y": y, "hy": reference.h[-1], "cy": reference.c[-1], "dx": dx}, grads


def _slice(flat: Any, at: tuple[int, int], gate: int, shape: LstmShape) -> tuple[Any, Any]:
    """Matrix and bias of a gate out of the weight space."""
    width = shape.inputs if gate < 4 else shape.hidden
    start, bias = at[0] // 4, at[1] // 4
    matrix = flat[start : start + shape.hidden * width].reshape(shape.hidden, width)
    return matrix, flat[bias : bias + shape.hidden]
