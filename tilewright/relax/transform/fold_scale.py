"""Batch normalisation at inference, taken apart and folded into the weights before it.

batch_norm(x, ...)              ->  x * s + t                       s = gamma / sqrt(var + eps), t = beta - mean * s
conv(x, W) * s                  ->  conv(x, W * s)                  s: one value an output channel, all constant
(y + a) * s                     ->  y * s + a * s                   if y is such a convolution (or matmul)
(y + a) + b                     ->  y + (a + b)                     constants; likewise (y * a) * b
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.ir import Call, Constant, Expr, TupleGetItem, Var
from tilewright.relax.op import OPS, Op
from tilewright.relax.rewrite import GraphMutator, count_uses
from tilewright.relax.struct_info import TensorStructInfo

__all__ = ["decompose_batch_norm", "fold_scale"]


def _call(name: str, *args: Any) -> Call:
    return Call(OPS[name](), tuple(args))


class _Decompose(GraphMutator):
    def value(self, e: Any, var: Var) -> Any:
        if isinstance(e, TupleGetItem) and e.index == 0 and isinstance(e.tuple_value, Var):
            known = self.norms.get(e.tuple_value)
            if known is not None:
                made = self.scaled(known)
                if made is not None:
                    return made
        return super().value(e, var)

    def begin(self, f: Any) -> None:
        self.norms: dict[Var, Call] = {}

    def call(self, call: Call, var: Var) -> Expr:
        if getattr(call.op, "name", "") == "nn.batch_norm":
            self.norms[var] = call
        return call

    @staticmethod
    def scaled(call: Call) -> Expr | None:
        op: Any = call.op
        data = call.args[0]
        params = [a.data.astype(np.float64) if isinstance(a, Constant) else None for a in call.args[1:]]
        si = data.struct_info
        if any(p is None for p in params) or not isinstance(si, TensorStructInfo) or si.ndim < 1:
            return None
        gamma, beta, mean, var = params
        assert gamma is not None
        assert beta is not None
        assert mean is not None
        assert var is not None
        scale = (gamma if op.scale else 1.0) / np.sqrt(var + op.epsilon)
        shift = (beta if op.center else 0.0) - mean * scale
        shape = [1] * si.ndim
        shape[op.axis] = -1
        factor, offset = (Constant(v.astype(si.dtype).reshape(shape)) for v in (scale, shift))
        return _call("add", _call("multiply", data, factor), offset)


@pass_(name="DecomposeBatchNorm")
def decompose_batch_norm(mod: IRModule, ctx: PassContext) -> IRModule:
    """batch_norm with constant parameters becomes a multiplication and an addition."""
    del ctx
    return _Decompose(mod).run()


class _Fold(GraphMutator):
    def begin(self, f: Any) -> None:
        self.uses = count_uses(f)
        self.once: set[Var] = {v for v, n in self.uses.items() if n == 1}
        self.made: dict[Var, Any] = {}

    def bind(self, b: Any, value: Any) -> None:
        before = b.var
        super().bind(b, value)
        new = self.env.get(before, before)
        if isinstance(new, Var) and before in self.once:
            self.once.add(new)

    def known(self, e: Any) -> Call | None:
        """The call that an operand is the only use of."""
        if not isinstance(e, Var) or e not in self.once:
            return None
        found = self.bb.visible_binding(e)
        return found if isinstance(found, Call) else None

    def call(self, call: Call, var: Var) -> Expr:
        name = getattr(call.op, "name", "")
        if name not in ("multiply", "add", "subtract", "divide") or len(call.args) != 2:
            return call
        x, c = call.args
        if isinstance(x, Constant) and name in ("multiply", "add"):
            x, c = c, x
        if not isinstance(c, Constant) or isinstance(x, Constant) or not np.issubdtype(c.data.dtype, np.floating):
            return call
        if name == "subtract":
            name, c = "add", Constant(-c.data)
        elif name == "divide":
            if not np.all(c.data != 0):
                return call
            name, c = "multiply", Constant((1 / c.data.astype(np.float64)).astype(c.data.dtype))
            made = self.scaled(x, c)
            if made is None and np.all(np.log2(np.abs(c.data.astype(np.float64))) % 1 == 0):
                made = _call("multiply", x, c)  # a power of two: the reciprocal is exact
            return call if made is None else made
        made = self.scaled(x, c) if name == "multiply" else self.shifted(x, c)
        return call if made is None else made

    def scaled(self, x: Any, s: Constant) -> Expr | None:
        """x * s, where x is a contraction with constant weights (perhaps plus a constant)."""
        inner = self.known(x)
        if inner is None:
            return None
        name = getattr(inner.op, "name", "")
        if name in ("add", "multiply") and len(inner.args) == 2 and isinstance(inner.args[1], Constant):
            a = inner.args[1]
            if not _fits(a, s, x):
                return None
            if name == "multiply":
                return _call("multiply", inner.args[0], Constant(a.data * s.data))
            below = self.scaled(inner.args[0], s)
            return None if below is None else _call("add", below, Constant(a.data * s.data))
        weight = self.weight(inner, s, x)
        if weight is None:
            return None
        return Call(inner.op, (inner.args[0], Constant(weight)))

    def shifted(self, x: Any, t: Constant) -> Expr | None:
        """x + t, where x is y plus a constant."""
        inner = self.known(x)
        if inner is None or getattr(inner.op, "name", "") != "add" or not isinstance(inner.args[1], Constant):
            return None
        if not _fits(inner.args[1], t, x):
            return None
        return _call("add", inner.args[0], Constant(inner.args[1].data + t.data))

    @staticmethod
    def weight(inner: Call, s: Constant, x: Any) -> Any:
        """The weights of a contraction with the factors `s` of its output channels in them; None if that cannot be."""
        op: Any = inner.op
        name = op.name if isinstance(op, Op) else ""
        axis = {"nn.conv2d": 0, "nn.conv1d": 0, "nn.conv3d": 0, "nn.conv2d_transpose": 1, "matmul": 1}.get(name)
        if axis is None or not isinstance(inner.args[1], Constant) or not isinstance(x.struct_info, TensorStructInfo):
            return None
        w = inner.args[1].data
        rank = x.struct_info.ndim
        if name == "matmul":
            channel = rank - 1
            if w.ndim != 2 or op.packed_b or op.transpose_b or rank < 2:
                return None
        else:
            channel = 1
            plain = op.data_layout.startswith("NC") and op.kernel_layout.startswith("IO" if axis else "OI")
            if not plain or (axis == 1 and op.groups != 1):
                return None
        shape = (1,) * (rank - s.data.ndim) + s.data.shape
        if s.data.ndim > rank or any(n != 1 for k, n in enumerate(shape) if k != channel):
            return None
        if shape[channel] not in (1, w.shape[axis]):
            return None
        factors = s.data.reshape(-1)
        spread = [1] * w.ndim
        spread[axis] = -1
        return (w * factors.reshape(spread)).astype(w.dtype, copy=False)


def _fits(a: Constant, b: Constant, x: Any) -> bool:
    """Do the constants, combined, still broadcast to no more than the shape of x?"""
    if a.data.dtype != b.data.dtype or a.data.size > 1 << 20 or b.data.size > 1 << 20:
        return False
    try:
        shape = np.broadcast_shapes(a.data.shape, b.data.shape)
    except ValueError:
        return False
    return len(shape) <= x.struct_info.ndim and int(np.prod(shape)) <= max(a.data.size, b.data.size)


@pass_(name="FoldScaleAxis")
def fold_scale(mod: IRModule, ctx: PassContext) -> IRModule:
    """Constant factors of a contraction's output channels go into its weights; constants that follow each other combine."""
    del ctx
    return _Fold(mod).run()
