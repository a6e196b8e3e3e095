"""Statements in C-like languages: one function a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as E
from tilewright.backends.source.writer import RELATION, Writer
from tilewright.ir import dtype as dt
from tilewright.tir import ir as T

__all__ = ["STATEMENTS", "write"]


def write(w: Writer, s: Any) -> None:
    """Write a statement. Handlers give back a body that is left to write, so that long chains do not nest."""
    while s is not None:
        handler = STATEMENTS.get(type(s))
        if handler is None:
            raise w.unsupported(type(s).__name__, "functions must be in flat form")
        s = handler(w, s)


def _seq(w: Writer, s: T.SeqStmt) -> Any:
    for child in s.seq[:-1]:
        write(w, child)
    return s.seq[-1] if s.seq else None


def _store(w: Writer, s: T.BufferStore) -> None:
    if len(s.indices) != 1:
        raise w.unsupported(f"a store to buffer {s.buffer.name!r} with {len(s.indices)} indices")
    w.dialect.store(w, s)


def _for(w: Writer, s: T.For) -> Any:
    if s.kind in (T.ForKind.VECTORIZED, T.ForKind.THREAD_BINDING):
        raise w.unsupported(f"the {s.kind.name.lower()} loop {s.loop_var.name!r}", "it must be lowered before")
    low, extent = s.min, s.extent
    if isinstance(extent, E.IntImm) and extent.value <= 0:
        return None
    (l0, l1), e1 = w.range(low), w.range(extent)[1]
    least, most = dt.min_value(s.loop_var.dtype), dt.max_value(s.loop_var.dtype)
    known = max(l0, least), min(l1 + max(e1, 1) - 1, most)
    if isinstance(extent, E.IntImm) and extent.value == 1:
        w.dialect.let(w, s.loop_var, low)
        return s.body
    zero = isinstance(low, E.IntImm) and low.value == 0
    if zero or (isinstance(low, E.IntImm) and isinstance(extent, E.IntImm)):
        end = w.index(extent, RELATION + 1) if zero else str(low.value + extent.value)  # pyright: ignore[reportAttributeAccessIssue]
        start = w.index(low)
    else:
        start = w.index(low)
        end = w.index(E.Add(low, extent), RELATION + 1)
    w.dialect.loop_head(w, s)
    name = w.bind(s.loop_var, known)
    with w.block(w.dialect.for_head(s.loop_var.dtype, name, start, end)):
        write(w, s.body)
    return None


def _while(w: Writer, s: T.While) -> None:
    with w.block(w.dialect.forever):
        w.line(f"if ({w.text(E.Not(s.condition))}) {{ break; }}")
        write(w, s.body)


def _if(w: Writer, s: T.IfThenElse) -> None:
    w.line(f"if ({w.text(s.condition)}) {{")
    other: Any = s
    while True:
        w.depth += 1
        write(w, other.then_case)
        w.depth -= 1
        following = other.else_case
        if following is None:
            break
        if isinstance(following, T.IfThenElse) and not _declares(following.condition):
            w.line(f"}} else if ({w.text(following.condition)}) {{")
            other = following
            continue
        w.line("} else {")
        w.depth += 1
        write(w, following)
        w.depth -= 1
        break
    w.line("}")


def _declares(e: Any) -> bool:
    from tilewright.ir.node import walk

    return any(isinstance(n, E.Let) for n in walk(e))


def _let(w: Writer, s: T.LetStmt) -> Any:
    w.dialect.let(w, s.var, s.value)
    return s.body


def _body(w: Writer, s: Any) -> Any:
    return s.body


def _attr(w: Writer, s: T.AttrStmt) -> Any:
    return w.dialect.attribute(w, s)


def _assert(w: Writer, s: T.AssertStmt) -> Any:
    if not (isinstance(s.condition, E.IntImm) and s.condition.value):
        w.dialect.assertion(w, s)
    return s.body


def _evaluate(w: Writer, s: T.Evaluate) -> None:
    if isinstance(s.value, (E.IntImm, E.Var)):
        return
    w.dialect.evaluate(w, s.value)


def _allocate(w: Writer, s: T.Allocate) -> Any:
    return w.dialect.allocate(w, s)


def _constant(w: Writer, s: T.AllocateConst) -> Any:
    return w.dialect.constant(w, s)


STATEMENTS: dict[type, Callable[[Writer, Any], Any]] = {
    T.SeqStmt: _seq, T.BufferStore: _store, T.For: _for, T.While: _while, T.IfThenElse: _if, T.LetStmt: _let,
    T.AssertStmt: _assert, T.AttrStmt: _attr, T.DeclBuffer: _body, T.Evaluate: _evaluate, T.Allocate: _allocate,
    T.AllocateConst: _constant,
}  # fmt: skip
"""What writes each kind of statement."""
