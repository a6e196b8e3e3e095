"""The table of intrinsics and the functions that build calls."""

import pytest

from tilewright import tir
from tilewright.ir.op import Op
from tilewright.tir import build, intrin


def test_every_row_is_sound():
    for name, row in intrin.INTRINSICS.items():
        assert name == row.name
        assert name.startswith("tir.")
        assert row.effect in ("pure", "read", "opaque")
        assert row.doc


def test_result_dtypes():
    x = tir.Var("x", "float32x8")
    assert intrin.result_dtype("tir.exp", [x]) == "float32x8"
    assert intrin.result_dtype("tir.isnan", [x]) == "boolx8"
    assert intrin.result_dtype("tir.reduce_lanes", [tir.StringImm("add"), x]) == "float32"
    assert intrin.result_dtype("tir.reinterpret", [x]) is None
    assert tir.exp(x).dtype == "float32x8"
    assert tir.reduce_lanes("max", x).dtype == "float32"


def test_effects():
    assert intrin.is_pure(Op.get("tir.exp"))
    assert intrin.effect_of(Op.get("tir.tw_raise")) == "opaque"
    assert intrin.effect_of(Op.get("tir.not_there")) == "opaque"


def test_integers_become_floats_or_stay():
    i = tir.Var("i", "int32")
    assert tir.exp(i).dtype == "float32"
    assert tir.floor(i) is i
    assert tir.pow(i, 2).dtype == "float32"
    assert tir.isnan(i).value == 0


def test_reducers_combine_and_reduce():
    a, b = tir.Var("a", "float32"), tir.Var("b", "float32")
    assert isinstance(tir.max(a, b), tir.Max)
    assert isinstance(tir.sum(a, b), tir.Add)
    k = tir.IterVar(tir.Range(0, 4), tir.Var("k", "int32"), tir.IterVar.CommReduce)
    assert isinstance(tir.min(a, axis=k), tir.Reduce)
    assert isinstance(tir.min(a, axis=[k]), tir.Reduce)
    with pytest.raises(ValueError, match="needs an axis"):
        tir.max(a)


def test_all_names_exist():
    for name in build.__all__:
        assert hasattr(tir, name), name


def test_bad_arguments():
    x = tir.Var("x", "float32x4")
    with pytest.raises(ValueError, match="add, mul, max or min"):
        tir.reduce_lanes("xor", x)
    with pytest.raises(ValueError, match="equal sizes"):
        tir.reinterpret("int8", tir.Var("y", "float32"))
    with pytest.raises(ValueError, match="at least one"):
        tir.all()
