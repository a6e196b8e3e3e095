"""Operators of Python on expressions, shape values, lifted parameters, the verifier's findings."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relax.graphs import array, evaluate, function, names, op, problems, same, symbol, tensor, weights
from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.relax import ir as R
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.dims import prove_equal, show_shape
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.transform import FoldConstant, LiftTransformParams
from tilewright.relax.transform.inline_functions import inline_functions
from tilewright.relax.transform.shape_values import ShapeValues
from tilewright.relax.values import const
from tilewright.support.diagnostics import CompileError


def test_python_operators():
    x = tensor("x", 2, 3)
    mod = function([x], lambda bb: -(x * 2 + 1.5) / (x - x**2 - 4.0))
    v = array(0, 2, 3)
    np.testing.assert_allclose(evaluate(mod, v), -(v * 2 + 1.5) / (v - v**2 - 4.0), rtol=1e-5)
    compare = function([x], lambda bb: (x > 0.0).astype("int32"))
    np.testing.assert_array_equal(evaluate(compare, v), (v > 0).astype(np.int32))
    t = R.Var("t", R.Tuple((x, x), struct_info=None).struct_info)
    with pytest.raises(TypeError, match="only a tuple"):
        t[0]


def test_functions_of_the_module_are_called():
    x = tensor("x", symbol("n"), 3)
    y = tensor("y", 4, 3)
    bb = BlockBuilder()
    with bb.function("twice", [x]):
        bb.emit_func_output(bb.emit(op("add", x, x)))
    gv = bb.get().get_global_var("twice")
    with bb.function("main", [y]):
        z = bb.emit(gv(y))
        bb.emit_func_output(z)
    assert show_shape(z.struct_info.shape) == "(4, 3)"
    assert problems(bb.get()) == []
    np.testing.assert_allclose(evaluate(bb.get(), array(0, 4, 3)), 2 * array(0, 4, 3))


def test_functions_are_inlined():
    n = symbol("n")
    x = tensor("x", n, 3)
    y = tensor("y", 4, 3)
    bb = BlockBuilder()
    with bb.function("twice", [x], private=True):
        with bb.dataflow():
            out = bb.emit_output(op("add", x, op("exp", x)))
        bb.emit_func_output(out)
    twice = bb.get().get_global_var("twice")
    with bb.function("outer", [x], private=True):
        bb.emit_func_output(bb.emit(twice(bb.emit(twice(x)))))
    outer = bb.get().get_global_var("outer")
    with bb.function("main", [y]):
        with bb.dataflow():
            z = bb.emit_output(op("add", outer(y), twice(y)))
        bb.emit_func_output(z)
    mod = bb.get()
    new = inline_functions(mod)
    assert names(new) == ["exp", "add"] * 3 + ["add"] or sorted(names(new)) == sorted(["exp", "add"] * 3 + ["add"])
    same(mod, new, array(0, 4, 3))


def chain(build):
    """The last value of a graph on x: [n, 4, m], as ShapeValues knows it."""
    n, m = symbol("n"), symbol("m")
    x = tensor("x", n, 4, m)
    mod = function([x], lambda bb: build(bb, bb.emit(op("shape_to_tensor", bb.emit(op("shape_of", x))))))
    values = ShapeValues()
    for block in mod["main"].body.blocks:
        for b in block.bindings:
            values.record(b.var, b.value)
    return values.values(mod["main"].body.blocks[-1].bindings[-1].var), n, m, mod


def test_shape_chain():
    def build(bb, s):
        first = bb.emit(op("take", s, const(np.array([0, 2], np.int64)), axis=0))
        doubled = bb.emit(op("multiply", first, const(np.array([1, 2], np.int64))))
        return op("concat", R.Tuple((doubled, const(np.array([8], np.int64)))), axis=0)

    got, n, m, mod = chain(build)
    assert len(got) == 3
    assert got[0] is n
    assert prove_equal(got[1], m * 2)
    assert got[2] == 8
    np.testing.assert_array_equal(evaluate(mod, array(0, 3, 4, 5)), [3, 10, 8])


@pytest.mark.parametrize(
    "build, want",
    [
        (lambda bb, s: op("prod", s), lambda n, m: n * 4 * m),
        (lambda bb, s: op("max", op("strided_slice", s, (0,), (2,), axes=(0,))), None),
        (lambda bb, s: op("sum", op("astype", op("equal", s, s), dtype="int64")), lambda n, m: 3),
        (
            lambda bb, s: op("divide", op("take", s, const(np.array(2)), axis=0), const(np.array(2))),
            lambda n, m: m // 2,
        ),
    ],
)
def test_shape_arithmetic(build, want):
    got, n, m, mod = chain(build)
    if want is not None:
        assert prove_equal(got.reshape(-1)[0], want(n, m))
    assert int(evaluate(mod, array(0, 3, 4, 5)).reshape(-1)[0]) >= 0


def test_what_is_known_of_shapes_is_folded():
    x = tensor("x", symbol("n"), 4)

    def build(bb):
        s = bb.emit(op("shape_to_tensor", op("shape_of", x)))
        four = bb.emit(op("take", s, const(np.array([1])), axis=0))
        return op("add", x, op("astype", four, dtype="float32"))

    mod = function([x], build)
    new = FoldConstant()(mod)
    assert "take" not in names(new)
    same(mod, new, array(0, 3, 4))


def test_lift_transform_params():
    x, w, b = tensor("x", 2, 3), tensor("w", 4, 3), tensor("b", 4)

    def build(bb):
        t = bb.emit(op("permute_dims", op("exp", w), axes=(1, 0)))
        return op("add", op("matmul", x, t), b)

    mod = function([x, w, b], build)
    mod = IRModule({gv: f.with_attr("num_input", 1) for gv, f in mod.functions.items()})
    new = LiftTransformParams()(mod)
    assert names(new, "main_transform_params")[-3:-1] == ["exp", "permute_dims"]
    assert "exp" not in names(new)
    assert problems(new) == []
    args = array(0, 2, 3), array(1, 4, 3), array(2, 4)
    lifted = evaluate(new, args[1:], func="main_transform_params")
    np.testing.assert_allclose(evaluate(new, args[0], *lifted), evaluate(mod, *args), rtol=1e-6)


def found(f):
    return "; ".join(d.message for d in problems(f))


def test_the_verifier_finds_faults():
    x = tensor("x", 3)
    f = function([x], lambda bb: op("exp", op("sin", x)))["main"]
    block = f.body.blocks[0]
    backwards = replace(f, body=replace(f.body, blocks=(replace(block, bindings=block.bindings[::-1]),)))
    assert "before it is bound" in found(backwards)
    twice = replace(f, body=replace(f.body, blocks=(replace(block, bindings=(*block.bindings, block.bindings[0])),)))
    assert "bound twice" in found(twice)
    outside = replace(f, body=replace(f.body, body=block.bindings[0].var))
    assert "outside of its dataflow block" in found(outside)
    lost = replace(f, params=(R.Var("x", TensorStructInfo((symbol("k") + 1,))),))
    assert "mentions k" in found(lost)
    nested = replace(f, body=R.SeqExpr((), op("exp", x)))
    assert "nested Call" in found(nested)
    unknown = R.Call(R.GlobalVar("nothing"), (x,), struct_info=TensorStructInfo((3,)))
    call = R.VarBinding(R.Var("y", TensorStructInfo((3,))), unknown)
    assert "which the module does not have" in found(replace(f, body=R.SeqExpr((R.BindingBlock((call,)),), call.var)))


def test_wrong_tuple_index():
    x = tensor("x", 3)
    with pytest.raises(CompileError, match="TW0214"):
        function([x], lambda bb: R.TupleGetItem(bb.emit(R.Tuple((x, weights(0, 3)))), 5))


def test_analysis():
    from tilewright.relax import analysis

    n = symbol("n")
    x, y = tensor("x", n, 4), tensor("y", n, 4)
    f = function([x], lambda bb: op("add", op("exp", x), y))["main"]
    assert [v.name_hint for v in analysis.bound_vars(f)] == ["x", "lv", "gv"]
    assert analysis.free_vars(f) == [y]
    assert analysis.defined_symbolic_vars(f) == [n]
    assert analysis.free_symbolic_vars(f) == []
    assert [v.name_hint for v in analysis.udchain(f)[x]] == ["lv"]
    assert set(analysis.name_to_binding(f)) == {"lv", "gv"}
    assert analysis.get_var2val(f)[f.body.body].op.name == "add"
    assert not analysis.contains_impure_call(f)
