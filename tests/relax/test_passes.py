"""Graph passes: what they make of a function, and that it means the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relax.graphs import array, evaluate, function, kernels, names, op, problems, same, symbol, tensor, weights
from tilewright.ir.module import IRModule
from tilewright.ir.structure import assert_structural_equal
from tilewright.relax import ir as R
from tilewright.relax.calls import call_pure_packed
from tilewright.relax.op import OpPatternKind as K
from tilewright.relax.struct_info import TensorStructInfo, as_ints
from tilewright.relax.transform import (
    AnnotateTIROpPattern,
    BindParams,
    BindSymbolicVars,
    CanonicalizeBindings,
    ConvertToDataflow,
    DeadCodeElimination,
    EliminateCommonSubexpr,
    FoldConstant,
    FuseOps,
    FuseTIR,
    LegalizeOps,
    Normalize,
)
from tilewright.relax.values import const
from tilewright.relax.verify import verify_module, well_formed
from tilewright.support.diagnostics import CompileError

X = array(0, 3, 4)


def test_normalise():
    x = tensor("x", 3, 4)
    f = R.Function((x,), op("nn.relu", op("add", x, R.TupleGetItem(R.Tuple((x, op("exp", x))), 1))))
    mod = IRModule({R.GlobalVar("main"): f})
    assert not well_formed(mod)
    with pytest.raises(CompileError, match="TW0212"):
        verify_module(mod)
    new = Normalize()(mod)
    assert names(new) == ["exp", "add", "nn.relu"]
    assert problems(new) == []
    np.testing.assert_allclose(evaluate(new, X), np.maximum(X + np.exp(X), 0), rtol=1e-6)
    assert Normalize()(new) is new


def test_canonicalise():
    x = tensor("x", 3, 4)

    def build(bb):
        a = bb.emit(x)
        t = bb.emit(R.Tuple((a, bb.emit(op("exp", a)))))
        y = bb.emit(R.TupleGetItem(t, 1))
        z = bb.match_cast(y, TensorStructInfo((3, 4)))
        return bb.emit(op("negative", z))

    mod = function([x], build)
    new = DeadCodeElimination()(CanonicalizeBindings()(mod))
    assert names(new) == ["exp", "negative"]
    assert new["main"].body.blocks[0].bindings[-1].var is new["main"].body.body
    same(mod, new, X)
    want = function([x], lambda bb: op("negative", op("exp", x)))
    assert_structural_equal(new["main"].without_attr("global_symbol"), want["main"].without_attr("global_symbol"), True)


def test_dead_code_keeps_checks():
    n, m = symbol("n"), symbol("m")
    x, y = tensor("x", n), tensor("y", m)

    def build(bb):
        bb.emit(op("exp", x))
        bb.emit(op("add", x, y))
        bb.emit(call_pure_packed("f", x, sinfo_args=TensorStructInfo((n,))))
        return op("negative", x)

    mod = function([x, y], build)
    new = DeadCodeElimination()(mod)
    assert names(new) == ["ShapeExpr", "negative"]


def test_cse():
    x = tensor("x", 3, 4)

    def build(bb):
        a = bb.emit(op("add", op("exp", x), const(1.0)))
        b = bb.emit(op("add", op("exp", x), const(1.0)))
        c = bb.emit(op("add", op("exp", x), const(2.0)))
        return op("multiply", op("add", a, b), c)

    mod = function([x], build)
    new = EliminateCommonSubexpr()(mod)
    assert names(new).count("exp") == 1
    assert names(new).count("add") == 3
    same(mod, new, X)


def test_cse_stays_in_its_branch():
    c, x = tensor("c", dtype="bool"), tensor("x", 3)

    def build(bb):
        a = bb.emit_if(c, lambda: op("exp", x), lambda: op("negative", op("exp", x)))
        return bb.emit(op("add", a, op("exp", x)))

    mod = function([c, x], build, dataflow=False)
    new = EliminateCommonSubexpr()(mod)
    assert names(new).count("exp") == 3
    for flag in (True, False):
        same(mod, new, np.array(flag), array(0, 3))


def test_fold_constant():
    x = tensor("x", 3, 4)
    w = array(5, 4, 4)

    def build(bb):
        a = bb.emit(op("exp", const(w)))
        b = bb.emit(op("add", a, const(1.0)))
        return op("matmul", x, b)

    mod = function([x], build)
    new = FoldConstant()(mod)
    assert names(new) == ["matmul"]
    same(mod, new, X)


@pytest.mark.parametrize("flag", [True, False])
def test_fold_known_branch(flag):
    x = tensor("x", 3)
    mod = function(
        [x], lambda bb: bb.emit_if(const(np.array(flag)), lambda: op("exp", x), lambda: op("sin", x)), dataflow=False
    )
    new = CanonicalizeBindings()(FoldConstant()(mod))
    assert "If" not in names(new)
    same(mod, new, array(0, 3))


def test_bind_params():
    n = symbol("n")
    x, w = tensor("x", 3, 4), tensor("w", 4, n)
    mod = function([x, w], lambda bb: op("exp", op("matmul", x, w)))
    value = array(1, 4, 5)
    new = BindParams("main", {"w": value})(mod)
    assert [p.name_hint for p in new["main"].params] == ["x"]
    assert as_ints(new["main"].ret_struct_info.shape) == (3, 5)
    assert problems(new) == []
    np.testing.assert_allclose(evaluate(new, X), np.exp(X @ value), rtol=1e-5)
    with pytest.raises(CompileError, match="TW0213"):
        BindParams("main", {"nothing": value})(mod)
    with pytest.raises(CompileError, match="cannot be bound"):
        BindParams("main", {"w": array(1, 3, 5)})(mod)


def test_bind_symbolic_vars():
    n = symbol("n")
    x = tensor("x", n, 4)
    mod = function([x], lambda bb: op("exp", x))
    new = BindSymbolicVars({"n": 3})(mod)
    assert as_ints(new["main"].params[0].struct_info.shape) == (3, 4)
    assert as_ints(new["main"].ret_struct_info.shape) == (3, 4)
    same(mod, new, X)


def test_convert_to_dataflow():
    c, x = tensor("c", dtype="bool"), tensor("x", 3)

    def build(bb):
        y = bb.emit(op("exp", x))
        z = bb.emit_if(c, lambda: y, lambda: op("negative", y))
        return bb.emit(op("add", z, y))

    mod = function([c, x], build, dataflow=False)
    new = ConvertToDataflow()(mod)
    assert [type(b).__name__ for b in new["main"].body.blocks] == ["DataflowBlock", "BindingBlock", "DataflowBlock"]
    same(mod, new, np.array(True), array(0, 3))


def test_legalise_shares_kernels():
    x = tensor("x", 3, 4)
    mod = function([x], lambda bb: op("exp", op("exp", op("add", x, op("add", x, x)))))
    new = LegalizeOps()(mod)
    assert kernels(new) == ["add", "add1", "exp"]
    assert names(new) == ["add", "add1", "exp", "exp"]
    same(mod, new, X)


def test_legalise_custom():
    x = tensor("x", 3, 4)
    mod = function([x], lambda bb: op("exp", x))
    new = LegalizeOps({"relax.exp": lambda bb, call: op("sin", call.args[0])})(mod)
    np.testing.assert_allclose(evaluate(new, X), np.sin(X), rtol=1e-6)


@pytest.mark.parametrize(
    "build, kind",
    [
        (lambda x: op("exp", x), K.ELEMWISE),
        (lambda x: op("add", x, weights(0, 4)), K.BROADCAST),
        (lambda x: op("add", x, const(2.0)), K.ELEMWISE),
        (lambda x: op("sum", x, axis=(1,)), K.REDUCE),
        (lambda x: op("mean", x, axis=(0,), keepdims=True), K.REDUCE),
        (lambda x: op("matmul", x, weights(0, 4, 5)), K.OUT_FUSABLE),
        (lambda x: op("nn.softmax", x), K.OPAQUE),
        (lambda x: op("nn.layer_norm", x, weights(0, 4), weights(1, 4)), K.OPAQUE),
        (lambda x: op("variance", x, axis=(1,)), K.OPAQUE),
    ],
)
def test_op_pattern(build, kind):
    x = tensor("x", 3, 4)
    mod = AnnotateTIROpPattern()(LegalizeOps()(function([x], lambda bb: build(x))))
    (gv,) = [v for v in mod.functions if v.name_hint != "main"]
    assert mod[gv].attrs["op_pattern"] == kind


def test_conv_patterns():
    x = tensor("x", 1, 4, 6, 6)
    for call, kind in (
        (op("nn.conv2d", x, weights(0, 8, 4, 3, 3), padding=1), K.OUT_FUSABLE),
        (op("nn.conv2d", x, weights(0, 4, 1, 3, 3), padding=1, groups=4), K.OUT_FUSABLE),
        (op("nn.max_pool2d", x, pool_size=3, strides=2, padding=1), K.REDUCE),
    ):
        mod = AnnotateTIROpPattern()(LegalizeOps()(function([x], lambda bb, call=call: call)))
        (gv,) = [v for v in mod.functions if v.name_hint != "main"]
        assert mod[gv].attrs["op_pattern"] == kind


def fused(mod):
    return DeadCodeElimination()(FuseTIR()(FuseOps()(LegalizeOps()(mod))))


def test_fuse_epilogue_with_residual():
    x, r = tensor("x", 3, 4), tensor("r", 3, 5)

    def build(bb):
        y = op("add", op("matmul", x, weights(0, 4, 5)), weights(1, 5))
        return op("nn.relu", op("add", y, op("exp", r)))

    mod = function([x, r], build)
    new = fused(mod)
    assert len(kernels(new)) == 1
    assert problems(FuseOps()(LegalizeOps()(mod))) == []
    same(mod, new, X, array(3, 3, 5))


def test_later_contraction_takes_the_addition():
    x = tensor("x", 3, 4)

    def build(bb):
        a = bb.emit(op("matmul", x, weights(0, 4, 5)))
        b = bb.emit(op("matmul", x, weights(1, 4, 5)))
        return op("nn.relu", op("add", a, b))

    mod = function([x], build)
    new = fused(mod)
    assert kernels(new) == ["matmul", "fused_matmul_add_relu"]
    same(mod, new, X)


def test_nothing_is_fused_into_a_contraction():
    x = tensor("x", 3, 4)
    mod = function([x], lambda bb: op("matmul", op("exp", op("add", x, x)), weights(0, 4, 5)))
    assert kernels(fused(mod)) == ["matmul", "fused_add_exp"]
    same(mod, fused(mod), X)


def test_reduction_with_work_before_and_behind():
    x = tensor("x", 3, 4)
    mod = function(
        [x], lambda bb: op("exp", op("mean", op("multiply", x, op("negative", x)), axis=(1,), keepdims=True))
    )
    new = fused(mod)
    assert len(kernels(new)) == 1
    same(mod, new, X)


def test_reduced_value_spread_again_is_no_epilogue():
    x = tensor("x", 3, 4)

    def build(bb):
        e = bb.emit(op("exp", x))
        return op("divide", e, op("sum", e, axis=(1,), keepdims=True))

    mod = function([x], build)
    new = fused(mod)
    assert len(kernels(new)) == 3
    same(mod, new, X)


def test_result_wanted_outside_is_not_swallowed():
    x = tensor("x", 3, 4)

    def build(bb):
        e = bb.emit(op("matmul", x, weights(0, 4, 4)))
        return bb.emit(op("exp", e)), e

    mod = function([x], build)
    new = fused(mod)
    assert kernels(new) == ["matmul", "exp"]
    same(mod, new, X)


def test_expensive_work_is_not_repeated():
    x, y = tensor("x", 1, 4), tensor("y", 300, 4)
    mod = function([x, y], lambda bb: op("add", y, op("exp", x)))
    assert len(kernels(fused(mod))) == 2
    cheap = function([x, y], lambda bb: op("add", y, op("negative", x)))
    assert len(kernels(fused(cheap))) == 1


def test_same_kernel_twice_in_a_group():
    x = tensor("x", 3, 4)
    mod = function([x], lambda bb: op("exp", op("exp", op("exp", x))))
    new = fused(mod)
    assert len(kernels(new)) == 1
    same(mod, new, X)


def test_equal_groups_share_a_kernel():
    x = tensor("x", 3, 4)

    def build(bb):
        v = x
        for i in range(3):
            v = bb.emit(op("nn.relu", op("add", op("matmul", v, weights(i, 4, 4)), weights(i + 9, 4))))
        return v

    mod = function([x], build)
    new = fused(mod)
    assert kernels(new) == ["fused_matmul_add_relu"]
    same(mod, new, X)


def test_fusion_in_branches():
    c, x = tensor("c", dtype="bool"), tensor("x", 3, 4)
    mod = function(
        [c, x],
        lambda bb: bb.emit_if(c, lambda: op("exp", op("add", x, x)), lambda: op("sin", op("negative", x))),
        dataflow=False,
    )
    new = fused(mod)
    assert sorted(kernels(new)) == ["fused_add_exp", "fused_negative_sin"]
    for flag in (True, False):
        same(mod, new, np.array(flag), X)


def test_symbolic_fusion():
    n = symbol("n")
    x = tensor("x", n, 4)
    mod = function([x], lambda bb: op("nn.relu", op("add", op("matmul", x, weights(0, 4, 5)), weights(1, 5))))
    new = fused(mod)
    assert len(kernels(new)) == 1
    for size in (1, 3, 7):
        same(mod, new, array(size, size, 4))
