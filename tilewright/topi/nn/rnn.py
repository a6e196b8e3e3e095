"""Recurrent cells over time: one kernel whose outer loop is time.

The products with the inputs are done before, for all steps at once (`gates`: [T, B, G*H], biases of the input included);
what is left is, for each step, the product of the state with the recurrent weight (transposed: [H, G*H], so that the
innermost loop runs along memory) and the activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te, tir
from tilewright.arith.expr import PrimExpr, Var, const
from tilewright.tir.ir import Block, BlockRealize, Buffer, BufferStore, For, ForKind, Stmt, decl_buffer, seq
from tilewright.topi.loops import let, nest
from tilewright.topi.util import as_int

__all__ = ["ACTIVATIONS", "gru_loop", "lstm_loop", "rnn_loop"]


def _hard_sigmoid(x: PrimExpr) -> PrimExpr:
    return tir.max(tir.min(x * const(0.2, x.dtype) + const(0.5, x.dtype), const(1, x.dtype)), const(0, x.dtype))


ACTIVATIONS: dict[str, Callable[[Any], PrimExpr]] = {
    "sigmoid": tir.sigmoid,
    "tanh": tir.tanh,
    "relu": lambda x: tir.max(x, const(0, x.dtype)),
    "hardsigmoid": _hard_sigmoid,
    "softsign": lambda x: tir.div(x, const(1, x.dtype) + tir.abs(x)),
    "affine": lambda x: x,
}
"""The functions a cell may apply, by name (with their default coefficients)."""


def _lanes(n: Any) -> int:
    """How many elements to take at once along a dimension of this extent."""
    size = as_int(n)
    return next((v for v in (16, 8, 4) if size is not None and size % v == 0), 1)


def _along(n: Any, body: Callable[[Any], Stmt], name: str = "j") -> Stmt:
    """A loop over n, in vectors where n is a multiple of their length."""
    lanes = _lanes(n)
    if lanes == 1:
        return nest([n], body, [name])
    outer = Var(f"{name}o", "int64")
    inner = Var(f"{name}i", "int64")
    vector = For(inner, const(0, "int64"), const(lanes, "int64"), ForKind.VECTORIZED, body(outer * lanes + inner))
    return For(outer, const(0, "int64"), const((as_int(n) or 0) // lanes, "int64"), ForKind.SERIAL, vector)


def _product(target: Buffer, state: Buffer, weight: Buffer, b: Any, hidden: Any, first: int, count: int) -> Stmt:
    """target[b, j] += sum over k of state[b, k] * weight[k, j] for j in gates first .. first + count."""
    width = tir.convert(hidden) * count
    lanes = _lanes(hidden)
    start = tir.convert(hidden) * first

    def add(k: Any, j: Any) -> Stmt:
        at = (b, start + j)
        return BufferStore(target, target[at] + state[b, k] * weight[k, start + j], at)

    if lanes == 1:
        return nest([hidden, width], add, ["k", "j"])
    # vectors of the result outermost: each stays in a register while k runs
    outer, k, inner = Var("jo", "int64"), Var("k", "int64"), Var("ji", "int64")
    zero = const(0, "int64")
    body: Stmt = For(inner, zero, const(lanes, "int64"), ForKind.VECTORIZED, add(k, outer * lanes + inner))
    body = For(k, zero, tir.convert(hidden), ForKind.SERIAL, body)
    return For(outer, zero, tir.convert(width) // lanes, ForKind.SERIAL, body)


class _Cell:
    """The buffers and sizes of one recurrence, and what all cells do alike."""

    def __init__(self, gates: te.Tensor, hidden: Any, reverse: bool, clip: float) -> None:
        self.time, self.batch = gates.shape[0], gates.shape[1]
        self.hidden, self.reverse, self.clip, self.dtype = tir.convert(hidden), reverse, clip, gates.dtype
        self.workspaces: list[Buffer] = []

    def workspace(self, name: str, width: Any) -> Buffer:
        made = decl_buffer((self.batch, tir.convert(width)), self.dtype, name)
        self.workspaces.append(made)
        return made

    def copy(self, source: Buffer, target: Buffer) -> Stmt:
        return nest(source.shape, lambda *i: BufferStore(target, source[tuple(i)], tuple(i)), ["b", "c"])

    def clipped(self, x: PrimExpr) -> PrimExpr:
        if self.clip <= 0:
            return x
        return tir.max(tir.min(x, const(self.clip, x.dtype)), const(-self.clip, x.dtype))

    def over_time(self, step: Callable[[Any, Any], Stmt]) -> Stmt:
        """`step(t, b)` for every step and instance, in the order of the direction."""

        def at(s: Any) -> Stmt:
            t = self.time - 1 - s if self.reverse else s
            return nest([self.batch], lambda b: step(t, b), ["b"])

        return nest([self.time], at, ["s"])

    def finish(self, *stmts: Stmt) -> Stmt:
        body = seq(*stmts)
        block = Block((), (), (), "root", body, None, tuple(self.workspaces))
        return BlockRealize((), tir.const(True), block)


def _load(source: Buffer, target: Buffer, t: Any, b: Any, width: Any) -> Stmt:
    return _along(width, lambda j: BufferStore(target, source[t, b, j], (b, j)))


def lstm_loop(
    gates: te.Tensor,
    recurrent: te.Tensor,
    h0: te.Tensor,
    c0: te.Tensor,
    peephole: te.Tensor | None = None,
    reverse: bool = False,
    activations: Sequence[str] = ("sigmoid", "tanh", "tanh"),
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """LSTM with gates in the order input, output, forget, cell: (all outputs [T, B, H], last h, last c [B, H])."""
    hidden = h0.shape[-1]
    cell = _Cell(gates, hidden, reverse, clip)
    f, g, h_of = (ACTIVATIONS[a] for a in activations)
    inputs = [gates, recurrent, h0, c0, *([peephole] if peephole is not None else [])]

    def build(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        x, r, h_in, c_in = ins[:4]
        p = ins[4] if peephole is not None else None
        y, h, c = outs
        acc = cell.workspace("gate_values", cell.hidden * 4)
        n = cell.hidden

        def unit(t: Any, b: Any, j: Any) -> Stmt:
            def value(k: int) -> PrimExpr:
                return acc[b, n * k + j]

            old = c[b, j]

            def look(k: int, state: PrimExpr) -> PrimExpr:
                raw = value(k) if p is None else value(k) + p[n * k + j] * state
                return f(cell.clipped(raw))

            i_gate = look(0, old)
            forget = const(1, cell.dtype) - i_gate if input_forget else look(2, old)
            fresh = forget * old + i_gate * g(cell.clipped(value(3)))

            def store(new: Var) -> Stmt:
                out = look(1, new) * h_of(new)
                return seq(
                    BufferStore(c, new, (b, j)),
                    let("h_new", out, lambda v: seq(BufferStore(h, v, (b, j)), BufferStore(y, v, (t, b, j)))),
                )

            return let("c_new", fresh, store)

        def step(t: Any, b: Any) -> Stmt:
            return seq(
                _load(x, acc, t, b, n * 4),
                _product(acc, h, r, b, n, 0, 4),
                _along(n, lambda j: unit(t, b, j)),
            )

        return cell.finish(cell.copy(h_in, h), cell.copy(c_in, c), cell.over_time(step))

    shapes = [(cell.time, cell.batch, cell.hidden), (cell.batch, cell.hidden), (cell.batch, cell.hidden)]
    return te.extern(shapes, inputs, build, name="lstm", dtype=[gates.dtype] * 3)


def gru_loop(
    gates: te.Tensor,
    recurrent: te.Tensor,
    h0: te.Tensor,
    recurrent_bias: te.Tensor,
    reverse: bool = False,
    activations: Sequence[str] = ("sigmoid", "tanh"),
    clip: float = 0.0,
    linear_before_reset: bool = False,
) -> tuple[te.Tensor, te.Tensor]:
    """GRU with gates in the order update, reset, hidden: (all outputs [T, B, H], last h [B, H]).

    `recurrent_bias` [H] belongs to the hidden gate; with `linear_before_reset` the reset gate scales it too.
    """
    cell = _Cell(gates, h0.shape[-1], reverse, clip)
    f, g = (ACTIVATIONS[a] for a in activations)

    def build(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        x, r, h_in, rb = ins
        y, h = outs
        n = cell.hidden
        acc = cell.workspace("gate_values", n * 3)
        side = cell.workspace("hidden_values", n * 3)  # of the hidden gate, in its place
        scaled = cell.workspace("reset_state", n)

        def gate(k: int, b: Any, j: Any) -> PrimExpr:
            return f(cell.clipped(acc[b, n * k + j]))

        def finish(t: Any, b: Any, j: Any) -> Stmt:
            hidden = side[b, n * 2 + j]
            if linear_before_reset:
                raw = acc[b, n * 2 + j] + gate(1, b, j) * hidden
            else:
                raw = acc[b, n * 2 + j] + hidden
            z = gate(0, b, j)

            def store(zv: Var) -> Stmt:
                new = (const(1, cell.dtype) - zv) * g(cell.clipped(raw)) + zv * h[b, j]
                return let("h_new", new, lambda v: seq(BufferStore(h, v, (b, j)), BufferStore(y, v, (t, b, j))))

            return let("z", z, store)

        def step(t: Any, b: Any) -> Stmt:
            parts: list[Stmt] = [
                _load(x, acc, t, b, n * 3),
                _product(acc, h, r, b, n, 0, 2),
                _along(n, lambda j: BufferStore(side, rb[j], (b, n * 2 + j))),
            ]
            if linear_before_reset:
                parts.append(_product(side, h, r, b, n, 2, 1))
            else:
                parts.append(_along(n, lambda j: BufferStore(scaled, gate(1, b, j) * h[b, j], (b, j))))
                parts.append(_product(side, scaled, r, b, n, 2, 1))
            parts.append(_along(n, lambda j: finish(t, b, j)))
            return seq(*parts)

        return cell.finish(cell.copy(h_in, h), cell.over_time(step))

    shapes = [(cell.time, cell.batch, cell.hidden), (cell.batch, cell.hidden)]
    return te.extern(shapes, [gates, recurrent, h0, recurrent_bias], build, name="gru", dtype=[gates.dtype] * 2)


def rnn_loop(
    gates: te.Tensor,
    recurrent: te.Tensor,
    h0: te.Tensor,
    reverse: bool = False,
    activation: str = "tanh",
    clip: float = 0.0,
) -> tuple[te.Tensor, te.Tensor]:
    """A plain recurrence h = f(x W + h R + b): (all outputs [T, B, H], last h [B, H])."""
    cell = _Cell(gates, h0.shape[-1], reverse, clip)
    f = ACTIVATIONS[activation]

    def build(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        x, r, h_in = ins
        y, h = outs
        n = cell.hidden
        acc = cell.workspace("gate_values", n)

        def unit(t: Any, b: Any, j: Any) -> Stmt:
            new = f(cell.clipped(acc[b, j]))
            return let("h_new", new, lambda v: seq(BufferStore(h, v, (b, j)), BufferStore(y, v, (t, b, j))))

        def step(t: Any, b: Any) -> Stmt:
            return seq(_load(x, acc, t, b, n), _product(acc, h, r, b, n, 0, 1), _along(n, lambda j: unit(t, b, j)))

        return cell.finish(cell.copy(h_in, h), cell.over_time(step))

    shapes = [(cell.time, cell.batch, cell.hidden), (cell.batch, cell.hidden)]
    return te.extern(shapes, [gates, recurrent, h0], build, name="rnn", dtype=[gates.dtype] * 2)
