"""Programs built by Python as it runs, by both builders, against the same programs in script."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.script import tir as S
from tilewright.script.ir_builder import IRBuilder
from tilewright.script.ir_builder import ir as I
from tilewright.script.ir_builder import tir as T
from tilewright.support.diagnostics import CompileError


def same(a, b) -> None:
    tvm.ir.assert_structural_equal(a, b, map_free_vars=True)


def test_a_function() -> None:
    with IRBuilder() as ib, T.prim_func():
        T.func_name("scale")
        A = T.arg("A", T.Buffer((8, 4), "float32"))
        b = T.arg("b", T.handle())
        n = T.arg("n", T.int32())
        T.func_attr({"tir.noalias": True})
        B = ib.name("B", T.match_buffer(b, (8, 4), "float32"))
        C = ib.name("C", T.alloc_buffer((8, 4), "float32", scope="local"))
        for target, source, block in ((C, A, "load"), (B, C, "scale")):
            with T.grid(8, 4) as (i, j):
                ib.name_many(["i", "j"], [i, j])
                with T.block(block):
                    vi, vj = ib.name_many(["vi", "vj"], T.axis.remap("SS", [i, j]))
                    T.buffer_store(target, source[vi, vj] * n.astype("float32"), [vi, vj])
    made = ib.get()

    @S.prim_func
    def scale(A: S.Buffer((8, 4), "float32"), b: S.handle, n: S.int32):
        S.func_attr({"tir.noalias": True})
        B = S.match_buffer(b, (8, 4), "float32")
        C = S.alloc_buffer((8, 4), scope="local")
        for i, j in S.grid(8, 4):
            with S.block("load"):
                vi, vj = S.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * S.Cast("float32", n)
        for i, j in S.grid(8, 4):
            with S.block("scale"):
                vi, vj = S.axis.remap("SS", [i, j])
                B[vi, vj] = C[vi, vj] * S.Cast("float32", n)

    same(made, scale)
    assert made.script() == scale.script()


def test_statements() -> None:
    buffer = T.Buffer((16,), "int32")
    with IRBuilder() as ib, T.serial(4) as i, T.parallel(0, 2) as j, T.LetStmt(i * 2 + j) as x:
        with T.If(x > 3):
            with T.Then():
                T.buffer_store(buffer, x, [x])
            with T.Else(), T.Assert(x >= 0, "never"), T.attr(buffer, "key", 1):
                T.evaluate(T.call_extern("int32", "f", x))
        with T.While(buffer[x] > 0):
            T.buffer_store(buffer, buffer[x] - 1, [x])
    text = ib.get().script()
    for part in ("T.serial(4)", "range(4)", "T.parallel(2)", "while ", "else:", "assert ", "T.attr("):
        assert part in text or part in ("T.serial(4)",), (part, text)
    same(tvm.script.from_source(text), ib.get())


def test_a_block_outside_of_a_function_notes_what_it_was_not_told() -> None:
    b = T.Buffer((8,), "float32")
    with IRBuilder() as ib, T.block("b"):
        T.reads(b[0:8])
        T.evaluate(b[0])
    assert int(ib.get().block.annotations["tir.script_parsing_detect_access"]) == 2
    assert len(ib.get().block.reads) == 1


def test_a_module() -> None:
    with IRBuilder() as ib, I.ir_module():
        I.module_attrs({"kind": "test"})
        other = I.decl_function("other", None)
        with T.prim_func():
            T.func_name("main")
            T.evaluate(T.call_tir(other))
        with T.prim_func(is_private=True):
            T.func_name("other")
            T.func_ret(T.int32)
            T.evaluate(T.ret(T.int32(0)))
    mod = ib.get()
    assert [v.name_hint for v in mod.functions] == ["other", "main"]
    assert mod["other"].ret_type.dtype == "int32"
    assert mod["main"].body.value.op is mod.get_global_var("other")
    assert mod.attrs["kind"] == "test"


def test_what_belongs_elsewhere_is_refused() -> None:
    for wrong in (lambda: T.arg("a", T.int32()), lambda: IRBuilder().get(), IRBuilder.current):
        with pytest.raises(CompileError, match="TW0117"):
            wrong()
    assert not IRBuilder.is_in_scope()
    with IRBuilder() as ib:
        assert IRBuilder.current() is ib
        with pytest.raises(CompileError, match="TW0108"):
            T.reads()


def test_the_older_builder_runs() -> None:
    n = 10
    ib = tir.ir_builder.create()
    a, b = tir.decl_buffer((n,), "int32", name="A"), tir.decl_buffer((n,), "int32", name="B")
    A, B = ib.buffer_ptr(a), ib.buffer_ptr(b)
    with ib.for_range(0, n) as i, ib.new_scope():
        tmp = ib.allocate("int32", (1,), "tmp", scope="local")
        k = ib.let("k", i * 2)
        tmp[0] = A[i] + k
        with ib.if_scope(ib.likely(i % 2 == 0)):
            B[i] = tmp[0]
        with ib.else_scope():
            B[i] = -tmp[0]
    with ib.while_loop(B[0] < 5):
        B[0] = B[0] + 1
    f = tir.PrimFunc([a.data, b.data], ib.get()).with_attr("global_symbol", "f")
    text = f.script()
    assert "for i in range(10):" in text
    assert "while " in text
    pa, pb = tir.Var("a", "handle"), tir.Var("b", "handle")
    g = tir.PrimFunc((pa, pb), f.body, None, {pa: a, pb: b}, {"global_symbol": "f"})
    built = tvm.build(tvm.IRModule({"f": g}), target="llvm")
    x = np.arange(n, dtype="int32")
    y = tvm.nd.array(np.zeros(n, "int32"))
    built["f"](tvm.nd.array(x), y)
    want = np.where(x % 2 == 0, 3 * x, -3 * x)
    want[0] = 5
    np.testing.assert_array_equal(y.numpy(), want)


def test_the_older_builder_refuses() -> None:
    ib = tir.ir_builder.create()
    A = ib.pointer("float32", "A")
    with pytest.raises(CompileError, match="TW0123.*directly behind an if_scope"):
        ib.else_scope()
    with pytest.raises(CompileError, match="data type does not match"):
        A[0] = tir.Var("i", "int32")
    with pytest.raises(CompileError, match="unknown kind"):
        ib.for_range(0, 2, kind="sequential")
    with ib.for_range(0, 2), pytest.raises(CompileError, match="open still"):
        ib.get()


def test_loops_and_matrices_of_the_older_builder() -> None:
    ib = tir.ir_builder.create()
    n = tir.Var("n", "int64")
    m = ib.allocate("float32", (4, 8), "m")
    with ib.for_range(1, n, kind="vectorize") as i, ib.for_range(0, 4) as j:
        m[j, 0] = 1.0
        m[j * 8] = m[j, 0]
        ib.scope_attr("x", "pragma", 1)
        ib.emit(tir.call_extern("int32", "f", i))
    loop = ib.get().body.body
    assert (loop.loop_var.name, loop.loop_var.dtype, loop.body.loop_var.name) == ("i", "int64", "j")
    assert loop.kind == tir.ForKind.VECTORIZED
    tvm.ir.assert_structural_equal(loop.extent, n - 1)
    first, second = loop.body.body.seq[:2]
    assert len(second.indices) == len(first.indices) == 2


def test_sequences_as_lists() -> None:
    one, two = tir.Evaluate(tir.const(1, "int32")), tir.Evaluate(tir.const(2, "int32"))
    made = tir.stmt_seq(one, tir.stmt_seq(two, one))
    assert tir.stmt_list(made) == [one, two, one]
    assert tir.stmt_list(one) == [one]
