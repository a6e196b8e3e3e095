"""The reference evaluator of graph functions: numpy, one binding after the other. The oracle for graph passes.

An operator is its `reference`, a `call_tir` runs the reference interpreter of the loop IR, a packed call the registry's
function. Slow and plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.arith import expr as E
from tilewright.arith.expr import PrimExpr
from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule
from tilewright.relax import ir as R
from tilewright.relax.calls import CallDPSPacked, CallPacked, CallPurePacked, CallTIR, CallTIRInplace
from tilewright.relax.dims import show_dim
from tilewright.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    describe,
)
from tilewright.support.diagnostics import CompileError

__all__ = ["evaluate", "evaluate_dim"]

_BINARY: dict[type, Any] = {
    E.Add: lambda a, b: a + b,
    E.Sub: lambda a, b: a - b,
    E.Mul: lambda a, b: a * b,
    E.FloorDiv: lambda a, b: a // b,
    E.FloorMod: lambda a, b: a % b,
    E.Min: min,
    E.Max: max,
    E.EQ: lambda a, b: a == b,
    E.NE: lambda a, b: a != b,
    E.LT: lambda a, b: a < b,
    E.LE: lambda a, b: a <= b,
    E.GT: lambda a, b: a > b,
    E.GE: lambda a, b: a >= b,
    E.And: lambda a, b: a and b,
    E.Or: lambda a, b: a or b,
}


def evaluate_dim(e: Any, symbols: Mapping[E.Var, int]) -> Any:
    """The number that a scalar expression is, its symbols having these values."""
    if isinstance(e, (E.IntImm, E.FloatImm)):
        return e.value
    if isinstance(e, E.Var):
        if e not in symbols:
            raise CompileError.at("TW0211", f"the dimension {e.name} has no value here")
        return symbols[e]
    if isinstance(e, E.Cast):
        value = evaluate_dim(e.value, symbols)
        return int(value) if dt.is_int(e.dtype) else float(value)
    if isinstance(e, (E.Div, E.Mod)):
        a, b = evaluate_dim(e.a, symbols), evaluate_dim(e.b, symbols)
        if dt.is_float(e.dtype):
            return a / b
        q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return q if isinstance(e, E.Div) else a - q * b
    if isinstance(e, E.Select):
        return evaluate_dim(e.true_value if evaluate_dim(e.condition, symbols) else e.false_value, symbols)
    if isinstance(e, E.Not):
        return not evaluate_dim(e.a, symbols)
    if isinstance(e, (E.BinaryOp, E.CmpOp)):
        return _BINARY[type(e)](evaluate_dim(e.a, symbols), evaluate_dim(e.b, symbols))
    if isinstance(e, E.Call) and getattr(e.op, "name", "") == "tir.if_then_else":
        return evaluate_dim(e.args[1] if evaluate_dim(e.args[0], symbols) else e.args[2], symbols)
    raise CompileError.at("TW0211", f"cannot evaluate the scalar {show_dim(e)}")


def evaluate(mod: IRModule | R.Function, *args: Any, func: str = "main") -> Any:
    """Run a graph function on numpy arrays (numbers for scalars, tuples for tuples and shapes): arrays, or tuples of them.

    Raises CompileError (TW0211) where an argument contradicts its struct info.
    """
    if isinstance(mod, R.Function):
        mod = IRModule({R.GlobalVar("main"): mod})
        func = "main"
    return _Evaluator(mod).function(mod[func], args)


class _Evaluator:
    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.env: dict[R.Var, Any] = {}
        self.symbols: dict[E.Var, int] = {}

    def function(self, f: R.Function, args: Sequence[Any]) -> Any:
        if len(args) != len(f.params):
            raise CompileError.at("TW0211", f"the function takes {len(f.params)} arguments, got {len(args)}")
        for p, a in zip(f.params, args):
            self.env[p] = a
            self.bind(p.struct_info, a, p.name_hint)
        return self.value(f.body)

    def bind(self, si: StructInfo | None, value: Any, name: str) -> None:
        """Check a value against its struct info; unknown symbols get their values."""
        if isinstance(si, TupleStructInfo):
            for i, (field, v) in enumerate(zip(si.fields, value)):
                self.bind(field, v, f"{name}[{i}]")
        elif isinstance(si, TensorStructInfo):
            if si.dtype and str(value.dtype) != si.dtype:
                raise CompileError.at("TW0211", f"{name} has dtype {value.dtype}, needs {si.dtype}")
            if si.shape is not None:
                self._bind_shape(si.shape, value.shape, name)
        elif isinstance(si, ShapeStructInfo) and si.values is not None:
            self._bind_shape(si.values, value, name)
        elif isinstance(si, PrimStructInfo) and isinstance(si.value, E.Var):
            self.symbols.setdefault(si.value, value)

    def _bind_shape(self, want: Sequence[PrimExpr], got: Sequence[int], name: str) -> None:
        if len(want) != len(got):
            raise CompileError.at("TW0211", f"{name} has {len(got)} dimensions, needs {len(want)}")
        later: list[tuple[PrimExpr, int]] = []
        for w, g in zip(want, got):
            if isinstance(w, E.Var) and w not in self.symbols:
                self.symbols[w] = int(g)
            else:
                later.append((w, g))
        for w, g in later:
            needed = evaluate_dim(w, self.symbols)
            if needed != g:
                raise CompileError.at("TW0211", f"{name}: dimension {show_dim(w)} has to be {needed}, is {g}")

    def value(self, e: Any) -> Any:
        if isinstance(e, R.Var):
            return self.env[e]
        if isinstance(e, R.Constant):
            return e.data
        if isinstance(e, R.ShapeExpr):
            return tuple(int(evaluate_dim(d, self.symbols)) for d in e.values)
        if isinstance(e, R.PrimValue):
            return evaluate_dim(e.value, self.symbols)
        if isinstance(e, (R.StringImm, R.DataTypeImm)):
            return e.value
        if isinstance(e, R.Tuple):
            return tuple(self.value(f) for f in e.fields)
        if isinstance(e, R.TupleGetItem):
            return self.value(e.tuple_value)[e.index]
        if isinstance(e, R.If):
            return self.value(e.true_branch if bool(np.asarray(self.value(e.cond)).reshape(())) else e.false_branch)
        if isinstance(e, R.SeqExpr):
            return self.sequence(e)
        if isinstance(e, R.Call):
            return self.call(e)
        raise TypeError(f"cannot evaluate {type(e).__name__}")

    def sequence(self, e: R.SeqExpr) -> Any:
        for block in e.blocks:
            for b in block.bindings:
                if isinstance(b, R.MatchCast):
                    value = self.value(b.value)
                    self.bind(b.struct_info, value, b.var.name_hint)
                else:
                    assert isinstance(b, R.VarBinding)
                    value = self.value(b.value)
                    self.check(b.var, value)
                self.env[b.var] = value
        return self.value(e.body)

    def check(self, var: R.Var, value: Any) -> None:
        """What was inferred has to be true."""
        si = var.struct_info
        if isinstance(si, TensorStructInfo) and isinstance(value, np.ndarray) and si.shape is not None:
            shape = tuple(evaluate_dim(d, self.symbols) for d in si.shape)
            if shape != value.shape or str(value.dtype) != si.dtype:
                raise CompileError.at(
                    "TW0211", f"{var.name_hint} is {value.shape} {value.dtype}, but {describe(si)} {shape} was inferred"
                )

    def call(self, e: R.Call) -> Any:
        op = e.op
        if isinstance(op, (CallTIR, CallTIRInplace)):
            return self.kernel(e)
        if isinstance(op, (CallPacked, CallPurePacked, CallDPSPacked)):
            return self.packed(e)
        if isinstance(op, R.GlobalVar):
            return _Evaluator(self.mod).function(self.mod[op], [self.value(a) for a in e.args])
        result = op.reference(*(self.value(a) for a in e.args))
        return self.tidy(result, e.struct_info)

    def tidy(self, result: Any, si: StructInfo | None) -> Any:
        """Numpy's results as arrays of the dtype that was inferred (numpy scalars and Python numbers among them)."""
        if isinstance(si, TupleStructInfo):
            return tuple(self.tidy(r, f) for r, f in zip(result, si.fields))
        if isinstance(si, TensorStructInfo):
            made = np.asarray(result)
            return made.astype(dt.to_numpy(si.dtype)) if si.dtype and str(made.dtype) != si.dtype else made
        return tuple(int(v) for v in result) if isinstance(si, ShapeStructInfo) else result

    def outputs(self, e: R.Call) -> tuple[list[np.ndarray[Any, Any]], bool]:
        si = e.sinfo_args[0] if len(e.sinfo_args) == 1 else TupleStructInfo(e.sinfo_args)
        infos = si.fields if isinstance(si, TupleStructInfo) else (si,)
        arrays: list[np.ndarray[Any, Any]] = []
        for info in infos:
            assert isinstance(info, TensorStructInfo)
            assert info.shape is not None
            shape = tuple(int(evaluate_dim(d, self.symbols)) for d in info.shape)
            arrays.append(np.zeros(shape, dt.to_numpy(info.dtype)))
        return arrays, isinstance(si, TupleStructInfo)

    def kernel(self, e: R.Call) -> Any:
        from tilewright.tir.interp import interpret

        f = self.mod[e.args[0]]  # pyright: ignore[reportArgumentType]
        inputs: Any = self.value(e.args[1])
        scalars = self.value(e.args[2]) if len(e.args) > 2 else ()
        outs, many = self.outputs(e)
        interpret(f, *(np.array(a, order="C") for a in inputs), *outs, *scalars)
        return tuple(outs) if many else outs[0]

    def packed(self, e: R.Call) -> Any:
        from tilewright.runtime.registry import get_global_func

        target = e.args[0]
        assert isinstance(target, R.ExternFunc)
        func = get_global_func(target.global_symbol)
        if not isinstance(e.op, CallDPSPacked):
            return func(*(self.value(a) for a in e.args[1:]))
        outs, many = self.outputs(e)
        func(*self.value(e.args[1]), *outs)
        return tuple(outs) if many else outs[0]
