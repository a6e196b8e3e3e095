"""Operators that do nothing, or that undo each other, disappear.

reshape(reshape(x))                 ->  reshape(x)
permute_dims(permute_dims(x))       ->  permute_dims(x), or x
permute_dims that moves axes of length 1 only, flatten, squeeze, expand_dims    ->  reshape
reshape to the same shape, astype to the same dtype, identity, dropout          ->  x
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.dims import as_int, same_shape
from tilewright.relax.ir import Call, Expr, ShapeExpr, TupleGetItem, Var
from tilewright.relax.op import OPS
from tilewright.relax.rewrite import GraphMutator
from tilewright.relax.struct_info import TensorStructInfo, sinfo_equal

__all__ = ["simplify_views"]

_SHAPE_ONLY = ("reshape", "flatten", "squeeze", "expand_dims")


class _Simplify(GraphMutator):
    def source(self, e: Any) -> Any:
        """The call that an operand is bound to."""
        return self.bb.visible_binding(e) if isinstance(e, Var) else None

    def call(self, call: Call, var: Var) -> Expr:
        name = getattr(call.op, "name", "")
        if name in ("identity", "astype", "nn.dropout"):
            if sinfo_equal(call.struct_info, call.args[0].struct_info):
                return call.args[0]
            return call
        if name in _SHAPE_ONLY:
            return self.view(call)
        if name == "permute_dims":
            return self.permute(call)
        if name in ("broadcast_to", "strided_slice", "nn.pad") and self.does_nothing(call, name):
            return call.args[0]
        return call

    @staticmethod
    def does_nothing(call: Call, name: str) -> bool:
        x, out = call.args[0].struct_info, call.struct_info
        if (
            not isinstance(x, TensorStructInfo)
            or not isinstance(out, TensorStructInfo)
            or not same_shape(x.shape, out.shape)
        ):
            return False
        if name == "nn.pad":
            op: Any = call.op
            return len(call.args) == 1 and not any(op.pad_width)
        return name == "broadcast_to"

    def view(self, call: Call) -> Expr:
        x = call.args[0]
        out = call.struct_info
        if not isinstance(out, TensorStructInfo) or out.shape is None:
            return call
        inner = self.source(x)
        while isinstance(inner, Call) and getattr(inner.op, "name", "") in _SHAPE_ONLY:
            x = inner.args[0]
            inner = self.source(x)
        before = x.struct_info
        if isinstance(before, TensorStructInfo) and same_shape(before.shape, out.shape):
            return x
        if x is call.args[0] and call.op.name == "reshape":
            return call
        return Call(OPS["reshape"](), (x, ShapeExpr(out.shape)))

    def permute(self, call: Call) -> Expr:
        x = call.args[0]
        si = x.struct_info
        if not isinstance(si, TensorStructInfo) or si.shape is None:
            return call
        order = _order(call.op, si.ndim)
        inner = self.source(x)
        if isinstance(inner, Call) and getattr(inner.op, "name", "") == "permute_dims":
            first = _order(inner.op, si.ndim)
            order = [first[i] for i in order]
            x = inner.args[0]
            si = x.struct_info
        if order == sorted(order):
            return x
        assert isinstance(si, TensorStructInfo)
        shape = si.shape
        if shape is not None:
            real = [i for i in order if as_int(shape[i]) != 1]
            if real == sorted(real):
                return self.view(self.bb.normal(Call(OPS["reshape"](), (x, ShapeExpr(tuple(shape[i] for i in order))))))
        return call if x is call.args[0] else Call(OPS["permute_dims"](axes=tuple(order)), (x,))

    def value(self, e: Any, var: Var) -> Any:
        if isinstance(e, TupleGetItem) and e.index == 0:
            e = self.operand(e)
            inner = self.source(e.tuple_value) if isinstance(e, TupleGetItem) else None
            if isinstance(inner, Call) and getattr(inner.op, "name", "") == "nn.dropout":
                return inner.args[0]
            return e
        return super().value(e, var)


def _order(op: Any, rank: int) -> list[int]:
    return list(reversed(range(rank))) if op.axes is None else [a % rank for a in op.axes]


@pass_(name="SimplifyViews")
def simplify_views(mod: IRModule, ctx: PassContext) -> IRModule:
    """Operators that do nothing or undo each other disappear."""
    del ctx
    return _Simplify(mod).run()
