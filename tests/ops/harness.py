"""Running one sample of an operator: inference, its tensor expression or its lowering, by an oracle."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import te
from tilewright.arith.expr import IntImm, PrimExpr, SizeVar
from tilewright.relax import ir as R
from tilewright.relax.op import Op, Sample
from tilewright.relax.struct_info import ShapeStructInfo, TensorStructInfo, TupleStructInfo
from tilewright.relax.values import convert
from tilewright.tir.interp import interpret

_spec = importlib.util.spec_from_file_location("ops_te_eval", Path(__file__).with_name("te_eval.py"))
assert _spec is not None
assert _spec.loader is not None
te_eval = importlib.util.module_from_spec(_spec)
sys.modules.setdefault("ops_te_eval", te_eval)
_spec.loader.exec_module(te_eval)


def is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic))


def graph_operand(x: Any) -> Any:
    """A sample's operand as a graph expression."""
    if isinstance(x, list) and x and is_array(x[0]):
        return R.Tuple(tuple(graph_operand(v) for v in x), struct_info=TupleStructInfo(tuple(_sinfo(v) for v in x)))
    if is_array(x):
        return R.Var("x", struct_info=_sinfo(x))
    return convert(x)


def _sinfo(x: Any) -> TensorStructInfo:
    return TensorStructInfo(tuple(int(d) for d in x.shape), str(x.dtype))


def infer(sample: Sample) -> Any:
    return sample.op.infer(*(graph_operand(a) for a in sample.args))


def expected(sample: Sample) -> list[np.ndarray]:
    out = sample.op.reference(*sample.args)
    return [np.asarray(o) for o in out] if isinstance(out, (tuple, list)) else [np.asarray(out)]


class Builder:
    """Stands in for the BlockBuilder while an operator lowers: evaluates each call at once by the oracle.

    `symbolic` makes every dimension of the operands a variable, so that kernels are made for any size.
    """

    def __init__(self, oracle: str = "te", symbolic: bool = False) -> None:
        self.oracle, self.symbolic = oracle, symbolic
        self.values: dict[int, Any] = {}
        self.keep: list[Any] = []

    def wrap(self, value: Any) -> Any:
        """A graph expression that stands for arrays."""
        e = graph_operand(list(value)) if isinstance(value, (list, tuple)) else graph_operand(value)
        if isinstance(e, R.Tuple):
            e = R.Var("t", struct_info=e.struct_info)
        self.values[id(e)] = list(value) if isinstance(value, (list, tuple)) else value
        self.keep.append(e)
        return e

    def array(self, e: Any) -> Any:
        if id(e) in self.values:
            return self.values[id(e)]
        if isinstance(e, R.Constant):
            return e.data
        if isinstance(e, R.Tuple):
            return [self.array(f) for f in e.fields]
        if isinstance(e, R.ShapeExpr):
            return np.array([int(v) for v in e.values], np.int64)
        if isinstance(e, R.TupleGetItem):
            return self.array(e.tuple_value)[e.index]
        if isinstance(e, R.Call):
            return self.run_call(e)
        raise TypeError(f"no value for {type(e).__name__}")

    def emit(self, e: Any, name_hint: str = "") -> Any:
        return self.wrap(self.array(e))

    def normalize(self, e: Any) -> Any:
        return self.emit(e) if isinstance(e, (R.Call, R.TupleGetItem)) else e

    def run_call(self, call: R.Call) -> Any:
        op = call.op
        assert isinstance(op, Op)
        args = []
        for a in call.args:
            if isinstance(a, (R.Call, R.TupleGetItem)):
                a = self.emit(a)
            elif isinstance(a, R.Tuple):
                fields = [self.emit(f) if isinstance(f, (R.Call, R.TupleGetItem)) else f for f in a.fields]
                a = R.Tuple(tuple(fields), struct_info=TupleStructInfo(tuple(f.struct_info for f in fields)))
            args.append(a)
        si = op.infer(*args)
        out = self.array(op.lower(self, *args))
        check_info(si, out if isinstance(out, (list, tuple)) else [out])
        return out

    def call_te(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        env: dict[Any, Any] = {}
        order: list[tuple[Any, Any]] = []
        symbols: dict[int, Any] = {}

        def dim(n: int) -> PrimExpr:
            if not self.symbolic:
                return IntImm("int64", n)
            if n not in symbols:
                symbols[n] = SizeVar(f"n{n}", "int64")
                env[symbols[n]] = np.int64(n)
            return symbols[n]

        def place(x: Any) -> Any:
            if isinstance(x, (R.ShapeExpr,)):
                return tuple(x.values)
            if isinstance(x, R.PrimValue):
                return x.value
            if isinstance(x, R.Tuple):
                return [place(f) for f in x.fields]
            if not isinstance(x, R.Expr):
                return x
            value = self.array(x)
            if isinstance(value, list):
                return [place(self.wrap(v)) for v in value]
            t = te.placeholder(tuple(dim(n) for n in value.shape), str(value.dtype), name=f"p{len(order)}")
            env[t] = value
            order.append((t, value))
            return t

        outs = func(*(place(a) for a in args), **kwargs)
        several = isinstance(outs, (list, tuple))
        tensors = list(outs) if several else [outs]
        if self.oracle == "te":
            results = te_eval.evaluate(tensors, env)
        else:
            results = self.interpret([t for t, _ in order], [v for _, v in order], tensors, env)
        return self.wrap(list(results) if several else results[0])

    def interpret(self, inputs: list[Any], arrays: list[Any], tensors: list[Any], env: dict[Any, Any]) -> list[Any]:
        scalars = [v for v in env if isinstance(v, SizeVar)]
        known = {d for t in [*inputs, *tensors] for d in t.shape if isinstance(d, SizeVar)}
        scalars = [v for v in scalars if v not in known]
        f = te.create_prim_func([*inputs, *tensors, *scalars])
        machine = te_eval.TensorEvaluator(env)
        outs = [np.zeros([machine.size(d) for d in t.shape], te_eval.dt.to_numpy(t.dtype)) for t in tensors]
        interpret(f, *(np.array(a) for a in arrays), *outs, *(int(env[v]) for v in scalars))
        return outs


def check_info(si: Any, outs: list[np.ndarray]) -> None:
    """Does the struct info say what the arrays are?"""
    infos = list(si.fields) if isinstance(si, TupleStructInfo) else [si]
    assert len(infos) == len(outs), f"{len(infos)} results inferred, {len(outs)} given"
    for i, o in zip(infos, outs):
        if isinstance(i, ShapeStructInfo):
            assert [int(v) for v in i.values or ()] == list(o)
            continue
        assert i.dtype == str(o.dtype), f"dtype {i.dtype} inferred, {o.dtype} given"
        assert i.shape is not None
        shape = tuple(int(d) for d in i.shape)
        assert shape == o.shape, f"shape {shape} inferred, {o.shape} given"


def compute(sample: Sample, oracle: str = "te", symbolic: bool = False) -> list[np.ndarray]:
    """The results of the operator's lowering, by the oracle ("te" or "interp")."""
    b = Builder(oracle, symbolic)

    def operand(x: Any) -> Any:
        if isinstance(x, list) and x and is_array(x[0]):
            made = [b.wrap(v) for v in x]
            return R.Tuple(tuple(made), struct_info=TupleStructInfo(tuple(m.struct_info for m in made)))
        return b.wrap(np.asarray(x)) if is_array(x) else convert(x)

    out = b.array(sample.op.lower(b, *(operand(a) for a in sample.args)))
    return list(out) if isinstance(out, (list, tuple)) else [out]


def assert_close(got: list[np.ndarray], want: list[np.ndarray], sample: Sample) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.dtype == w.dtype, f"dtype {g.dtype}, needs {w.dtype}"
        assert g.shape == w.shape, f"shape {g.shape}, needs {w.shape}"
        if np.issubdtype(w.dtype, np.floating) or w.dtype.kind == "V":
            half = w.dtype.itemsize == 2
            rtol, atol = (max(sample.rtol, 2e-3), max(sample.atol, 1e-3)) if half else (sample.rtol, sample.atol)
            np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(g, w)
