"""A program for every error of the graph layer (TW02xx of relax itself)."""

from __future__ import annotations

import pytest

from tests.relax.graphs import array, evaluate, function, op, symbol, tensor, weights
from tilewright.arith.expr import IntImm
from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.relax import ir as R
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.op import OPS, Op, operator
from tilewright.relax.struct_info import TensorStructInfo, require_equal, shape_of, tensor_info
from tilewright.relax.transform import BindParams, FuseOps, FuseTIR, LegalizeOps
from tilewright.relax.verify import verify_module
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import Evaluate


def code(name: str, *words: str):
    """The error has this code and says these words."""
    return pytest.raises(CompileError, match="(?s)" + ".*".join([name, *words]))


def test_tw0201_not_a_tensor():
    with code("TW0201", "the weight has to be a tensor, got shape"):
        tensor_info(R.ShapeExpr((1, 2)), "the weight")


def test_tw0202_shape_not_known():
    with code("TW0202", "the data has no known shape"):
        shape_of(R.Var("x", TensorStructInfo(None, "float32", 2)), "the data")


def test_tw0203_dimensions_differ():
    with code("TW0203", "rows: 3 differs from 4"):
        require_equal(IntImm("int64", 3), IntImm("int64", 4), "rows")


def test_tw0210_no_result():
    bb = BlockBuilder()
    with code("TW0210", "'main' has no result"), bb.function("main", [tensor("x", 2)]):
        pass


def test_tw0211_argument_contradicts():
    x = tensor("x", symbol("n"), 4)
    mod = function([x], lambda bb: op("exp", x))
    with code("TW0211", "has to be 4, is 5"):
        evaluate(mod, array(0, 3, 5))


def test_tw0212_not_well_formed():
    x = tensor("x", 3)
    f = R.Function((x,), R.SeqExpr((), tensor("y", 3)))
    with code("TW0212", "uses y before it is bound"):
        verify_module(IRModule({R.GlobalVar("main"): f}))


def test_tw0213_no_such_parameter():
    mod = function([tensor("x", 3)], lambda bb: weights(0, 3))
    with code("TW0213", "no parameter is named 'w'", "the parameters are: x"):
        BindParams("main", {"w": array(0, 3)})(mod)


def test_tw0214_tuple_index():
    x = tensor("x", 3)
    with code("TW0214", "index 2 of a tuple of 1"):
        function([x], lambda bb: R.TupleGetItem(bb.emit(R.Tuple((x,), struct_info=None)), 2))


def test_tw0290_kernel_contradicts_inference():
    @operator
    class Wrong(Op, name="test.wrong"):
        def infer(self, x):
            return TensorStructInfo((7,))

        def lower(self, b, x):
            return op("exp", x)

    try:
        x = tensor("x", 3)
        mod = function([x], lambda bb: Wrong()(x))
        with code("TW0290", r"the kernel gives tensor \(3,\) float32, but inference said tensor \(7,\)"):
            LegalizeOps()(mod)
    finally:
        del OPS["test.wrong"]


def test_tw0291_not_in_block_form():
    x = tensor("x", 3)
    mod = FuseOps()(LegalizeOps()(function([x], lambda bb: op("exp", op("negative", x)))))
    gv = next(v for v in mod.functions if v.name_hint == "exp")
    mod = mod.with_({gv: replace(mod[gv], body=Evaluate(IntImm("int32", 0)))})
    with code("TW0291", "exp is not in block form"):
        FuseTIR()(mod)
