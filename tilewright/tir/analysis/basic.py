"""Small questions about the loop IR: equal expressions, unbound variables, work, lifetimes, the smallest common scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.linear import expr_key
from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule
from tilewright.ir.node import Node, children
from tilewright.ir.op import Op
from tilewright.ir.rewrite import free_vars
from tilewright.tir.intrin import is_pure
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
)  # fmt: skip

__all__ = [
    "buffer_lifetimes",
    "estimate_tir_flops",
    "expr_deep_equal",
    "has_side_effect",
    "undefined_vars",
]


def expr_deep_equal(lhs: PrimExpr, rhs: PrimExpr) -> bool:
    """Are two expressions the same, node by node, variables by identity?"""
    return lhs is rhs or expr_key(lhs) == expr_key(rhs)


def undefined_vars(node: Stmt | PrimExpr | PrimFunc, defs: Sequence[Var] = ()) -> list[Var]:
    """The variables that are used and not defined inside, nor listed in `defs`."""
    known = set(defs)
    return [v for v in free_vars(node) if v not in known]


def has_side_effect(e: PrimExpr) -> bool:
    """May evaluating `e` do anything but give a value? Loads count as no effect."""
    if isinstance(e, ex.Call) and not (isinstance(e.op, Op) and is_pure(e.op)):
        return True
    return any(isinstance(c, PrimExpr) and has_side_effect(c) for c in children(e))


# ---- work ----------------------------------------------------------------------------------------------------------------

_UNCOUNTED = {"tir.if_then_else", "tir.likely", "tir.reinterpret", "tir.call_extern", "tir.fma", "tir.reduce_lanes"}


def estimate_tir_flops(
    stmt: Stmt | PrimFunc | IRModule, sizes: Mapping[Var, int] | None = None, *, unknown: int = 1
) -> float:
    """The operations on data that running it takes: one for each +, -, *, /, min, max, and call of a math function; on
    integers too, where they are no index arithmetic.

    A fused multiply-add counts two; a vector operation one for each lane. The init of a reduction does not count.
    Variables in loop extents take the values of `sizes`, by default `unknown`. An if takes its dearer side.
    """
    values = dict(sizes or {})
    if isinstance(stmt, IRModule):
        bodies: list[Any] = [f.body for f in stmt.functions.values() if isinstance(f, PrimFunc)]
    else:
        bodies = [stmt.body if isinstance(stmt, PrimFunc) else stmt]
    return float(sum(_stmt_flops(b, values, unknown) for b in bodies))


def _stmt_flops(s: Any, values: dict[Var, int], unknown: int) -> float:
    if isinstance(s, For):
        return _size(s.extent, values, unknown) * _stmt_flops(s.body, values, unknown)
    if isinstance(s, BlockRealize):
        return _stmt_flops(s.block.body, values, unknown)
    if isinstance(s, Block):
        return _stmt_flops(s.body, values, unknown)
    if isinstance(s, (SeqStmt,)):
        return sum(_stmt_flops(x, values, unknown) for x in s.seq)
    total = 0.0
    sides: list[float] = []
    for c in children(s):
        if isinstance(c, Stmt):
            sides.append(_stmt_flops(c, values, unknown))
        elif isinstance(c, PrimExpr):
            total += _expr_flops(c)
    return total + max(sides, default=0.0)


def _size(e: PrimExpr, values: dict[Var, int], unknown: int) -> int:
    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, Var):
        return values.get(e, unknown)
    if isinstance(e, ex.Cast):
        return _size(e.value, values, unknown)
    if isinstance(e, ex.BinaryOp):
        a, b = _size(e.a, values, unknown), _size(e.b, values, unknown)
        f: dict[type, Any] = {
            ex.Add: lambda: a + b, ex.Sub: lambda: a - b, ex.Mul: lambda: a * b, ex.FloorDiv: lambda: a // b,
            ex.FloorMod: lambda: a % b, ex.Div: lambda: a // b, ex.Mod: lambda: a % b, ex.Min: lambda: min(a, b),
            ex.Max: lambda: max(a, b),
        }  # fmt: skip
        return max(0, f[type(e)]()) if b or type(e) in (ex.Add, ex.Sub, ex.Mul, ex.Min, ex.Max) else unknown
    return unknown


def _expr_flops(e: PrimExpr) -> float:
    return _count(e)[0]


def _count(e: Any) -> tuple[float, bool]:
    """(operations on data in an expression, does it read data?)"""
    if isinstance(e, BufferLoad):
        return 0.0, True
    parts = [_count(c) for c in children(e) if isinstance(c, PrimExpr)]
    total, data = sum(n for n, _ in parts), any(d for _, d in parts)
    lanes = dt.lanes(e.dtype)
    name = e.op.name if isinstance(e, ex.Call) and isinstance(e.op, Op) else ""
    if isinstance(e, ex.BinaryOp):
        return total + (lanes if data or dt.is_float(e.dtype) else 0), data
    if name == "tir.if_then_else":
        return parts[0][0] + max(parts[1][0], parts[2][0]), data
    if name == "tir.fma":
        return total + 2 * lanes, data
    if name == "tir.reduce_lanes":
        return total + dt.lanes(e.args[1].dtype) - 1, data
    if name and name not in _UNCOUNTED and dt.is_float(e.dtype):
        return total + lanes, data
    return total, data


# ---- lifetimes -----------------------------------------------------------------------------------------------------------


def buffer_lifetimes(func: PrimFunc) -> dict[Buffer, tuple[int, int]]:
    """For each buffer of the root block: the first and the last of its statements (by position) that touch it."""
    root = func.body.block if isinstance(func.body, BlockRealize) else None
    body = root.body if root is not None else func.body
    parts = body.seq if isinstance(body, SeqStmt) else (body,)
    out: dict[Buffer, tuple[int, int]] = {}
    for position, s in enumerate(parts):
        for b in _touched(s):
            first, _ = out.get(b, (position, position))
            out[b] = (first, position)
    return out


def _touched(n: Node) -> list[Buffer]:
    seen: dict[Buffer, None] = {}
    stack: list[Node] = [n]
    while stack:
        x = stack.pop()
        if isinstance(x, Buffer):
            seen[x] = None
        elif not x.identity:
            stack.extend(children(x))
    return list(seen)
