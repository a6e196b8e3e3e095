"""Visitors and mutators of users, layouts by letters, nodes by name, parameters as bytes."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright.script import tir as T
from tilewright.tir.data_layout import Layout, bijective_layout


@T.prim_func
def program(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        if i < 5:
            B[i] = A[i] * 3 + 1


def test_a_visitor_sees_what_it_asks_for():
    seen = []

    @tvm.tir.functor.visitor
    class Loops(tvm.tir.PyStmtExprVisitor):
        def visit_for_(self, op):
            seen.append(op.loop_var.name)
            super().visit_for_(op)

        def visit_int_imm_(self, op):
            seen.append(op.value)

    Loops().visit_stmt(program.body)
    assert seen == ["i", 0, 8, 5, 3, 1] or set(seen) == {"i", 0, 8, 5, 3, 1}


def test_a_mutator_rewrites_and_keeps_what_did_not_change():
    @tvm.tir.functor.mutator
    class Threes(tvm.tir.PyStmtExprMutator):
        def visit_mul_(self, op):
            new = super().visit_mul_(op)
            return new.a * 4 if new.b.value == 3 else new

    class Nothing(tvm.tir.PyStmtExprMutator):
        pass

    assert Nothing().visit_stmt(program.body) is program.body
    changed = program.with_body(Threes().visit_stmt(program.body))
    a, b = np.arange(8, dtype="int32"), np.zeros(8, "int32")
    out = tvm.nd.array(b)
    tvm.build(changed, "llvm")["program"](tvm.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), np.where(a < 5, a * 4 + 1, 0))


def test_layouts():
    found = Layout("NCHW16c")
    assert (found.ndim, found[1], found.index_of("c"), found.index_of("Z")) == (5, "C", 4, -1)
    assert (found.factor_of("C"), found.factor_of("N"), found.factor_of("c")) == (16, 1, 16)
    assert "16c" in found
    assert "x" not in found
    for bad in ("NCHW16", "NCNW", "NHWc", "16NC", "NW4c", "n"):
        with pytest.raises(ValueError):
            Layout(bad)


def test_maps_between_layouts():
    there = bijective_layout("NCHW", "NCHW16c")
    assert [int(n) for n in there.forward_shape((2, 64, 7, 7))] == [2, 4, 7, 7, 16]
    assert [int(n) for n in there.backward_shape((2, 4, 7, 7, 16))] == [2, 64, 7, 7]
    assert [int(n) for n in there.forward_index((1, 37, 2, 3))] == [1, 2, 2, 3, 5]
    assert [int(n) for n in there.backward_index((1, 2, 2, 3, 5))] == [1, 37, 2, 3]
    swapped = bijective_layout("NHWC", "NCHW")
    assert [int(n) for n in swapped.forward_index((0, 1, 2, 3))] == [0, 3, 1, 2]
    with pytest.raises(ValueError, match="different axes"):
        bijective_layout("NCHW", "NHW")
    with pytest.raises(ValueError, match="4 numbers"):
        swapped.forward_shape((1, 2))


def test_nodes_by_the_name_of_their_class():
    one = tvm.ir.make_node("IntImm", dtype="int32", value=1, span=None)
    assert isinstance(one, tvm.tir.IntImm)
    assert tvm.ir.make_node("ir.DictAttrs", x=1)["x"] == 1
    with pytest.raises(ValueError, match="no node class"):
        tvm.ir.make_node("Nonsense")


def test_attributes_of_operators():
    op = tvm.ir.Op.get("tir.test_attribute")
    op.set_attr("TestKey", 1)
    assert op.get_attr("TestKey") == 1
    with pytest.raises(ValueError, match="already"):
        op.set_attr("TestKey", 2)
    op.set_attr("TestKey", 3, plevel=11)
    assert op.get_attr("TestKey") == 3
    op.reset_attr("TestKey")
    assert not op.has_attr("TestKey")


def test_dtypes_as_objects():
    found = tvm.DataType("float32x4")
    assert (found.bits, found.lanes, found.itemsize, found.type_code) == (32, 4, 16, 2)
    assert found == "float32x4"
    assert tvm.DataType("bool").bits == 1
    assert found.with_lanes(2) == "float32x2"
    with pytest.raises(ValueError):
        tvm.DataType("flt32")


def test_parameters_as_bytes(tmp_path):
    import ml_dtypes

    params = {"w": np.arange(6, dtype="int8").reshape(2, 3), "a.b": np.ones(3, ml_dtypes.bfloat16)}
    again = tvm.runtime.load_param_dict(tvm.runtime.save_param_dict(params))
    assert list(again) == ["w", "a.b"]
    assert again["a.b"].dtype == "bfloat16"
    np.testing.assert_array_equal(again["w"].numpy(), params["w"])
    tvm.runtime.save_param_dict_to_file(params, tmp_path / "p")
    assert list(tvm.runtime.load_param_dict_from_file(tmp_path / "p")) == ["w", "a.b"]
    with pytest.raises(ValueError, match="no saved parameters"):
        tvm.runtime.load_param_dict(b"nothing")
    with pytest.raises(TypeError, match="no array"):
        tvm.runtime.save_param_dict({"x": object()})
