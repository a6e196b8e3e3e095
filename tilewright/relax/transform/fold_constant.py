"""Evaluate at compile time what is known: calls of constant operands, shapes of known tensors, branches of known conditions.

The meaning of an operator on constants is its numpy `reference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.calls import is_impure
from tilewright.relax.dims import as_int, as_ints
from tilewright.relax.ir import Call, Constant, Expr, If, PrimValue, SeqExpr, ShapeExpr, StringImm, Tuple, Var
from tilewright.relax.op import Op
from tilewright.relax.rewrite import GraphMutator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from tilewright.relax.transform.shape_values import ShapeValues
from tilewright.relax.values import make_tuple

__all__ = ["evaluate_call", "fold_constant"]

_LIMIT = 1 << 28
"""A result of more bytes is not made at compile time."""


def _operand(e: Any) -> Any:
    """The operand as `reference` takes it. Raises KeyError if it is not known."""
    if isinstance(e, Constant):
        return e.data
    if isinstance(e, ShapeExpr):
        values = as_ints(e.values)
        if values is None:
            raise KeyError
        return values
    if isinstance(e, PrimValue):
        value = getattr(e.value, "value", None)
        if value is None:
            raise KeyError
        return value
    if isinstance(e, StringImm):
        return e.value
    if isinstance(e, Tuple):
        return tuple(_operand(f) for f in e.fields)
    raise KeyError


def _bytes(si: StructInfo | None) -> int | None:
    if isinstance(si, TupleStructInfo):
        sizes = [_bytes(f) for f in si.fields]
        return None if any(s is None for s in sizes) else sum(s or 0 for s in sizes)
    if isinstance(si, TensorStructInfo) and si.dtype:
        shape = as_ints(si.shape)
        return None if shape is None else int(np.prod(shape, dtype=np.int64)) * dt.storage_bytes(si.dtype)
    return None


def _result(value: Any, si: StructInfo | None) -> Any:
    if isinstance(si, TupleStructInfo):
        return make_tuple([_result(v, f) for v, f in zip(value, si.fields)])
    assert isinstance(si, TensorStructInfo)
    made = np.asarray(value)
    wanted = dt.to_numpy(si.dtype)
    if made.dtype != wanted:
        made = made.astype(wanted)
    return Constant(np.ascontiguousarray(made).reshape(made.shape))


def evaluate_call(op: Op, args: Sequence[Any], si: StructInfo | None) -> Expr | None:
    """The constant (or tuple of constants) that a call of `op` gives, or None where its operands are not all known."""
    size = _bytes(si)
    if size is None or size > _LIMIT or type(op).reference is Op.reference:
        return None
    try:
        operands = [_operand(a) for a in args]
    except KeyError:
        return None
    with np.errstate(all="ignore"):
        return _result(op.reference(*operands), si)


class _Folder(GraphMutator):
    def begin(self, f: Any) -> None:
        self.shapes = ShapeValues()

    def call(self, call: Call, var: Var) -> Expr:
        if not isinstance(call.op, Op) or is_impure(call, self.mod):
            return call
        found = evaluate_call(call.op, call.args, call.struct_info)
        if found is None:
            found = self.shapes.fold(call)
        if found is not None:
            return found
        self.shapes.record(var, call)
        return call

    def bind(self, b: Any, value: Any) -> None:
        if isinstance(value, Tuple) and all(isinstance(f, Constant) for f in value.fields):
            self.changed = True
            self.env[b.var] = value
            return
        super().bind(b, value)
        new = self.env.get(b.var)
        if isinstance(new, Var):
            self.shapes.alias(new, b.var)

    def branch(self, e: If, var: Var) -> Any:
        known = e.cond
        value = None
        if isinstance(known, Constant):
            value = bool(known.data.reshape(()))
        elif isinstance(known, PrimValue):
            number = as_int(known.value)
            value = None if number is None else bool(number)
        if value is None:
            return super().branch(e, var)
        self.changed = True
        chosen = e.true_branch if value else e.false_branch
        if not isinstance(chosen, SeqExpr):
            return self.operand(chosen)
        for block in chosen.blocks:  # its bindings join ours
            self.block(block)
        return self.operand(chosen.body)


@pass_(name="FoldConstant")
def fold_constant(mod: IRModule, ctx: PassContext) -> IRModule:
    """Calls whose operands are all constants become constants; tensors that hold shapes become shapes; known branches are taken."""
    del ctx
    return _Folder(mod).run()
