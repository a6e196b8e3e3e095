"""Axes and loops of the `T` namespace: `T.axis`, `T.grid`, `T.serial`, ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir import dtype as dt
from tilewright.script.commands import (
    AxisCommand,
    Loop,
    between,
)
from tilewright.script.evaluate import as_operand
from tilewright.script.immediate import done
from tilewright.tir import ir as _tir

__all__ = ["axis", "grid", "make_loop", "parallel", "remap", "serial", "thread_binding", "unroll", "vectorized"]


def _axis(kind: int) -> Callable[..., AxisCommand]:
    def make(dom: Any, binding: Any = None, dtype: str = "int32") -> AxisCommand:
        del dtype
        return done(AxisCommand(kind, dom, binding))

    return make


def remap(kinds: str, bindings: Sequence[Any], dtype: str = "int32") -> Any:
    """Axes bound to loop variables, with the loops' domains: S spatial, R reduce."""
    del dtype
    known = {"S": 0, "R": 2}
    if len(kinds) != len(bindings):
        raise ValueError(f"{len(kinds)} kinds for {len(bindings)} bindings")
    wrong = [k for k in kinds if k not in known]
    if wrong:
        raise ValueError(f"an axis of remap is S (spatial) or R (reduce), not {wrong[0]!r}")
    made = [AxisCommand(known[k], None, b) for k, b in zip(kinds, bindings, strict=True)]
    return done(made if len(made) > 1 else made[0])


axis = SimpleNamespace(
    spatial=_axis(0), reduce=_axis(2), scan=_axis(3), opaque=_axis(4), remap=remap, S=_axis(0), R=_axis(2)
)


def _loop(kind: int, what: str) -> Callable[..., Loop]:
    def make(
        start: Any, stop: Any = None, *, extent: Any = None, annotations: dict[str, Any] | None = None, dtype: str = ""
    ) -> Loop:
        return make_loop(kind, what, start, stop, extent, annotations, dtype)

    make.__name__ = make.__qualname__ = what.removeprefix("T.")
    make.__doc__ = f"`for i in {what}(n)`, `for i in {what}(begin, end)`"
    return make


def make_loop(
    kind: int,
    what: str,
    start: Any,
    stop: Any = None,
    extent: Any = None,
    annotations: dict[str, Any] | None = None,
    dtype: str = "",
    thread: _tir.IterVar | None = None,
) -> Loop:
    """The record of a loop."""
    start = as_operand(start)
    if extent is not None:
        low, size = E.convert(start), E.convert(extent)
    elif stop is None:
        size = E.convert(start)
        low = E.const(0, size.dtype)
    else:
        low, end = E.convert(start), E.convert(as_operand(stop))
        if low.dtype != end.dtype and isinstance(low, E.IntImm):
            low = E.cast(low, end.dtype)
        size = between(low, end)
    if not (dt.is_int(size.dtype) and dt.lanes(size.dtype) == 1):
        raise TypeError(f"the extent of a loop is an integer, not {size.dtype}")

    def build_loop(variables: Sequence[E.Var], body: _tir.Stmt) -> _tir.Stmt:
        notes = dict(annotations or {})
        return _tir.For(variables[0], low, size, _tir.ForKind(kind), body, thread, notes)

    return Loop((dtype or size.dtype,), ((low, size),), build_loop, what)


serial = _loop(0, "T.serial")
parallel = _loop(1, "T.parallel")
vectorized = _loop(2, "T.vectorized")
unroll = _loop(3, "T.unroll")

_KINDS = {"serial": 0, "parallel": 1, "vectorized": 2, "unroll": 3, "thread_binding": 4}


def thread_binding(
    start: Any,
    stop: Any = None,
    thread: str = "",
    *,
    extent: Any = None,
    annotations: dict[str, Any] | None = None,
    kind: str = "thread_binding",
    dtype: str = "",
) -> Loop:
    """`for tx in T.thread_binding(32, thread="threadIdx.x")`"""
    if isinstance(stop, str):
        stop, thread = None, stop
    if not thread:
        raise ValueError('thread_binding needs thread=, such as "threadIdx.x"')
    size = E.convert(extent if extent is not None else stop if stop is not None else start)
    v = _tir.IterVar(None, E.Var("iter", size.dtype), _tir.IterVar.ThreadIndex, thread)
    return make_loop(_KINDS[kind], "T.thread_binding", start, stop, extent, annotations, dtype, v)


def grid(*extents: Any) -> Loop:
    """`for i, j in T.grid(n, m)`; a pair (begin, end) may stand for an extent."""
    loops = [make_loop(0, "T.grid", *(e[:2] if isinstance(e, (tuple, list)) else (e,))) for e in extents]

    def build_loops(variables: Sequence[E.Var], body: _tir.Stmt) -> _tir.Stmt:
        for v, loop in zip(reversed(variables), reversed(loops), strict=True):
            body = loop.make([v], body)
        return body

    dtypes = tuple(d for loop in loops for d in loop.dtypes)
    return Loop(dtypes, tuple(r for loop in loops for r in loop.ranges), build_loops, "T.grid")
