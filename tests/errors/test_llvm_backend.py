"""What the LLVM backend says about functions it cannot take: one program for each code."""

from __future__ import annotations

import pytest

from tilewright.arith.expr import Call, Var, call_intrin, const
from tilewright.backends.llvm.codegen import compile_object
from tilewright.backends.llvm.emit import emit_module
from tilewright.backends.llvm.jit import Engine
from tilewright.ir.op import GlobalVar
from tilewright.ir.target import Target
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as T


def func(body, params=(), **attrs):
    return T.PrimFunc(tuple(params), body, attrs={"global_symbol": "f", **attrs})


def emit(*funcs):
    return emit_module(list(funcs), Target("llvm")).text


NOTHING = T.Evaluate(const(0))


def expect(code, text, *funcs):
    with pytest.raises(CompileError, match=code) as caught:
        emit(*funcs)
    assert text in str(caught.value)


def test_dtype_without_arithmetic():
    x = Var("x", "int4")
    expect("TW0601", "int4", func(NOTHING, [x]))


def test_node_that_is_not_flat():
    expect("TW0602", "lower_kernel", func(T.BlockRealize((), const(True), T.Block((), (), (), "b", NOTHING))))


def test_variable_outside_its_definition():
    expect("TW0603", "'loose'", func(T.Evaluate(Var("loose", "int32") + 1)))


def test_buffer_that_is_not_flat():
    b = T.decl_buffer([2, 2], "float32", "grid")
    expect("TW0604", "'grid'", func(T.BufferStore(b, const(1.0), (const(0), const(0))), [b.data]))


def test_unknown_intrinsic():
    expect("TW0605", "tir.frobnicate", func(T.Evaluate(call_intrin("float32", "tir.frobnicate", const(1.0)))))


def test_math_of_integers():
    expect(
        "TW0605", "floats", func(T.Evaluate(call_intrin("int32", "tir.exp", Var("x", "int32"))), [Var("x", "int32")])
    )


def test_call_with_wrong_types():
    n = Var("n", "int64")
    callee = T.PrimFunc((n,), NOTHING, attrs={"global_symbol": "g"})
    expect("TW0606", "g", func(T.Evaluate(Call("int32", GlobalVar("g"), (const(1.5),)))), callee)


def test_two_functions_of_one_symbol():
    expect("TW0606", "'f'", func(NOTHING), func(NOTHING))


def test_loop_kind_that_should_be_gone():
    loop = T.For(Var("i"), const(0), const(4), T.ForKind.UNROLLED, NOTHING)
    expect("TW0607", "'i'", func(loop))


def test_function_without_a_symbol():
    expect("TW0608", "global_symbol", T.PrimFunc((), NOTHING))


def test_function_with_a_buffer_map():
    b, p = T.decl_buffer([4], "float32"), Var("p", "handle")
    expect("TW0608", "buffer map", T.PrimFunc((p,), NOTHING, None, {p: b}, {"global_symbol": "f"}))


def test_return_of_a_float():
    expect("TW0609", "float32", func(T.Evaluate(call_intrin("int32", "tir.ret", const(1.0)))))


def test_triple_without_a_code_generator():
    with pytest.raises(CompileError, match="TW0610"):
        compile_object("", Target("llvm -mtriple=pdp11-dec-unix"))


def test_text_that_llvm_rejects():
    text = emit(func(T.Evaluate(call_intrin("float32", "tir.call_llvm_pure_intrin", "llvm.fma.f32", const(1.0)))))
    with pytest.raises(CompileError, match="TW0611"):
        compile_object(text, Target("llvm"))
    with pytest.raises(CompileError, match="TW0611") as caught:
        compile_object("define i32 @f() {\n  ret i32 %nothing\n}\n", Target("llvm"))
    assert "line 2:   ret i32 %nothing" in str(caught.value)


def test_unknown_pipeline():
    with pytest.raises(CompileError, match="TW0612"):
        compile_object(emit(func(NOTHING)), Target("llvm"), "O9")


def test_object_that_cannot_be_loaded():
    with pytest.raises(CompileError, match="TW0613"):
        Engine([b"this is no object file"]).address("f")


def test_symbol_that_nothing_defines():
    text = emit(func(T.Evaluate(call_intrin("int32", "tir.call_extern", "no_such_function_of_c"))))
    engine = Engine([compile_object(text, Target("llvm"))])
    with pytest.raises(CompileError, match="TW0614") as caught:
        engine.address("f")
    assert "'no_such_function_of_c'" in str(caught.value)
    with pytest.raises(CompileError, match="TW0614"):
        Engine([compile_object(emit(func(NOTHING)), Target("llvm"))]).address("g")


def test_code_generator_that_aborts():
    other = "aarch64" if not Target("llvm").mtriple.startswith(("aarch64", "arm64")) else "x86_64"
    name = "llvm.x86.rdtsc" if other == "aarch64" else "llvm.aarch64.crc32b"
    args = () if other == "aarch64" else (const(0), const(0))
    text = emit(func(T.Evaluate(call_intrin("int64" if not args else "int32", "tir.call_llvm_intrin", name, *args))))
    with pytest.raises(CompileError, match="TW0615"):
        compile_object(text, Target(f"llvm -mtriple={other}-unknown-linux-gnu -mcpu=generic"))
