"""Intrinsics in script: every one prints and parses back; `dtype=` is understood; those of the table have their signatures."""

from __future__ import annotations

import pytest

from tilewright import tir
from tilewright.arith.expr import StringImm
from tilewright.ir.structure import structural_equal
from tilewright.script import from_source, to_script
from tilewright.script import tir as T
from tilewright.tir.intrin_calls import SIGNATURES


def example(name: str) -> tir.Call:
    """A call of an intrinsic of the table with plausible arguments."""
    x, v = tir.Var("x", "int32"), tir.Var("v", "float32")
    args: list[object] = []
    for p, default in SIGNATURES[name].params:
        if p.startswith("*"):
            args += [x, v]
        elif p == "dtype":
            args.append("float32")
        elif p in ("value", "buffer_ptr", "local_ptr"):
            args.append(v)
        elif default is None:
            args.append("row_major" if "layout" in p.lower() or p.endswith("_dtype") else x)
    return getattr(T, name)(*args)


@pytest.mark.parametrize("name", SIGNATURES)
def test_calls_of_the_table_round_trip(name: str) -> None:
    call = example(name)
    text = to_script(call)
    assert f"T.{name}(" in text
    assert structural_equal(from_source(text), call, map_free_vars=True)
    assert getattr(tir, name) is getattr(tir.op, name)


def test_dtype_by_keyword() -> None:
    x, a = tir.Var("x", "float32"), tir.Var("a", "handle")
    pairs = [
        (T.call_extern("f", x, dtype="int32"), T.call_extern("int32", "f", x)),
        (T.call_intrin("tir.exp", x, dtype="float32"), T.exp(x)),
        (T.exp(x, dtype="float32"), T.exp(x)),
        (T.reinterpret(x, dtype="int32"), T.reinterpret("int32", x)),
        (T.tvm_struct_get(a, 0, 1, dtype="handle"), T.tvm_struct_get(a, 0, 1, "handle")),
        (T.ptx_commit_group(dtype=""), T.ptx_commit_group()),
    ]
    for one, other in pairs:
        assert structural_equal(one, other), (one, other)
    assert T.call_extern("f", dtype="").dtype == "void"


def test_reinterpret_to_the_same_dtype_is_nothing() -> None:
    x = tir.Var("x", "float32")
    assert T.reinterpret("float32", x) is x


def test_llvm_intrinsics_as_both_releases_write_them() -> None:
    x = tir.Var("x", "float32")
    plain = T.call_llvm_pure_intrin("float32", "llvm.sqrt", x)
    counted = T.call_llvm_pure_intrin("float32", T.llvm_lookup_intrinsic_id("llvm.sqrt"), T.uint32(1), x)
    assert structural_equal(plain, counted)
    assert isinstance(plain.args[0], StringImm)
    with pytest.raises(ValueError, match=r"llvm\."):
        T.llvm_lookup_intrinsic_id("sqrt")


def test_wrong_arguments_name_the_parameters() -> None:
    with pytest.raises(TypeError, match="needs an argument 'num'"):
        T.ptx_wait_group()
    with pytest.raises(TypeError, match="takes 1 arguments"):
        T.ptx_wait_group(1, 2)
    with pytest.raises(TypeError, match="no argument 'n'"):
        T.ptx_wait_group(n=1)


def test_access_pointers() -> None:
    a = tir.decl_buffer((16, 16), "float16", name="A")
    ptr = a.access_ptr("rw", offset=32)
    assert ptr.op.name == "tir.tvm_access_ptr"
    assert [int(x) for x in ptr.args[2:]] == [32, 256 - 32, 3]
    assert structural_equal(ptr, T.tvm_access_ptr(T.type_annotation("float16"), a.data, 32, 224, 3))
