"""Functions that return a scalar: natively they write it behind a pointer, since what they return is their status.

    def f(x: int8, y: int8):            def f(x: int8, y: int8, result: handle):
        T.ret(x * y)               ▶        result[0] = x * y
                                            T.ret(0)

The packed entry (make_packed_api, attribute `ret_dtype`) gives the memory and hands the value to the caller.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Call, PrimExpr, Var, cast, const, pointer_var
from tilewright.ir import dtype as dt
from tilewright.ir.node import replace, walk
from tilewright.ir.op import Op
from tilewright.ir.rewrite import transform
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import Buffer, BufferStore, Evaluate, PrimFunc, Stmt, seq

__all__ = ["return_dtype", "with_return_slot"]


def _is_ret(n: Any) -> bool:
    return isinstance(n, Call) and isinstance(n.op, Op) and n.op.name == "tir.ret"


def return_dtype(f: PrimFunc) -> str | None:
    """The dtype of what the function returns; None where it returns nothing. Raises CompileError TW0532 where it returns
    values of several dtypes, or a vector."""
    found = {n.args[0].dtype for n in walk(f.body) if isinstance(n, Call) and _is_ret(n)}
    if len(found) > 1 or any(dt.lanes(d) != 1 for d in found):
        raise CompileError.at(
            "TW0532",
            f"a function returns {' and '.join(sorted(found))}",
            hint="return one scalar of one dtype: cast it",
        )
    return next(iter(found), None)


def with_return_slot(f: PrimFunc) -> PrimFunc:
    """The function with a last parameter that points to memory for what it returns; itself where it returns nothing."""
    dtype = return_dtype(f)
    if dtype is None:
        return f
    slot = Buffer(pointer_var("result", dtype), dtype, (const(1, "int64"),), (), None, "result")

    def rewrite(n: Any) -> Stmt | None:
        if not isinstance(n, Evaluate) or not _is_ret(n.value):
            return None
        value: PrimExpr = n.value.args[0]  # pyright: ignore[reportAttributeAccessIssue]
        leave = Evaluate(Call("int32", Op.get("tir.ret"), (const(0, "int32"),)))
        return seq(BufferStore(slot, cast(value, dtype), (const(0, "int64"),)), leave)

    params: tuple[Var, ...] = (*f.params, slot.data)
    return replace(f, params=params, body=transform(f.body, rewrite))
