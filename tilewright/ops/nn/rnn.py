"""Recurrent layers. `nn.lstm` and its kin become one product for all steps and a kernel that loops over time.

The weights are laid out as in ONNX: W [D, G*H, I], R [D, G*H, H], bias [D, 2*G*H] (of the input, then of the state), D
directions; the gates in the order input, output, forget, cell (LSTM) or update, reset, hidden (GRU).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.ops.binary import Add
from tilewright.ops.common import dims_equal, fail, floats, known, out, rng, same_dtype, tensor
from tilewright.ops.create import Zeros
from tilewright.ops.index import StridedSlice
from tilewright.ops.linalg import MatMul
from tilewright.ops.manipulate import Concat, PermuteDims, Reshape, Stack
from tilewright.ops.nn.conv import set_field
from tilewright.relax.build import make_tuple
from tilewright.relax.ir import TupleGetItem
from tilewright.relax.op import Op, Sample
from tilewright.relax.struct_info import TupleStructInfo
from tilewright.topi.nn import rnn as loops
from tilewright.topi.nn.rnn import ACTIVATIONS

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class Recurrent(Op):
    """The family of recurrent layers.

    Operands: data [T, B, I], the weights, and optionally the bias and the initial states [D, B, H]; results: all outputs
    [T, D, B, H], then the last states [D, B, H].
    """

    hidden_size: int = 0
    direction: str = "forward"
    activations: Any = ()
    clip: float = 0.0

    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    default_activations: ClassVar[tuple[str, ...]] = ("tanh",)

    def __post_init__(self) -> None:
        if self.direction not in _DIRECTIONS:
            fail(self, "TW0206", f"direction {self.direction!r} is not known", f"use one of {', '.join(_DIRECTIONS)}")
        if self.hidden_size < 1:
            fail(self, "TW0206", f"hidden_size is {self.hidden_size}, needs the weight's H")
        count = len(_DIRECTIONS[self.direction])
        names = tuple(str(a).lower() for a in self.activations) or self.default_activations * count
        if len(names) == len(self.default_activations):
            names = names * count
        for a in names:
            if a not in ACTIVATIONS:
                fail(self, "TW0206", f"activation {a!r} is not known", f"use one of {', '.join(ACTIVATIONS)}")
        if len(names) != count * len(self.default_activations):
            fail(self, "TW0206", f"{len(names)} activations, needs {count * len(self.default_activations)}")
        set_field(self, activations=names)

    @property
    def directions(self) -> tuple[bool, ...]:
        """For each direction: does it run backwards?"""
        return _DIRECTIONS[self.direction]

    def _functions(self, d: int) -> tuple[str, ...]:
        n = len(self.default_activations)
        return self.activations[d * n : (d + 1) * n]

    def _infer(self, data: Any, w: Any, r: Any, bias: Any, states: list[Any], extra: list[tuple[Any, int]]) -> Any:
        si = floats(self, data)
        t, b, i = known(self, data, "data [T, B, I]", 3)
        sw, sr = known(self, w, "the weight [D, G*H, I]", 3), known(self, r, "the recurrent weight [D, G*H, H]", 3)
        same_dtype(self, [si, tensor(self, w), tensor(self, r)], ["data", "the weight", "the recurrent weight"])
        h = self.hidden_size
        d, width = len(self.directions), self.gates * h
        one = [(sw[0], d), (sr[0], d), (sw[1], width), (sr[1], width), (sr[2], h)]
        for have, want in one:
            dims_equal(self, have, out([want], "int64").shape[0], "a weight has another size than D, G*H or H")  # pyright: ignore
        dims_equal(self, sw[2], i, "the weight's inputs and the data's differ")
        for x, n in [(bias, 2 * width), *extra]:
            if x is not None:
                _, size = known(self, x, "a parameter [D, n]", 2)
                dims_equal(self, size, out([n], "int64").shape[0], "a parameter has another size")  # pyright: ignore
        for x in states:
            if x is not None:
                known(self, x, "an initial state [D, B, H]", 3)
        last = out([d, b, h], si.dtype)
        return TupleStructInfo((out([t, d, b, h], si.dtype), *[last] * self.states))

    # ---- lowering ----

    def _row(self, b: Any, x: Any, d: int, count: int) -> Any:
        """Direction `d` of a parameter, without that dimension."""
        shape = known(self, x)
        part = x if count == 1 else b.emit(StridedSlice((0,))(x, (d,), (d + 1,)))
        return b.emit(Reshape()(part, shape[1:]))

    def _cut(self, b: Any, x: Any, first: Any, last: Any) -> Any:
        return b.emit(StridedSlice((0,))(x, (first,), (last,)))

    def _all(self, b: Any, parts: list[list[Any]]) -> Any:
        """The outputs of the directions together: [T, D, B, H] and [D, B, H]."""
        y = [p[0] for p in parts]
        results: list[Any] = []
        for k, group in enumerate([y, *([p[j] for p in parts] for j in range(1, self.states + 1))]):
            axis = 1 if k == 0 else 0
            results.append(b.emit(Stack(axis)(make_tuple(group))))
        return make_tuple(results)

    def _initial(self, b: Any, state: Any, data: Any, d: int) -> Any:
        _, batch, _ = known(self, data)
        if state is None:
            return b.emit(Zeros(tensor(self, data).dtype)((batch, self.hidden_size)))
        return self._row(b, state, d, len(self.directions))

    def _loop(self, b: Any, kernel: Callable[..., Any], *args: Any) -> list[Any]:
        call = b.emit(b.call_te(kernel, *args))
        return [b.emit(TupleGetItem(call, k)) for k in range(1 + self.states)]

    # ---- the meaning ----

    def _steps(self, x: Any, w: Any, r: Any, bias: Any, states: list[Any], step: Callable[..., Any]) -> Any:
        """Run `step(d, x W + Wb, R, Rb, states) -> states` over time in each direction."""
        t, b, _ = x.shape
        h, dirs = self.hidden_size, self.directions
        y = np.zeros((t, len(dirs), b, h))
        last: list[list[Any]] = []
        for d, backwards in enumerate(dirs):
            wb, rb = np.split(bias[d].astype(np.float64), 2) if bias is not None else (0.0, np.zeros(self.gates * h))
            current = [np.zeros((b, h)) if s is None else s[d].astype(np.float64) for s in states]
            for k in reversed(range(t)) if backwards else range(t):
                current = step(d, x[k].astype(np.float64) @ w[d].T + wb, r[d].astype(np.float64), rb, current)
                y[k, d] = current[0]
            last.append(current)
        finals = [np.stack([c[j] for c in last]) for j in range(self.states)]
        return tuple(v.astype(x.dtype) for v in (y, *finals))

    def _clipped(self, v: Any) -> Any:
        return np.clip(v, -self.clip, self.clip) if self.clip > 0 else v


_NUMPY: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "hardsigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "affine": lambda x: x,
}


def _operands(gates: int, d: int, t: int, b: int, i: int, h: int) -> tuple[Any, ...]:
    g = rng()

    def f(*shape: int) -> Any:
        return g.uniform(-1, 1, shape).astype(np.float32)

    return f(t, b, i), f(d, gates * h, i), f(d, gates * h, h), f(d, 2 * gates * h), f(d, b, h), f(d, b, h), f(d, 3 * h)


@dataclass(frozen=True)
class Lstm(Recurrent, name="nn.lstm"):
    """Long short-term memory; gates in the order input, output, forget, cell. Results: outputs, last h, last c."""

    input_forget: bool = False

    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2
    default_activations: ClassVar[tuple[str, ...]] = ("sigmoid", "tanh", "tanh")

    def infer(
        self,
        data: Any,
        weight: Any,
        recurrent: Any,
        bias: Any = None,
        h0: Any = None,
        c0: Any = None,
        peephole: Any = None,
    ) -> Any:
        return self._infer(data, weight, recurrent, bias, [h0, c0], [(peephole, 3 * self.hidden_size)])

    def lower(
        self,
        b: Any,
        data: Any,
        weight: Any,
        recurrent: Any,
        bias: Any = None,
        h0: Any = None,
        c0: Any = None,
        peephole: Any = None,
    ) -> Any:
        parts: list[list[Any]] = []
        count, width = len(self.directions), 4 * self.hidden_size
        for d, backwards in enumerate(self.directions):
            w, r = self._row(b, weight, d, count), self._row(b, recurrent, d, count)
            gates = b.emit(MatMul(transpose_b=True)(data, w))
            if bias is not None:
                both = self._row(b, bias, d, count)
                gates = b.emit(
                    Add()(gates, b.emit(Add()(self._cut(b, both, 0, width), self._cut(b, both, width, 2 * width))))
                )
            args = [gates, b.emit(PermuteDims()(r)), self._initial(b, h0, data, d), self._initial(b, c0, data, d)]
            if peephole is not None:
                args.append(self._row(b, peephole, d, count))
            parts.append(self._loop(b, self._kernel(d, backwards), *args))
        return self._all(b, parts)

    def _kernel(self, d: int, backwards: bool) -> Callable[..., Any]:
        functions = self._functions(d)

        def lstm(gates: Any, r: Any, h: Any, c: Any, p: Any = None) -> Any:
            return list(loops.lstm_loop(gates, r, h, c, p, backwards, functions, self.clip, self.input_forget))

        return lstm

    def reference(
        self,
        data: Any,
        weight: Any,
        recurrent: Any,
        bias: Any = None,
        h0: Any = None,
        c0: Any = None,
        peephole: Any = None,
    ) -> Any:
        def step(d: int, x: Any, r: Any, rb: Any, states: list[Any]) -> list[Any]:
            h, c = states
            f, g, k = (_NUMPY[a] for a in self._functions(d))
            i, o, forget, cell = np.split(x + h @ r.T + rb, 4, axis=1)
            pi, po, pf = np.split(peephole[d], 3) if peephole is not None else (0.0, 0.0, 0.0)
            i = f(self._clipped(i + pi * c))
            forget = 1 - i if self.input_forget else f(self._clipped(forget + pf * c))
            c = forget * c + i * g(self._clipped(cell))
            return [f(self._clipped(o + po * c)) * k(c), c]

        return self._steps(data, weight, recurrent, bias, [h0, c0], step)

    @classmethod
    def samples(cls) -> list[Sample]:
        one, two = _operands(4, 1, 3, 2, 5, 8), _operands(4, 2, 3, 2, 4, 3)
        return [
            Sample(cls(8), one[:3]),
            Sample(cls(8), one[:6]),
            Sample(cls(8, clip=0.5), one),
            Sample(cls(8, input_forget=True), one[:4]),
            Sample(cls(3, "bidirectional"), two[:6]),
            Sample(cls(3, "bidirectional", ("hardsigmoid", "relu", "tanh", "sigmoid", "tanh", "softsign")), two),
            Sample(cls(8, "reverse"), one[:5]),
        ]


@dataclass(frozen=True)
class Gru(Recurrent, name="nn.gru"):
    """Gated recurrent unit; gates in the order update, reset, hidden. Results: outputs, last h."""

    linear_before_reset: bool = False

    gates: ClassVar[int] = 3
    default_activations: ClassVar[tuple[str, ...]] = ("sigmoid", "tanh")

    def infer(self, data: Any, weight: Any, recurrent: Any, bias: Any = None, h0: Any = None) -> Any:
        return self._infer(data, weight, recurrent, bias, [h0], [])

    def lower(self, b: Any, data: Any, weight: Any, recurrent: Any, bias: Any = None, h0: Any = None) -> Any:
        parts: list[list[Any]] = []
        count, h = len(self.directions), self.hidden_size
        for d, backwards in enumerate(self.directions):
            w, r = self._row(b, weight, d, count), self._row(b, recurrent, d, count)
            gates = b.emit(MatMul(transpose_b=True)(data, w))
            if bias is None:
                hidden_bias = b.emit(Zeros(tensor(self, data).dtype)((h,)))
            else:
                both = self._row(b, bias, d, count)
                # the state's bias of the update and reset gates adds up with the input's; the hidden gate's is its own
                state = self._cut(b, both, 3 * h, 5 * h)
                hidden_bias = self._cut(b, both, 5 * h, 6 * h)
                zeros = b.emit(Zeros(tensor(self, data).dtype)((h,)))
                padded = b.emit(Concat(0)(make_tuple([state, zeros])))
                gates = b.emit(Add()(gates, b.emit(Add()(self._cut(b, both, 0, 3 * h), padded))))
            args = [gates, b.emit(PermuteDims()(r)), self._initial(b, h0, data, d), hidden_bias]
            parts.append(self._loop(b, self._kernel(d, backwards), *args))
        return self._all(b, parts)

    def _kernel(self, d: int, backwards: bool) -> Callable[..., Any]:
        functions = self._functions(d)

        def gru(gates: Any, r: Any, h: Any, rb: Any) -> Any:
            return list(loops.gru_loop(gates, r, h, rb, backwards, functions, self.clip, self.linear_before_reset))

        return gru

    def reference(self, data: Any, weight: Any, recurrent: Any, bias: Any = None, h0: Any = None) -> Any:
        def step(d: int, x: Any, r: Any, rb: Any, states: list[Any]) -> list[Any]:
            (h,) = states
            n = self.hidden_size
            f, g = (_NUMPY[a] for a in self._functions(d))
            z, reset, hidden = np.split(x, 3, axis=1)
            z = f(self._clipped(z + h @ r[:n].T + rb[:n]))
            reset = f(self._clipped(reset + h @ r[n : 2 * n].T + rb[n : 2 * n]))
            if self.linear_before_reset:
                hidden = hidden + reset * (h @ r[2 * n :].T + rb[2 * n :])
            else:
                hidden = hidden + (reset * h) @ r[2 * n :].T + rb[2 * n :]
            return [(1 - z) * g(self._clipped(hidden)) + z * h]

        return self._steps(data, weight, recurrent, bias, [h0], step)

    @classmethod
    def samples(cls) -> list[Sample]:
        one, two = _operands(3, 1, 3, 2, 5, 8), _operands(3, 2, 3, 2, 4, 3)
        return [
            Sample(cls(8), one[:3]),
            Sample(cls(8, linear_before_reset=True), one[:5]),
            Sample(cls(8, "reverse", clip=0.7), one[:5]),
            Sample(cls(3, "bidirectional"), two[:5]),
        ]


@dataclass(frozen=True)
class Rnn(Recurrent, name="nn.rnn"):
    """A plain recurrence, h = f(x W + h R + b). Results: outputs, last h."""

    def infer(self, data: Any, weight: Any, recurrent: Any, bias: Any = None, h0: Any = None) -> Any:
        return self._infer(data, weight, recurrent, bias, [h0], [])

    def lower(self, b: Any, data: Any, weight: Any, recurrent: Any, bias: Any = None, h0: Any = None) -> Any:
        parts: list[list[Any]] = []
        count, h = len(self.directions), self.hidden_size
        for d, backwards in enumerate(self.directions):
            w, r = self._row(b, weight, d, count), self._row(b, recurrent, d, count)
            gates = b.emit(MatMul(transpose_b=True)(data, w))
            if bias is not None:
                both = self._row(b, bias, d, count)
                gates = b.emit(Add()(gates, b.emit(Add()(self._cut(b, both, 0, h), self._cut(b, both, h, 2 * h)))))
            (activation,) = self._functions(d)

            def rnn(x: Any, wr: Any, s: Any, backwards: bool = backwards, activation: str = activation) -> Any:
                return list(loops.rnn_loop(x, wr, s, backwards, activation, self.clip))

            args = [gates, b.emit(PermuteDims()(r)), self._initial(b, h0, data, d)]
            parts.append(self._loop(b, rnn, *args))
        return self._all(b, parts)

    def reference(self, data: Any, weight: Any, recurrent: Any, bias: Any = None, h0: Any = None) -> Any:
        def step(d: int, x: Any, r: Any, rb: Any, states: list[Any]) -> list[Any]:
            (activation,) = self._functions(d)
            return [_NUMPY[activation](self._clipped(x + states[0] @ r.T + rb))]

        return self._steps(data, weight, recurrent, bias, [h0], step)

    @classmethod
    def samples(cls) -> list[Sample]:
        one, two = _operands(1, 1, 3, 2, 5, 8), _operands(1, 2, 3, 2, 4, 3)
        return [
            Sample(cls(8), one[:3]),
            Sample(cls(8, activations=("relu",)), one[:5]),
            Sample(cls(3, "bidirectional"), two[:5]),
        ]
