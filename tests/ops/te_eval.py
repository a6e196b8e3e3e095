"""A second oracle: tensor expressions evaluated with numpy, whole grids at once.

Each axis of a compute becomes an array along a dimension of its own; the body is evaluated on them, then reduced. It shares
nothing with the loop interpreter. Both sides of a conditional are evaluated, with indices clipped into range.
"""

from __future__ import annotations

from functools import reduce as fold
from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.arith import expr as ex
from tilewright.ir import dtype as dt
from tilewright.ir.node import replace
from tilewright.tir import intrin
from tilewright.tir.interp import interpret
from tilewright.tir.ir import ProducerLoad, Reduce

_BINARY: dict[type, Any] = {
    ex.Add: np.add, ex.Sub: np.subtract, ex.Mul: np.multiply, ex.Min: np.minimum, ex.Max: np.maximum,
    ex.FloorDiv: np.floor_divide, ex.FloorMod: np.mod, ex.EQ: np.equal, ex.NE: np.not_equal, ex.LT: np.less,
    ex.LE: np.less_equal, ex.GT: np.greater, ex.GE: np.greater_equal, ex.And: np.logical_and, ex.Or: np.logical_or,
}  # fmt: skip


def _trunc_div(a: Any, b: Any) -> Any:
    q = np.abs(a) // np.abs(b)
    return np.where((a < 0) == (b < 0), q, -q)


class TensorEvaluator:
    """Evaluates tensors; `env` holds the arrays of placeholders and the values of variables."""

    def __init__(self, env: dict[Any, Any]) -> None:
        self.tensors: dict[Any, np.ndarray] = {k: v for k, v in env.items() if isinstance(k, te.Tensor)}
        self.vars: dict[Any, Any] = {k: v for k, v in env.items() if not isinstance(k, te.Tensor)}

    def tensor(self, t: Any) -> np.ndarray:
        if t not in self.tensors:
            self.stage(t.op)
        return self.tensors[t]

    def size(self, e: Any) -> int:
        return int(self.value(e, {}))

    def stage(self, op: Any) -> None:
        if isinstance(op, te.ExternOp):
            self.loops(op)
            return
        first = op.body[0]
        axes = [*op.axis, *(first.axis if isinstance(first, Reduce) else ())]
        extents = [self.size(a.dom.extent) for a in axes]
        env: dict[Any, Any] = {}
        for k, (a, n) in enumerate(zip(axes, extents)):
            shape = [1] * len(axes)
            shape[k] = n
            env[a.var] = (np.arange(n) + self.size(a.dom.min)).astype(a.var.dtype).reshape(shape)
        out_shape = extents[: len(op.axis)]
        with np.errstate(all="ignore"):
            for t, body in zip(op.outputs, op.body):
                dtype = dt.to_numpy(t.dtype)
                if isinstance(body, Reduce):
                    self.tensors[t] = self.reduction(body, env, extents, len(op.axis)).astype(dtype)
                else:
                    value = np.asarray(self.value(body, env)).astype(dtype)
                    self.tensors[t] = np.broadcast_to(value, out_shape).copy()

    def loops(self, op: Any) -> None:
        """A stage given as loops: the interpreter runs it on its own."""
        inputs = [te.placeholder(t.shape, t.dtype, name=f"in{k}") for k, t in enumerate(op.inputs)]
        again = replace(op, inputs=tuple(inputs), outputs=[])
        again.outputs.extend(te.Tensor(again, i, b.shape, b.dtype) for i, b in enumerate(op.output_buffers))
        arrays = [np.ascontiguousarray(self.tensor(t)) for t in op.inputs]
        outs = [np.zeros([self.size(d) for d in b.shape], dt.to_numpy(b.dtype)) for b in op.output_buffers]
        told = {d for t in [*inputs, *again.outputs] for d in t.shape if isinstance(d, ex.Var)}
        scalars = [v for v in self.vars if v not in told]
        f = te.create_prim_func([*inputs, *again.outputs, *scalars])
        interpret(f, *arrays, *outs, *(int(self.vars[v]) for v in scalars))
        self.tensors.update(zip(op.outputs, outs))

    def reduction(self, r: Reduce, env: dict[Any, Any], extents: list[int], n: int) -> np.ndarray:
        assert len(r.source) == 1
        values = np.broadcast_to(np.asarray(self.value(r.source[0], env)), extents)
        dtype = dt.to_numpy(r.source[0].dtype)
        axes = tuple(range(n, len(extents)))
        result = r.combiner.result[0]
        if isinstance(result, ex.Add):
            wide = np.float64 if np.issubdtype(dtype, np.floating) else dtype
            return values.sum(axis=axes, dtype=wide)
        if isinstance(result, ex.Mul):
            return values.prod(axis=axes, dtype=dtype)
        if isinstance(result, (ex.Max, ex.Min)):
            start = self.value(r.combiner.identity_element[0], {})
            f = np.max if isinstance(result, ex.Max) else np.min
            return f(values, axis=axes, initial=start)
        f = np.logical_and if isinstance(result, ex.And) else np.logical_or
        return fold(lambda v, a: f.reduce(v, axis=a), reversed(axes), values)

    def value(self, e: Any, env: dict[Any, Any]) -> Any:
        kind = type(e)
        if isinstance(e, ex.Var):
            return env[e] if e in env else self.vars[e]
        if kind is ex.IntImm or kind is ex.FloatImm:
            return dt.to_numpy(e.dtype).type(e.value)
        if isinstance(e, ProducerLoad):
            source = self.tensor(e.producer)
            if source.size == 0:
                return np.zeros((), source.dtype)
            index = [np.clip(self.value(i, env), 0, max(n - 1, 0)) for i, n in zip(e.indices, source.shape)]
            return source[tuple(index)] if index else source[()]
        if kind in (ex.Div, ex.Mod):
            a, b = self.value(e.a, env), self.value(e.b, env)
            if dt.is_float(e.dtype):
                return np.divide(a, b)
            b = np.where(b == 0, 1, b)
            q = _trunc_div(a, b)
            return q if kind is ex.Div else a - q * b
        if kind in _BINARY:
            return _BINARY[kind](self.value(e.a, env), self.value(e.b, env))
        if kind is ex.Not:
            return np.logical_not(self.value(e.a, env))
        if kind is ex.Select:
            return np.where(*(self.value(x, env) for x in (e.condition, e.true_value, e.false_value)))
        if kind is ex.Let:
            return self.value(e.body, {**env, e.var: self.value(e.value, env)})
        if kind is ex.Cast:
            return np.asarray(self.value(e.value, env)).astype(dt.to_numpy(e.dtype))
        if kind is ex.Call:
            args = [self.value(a, env) for a in e.args]
            if e.op.name == "tir.if_then_else":
                return np.where(*args)
            row = intrin.get(e.op)
            assert row is not None
            assert row.numpy is not None
            return np.asarray(row.numpy(*args)).astype(dt.to_numpy(e.dtype))
        raise TypeError(f"no rule for {kind.__name__}")


def evaluate(outputs: Any, env: dict[Any, Any]) -> list[np.ndarray]:
    """The arrays of the tensors, given those of the placeholders."""
    machine = TensorEvaluator(env)
    return [machine.tensor(t) for t in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


__all__ = ["TensorEvaluator", "evaluate", "tir"]
