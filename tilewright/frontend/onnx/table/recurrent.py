"""Recurrent layers: LSTM, GRU, RNN, one or two directions.

They are unrolled over time where the sequence has a fixed length: each step is a matrix product and elementwise operators.
The products of the input with W do not depend on the state, and are one product for all steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.frontend.onnx.node import NodeContext
from tilewright.frontend.onnx.registry import onnx_op

LONGEST = 512
"""Sequences of more steps are not unrolled."""

_ACTIVATIONS: dict[str, str] = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "nn.relu"}

Step = Callable[[Any, list[Any]], list[Any]]


def _activate(n: NodeContext, name: str) -> Callable[[Any], Any]:
    known = _ACTIVATIONS.get(name.lower())
    if known is None:
        raise n.unsupported(f"the activation {name!r} is not supported; {', '.join(_ACTIVATIONS)} are")
    return lambda x: n.op(known, x)


class Layer:
    """What LSTM, GRU and RNN share: operands, directions, the loop over time."""

    def __init__(self, n: NodeContext, x: Any, gates: int, defaults: list[str]) -> None:
        self.n, self.gates = n, gates
        self.direction = n.attr("direction", "forward")
        self.count = 2 if self.direction == "bidirectional" else 1
        names = n.attr("activations", None) or defaults * self.count
        if n.attr("clip", None) is not None:
            raise n.unsupported("the attribute 'clip' is not supported")
        if n.attr("layout", 0):
            raise n.unsupported("layout 1 (batch first) is not supported")
        self.activations = [
            [_activate(n, a) for a in names[i * len(defaults) : (i + 1) * len(defaults)]] for i in range(self.count)
        ]
        steps = n.static_shape_of(x, 0, "the length of the sequence")
        if steps > LONGEST:
            raise n.unsupported(f"a sequence of {steps} steps is not supported; {LONGEST} are at most")
        self.steps, self.batch = steps, n.shape(x)[1]

    def pick(self, tensor: Any, d: int) -> Any:
        """The part of a direction, without the direction's dimension; None stays."""
        return None if tensor is None else self.n.op("take", tensor, self.n.const(d, "int64"), axis=0)

    def zeros(self, hidden: int, like: Any) -> Any:
        """An initial state."""
        n = self.n
        return n.op("full", n.shape_expr([self.batch, hidden]), n.scalar(0.0, like), dtype=n.dtype(like))

    def times(self, a: Any, weight: Any) -> Any:
        """a * weight'"""
        return self.n.op("matmul", a, self.n.op("permute_dims", weight, axes=[1, 0]))

    def split(self, x: Any, parts: int) -> list[Any]:
        """Equal parts of the last dimension."""
        made = self.n.op("split", x, indices_or_sections=parts, axis=1)
        return [self.n.item(made, i) for i in range(parts)]

    def loop(self, d: int, inputs: Any, state: list[Any], step: Step) -> tuple[list[Any], list[Any]]:
        """The first state of every step in the order of time, and the final states."""
        backwards = self.direction == "reverse" or d == 1
        order = range(self.steps - 1, -1, -1) if backwards else range(self.steps)
        outputs: dict[int, Any] = {}
        for t in order:
            row = (
                self.n.op("take", inputs, self.n.const(t, "int64"), axis=0) if self.steps > 1 else self.pick(inputs, 0)
            )
            state = step(row, state)
            outputs[t] = state[0]
        return [outputs[t] for t in range(self.steps)], state

    def results(self, per_direction: list[tuple[list[Any], list[Any]]]) -> list[Any]:
        """Y [steps, directions, batch, hidden], then the final states [directions, batch, hidden]."""
        rows = [self.stack([outputs[t] for outputs, _ in per_direction]) for t in range(self.steps)]
        finals = [self.stack([state[k] for _, state in per_direction]) for k in range(len(per_direction[0][1]))]
        return [self.stack(rows), *finals]

    def stack(self, xs: list[Any]) -> Any:
        """Tensors along a new first dimension."""
        n = self.n
        grown = [n.op("expand_dims", x, axis=[0]) for x in xs]
        return grown[0] if len(grown) == 1 else n.emit(n.operator("concat", axis=0)(n.tuple(grown)))


def _full_length(n: NodeContext, lengths: Any, steps: int) -> None:
    if lengths is not None and not np.all(n.array(lengths, "sequence_lens") == steps):
        raise n.unsupported("sequences of different lengths are not supported")


@onnx_op("LSTM", since=7, ignore=("hidden_size", "input_forget"))
def lstm(n: NodeContext, x: Any, w: Any, r: Any, b: Any = None, lens: Any = None, h: Any = None, c: Any = None,
         p: Any = None) -> Any:  # fmt: skip
    """Long short-term memory; gates in the order i, o, f, c"""
    layer = Layer(n, x, 4, ["Sigmoid", "Tanh", "Tanh"])
    _full_length(n, lens, layer.steps)
    if p is not None:
        raise n.unsupported("peepholes are not supported")
    hidden = n.static_shape(r, "the recurrence weight")[2]
    done: list[Any] = []
    for d in range(layer.count):
        f, g, o = layer.activations[d]
        recur = layer.pick(r, d)
        inputs = _with_bias(layer, x, layer.pick(w, d), layer.pick(b, d))

        def step(row: Any, state: list[Any], recur: Any = recur, f: Any = f, g: Any = g, out: Any = o) -> list[Any]:
            gates = layer.split(n.op("add", row, layer.times(state[0], recur)), 4)
            keep, new = f(gates[2]), n.op("multiply", f(gates[0]), g(gates[3]))
            cell = n.op("add", n.op("multiply", keep, state[1]), new)
            return [n.op("multiply", f(gates[1]), out(cell)), cell]

        start = [layer.pick(s, d) if s is not None else layer.zeros(hidden, x) for s in (h, c)]
        done.append(layer.loop(d, inputs, start, step))
    return layer.results(done)


def _with_bias(layer: Layer, x: Any, w: Any, b: Any) -> Any:
    """x * w' + Wb + Rb for all steps at once."""
    n = layer.n
    product = layer.times(x, w)
    if b is None:
        return product
    made = n.op("split", b, indices_or_sections=2, axis=0)
    return n.op("add", product, n.op("add", n.item(made, 0), n.item(made, 1)))


@onnx_op("GRU", since=7, ignore=("hidden_size",))
def gru(n: NodeContext, x: Any, w: Any, r: Any, b: Any = None, lens: Any = None, h: Any = None) -> Any:
    """Gated recurrent unit; gates in the order z, r, h"""
    layer = Layer(n, x, 3, ["Sigmoid", "Tanh"])
    _full_length(n, lens, layer.steps)
    after = bool(n.attr("linear_before_reset", 0))
    hidden = n.static_shape(r, "the recurrence weight")[2]
    done: list[Any] = []
    for d in range(layer.count):
        step = _gru_step(layer, layer.pick(r, d), layer.pick(b, d), after, d)
        inputs = layer.times(x, layer.pick(w, d))
        start = layer.pick(h, d) if h is not None else layer.zeros(hidden, x)
        done.append(layer.loop(d, inputs, [start], step))
    return layer.results(done)


def _gru_step(layer: Layer, recur: Any, bias: Any, after: bool, d: int) -> Step:
    n = layer.n
    f, g = layer.activations[d]
    parts = n.op("split", recur, indices_or_sections=3, axis=0)
    rz, rr, rh = (n.item(parts, i) for i in range(3))
    biases = None if bias is None else n.op("split", bias, indices_or_sections=6, axis=0)
    wz, wr, wh, bz, br, bh = (None if biases is None else n.item(biases, i) for i in range(6))

    def plus(x: Any, *terms: Any) -> Any:
        for t in terms:
            x = x if t is None else n.op("add", x, t)
        return x

    def step(row: Any, state: list[Any]) -> list[Any]:
        xz, xr, xh = layer.split(row, 3)
        old = state[0]
        z = f(plus(xz, layer.times(old, rz), wz, bz))
        reset = f(plus(xr, layer.times(old, rr), wr, br))
        if after:
            inner = n.op("multiply", reset, plus(layer.times(old, rh), bh))
            new = g(plus(xh, inner, wh))
        else:
            new = g(plus(xh, layer.times(n.op("multiply", reset, old), rh), wh, bh))
        rest = n.op("subtract", n.scalar(1.0, z), z)
        return [n.op("add", n.op("multiply", rest, new), n.op("multiply", z, old))]

    return step


@onnx_op("RNN", since=7, ignore=("hidden_size",))
def rnn(n: NodeContext, x: Any, w: Any, r: Any, b: Any = None, lens: Any = None, h: Any = None) -> Any:
    """f(x * W' + h * R' + bias)"""
    layer = Layer(n, x, 1, ["Tanh"])
    _full_length(n, lens, layer.steps)
    hidden = n.static_shape(r, "the recurrence weight")[2]
    done: list[Any] = []
    for d in range(layer.count):
        recur, f = layer.pick(r, d), layer.activations[d][0]
        inputs = _with_bias(layer, x, layer.pick(w, d), layer.pick(b, d))

        def step(row: Any, state: list[Any], recur: Any = recur, f: Any = f) -> list[Any]:
            return [f(n.op("add", row, layer.times(state[0], recur)))]

        done.append(layer.loop(d, inputs, [layer.pick(h, d) if h is not None else layer.zeros(hidden, x)], step))
    return layer.results(done)
