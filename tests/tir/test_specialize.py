"""PrimFunc.specialize: sizes fixed by numbers, by expressions, by buffers."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.script import tir as T


@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle, n: T.int32):
    m = T.int32()
    A = T.match_buffer(a, (m, n))
    B = T.match_buffer(b, (m, n))
    C = T.match_buffer(c, (m, m))
    for i, j, k in T.grid(m, m, n):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]


def fixed(rows, columns):
    @T.prim_func
    def func(A: T.Buffer((rows, columns)), B: T.Buffer((rows, columns)), C: T.Buffer((rows, rows))):
        for i, j, k in T.grid(rows, rows, columns):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]

    return func


def same(f, g):
    tvm.ir.assert_structural_equal(f.without_attr("global_symbol"), g.without_attr("global_symbol"))


def test_a_buffer_fixes_all_sizes_that_occur_in_it():
    a = product.params[0]
    found = product.specialize({a: tir.decl_buffer((6, 4))})
    same(found, fixed(6, 4))
    x, y = (np.random.default_rng(0).random((6, 4)).astype("float32") for _ in range(2))
    out = tvm.nd.empty((6, 6))
    tvm.build(found, "llvm")["product"](tvm.nd.array(x), tvm.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y.T, rtol=1e-5)


def test_a_number_takes_the_place_of_a_parameter():
    found = product.specialize({product.params[3]: 4})
    assert len(found.params) == 3
    assert [d.value for d in found.buffer_map[found.params[0]].shape[1:]] == [4]
    half = product.specialize({product.params[3]: tir.Var("h", "int32") * 2})
    assert "h * 2" in half.script()
    assert product.specialize({}) is product


def test_constants_are_folded():
    @T.prim_func
    def func(b: T.handle):
        n = T.int32()
        B = T.match_buffer(b, (n,), "int32")
        for i in range(n - 1):
            B[i] = (n + 1) * 42

    text = func.specialize({func.params[0]: tir.decl_buffer((16,), "int32")}).script()
    assert "range(15)" in text
    assert "714" in text


def test_strides_and_offsets():
    @T.prim_func
    def copy(a: T.handle, m: T.int32, p: T.int32, q: T.int32):
        A = T.match_buffer(a, (m, m), strides=[p, 1], elem_offset=q)
        for i, j in T.grid(m, m):
            A[i, j] = A[i, j] + T.float32(1)

    found = copy.specialize({copy.params[0]: tir.decl_buffer((4, 4), strides=[8, 1], elem_offset=3)})
    assert len(found.params) == 1
    (buffer,) = found.buffer_map.values()
    assert ([s.value for s in buffer.strides], buffer.elem_offset.value) == ([8, 1], 3)


def test_pointers_are_bound_by_a_let():
    @T.prim_func(private=True)
    def func(x: T.handle("float32"), y: T.handle("float32")):
        X = T.decl_buffer(32, "float32", data=x)
        Y = T.decl_buffer(16, "float32", data=y)
        for i in range(16):
            Y[i] = X[i] * 2.0

    x_buffer = func.body.buffer
    found = func.specialize({func.params[1]: tir.address_of(x_buffer[16])})
    assert len(found.params) == 1
    assert isinstance(found.body, tir.LetStmt)


@pytest.mark.parametrize(
    "values, words",
    [
        (lambda f: {tir.Var("z", "int32"): 1}, "no parameter"),
        (lambda f: {f.params[0]: 3}, "is a buffer"),
        (lambda f: {f.params[3]: tir.decl_buffer((1,))}, "no buffer"),
        (lambda f: {f.params[0]: tir.decl_buffer((4,))}, "2-dimensional"),
        (lambda f: {f.params[0]: tir.decl_buffer((4, 4)), f.params[2]: tir.decl_buffer((5, 5))}, "at once"),
    ],
)
def test_contradictions_are_refused(values, words):
    with pytest.raises(tvm.TVMError, match=rf"TW0541.*{words}"):
        product.specialize(values(product))
