"""Machine code for this machine and for others."""

from __future__ import annotations

import pytest

from tests.backends.llvm.kernels import sgemm
from tilewright.arith.expr import Var, const
from tilewright.backends.llvm.codegen import compile_assembly, compile_object, optimise_text
from tilewright.backends.llvm.emit import emit_module
from tilewright.ir.target import Target
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as T


def scalar():
    n, i = Var("n", "int64"), Var("i", "int64")
    a, c = T.decl_buffer([n], "float32", "a"), T.decl_buffer([n], "float32", "c")
    body = T.For(i, const(0, "int64"), n, T.ForKind.SERIAL, T.BufferStore(c, a[i] * a[i], (i,)))
    return T.PrimFunc((a.data, c.data, n), body, attrs={"global_symbol": "square", "tir.noalias": True})


def test_auto_vectorises_scalar_loops_only():
    host = Target("llvm")
    plain = emit_module([scalar()], host).text
    assert "<" in optimise_text(plain, host)
    made = emit_module([sgemm(12, 32, 16)], host).text
    assert compile_object(made, host) == compile_object(made, host, "kernel")


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("llvm -mcpu=x86-64", "mulps"),
        ("llvm -mcpu=haswell", "vfmadd"),
        ("llvm -mcpu=skylake-avx512", "zmm"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "fmla"),
        ("llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64 -mattr=+v,+d", "vf"),
    ],
)
def test_other_targets(target, word):
    t = Target(target)
    vec = 16 if "avx512" in target else 8
    text = emit_module([sgemm(12, 32, 16, vec=vec)], t).text
    assert word in compile_assembly(text, t)
    assert len(compile_object(text, t)) > 400


def test_unknown_triple():
    with pytest.raises(CompileError, match="TW0610"):
        compile_object("", Target("llvm -mtriple=pdp11-dec-unix"))


def test_unknown_pipeline():
    with pytest.raises(CompileError, match="TW0612"):
        compile_object("", Target("llvm"), "O9")
