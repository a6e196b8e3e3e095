"""What a reduction block computes: the values it starts from, the values it updates, and the reducer they fit.

A block reduces n buffers at one point of each: `init` stores n values, the body stores n new values, each maybe bound by a
`let` first. The reducers known are sums, products, minima and maxima of one value, sums of several, and argmin and argmax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.expr import PrimExpr, Select, Var
from tilewright.arith.linear import expr_key
from tilewright.ir.node import children
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError

__all__ = ["Reduction", "reduction_of"]

_Pattern = Callable[[list[Var], list[Var]], list[PrimExpr]]


def _elementwise(kind: type[ex.BinaryOp] | type[ex.And] | type[ex.Or]) -> _Pattern:
    return lambda x, y: [kind(a, b) for a, b in zip(x, y, strict=True)]


def _arg(compare: Callable[[PrimExpr, PrimExpr], PrimExpr], value: int) -> _Pattern:
    """The pair (index, value) whose value, at place `value`, wins."""
    return lambda x, y: [Select(compare(x[value], y[value]), a, b) for a, b in zip(x, y, strict=True)]


def _arg_tie(better: type[ex.CmpOp], value: int) -> _Pattern:
    """As `_arg`; of equal values the smaller index wins."""

    def build(x: list[Var], y: list[Var]) -> list[PrimExpr]:
        i = 1 - value
        wins = better(x[value], y[value])
        first = ex.Or(wins, ex.And(ex.EQ(x[value], y[value]), ex.LT(x[i], y[i])))
        out: list[PrimExpr] = [Select(first, x[i], y[i]), Select(wins, x[value], y[value])]
        return out if i == 0 else out[::-1]

    return build


_PATTERNS: dict[int, list[_Pattern]] = {
    1: [_elementwise(k) for k in (ex.Add, ex.Mul, ex.Min, ex.Max, ex.And, ex.Or)],
    2: [
        _elementwise(ex.Add), *(_arg(c, 1) for c in (ex.GE, ex.LE, ex.GT, ex.LT)), _arg_tie(ex.GT, 1), _arg_tie(ex.LT, 1),
        *(_arg(c, 0) for c in (ex.GE, ex.LE, ex.GT, ex.LT)),
    ],
}  # fmt: skip


class Reduction(NamedTuple):
    """The buffers that a block reduces into, at which indices, by which reducer, and what it adds at each point."""

    buffers: list[t.Buffer]
    indices: tuple[PrimExpr, ...]
    reducer: t.CommReducer
    rhs: list[PrimExpr]


def reduction_of(block: t.Block) -> Reduction:
    """What the block reduces. Raises TW0563 where it is no reduction that can be split over threads."""
    assert block.init is not None
    updates = _updates(block)
    buffers = [u.buffer for u in updates]
    inits = {s.buffer: s for s in _stores(block, block.init)}
    if set(inits) != set(buffers) or len(inits) != len(updates):
        raise _refuse(block, "its init and its update store into different buffers")
    starts = [inits[b] for b in buffers]
    indices = updates[0].indices
    for s in (*starts, *updates):
        if expr_key(s.indices) != expr_key(indices):
            raise _refuse(block, "its init and its updates store at different indices")
    loads: dict[Any, int] = {expr_key(t.BufferLoad(b, indices)): i for i, b in enumerate(buffers)}
    lhs = [Var(f"x{i}", b.dtype) for i, b in enumerate(buffers)]
    rhs = [Var(f"y{i}", b.dtype) for i, b in enumerate(buffers)]
    identities = tuple(s.value for s in starts)
    patterns = _PATTERNS.get(len(buffers), [_elementwise(ex.Add)])
    for pattern in patterns:
        results = pattern(lhs, rhs)
        found: dict[Var, PrimExpr] = {}
        match = _Match({v: i for i, v in enumerate(lhs)}, set(rhs), loads, found)
        if all(match(p, u.value) for p, u in zip(results, updates, strict=True)) and len(found) == len(rhs):
            reducer = t.CommReducer(tuple(lhs), tuple(rhs), tuple(results), identities)
            return Reduction(buffers, indices, reducer, [found[v] for v in rhs])
    raise _refuse(block, "its update is no sum, product, minimum, maximum, argmin or argmax")


def _refuse(block: t.Block, reason: str) -> CompileError:
    return DeviceError.at(
        "TW0563",
        f"the reduction block {block.name_hint!r} cannot run across threads: {reason}",
        hint="bind a loop that is no reduction to the threads, or split the reduction with rfactor first",
    )


def _stores(block: t.Block, s: t.Stmt) -> list[t.BufferStore]:
    parts = list(s.seq) if isinstance(s, t.SeqStmt) else [s]
    if not all(isinstance(p, t.BufferStore) for p in parts):
        raise _refuse(block, "its init is not only stores")
    return parts  # pyright: ignore[reportReturnType]


def _updates(block: t.Block) -> list[t.BufferStore]:
    """The stores of the body with the values they stand for, in the order of the `let`s where there are any."""
    lets: dict[Var, PrimExpr] = {}
    body = block.body
    while isinstance(body, t.LetStmt):
        lets[body.var] = body.value
        body = body.body
    parts = list(body.seq) if isinstance(body, t.SeqStmt) else [body]
    stores: list[t.BufferStore] = []
    for p in parts:
        if not isinstance(p, t.BufferStore):
            raise _refuse(block, "its body is not only stores")
        stores.append(p)
    if not lets:
        if len(stores) > 1:
            raise _refuse(block, "it stores several values that are not bound to variables first")
        return stores
    by_var: dict[Any, t.BufferStore] = {s.value: s for s in stores if isinstance(s.value, Var)}
    if len(by_var) != len(stores) or set(by_var) != set(lets):
        raise _refuse(block, "its stores are not of the variables bound before them")
    return [t.BufferStore(by_var[v].buffer, value, by_var[v].indices) for v, value in lets.items()]


class _Match:
    """Matches an expression against a pattern of left and right variables."""

    def __init__(self, lhs: dict[Any, int], rhs: set[Any], loads: dict[Any, int], found: dict[Any, PrimExpr]) -> None:
        self.lhs, self.rhs, self.loads, self.found = lhs, rhs, loads, found

    def __call__(self, pattern: PrimExpr, e: PrimExpr) -> bool:
        if isinstance(pattern, Var):
            if pattern in self.lhs:
                return self.loads.get(expr_key(e)) == self.lhs[pattern]
            if self.mentions(e):
                return False
            old = self.found.setdefault(pattern, e)
            return expr_key(old) == expr_key(e)
        if type(pattern) is not type(e):
            return False
        parts = list(zip(children(pattern), children(e), strict=True))
        saved = dict(self.found)
        if all(self(a, b) for a, b in parts):  # pyright: ignore[reportArgumentType]
            return True
        self.found.clear()
        self.found.update(saved)
        if isinstance(pattern, (ex.Add, ex.Mul, ex.Min, ex.Max, ex.And, ex.Or)):
            if self(pattern.a, e.b) and self(pattern.b, e.a):  # pyright: ignore
                return True
            self.found.clear()
            self.found.update(saved)
        return False

    def mentions(self, e: Any) -> bool:
        """Does the expression read what is being reduced?"""
        if isinstance(e, t.BufferLoad) and expr_key(e) in self.loads:
            return True
        return any(self.mentions(c) for c in children(e)) if not e.identity else False
