"""Nodes as people build them: from Python numbers, with operators that refuse what has no meaning."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir

X, Y = te.var("x"), te.var("y")


@pytest.mark.parametrize("kind", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64"])
def test_constants_take_the_dtype_of_numpy(kind):
    assert tir.const(np.ones((), kind)[()]).dtype == kind


def test_statements_from_python_numbers():
    nop = tir.Evaluate(0)
    loop = tir.For(X, 0, 10, tir.ForKind.SERIAL, nop)
    assert (loop.min.value, loop.extent.value, loop.body is nop) == (0, 10, True)
    assert tir.LetStmt(X, 10, nop).value.value == 10
    assert tir.AttrStmt(Y, "key", 3, nop).value.value == 3
    b = tir.decl_buffer((16,), "float32")
    store = tir.BufferStore(b, 0.5, [3])
    assert (store.value.dtype, store.indices[0].value) == ("float32", 3)
    assert tir.AssertStmt(X < 3, "a message", nop).message == "a message"
    assert tir.Ramp(0, 1, tir.IntImm("int64", 8)).dtype == "int32x8"
    assert tir.Select(X < Y, 1, 2).true_value.value == 1
    assert tir.Call("int32", "tir.call_extern", ["f", X]).op.name == "tir.call_extern"


def test_variables_from_types():
    pointer = tvm.ir.PointerType(tvm.ir.PrimType("float32"), "shared")
    v = tir.Var("p", pointer)
    assert (v.dtype, v.type_annotation) == ("handle", pointer)
    assert tir.Var("n", tvm.ir.PrimType("int64")).dtype == "int64"


def test_functions_from_buffers():
    b = tir.decl_buffer((X,), "float32")
    f = tir.PrimFunc([X, b], tir.Evaluate(0))
    assert f.buffer_map[f.params[1]] is b
    assert f.params[1].dtype == "handle"


def test_ranges_go_from_begin_to_end():
    r = tvm.ir.Range(2, 10)
    assert (r.min.value, r.extent.value) == (2, 8)
    assert tvm.ir.Range(5).extent.value == 5
    assert tvm.ir.Range.from_min_extent(2, 10).extent.value == 10
    assert isinstance(te.reduce_axis((0, 3), "k").dom, tvm.ir.Range)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: tir.const(1.5, "float32") << 1,
        lambda: tir.const(1.5, "float32") & 1,
        lambda: ~tir.const(1.5, "float32"),
        lambda: X << 32,
        lambda: X >> -1,
        lambda: tir.floordiv(tir.const(5), tir.const(0)),
        lambda: tir.truncmod(tir.const(5), 0),
        lambda: tir.StringImm("s").astype("int32"),
        lambda: tir.FloatImm("int32", 1.0),
    ],
)
def test_operators_without_meaning_are_refused(wrong):
    with pytest.raises(tvm.TVMError, match="TW0904"):
        wrong()


def test_strings_compare_by_value():
    assert tir.StringImm("a") == "a"
    assert tir.StringImm("a") != tir.StringImm("b")
    assert len({tir.StringImm("a"), tir.StringImm("a")}) == 1


def test_a_number_and_a_constant_are_the_same_structure():
    tvm.ir.assert_structural_equal([tir.const(2), X], [2, X])
    with pytest.raises(ValueError):
        tvm.ir.assert_structural_equal(tir.const(2), 3)


def test_flattened_buffers_and_their_axis_separators():
    flat = tir.decl_buffer((4, 16, 32), axis_separators=[2]).get_flattened_buffer()
    assert [d.value for d in flat.shape] == [64, 32]
    with pytest.raises(ValueError, match="axis separators"):
        tir.decl_buffer((1,), axis_separators=[1, 2])
    b = tir.decl_buffer((X, Y), "float32", elem_offset=100)
    tvm.ir.assert_structural_equal(b.offset_of((2, 3)), [Y * 2 + 103])
    assert b.access_ptr("rw").args[4] == tir.Buffer.READ | tir.Buffer.WRITE


def test_statements_in_a_row():
    one, two = tir.Evaluate(1), tir.Evaluate(2)
    row = tir.stmt_seq(one, tir.stmt_seq(two, X + 1))
    assert [s.value for s in tir.stmt_list(row)[:2]] == [1, 2]
    assert len(tir.stmt_list(row)) == 3
    assert tir.stmt_list(one) == [one]
