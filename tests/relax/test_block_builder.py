"""BlockBuilder: normal form, inference, checks, kernels, and its price."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.relax.graphs import array, function, names, op, symbol, tensor, weights
from tilewright import te
from tilewright.relax import ir as R
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.evaluate import evaluate
from tilewright.relax.struct_info import PrimStructInfo, TensorStructInfo, TupleStructInfo, as_ints, sinfo_equal
from tilewright.relax.values import const, convert
from tilewright.relax.verify import well_formed
from tilewright.support.diagnostics import CompileError


def test_nested_calls_are_bound():
    x = tensor("x", 3, 4)
    mod = function([x], lambda bb: op("nn.relu", op("add", x, op("exp", x))))
    assert names(mod) == ["exp", "add", "nn.relu"]
    assert well_formed(mod)
    f = mod["main"]
    assert f.attrs["global_symbol"] == "main"
    assert sinfo_equal(f.ret_struct_info, TensorStructInfo((3, 4)))
    block = f.body.blocks[0]
    assert isinstance(block, R.DataflowBlock)
    assert [type(b.var) for b in block.bindings] == [R.DataflowVar, R.DataflowVar, R.Var]
    assert [b.var.name_hint for b in block.bindings] == ["lv", "lv1", "gv"]
    np.testing.assert_allclose(evaluate(mod, array(0, 3, 4)), np.maximum(array(0, 3, 4) + np.exp(array(0, 3, 4)), 0))


def test_tuples_and_outputs():
    x = tensor("x", 2, 3)
    bb = BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            t = bb.emit(R.Tuple((x, op("exp", x))))
            y = bb.emit(R.TupleGetItem(t, 1))
            out = bb.emit_output(y)
        bb.emit_func_output((out, x))
    f = bb.get()["main"]
    assert isinstance(f.ret_struct_info, TupleStructInfo)
    assert bb.lookup_binding(y).index == 1
    assert well_formed(bb.get())
    got = evaluate(bb.get(), array(0, 2, 3))
    np.testing.assert_allclose(got[0], np.exp(got[1]))


def test_symbolic_check_is_emitted_once():
    n, m = symbol("n"), symbol("m")
    x, y = tensor("x", n, 4), tensor("y", m, 4)
    mod = function([x, y], lambda bb: op("multiply", op("add", x, y), y))
    assert names(mod) == ["ShapeExpr", "add", "multiply"]
    assert isinstance(mod["main"].body.blocks[0].bindings[0], R.MatchCast)
    np.testing.assert_allclose(evaluate(mod, array(0, 5, 4), array(1, 5, 4)).shape, (5, 4))
    with pytest.raises(CompileError, match="TW0211"):
        evaluate(mod, array(0, 5, 4), array(1, 6, 4))


def test_inference_errors_name_the_operator():
    x = tensor("x", 1, 64, 56, 56)
    with pytest.raises(
        CompileError, match=r"add: operands of shapes \(1, 64, 56, 56\) and \(3,\) do not broadcast: 56 differs from 3"
    ):
        function([x], lambda bb: op("add", x, weights(0, 3)))


def test_missing_output():
    bb = BlockBuilder()
    with pytest.raises(CompileError, match="TW0210"), bb.function("main", [tensor("x", 2)]):
        pass
    assert len(bb.get()) == 0


def test_match_cast_binds_symbols():
    n = symbol("n")
    x = R.Var("x", TensorStructInfo(None, "float32", 2))

    def build(bb):
        y = bb.match_cast(x, TensorStructInfo((n, 4)))
        return op("add", y, y)

    mod = function([x], build)
    assert well_formed(mod)
    assert evaluate(mod, array(0, 7, 4)).shape == (7, 4)
    with pytest.raises(CompileError, match="TW0211"):
        evaluate(mod, array(0, 7, 5))


def test_if():
    c, x = tensor("c", dtype="bool"), tensor("x", 3)
    mod = function(
        [c, x], lambda bb: bb.emit_if(c, lambda: op("exp", x), lambda: op("negative", op("exp", x))), dataflow=False
    )
    assert well_formed(mod)
    v = array(0, 3)
    np.testing.assert_allclose(evaluate(mod, np.array(True), v), np.exp(v))
    np.testing.assert_allclose(evaluate(mod, np.array(False), v), -np.exp(v))


def test_emit_te_shares_kernels_and_inlines_scalars():
    n = symbol("n")
    x = tensor("x", n, 4)
    y = tensor("y", (n + 1) // 2, 4)

    def scale(a, s):
        return te.compute(a.shape, lambda i, j: a[i, j] * s[0], name="scaled")

    def build(bb):
        a = bb.emit_te(scale, x, const([2.0]))
        b = bb.emit_te(scale, a, const([2.0]))
        return b, bb.emit_te(scale, y, const([2.0]), primfunc_name_hint="half")

    mod = function([x, y], build)
    assert [v.name_hint for v in mod.functions] == ["scale", "half", "main"]
    assert len(mod["scale"].params) == 2
    assert [len(b.value.args) for b in mod["main"].body.blocks[0].bindings if hasattr(b.value, "args")] == [2, 2, 3]
    v, w = array(0, 5, 4), array(1, 3, 4)
    got = evaluate(mod, v, w)
    np.testing.assert_allclose(got[0], v * 4)
    np.testing.assert_allclose(got[1], w * 2)


def test_convert():
    assert isinstance(convert(3), R.PrimValue)
    assert isinstance(convert((1, symbol("n"))), R.ShapeExpr)
    assert isinstance(convert(np.zeros(3)), R.Constant)
    assert isinstance(convert([tensor("x", 1), np.zeros(2)]), R.Tuple)
    assert isinstance(convert("same"), R.StringImm)
    assert as_ints(convert((1, 2)).values) == (1, 2)
    assert isinstance(convert(2.5).struct_info, PrimStructInfo)
    assert const(1.5).data.dtype == np.float32
    assert const([1, 2]).data.dtype == np.int32
    assert const(1 << 40).data.dtype == np.int64
    with pytest.raises(TypeError):
        convert(object())


def test_five_hundred_bindings_are_cheap():
    x = tensor("x", 1, 64, 56, 56)

    def build(bb):
        v = x
        for _ in range(500):
            v = bb.emit(op("add", v, x))
        return v

    start = time.perf_counter()
    function([x], build)
    assert time.perf_counter() - start < 0.5
