"""Which elements of shared memory threads touch, and whether two accesses by different threads may meet.

An access is an index as a function of the thread indices, of loops that have been left (each thread runs them on its own),
and of what all threads share. Where the two latter parts can be told apart, the elements are counted out thread by thread;
otherwise an interval decides; otherwise they are taken to meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.linear import expr_key, linear
from tilewright.ir.node import children
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.tir import ir as t

__all__ = ["READ", "SYNC", "WRITE", "Access", "conflict", "elements"]

READ, WRITE, SYNC = "read", "write", "sync"
_MOST = 1 << 18
"""The most elements that are counted out."""


class Access:
    """One access: its kind, its memory, its indices (None: anywhere), and the variables that run on their own."""

    __slots__ = ("buffer", "data", "double", "indices", "inner", "kind", "threads")

    def __init__(
        self,
        kind: str,
        buffer: t.Buffer | None,
        data: Var | None,
        indices: tuple[PrimExpr, ...] | None,
        threads: dict[Var, PrimExpr],
        inner: dict[Var, t.Range] | None = None,
        double: bool = False,
    ) -> None:
        self.kind, self.buffer, self.data, self.indices = kind, buffer, data, indices
        self.threads, self.inner, self.double = threads, inner or {}, double

    def left(self, loop: t.For) -> Access:
        """The same access, seen from outside of a loop."""
        inner = {**self.inner, loop.loop_var: t.Range(loop.min, loop.extent)}
        return Access(self.kind, self.buffer, self.data, self.indices, self.threads, inner, False)


def conflict(a: Access, b: Access, carried: t.For | None = None) -> bool:
    """May a thread touch by `b` what another thread touched by `a`? `carried`: in another iteration of that loop."""
    if a.data is not b.data:
        return False
    if a.indices is None or b.indices is None or len(a.indices) != len(b.indices):
        return True
    if a.buffer is not None and b.buffer is not None and a.buffer.dtype != b.buffer.dtype:
        return True
    if carried is not None:
        a, b = a.left(carried), b.left(carried)
        b = _fresh(b, carried)
    try:
        return _meet(a, b)
    except _Unknown:
        return not _apart(a, b)


def _fresh(b: Access, loop: t.For) -> Access:
    """The access with a loop variable of its own."""
    new = Var(loop.loop_var.name, loop.loop_var.dtype)
    values = {loop.loop_var: new}
    assert b.indices is not None
    inner = {(new if v is loop.loop_var else v): r for v, r in b.inner.items()}
    return Access(b.kind, b.buffer, b.data, tuple(substitute(i, values) for i in b.indices), b.threads, inner)


class _Unknown(Exception):
    """The elements cannot be counted out."""


def _own(a: Access) -> dict[Var, t.Range]:
    """The variables that differ from thread to thread, with their ranges."""
    out = {v: t.Range(IntImm(n.dtype, 0), n) for v, n in a.threads.items()}
    out.update(a.inner)
    return out


def _meet(a: Access, b: Access) -> bool:
    """Exactly: is there an element that different threads touch?"""
    assert a.indices is not None
    assert b.indices is not None
    sets: list[tuple[np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]] = []
    shifts: list[int] = []
    shared: list[list[tuple[dict[Any, tuple[PrimExpr, int]], int]]] = []
    for x in (a, b):
        threads, columns, rests = _points(x)
        sets.append((threads, columns))
        shared.append(rests)
    for (ra, ca), (rb, cb) in zip(shared[0], shared[1], strict=True):
        if {k: c for k, (_, c) in ra.items()} != {k: c for k, (_, c) in rb.items()}:
            raise _Unknown
        shifts.append(cb - ca)
    (ta, xa), (tb, xb) = sets
    xb = [c + s for c, s in zip(xb, shifts, strict=True)]
    ka, kb = _keys(xa, xb)
    return _different(ka, ta, kb, tb)


def _keys(xa: list[Any], xb: list[Any]) -> tuple[Any, Any]:
    """One number for each element."""
    ka: Any = np.zeros(len(xa[0]), np.int64) if xa else np.zeros(1, np.int64)
    kb: Any = np.zeros(len(xb[0]), np.int64) if xb else np.zeros(1, np.int64)
    for ca, cb in zip(xa, xb, strict=True):
        low = min(ca.min(), cb.min())
        span = max(ca.max(), cb.max()) - low + 1
        ka, kb = ka * span + (ca - low), kb * span + (cb - low)
    return ka, kb


def _different(ka: Any, ta: Any, kb: Any, tb: Any) -> bool:
    """Is an element in both lists, with different threads?"""
    both = np.intersect1d(ka, kb)
    if not len(both):
        return False
    keep_a, keep_b = np.isin(ka, both), np.isin(kb, both)
    first: dict[int, set[int]] = {}
    for k, thread in zip(ka[keep_a].tolist(), ta[keep_a].tolist(), strict=True):
        first.setdefault(k, set()).add(thread)
    for k, thread in zip(kb[keep_b].tolist(), tb[keep_b].tolist(), strict=True):
        others = first[k]
        if len(others) > 1 or thread not in others:
            return True
    return False


def _points(x: Access) -> tuple[Any, list[Any], list[tuple[dict[Any, tuple[PrimExpr, int]], int]]]:
    """(thread numbers, one column of elements a dimension, what is shared by all threads a dimension)."""
    own = _own(x)
    assert x.indices is not None
    used = {v for i in x.indices for v in _vars(i)}
    sizes: list[tuple[Var, int, int]] = []
    total = 1
    for v, r in own.items():
        if v not in x.threads and v not in used:
            continue
        if not (isinstance(r.min, IntImm) and isinstance(r.extent, IntImm)):
            raise _Unknown
        sizes.append((v, r.min.value, r.extent.value))
        total *= r.extent.value
    lanes = max([_lanes(i) for i in x.indices], default=1)
    if total * lanes > _MOST or total == 0:
        raise _Unknown
    grid = np.indices([n for _, _, n in sizes] or [1]).reshape(max(len(sizes), 1), -1).astype(np.int64)
    values: dict[Any, Any] = {v: grid[k] + low for k, (v, low, _) in enumerate(sizes)}
    number: Any = np.zeros(grid.shape[1], np.int64)
    for v, _low, n in sizes:
        if v in x.threads:
            number = number * n + values[v]
    columns: list[Any] = []
    rests: list[tuple[dict[Any, tuple[PrimExpr, int]], int]] = []
    for i in x.indices:
        base, step, count = (i.base, _const(i.stride), i.lanes) if isinstance(i, ex.Ramp) else (i, 0, 1)
        if "x" in base.dtype:
            raise _Unknown
        column, rest, constant = _split(base, own, values)
        column = column + np.zeros(grid.shape[1], np.int64)
        columns.append((column[:, None] + np.arange(count) * step) if lanes > 1 else column[:, None])
        rests.append((rest, constant))
    width = lanes
    columns = [np.broadcast_to(c, (c.shape[0], width)).reshape(-1) for c in columns]
    return np.repeat(number, width), columns, rests


def elements(x: Access) -> np.ndarray[Any, Any] | None:
    """Rows (thread, element) of what each thread touches in flat memory; None where that cannot be counted out."""
    try:
        threads, columns, rests = _points(x)
    except _Unknown:
        return None
    if len(columns) != 1 or rests[0][0]:
        return None
    return np.unique(np.stack([threads, columns[0] + rests[0][1]], axis=1), axis=0)


def _lanes(i: PrimExpr) -> int:
    return i.lanes if isinstance(i, ex.Ramp) else 1


def _const(e: PrimExpr) -> int:
    if not isinstance(e, IntImm):
        raise _Unknown
    return e.value


def _vars(e: Any) -> list[Var]:
    return free_vars(e)


def _split(
    e: PrimExpr, own: Mapping[Var, Any], values: Mapping[Any, Any]
) -> tuple[Any, dict[Any, tuple[PrimExpr, int]], int]:
    """An index as (its part of the thread's own, its shared terms with their coefficients, its constant)."""
    form = linear(e)
    column: Any = 0
    rest: dict[Any, tuple[PrimExpr, int]] = {}
    for key, (atom, c) in form.terms.items():
        names = _vars(atom)
        if not any(v in own for v in names):
            if _has_load(atom):
                raise _Unknown
            rest[key if isinstance(key, Var) else expr_key(atom)] = (atom, c)
        elif all(v in own for v in names):
            column = column + c * _value(atom, values)
        else:
            raise _Unknown
    return column, rest, form.constant


def _has_load(e: Any) -> bool:
    if isinstance(e, (t.BufferLoad, ex.Call)):
        return True
    return not e.identity and any(_has_load(c) for c in children(e))


def _value(e: PrimExpr, values: Mapping[Any, Any]) -> Any:
    """The values of an expression of the thread's own variables, for all of their combinations."""
    if isinstance(e, Var):
        return values[e]
    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, ex.Cast):
        return _value(e.value, values)
    if isinstance(e, ex.BinaryOp):
        a, b = _value(e.a, values), _value(e.b, values)
        table: dict[type, Any] = {
            ex.Add: np.add, ex.Sub: np.subtract, ex.Mul: np.multiply, ex.FloorDiv: np.floor_divide, ex.FloorMod: np.mod,
            ex.Min: np.minimum, ex.Max: np.maximum,
        }  # fmt: skip
        f = table.get(type(e))
        if f is not None:
            return f(a, b)
    if isinstance(e, ex.Call) and getattr(e.op, "name", "") in ("tir.bitwise_xor", "tir.bitwise_and", "tir.bitwise_or"):
        a, b = (_value(x, values) for x in e.args)
        names: dict[str, Any] = {"tir.bitwise_xor": np.bitwise_xor, "tir.bitwise_and": np.bitwise_and, "tir.bitwise_or": np.bitwise_or}  # fmt: skip
        return names[e.op.name](a, b)  # pyright: ignore[reportAttributeAccessIssue]
    raise _Unknown


def _apart(a: Access, b: Access) -> bool:
    """Do the ranges of the two accesses, over all threads, lie apart in some dimension?"""
    from tilewright.arith.int_set import eval_range

    assert a.indices is not None
    assert b.indices is not None
    ana = Analyzer()
    for i, j in zip(a.indices, b.indices, strict=True):
        if isinstance(i, ex.Ramp) or isinstance(j, ex.Ramp) or "x" in i.dtype or "x" in j.dtype:
            continue
        ra, rb = eval_range(i, _own(a), ana), eval_range(j, _own(b), ana)
        if ra is None or rb is None:
            continue
        if ana.can_prove(ex.LT(ra[1], rb[0])) or ana.can_prove(ex.LT(rb[1], ra[0])):
            return True
    return False
