"""Macros, helper functions of the user's program, stars, and other programming around the program."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright.ir.structure import structural_equal
from tilewright.script import from_source, to_script
from tilewright.script import ir as I
from tilewright.script import tir as T
from tilewright.support.diagnostics import CompileError


def same(f, g) -> None:
    a, b = (x.with_attr("global_symbol", "f") for x in (f, g))
    tvm.ir.assert_structural_equal(a, b)
    assert structural_equal(from_source(to_script(a)), a)


@T.prim_func
def scaled(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.block("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(3)


def test_a_macro_takes_stars_and_keywords() -> None:
    @T.macro
    def scale(*loops, out, by=3, **rest):
        vi, vj = T.axis.remap("SS", [loops[0], loops[1]])
        out[vi, vj] = rest["source"][vi, vj] * T.float32(by)

    @T.prim_func
    def f(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        for i, j in T.grid(8, 4):
            with T.block("scale"):
                scale(i, j, out=B, source=A)

    same(f, scaled)


def test_what_does_not_fit_a_macro_is_said() -> None:
    @T.macro()
    def one(x):
        T.evaluate(x)

    with pytest.raises(CompileError, match="macro 'one'.*missing a required argument: 'x'"):

        @T.prim_func
        def f():
            one()

    with pytest.raises(ValueError, match="by keyword"):
        T.macro(True)


def test_a_macro_as_a_method_sees_its_object() -> None:
    class Stage:
        def __init__(self, like):
            self.local = T.alloc_buffer(like.shape, like.dtype, scope="local")

        @T.macro
        def fill(self, x):
            for i in T.serial(x.shape[0]):
                with T.block("fill"):
                    vi = T.axis.spatial(x.shape[0], i)
                    self.local[vi] = x[vi]

    @T.prim_func
    def f(A: T.Buffer((8,), "float32")):
        first = T.meta_var(Stage(A))
        first.fill(A)
        second = T.meta_var(Stage(A))
        second.fill(first.local)

    @T.prim_func
    def g(A: T.Buffer((8,), "float32")):
        b = T.alloc_buffer((8,), scope="local")
        c = T.alloc_buffer((8,), scope="local")
        for i in range(8):
            with T.block("fill"):
                vi = T.axis.spatial(8, i)
                b[vi] = A[vi]
        for i in range(8):
            with T.block("fill"):
                vi = T.axis.spatial(8, i)
                c[vi] = b[vi]

    same(f, g)


def test_a_python_function_builds_statements() -> None:
    def scale_all(A, B, by):
        with T.grid(8, 4) as (i, j), T.block("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.buffer_store(B, A[vi, vj] * T.float32(by), [vi, vj])

    @T.prim_func
    def f(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        scale_all(A, B, 3)

    same(f, scaled)


def test_stars_in_targets_and_indices() -> None:
    shape = (8, 4)

    @T.prim_func
    def f(A: T.Buffer((*shape, 2), "int32"), B: T.Buffer(shape, "int32")):
        for *outer, k in T.grid(*A.shape):
            B[outer] = B[outer] + A[(*outer, k)]
        for point in T.grid(*shape):
            B[point] = B[point] * len(shape)

    @T.prim_func
    def g(A: T.Buffer((8, 4, 2), "int32"), B: T.Buffer((8, 4), "int32")):
        for i, j, k in T.grid(8, 4, 2):
            B[i, j] = B[i, j] + A[i, j, k]
        for i, j in T.grid(8, 4):
            B[i, j] = B[i, j] * 2

    same(f, g)
    assert [v.name for v in (f.body[0].loop_var, f.body[0].body.loop_var)] == ["outer_0", "outer_1"]


def test_meta_var_of_several_values() -> None:
    def split(i):
        return T.meta_var((i // 4, i % 4))

    @T.prim_func
    def f(A: T.Buffer((2, 4), "int32")):
        for i in range(8):
            outer, inner = split(i)
            A[outer, inner] = i

    @T.prim_func
    def g(A: T.Buffer((2, 4), "int32")):
        for i in range(8):
            A[i // 4, i % 4] = i

    same(f, g)


def test_annotations_of_a_block_are_merged() -> None:
    @T.prim_func
    def f():
        with T.block("b"):
            T.block_attr({"unroll": 4, "notes": {"x": 1}})
            T.block_attr({"notes": {"y": 2}})
            T.evaluate(0)

    assert f.body.block.annotations == {"unroll": 4, "notes": {"x": 1, "y": 2}}


def test_branches_and_loops_as_frames() -> None:
    @T.prim_func
    def f(n: T.int32, A: T.Buffer((1,), "int32")):
        with T.If(n > 0):
            with T.Then():
                A[0] = 1
            with T.Else(), T.While(A[0] < 5):
                A[0] = A[0] + 1

    @T.prim_func
    def g(n: T.int32, A: T.Buffer((1,), "int32")):
        if n > 0:
            A[0] = 1
        else:
            while A[0] < 5:
                A[0] = A[0] + 1

    same(f, g)


def test_one_environment_thread_launched_twice() -> None:
    @T.prim_func
    def f(A: T.Buffer((64,), "float32")):
        tx = T.env_thread("threadIdx.x")
        with T.launch_thread(tx, 32):
            A[tx] = 1.0
        with T.launch_thread(tx, 32):
            A[tx + 32] = 2.0

    first, second = f.body
    assert first.node.var is second.node.var
    assert first.node.thread_tag == "threadIdx.x"
    assert structural_equal(from_source(to_script(f)), f)


def test_what_functions_of_a_module_return() -> None:
    @I.ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((2,), "float32")):
            A[0] = Module.square(A[1])
            Module.nothing()

        @T.prim_func
        def square(x: T.float32) -> T.float32:
            return x * x

        @T.prim_func
        def nothing():
            T.evaluate(0)

    first, second = Module["main"].body
    assert (first.value.dtype, second.value.dtype) == ("float32", "void")
    assert structural_equal(from_source(to_script(Module)), Module)


def test_struct_info_and_name() -> None:
    @T.prim_func
    def writes(A: T.Buffer((4, 4), "float32"), n: T.int64):
        A[n, n] = 1.0

    @T.prim_func
    def returns(A: T.Buffer((4,), "float32")) -> T.float32:
        return A[0]

    assert writes.__name__ == "writes"
    assert not writes.struct_info.purity
    assert returns.struct_info.purity
    tvm.ir.assert_structural_equal(returns.struct_info.ret, tvm.relax.PrimStructInfo("float32"))
    tvm.ir.assert_structural_equal(writes.struct_info.params[1], tvm.relax.PrimStructInfo("int64"))
