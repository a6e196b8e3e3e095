"""Operators as functions: signatures, attributes by position or name, errors."""

import inspect

import numpy as np
import pytest

from tilewright import te
from tilewright.arith.expr import Call
from tilewright.ir.node import walk
from tilewright.ops.api import ROOT, resolve
from tilewright.relax import ir as R
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.evaluate import evaluate
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.transform.legalise import legalise
from tilewright.relax.values import var
from tilewright.support.diagnostics import CompileError


def info(call):
    return call.op.infer(*call.args)


def test_attributes_by_position_and_name():
    x = var("x", (1, 3, 8, 8))
    w = var("w", (4, 3, 3, 3))
    call = ROOT.nn.conv2d(x, w, 2, padding=[1, 1])
    assert call.op.strides == (2, 2)
    assert call.op.padding == (1, 1, 1, 1)
    assert [int(d) for d in info(call).shape] == [1, 4, 4, 4]
    assert resolve("relax.nn.conv2d") is resolve("nn.conv2d") or resolve("relax.nn.conv2d").__name__ == "conv2d"
    assert list(inspect.signature(ROOT.nn.conv2d).parameters)[:4] == ["data", "weight", "strides", "padding"]


def test_reshape_and_concat_take_sequences():
    x = var("x", (2, 3))
    assert [int(d) for d in info(ROOT.reshape(x, (3, -1))).shape] == [3, 2]
    assert [int(d) for d in info(ROOT.concat([x, x], axis=1)).shape] == [2, 6]
    assert isinstance(ROOT.concat([x, x]).args[0], R.Tuple)


def test_strided_slice_has_the_known_order_of_arguments():
    x = var("x", (5, 6))
    call = ROOT.strided_slice(x, [1], [1], [5], [2])
    assert [int(d) for d in info(call).shape] == [5, 2]
    assert call.op.axes == (1,)


def test_pad_width_is_an_attribute_or_an_operand():
    n = te.size_var("n", "int64")
    x = var("x", (5, 6))
    static = ROOT.nn.pad(x, ((1, 1), (0, 2)))
    assert static.op.pad_width == (1, 1, 0, 2)
    assert len(static.args) == 1
    symbolic = ROOT.nn.pad(x, (0, n, 0, 0))
    assert len(symbolic.args) == 2


def test_arange_and_full():
    assert [int(d) for d in info(ROOT.arange(5)).shape] == [5]
    assert info(ROOT.arange(0, 1, 0.25)).dtype == "float32"
    assert info(ROOT.full((2, 3), 1.0, dtype="float16")).dtype == "float16"
    assert info(ROOT.nn.relu(np.zeros((2,), np.float32)) if False else ROOT.zeros((2,), "int8")).dtype == "int8"


def test_mistakes_are_named():
    x = var("x", (2, 3))
    with pytest.raises(TypeError, match="no argument 'axes'; it has: x, axis"):
        ROOT.nn.softmax(x, axes=1)
    with pytest.raises(KeyError, match=r"did you mean .*nn\.softmax"):
        resolve("nn.sofmax")
    with pytest.raises(AttributeError, match=r"nn\.nothing"):
        _ = ROOT.nn.nothing
    with pytest.raises(TypeError, match="needs weight"):
        ROOT.nn.conv2d(x)


def error(call):
    with pytest.raises(CompileError) as caught:
        info(call)
    return caught.value.diagnostics[0]


@pytest.mark.parametrize(
    ("make", "code", "text"),
    [
        (lambda x: ROOT.nn.softmax(x, axis=7), "TW0207", "nn.softmax: axis 7 is out of range for 2 dimensions"),
        (lambda x: ROOT.add(x, var("y", (4, 3))), "TW0203", "(2, 3) and (4, 3)"),
        (lambda x: ROOT.add(x, var("y", (2, 3), "int32")), "TW0204", "the left operand is float32"),
        (lambda x: ROOT.exp(var("y", (2,), "int32")), "TW0204", "exp: the operand has dtype int32"),
        (lambda x: ROOT.exp((2, 3)), "TW0201", "has to be a tensor, got shape (2, 3)"),
        (lambda x: ROOT.reshape(x, (4, 2)), "TW0209", "has 6 elements"),
        (lambda x: ROOT.reshape(x, x), "TW0208", "shape has to be a shape"),
        (lambda x: ROOT.matmul(x, x), "TW0203", "summed over differ"),
        (lambda x: ROOT.nn.conv2d(x, x), "TW0205", "the data (NCHW) needs 4 dimensions"),
        (lambda x: ROOT.concat([x, var("y", (2, 4))], 0), "TW0203", "tensor 1, dimension 1"),
        (lambda x: ROOT.squeeze(x, 0), "TW0203", "dimension 0 cannot be squeezed"),
        (lambda x: ROOT.permute_dims(x, (0, 0)), "TW0207", "names a dimension twice"),
        (lambda x: ROOT.topk(x, 9), "TW0206", "k is 9"),
        (lambda x: ROOT.sum(R.Var("u", struct_info=None)), "TW0201", "has to be a tensor"),
    ],
)
def test_errors_name_the_operator_and_the_reason(make, code, text):
    diagnostic = error(make(var("x", (2, 3))))
    assert diagnostic.code == code
    assert text in diagnostic.message, diagnostic.message


def test_attributes_are_checked_when_the_operator_is_made():
    x = var("x", (1, 3, 8, 8))
    for make, text in (
        (lambda: ROOT.nn.conv2d(x, x, data_layout="NCXY"), "data_layout 'NCXY' is not known"),
        (lambda: ROOT.nn.max_pool2d(x, 2, padding=2), "padding [2, 2, 2, 2] is not less than the window"),
        (lambda: ROOT.nn.pad(x, (1,) * 8, "mirror"), "pad_mode 'mirror' is not known"),
    ):
        with pytest.raises(CompileError) as caught:
            make()
        assert caught.value.diagnostics[0].code == "TW0206"
        assert text in str(caught.value)


def test_unknown_shape_is_named():
    x = R.Var("u", struct_info=TensorStructInfo(None, "float32", 2))
    diagnostic = error(ROOT.reshape(x, (2, 3)))
    assert diagnostic.code == "TW0202"
    assert "reshape" in diagnostic.message
    assert info(ROOT.exp(x)).ndim == 2
    assert info(ROOT.add(x, x)).ndim == 2


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -0.5, -1.0, 1.0, 0.0, 2.5])
def test_small_powers_need_no_general_function(exponent):
    x = var("x", (3, 4))
    bb = BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(ROOT.power(x, np.array([[exponent]], np.float32))))
    mod = legalise(bb.get())
    data = np.random.default_rng(0).uniform(0.5, 2, (3, 4)).astype(np.float32)
    np.testing.assert_allclose(evaluate(mod, data), data ** np.float32(exponent), rtol=1e-5)
    assert any(
        "tir.pow" in repr(n.op.name) for f in mod.functions.values() for n in walk(f) if isinstance(n, Call)
    ) == (exponent in (0.0, 2.5))
