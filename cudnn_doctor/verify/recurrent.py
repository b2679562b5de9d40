"""Rung 5: a one-layer LSTM through the adv library, forward and backward, in fp32."""

from __future__ import annotations

from typing import Any

from cudnn_doctor.verify import references
from cudnn_doctor.verify.binding.adv import Lstm, LstmShape
from cudnn_doctor.verify.bounds import SECOND_ORDER, growth
from cudnn_doctor.verify.cuda import Buffer
from cudnn_doctor.verify.formats import FORMATS
from cudnn_doctor.verify.lab import Lab, run_twice

_FP32 = FORMATS["fp32"]
_SHAPE = LstmShape(steps=8, batch=16, inputs=64, hidden=64)


class _Reference:
    """Forward and backward pass in float64; gates in cuDNN's order: input, forget, new, output."""

    def __init__(self, xp: Any, x: Any, parameters: list[tuple[Any, Any]]) -> None:
        self.xp, self.x, self.parameters = xp, x, parameters
        steps, batch, _ = x.shape
        hidden = parameters[0][0].shape[0]
        h = c = xp.zeros((batch, hidden))
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
        dx = xp.zeros(self.x.shape)
        grads = [(xp.zeros(m.shape), xp.zeros(b.shape)) for m, b in self.parameters]
        dh = dc = xp.zeros(self.h[0].shape)
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
            dh, dc = xp.zeros(dh.shape), dc * f
            for gate, slope in enumerate(slopes):
                for at, source in ((gate, self.x[t]), (gate + 4, self.h[t])):
                    grads[at][0][...] += slope.T @ source
                    grads[at][1][...] += slope.sum(axis=0)
                dx[t] += slope @ self.parameters[gate][0]
                dh = dh + slope @ self.parameters[gate + 4][0]
        return dx, grads


def lstm(lab: Lab) -> dict[str, Any]:
    """Outputs and all gradients, checked.

    Errors of a step are those of one sum of ``inputs + hidden`` terms and its exponentials; with
    gates below 1 and recurrent weights of spectral norm about 1 they grow at most in proportion to
    the number of steps, taken four times for the gates that feed one output.
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
    reference = _Reference(xp, x.exact, parameters)
    dx, grads = reference.backward(dy.exact)
    unit = 4 * shape.steps * (growth(shape.inputs + shape.hidden) + 16) * 2.0**-23
    y = xp.stack(reference.h[1:])
    exact = {"y": y, "hy": reference.h[-1], "cy": reference.c[-1], "dx": dx}
    worst = 0.0
    for name, value in exact.items():
        bound = SECOND_ORDER * unit * (1 + abs(value).max())
        got = lab.decode(contents[name], value.shape, _FP32)
        worst = max(worst, lab.check(got, value, bound, name).worst)
    flat = lab.read(dweights, (count,), _FP32)
    for gate, (at, (matrix, bias)) in enumerate(zip(offsets, grads, strict=True)):
        got_matrix, got_bias = _slice(flat, at, gate, shape)
        bound = SECOND_ORDER * unit * shape.steps * (1 + abs(matrix).max())
        worst = max(worst, lab.check(got_matrix, matrix, bound, f"dW{gate}").worst)
        bound = SECOND_ORDER * unit * shape.steps * (1 + abs(bias).max())
        worst = max(worst, lab.check(got_bias, bias, bound, f"db{gate}").worst)
    return {"worst": round(worst, 4), "elements": int(y.size) + count, "repeatable": repeatable}


def _slice(flat: Any, at: tuple[int, int], gate: int, shape: LstmShape) -> tuple[Any, Any]:
    """Matrix and bias of a gate out of the weight space."""
    width = shape.inputs if gate < 4 else shape.hidden
    start, bias = at[0] // 4, at[1] // 4
    matrix = flat[start : start + shape.hidden * width].reshape(shape.hidden, width)
    return matrix, flat[bias : bias + shape.hidden]
