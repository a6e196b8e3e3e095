"""Recurrent layers. `nn.lstm` and its kin become one product for all steps and a kernel that loops over time.

The weights are laid out as in ONNX: W [D, G*H, I], R [D, G*H, H], bias [D, 2*G*H] (of the input, then of the state), D
directions; the gates in the order input, output, forget, cell (LSTM) or update, reset, hidden (GRU).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tilewright.ops.binary import Add
from tilewright.ops.common import dims_equal, fail, floats, known, out, rng, same_dtype, tensor
from tilewright.ops.create import Zeros
from tilewright.ops.index import StridedSlice
from tilewright.ops.linalg import MatMul
from tilewright.ops.manipulate import Concat, PermuteDims, Reshape, Stack
from tilewright.ops.nn.conv import set_field
from tilewright.relax.ir import TupleGetItem
from tilewright.relax.op import Op, Sample, operator
from tilewright.relax.struct_info import TupleStructInfo
from tilewright.relax.values import make_tuple
from tilewright.topi.nn import rnn as loops
from tilewright.topi.nn.rnn import ACTIVATIONS

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


_NUMPY: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "hardsigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "affine": lambda x: x,
}


@operator
class Loop(Op):
    """The family of recurrences over time: gates [T, B, G*H] (the inputs' part), recurrent weight [H, G*H], states [B, H].

    Results: all outputs [T, B, H], then the last states [B, H].
    """

    reverse: bool = False
    activations: Any = ()
    clip: float = 0.0

    count: ClassVar[int] = 1
    states: ClassVar[int] = 1
    default_activations: ClassVar[tuple[str, ...]] = ("tanh",)

    def __post_init__(self) -> None:
        names = tuple(str(a).lower() for a in self.activations) or self.default_activations
        for a in names:
            if a not in ACTIVATIONS:
                fail(self, "TW0206", f"activation {a!r} is not known", f"use one of {', '.join(ACTIVATIONS)}")
        if len(names) != len(self.default_activations):
            fail(self, "TW0206", f"{len(names)} activations, needs {len(self.default_activations)}")
        set_field(self, activations=names)

    def _infer(self, gates: Any, recurrent: Any, states: list[Any]) -> TupleStructInfo:
        si = floats(self, gates)
        t, b, width = known(self, gates, "the gates [T, B, G*H]", 3)
        h, columns = known(self, recurrent, "the recurrent weight [H, G*H]", 2)
        dims_equal(self, width, columns, "the gates and the recurrent weight differ")
        dims_equal(self, h * self.count, columns, "the recurrent weight is not [H, G*H]")
        for s in states:
            for have, want in zip(known(self, s, "a state [B, H]", 2), (b, h), strict=True):
                dims_equal(self, have, want, "a state is not [B, H]")
        return TupleStructInfo((out([t, b, h], si.dtype), *[out([b, h], si.dtype)] * self.states))

    def _clipped(self, v: Any) -> Any:
        return np.clip(v, -self.clip, self.clip) if self.clip > 0 else v

    def _run(self, gates: Any, states: list[Any], step: Callable[..., list[Any]]) -> Any:
        """`step(gates of one time, states) -> states` over time, in float64."""
        t, b, _ = gates.shape
        y = np.zeros((t, b, states[0].shape[-1]))
        current = [s.astype(np.float64) for s in states]
        for k in reversed(range(t)) if self.reverse else range(t):
            current = step(gates[k].astype(np.float64), current)
            y[k] = current[0]
        return tuple(v.astype(gates.dtype) for v in (y, *current))


def _loop_operands(gates: int, h: int) -> tuple[Any, ...]:
    g = rng()
    shapes = [(3, 2, gates * h), (h, gates * h), (2, h), (2, h), (3 * h,)]
    return tuple(g.uniform(-1, 1, s).astype(np.float32) for s in shapes)


@operator
class LstmLoop(Loop, name="nn.lstm_loop"):
    """The recurrence of an LSTM; gates in the order input, output, forget, cell."""

    input_forget: bool = False

    count: ClassVar[int] = 4
    states: ClassVar[int] = 2
    default_activations: ClassVar[tuple[str, ...]] = ("sigmoid", "tanh", "tanh")

    def infer(self, gates: Any, recurrent: Any, h0: Any, c0: Any, peephole: Any = None) -> TupleStructInfo:
        if peephole is not None:
            known(self, peephole, "the peephole weights [3*H]", 1)
        return self._infer(gates, recurrent, [h0, c0])

    def compute(self, gates: Any, recurrent: Any, h0: Any, c0: Any, peephole: Any = None) -> Any:
        return list(
            loops.lstm_loop(
                gates, recurrent, h0, c0, peephole, self.reverse, self.activations, self.clip, self.input_forget
            )
        )

    def reference(self, gates: Any, recurrent: Any, h0: Any, c0: Any, peephole: Any = None) -> Any:
        f, g, k = (_NUMPY[a] for a in self.activations)
        pi, po, pf = np.split(peephole, 3) if peephole is not None else (0.0, 0.0, 0.0)

        def step(x: Any, states: list[Any]) -> list[Any]:
            h, c = states
            i, o, forget, cell = np.split(x + h @ recurrent, 4, axis=1)
            i = f(self._clipped(i + pi * c))
            forget = 1 - i if self.input_forget else f(self._clipped(forget + pf * c))
            c = forget * c + i * g(self._clipped(cell))
            return [f(self._clipped(o + po * c)) * k(c), c]

        return self._run(gates, [h0, c0], step)

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(), _loop_operands(4, 8)[:4]), Sample(cls(True, clip=0.5), _loop_operands(4, 3))]


@operator
class GruLoop(Loop, name="nn.gru_loop"):
    """The recurrence of a GRU; gates in the order update, reset, hidden; `bias` [H] is the state's, of the hidden gate."""

    linear_before_reset: bool = False

    count: ClassVar[int] = 3
    default_activations: ClassVar[tuple[str, ...]] = ("sigmoid", "tanh")

    def infer(self, gates: Any, recurrent: Any, h0: Any, bias: Any) -> TupleStructInfo:
        known(self, bias, "the bias [H]", 1)
        return self._infer(gates, recurrent, [h0])

    def compute(self, gates: Any, recurrent: Any, h0: Any, bias: Any) -> Any:
        return list(
            loops.gru_loop(
                gates, recurrent, h0, bias, self.reverse, self.activations, self.clip, self.linear_before_reset
            )
        )

    def reference(self, gates: Any, recurrent: Any, h0: Any, bias: Any) -> Any:
        f, g = (_NUMPY[a] for a in self.activations)
        n = h0.shape[-1]

        def step(x: Any, states: list[Any]) -> list[Any]:
            (h,) = states
            z, reset, hidden = np.split(x, 3, axis=1)
            z = f(self._clipped(z + h @ recurrent[:, :n]))
            reset = f(self._clipped(reset + h @ recurrent[:, n : 2 * n]))
            if self.linear_before_reset:
                hidden = hidden + reset * (h @ recurrent[:, 2 * n :] + bias)
            else:
                hidden = hidden + (reset * h) @ recurrent[:, 2 * n :] + bias
            return [(1 - z) * g(self._clipped(hidden)) + z * h]

        return self._run(gates, [h0], step)

    @classmethod
    def samples(cls) -> list[Sample]:
        big, small = _loop_operands(3, 8), _loop_operands(3, 3)
        return [
            Sample(cls(), (*big[:3], big[4][:8])),
            Sample(cls(True, clip=0.7, linear_before_reset=True), (*small[:3], small[4][:3])),
        ]


@operator
class RnnLoop(Loop, name="nn.rnn_loop"):
    """The recurrence h = f(gates + h R)."""

    def infer(self, gates: Any, recurrent: Any, h0: Any) -> TupleStructInfo:
        return self._infer(gates, recurrent, [h0])

    def compute(self, gates: Any, recurrent: Any, h0: Any) -> Any:
        return list(loops.rnn_loop(gates, recurrent, h0, self.reverse, self.activations[0], self.clip))

    def reference(self, gates: Any, recurrent: Any, h0: Any) -> Any:
        f = _NUMPY[self.activations[0]]
        return self._run(gates, [h0], lambda x, s: [f(self._clipped(x + s[0] @ recurrent))])

    @classmethod
    def samples(cls) -> list[Sample]:
        return [Sample(cls(), _loop_operands(1, 8)[:3]), Sample(cls(True, ("relu",)), _loop_operands(1, 3)[:3])]


@operator
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
    composite: ClassVar[bool] = True
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

    def _loop(self, b: Any, loop: Loop, *args: Any) -> list[Any]:
        call = b.emit(loop(*args))
        return [b.emit(TupleGetItem(call, k)) for k in range(1 + self.states)]

    # ---- the meaning ----

    def _layers(self, x: Any, w: Any, bias: Any, direction: Callable[..., Any]) -> Any:
        """`direction(d, x W + Wb, Rb)` of each direction, in float64, put together."""
        parts: list[Any] = []
        for d in range(len(self.directions)):
            wb, rb = np.split(bias[d].astype(np.float64), 2) if bias is not None else (0.0, np.zeros(w.shape[1]))
            parts.append(direction(d, x.astype(np.float64) @ w[d].astype(np.float64).T + wb, rb))
        results = [np.stack([p[k] for p in parts], axis=1 if k == 0 else 0) for k in range(1 + self.states)]
        return tuple(v.astype(x.dtype) for v in results)

    def _state(self, s: Any, x: Any, d: int) -> Any:
        return np.zeros((x.shape[1], self.hidden_size)) if s is None else s[d].astype(np.float64)


def _operands(gates: int, d: int, t: int, b: int, i: int, h: int) -> tuple[Any, ...]:
    g = rng()

    def f(*shape: int) -> Any:
        return g.uniform(-1, 1, shape).astype(np.float32)

    return f(t, b, i), f(d, gates * h, i), f(d, gates * h, h), f(d, 2 * gates * h), f(d, b, h), f(d, b, h), f(d, 3 * h)


@operator
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
            gates = b.emit(MatMul()(data, b.emit(PermuteDims()(w))))
            if bias is not None:
                both = self._row(b, bias, d, count)
                gates = b.emit(
                    Add()(gates, b.emit(Add()(self._cut(b, both, 0, width), self._cut(b, both, width, 2 * width))))
                )
            args = [gates, b.emit(PermuteDims()(r)), self._initial(b, h0, data, d), self._initial(b, c0, data, d)]
            if peephole is not None:
                args.append(self._row(b, peephole, d, count))
            loop = LstmLoop(backwards, self._functions(d), self.clip, self.input_forget)
            parts.append(self._loop(b, loop, *args))
        return self._all(b, parts)

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
        def direction(d: int, x: Any, rb: Any) -> Any:
            loop = LstmLoop(self.directions[d], self._functions(d), self.clip, self.input_forget)
            h, c = self._state(h0, data, d), self._state(c0, data, d)
            return loop.reference(x + rb, recurrent[d].T, h, c, None if peephole is None else peephole[d])

        return self._layers(data, weight, bias, direction)

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


@operator
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
            gates = b.emit(MatMul()(data, b.emit(PermuteDims()(w))))
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
            loop = GruLoop(backwards, self._functions(d), self.clip, self.linear_before_reset)
            parts.append(self._loop(b, loop, *args))
        return self._all(b, parts)

    def reference(self, data: Any, weight: Any, recurrent: Any, bias: Any = None, h0: Any = None) -> Any:
        def direction(d: int, x: Any, rb: Any) -> Any:
            loop = GruLoop(self.directions[d], self._functions(d), self.clip, self.linear_before_reset)
            n = 2 * self.hidden_size
            gates = x + np.concatenate([rb[:n], np.zeros(self.hidden_size)])
            return loop.reference(gates, recurrent[d].T, self._state(h0, data, d), rb[n:])

        return self._layers(data, weight, bias, direction)

    @classmethod
    def samples(cls) -> list[Sample]:
        one, two = _operands(3, 1, 3, 2, 5, 8), _operands(3, 2, 3, 2, 4, 3)
        return [
            Sample(cls(8), one[:3]),
            Sample(cls(8, linear_before_reset=True), one[:5]),
            Sample(cls(8, "reverse", clip=0.7), one[:5]),
            Sample(cls(3, "bidirectional"), two[:5]),
        ]


@operator
class Rnn(Recurrent, name="nn.rnn"):
    """A plain recurrence, h = f(x W + h R + b). Results: outputs, last h."""

    def infer(self, data: Any, weight: Any, recurrent: Any, bias: Any = None, h0: Any = None) -> Any:
        return self._infer(data, weight, recurrent, bias, [h0], [])

    def lower(self, b: Any, data: Any, weight: Any, recurrent: Any, bias: Any = None, h0: Any = None) -> Any:
        parts: list[list[Any]] = []
        count, h = len(self.directions), self.hidden_size
        for d, backwards in enumerate(self.directions):
            w, r = self._row(b, weight, d, count), self._row(b, recurrent, d, count)
            gates = b.emit(MatMul()(data, b.emit(PermuteDims()(w))))
            if bias is not None:
                both = self._row(b, bias, d, count)
                gates = b.emit(Add()(gates, b.emit(Add()(self._cut(b, both, 0, h), self._cut(b, both, h, 2 * h)))))
            args = [gates, b.emit(PermuteDims()(r)), self._initial(b, h0, data, d)]
            parts.append(self._loop(b, RnnLoop(backwards, self._functions(d), self.clip), *args))
        return self._all(b, parts)

    def reference(self, data: Any, weight: Any, recurrent: Any, bias: Any = None, h0: Any = None) -> Any:
        def direction(d: int, x: Any, rb: Any) -> Any:
            loop = RnnLoop(self.directions[d], self._functions(d), self.clip)
            return loop.reference(x + rb, recurrent[d].T, self._state(h0, data, d))

        return self._layers(data, weight, bias, direction)

    @classmethod
    def samples(cls) -> list[Sample]:
        one, two = _operands(1, 1, 3, 2, 5, 8), _operands(1, 2, 3, 2, 4, 3)
        return [
            Sample(cls(8), one[:3]),
            Sample(cls(8, activations=("relu",)), one[:5]),
            Sample(cls(3, "bidirectional"), two[:5]),
        ]
