"""Layer normalisation that a model spells out in small operators becomes one operator again.

    m = mean(x); d = x - m; v = mean(d * d) (or power(d, 2)); y = d / sqrt(v + eps) [* gamma] [+ beta]

over the last axes, with constant gamma and beta of just those axes. One kernel then reads x once instead of five times.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.dims import as_int
from tilewright.relax.ir import Call, Constant, Expr, PrimValue, Var
from tilewright.relax.op import OPS
from tilewright.relax.rewrite import GraphMutator, count_uses
from tilewright.relax.struct_info import TensorStructInfo

__all__ = ["raise_norms"]


class _Raise(GraphMutator):
    def begin(self, f: Any) -> None:
        self.uses = count_uses(f)

    def source(self, e: Any, name: str) -> Any:
        """The call of `name` that an operand is bound to, or None."""
        found = self.bb.visible_binding(e) if isinstance(e, Var) else None
        return found if isinstance(found, Call) and getattr(found.op, "name", "") == name else None

    def call(self, call: Call, var: Var) -> Expr:
        name = getattr(call.op, "name", "")
        if name == "divide":
            return self.quotient(call) or call
        if name in ("multiply", "add"):
            return self.affine(call, name) or call
        return call

    # ---- (x - mean) / sqrt(mean((x - mean)^2) + eps) -------------------------------------------------------------------

    def quotient(self, call: Call) -> Expr | None:
        d, s = call.args
        root = self.source(s, "sqrt")
        total = self.source(root.args[0], "add") if root else None
        if total is None:
            return None
        variance, eps = total.args
        epsilon = _number(eps)
        if epsilon is None:
            variance, epsilon = eps, _number(total.args[0])
        average = self.source(variance, "mean")
        centred = self.source(d, "subtract")
        if epsilon is None or average is None or centred is None or not self.is_square(average.args[0], d):
            return None
        x, m = centred.args
        mean = self.source(m, "mean")
        si = x.struct_info
        if mean is None or mean.args[0] is not x or not isinstance(si, TensorStructInfo) or si.shape is None:
            return None
        axes = _axes(mean.op, si.ndim)
        if axes is None or axes != _axes(average.op, si.ndim) or axes != tuple(range(si.ndim - len(axes), si.ndim)):
            return None
        sizes = [as_int(si.shape[a]) for a in axes]
        if any(n is None for n in sizes) or si.dtype not in ("float32", "float64"):
            return None
        ones = Constant(np.ones([n or 0 for n in sizes], si.dtype))
        op = OPS["nn.layer_norm"](axes=tuple(a - si.ndim for a in axes), epsilon=epsilon)
        return Call(op, (x, ones, Constant(np.zeros_like(ones.data))))

    def is_square(self, e: Any, d: Any) -> bool:
        product = self.source(e, "multiply")
        if product is not None:
            return product.args[0] is d and product.args[1] is d
        power = self.source(e, "power")
        if power is not None:
            return power.args[0] is d and _number(power.args[1]) == 2
        square = self.source(e, "square")
        return square is not None and square.args[0] is d

    # ---- gamma and beta ------------------------------------------------------------------------------------------------

    def affine(self, call: Call, name: str) -> Expr | None:
        x, c = call.args
        if isinstance(x, Constant):
            x, c = c, x
        norm = self.source(x, "nn.layer_norm")
        if norm is None or not isinstance(c, Constant) or len(norm.args) != 3:
            return None
        if isinstance(x, Var) and self.uses.get(x, 1) > 1:
            return None
        gamma, beta = norm.args[1], norm.args[2]
        if not isinstance(gamma, Constant) or not isinstance(beta, Constant):
            return None
        shape = gamma.data.shape
        data = c.data
        while data.ndim > len(shape) and data.shape[0] == 1:
            data = data[0]
        if data.ndim > len(shape) or data.dtype != gamma.data.dtype:
            return None
        data = np.broadcast_to(data, shape) if _broadcasts(data.shape, shape) else None
        if data is None:
            return None
        if name == "multiply":
            return Call(norm.op, (norm.args[0], Constant(gamma.data * data), Constant(beta.data * data)))
        return Call(norm.op, (norm.args[0], gamma, Constant(beta.data + data)))


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(a, b) == b
    except ValueError:
        return False


def _number(e: Any) -> float | None:
    if isinstance(e, Constant) and e.data.size == 1:
        return float(e.data.reshape(()))
    value = getattr(e.value, "value", None) if isinstance(e, PrimValue) else None
    return None if value is None else float(value)


def _axes(op: Any, ndim: int) -> tuple[int, ...] | None:
    """The reduced axes in order, if they stay with length 1."""
    if not op.keepdims or op.axis is None:
        return None
    items = (op.axis,) if isinstance(op.axis, int) else op.axis
    return tuple(sorted(a % ndim for a in items))


@pass_(name="RaiseNorms")
def raise_norms(mod: IRModule, ctx: PassContext) -> IRModule:
    """Layer normalisation spelled out in small operators becomes `nn.layer_norm`."""
    del ctx
    return _Raise(mod).run()
