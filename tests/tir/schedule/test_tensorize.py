"""tensorize: what it matches, where the operands lie, what it puts there, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tests.tir.schedule.meaning import data, equal, only, refused, results, same
from tilewright.script import tir as T
from tilewright.tir import TensorIntrin
from tilewright.tir.interp import interpret
from tilewright.tir.schedule import Schedule


@T.prim_func
def dot_desc(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4,), "float32", offset_factor=1)
    B = T.match_buffer(b, (4,), "float32", offset_factor=1)
    C = T.match_buffer(c, (), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(C[()], A[0:4], B[0:4])
        T.writes(C[()])
        for i in range(4):
            with T.block("update"):
                vi = T.axis.reduce(4, i)
                C[()] = C[()] + A[vi] * B[vi]


@T.prim_func
def dot_impl(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4,), "float32", offset_factor=1)
    B = T.match_buffer(b, (4,), "float32", offset_factor=1)
    C = T.match_buffer(c, (), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(C[()], A[0:4], B[0:4])
        T.writes(C[()])
        T.block_attr({"by": "dot"})
        C[()] = C[()] + A[0] * B[0] + A[1] * B[1] + A[2] * B[2] + A[3] * B[3]


TensorIntrin.register("tests.dot", dot_desc, dot_impl)


@T.prim_func
def product(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32"), C: T.Buffer((8, 8), "float32")):
    for i, j, k in T.grid(8, 8, 12):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]


def by_four(f=product):
    sch = Schedule(f)
    block = sch.get_block("C")
    *_, k = sch.get_loops(block)
    return sch, block, *sch.split(k, [None, 4])


def test_structure():
    @T.prim_func
    def expected(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32"), C: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("C_init"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.float32(0)
            for k in range(3):
                with T.block("C_update_o"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(C[vi, vj], A[vi, vk * 4 : vk * 4 + 4], B[vj, vk * 4 : vk * 4 + 4])
                    T.writes(C[vi, vj])
                    T.block_attr({"by": "dot"})
                    a = T.match_buffer(A[vi, vk * 4 : vk * 4 + 4], (4,), offset_factor=1)
                    b = T.match_buffer(B[vj, vk * 4 : vk * 4 + 4], (4,), offset_factor=1)
                    c = T.match_buffer(C[vi, vj], (), offset_factor=1)
                    c[()] = c[()] + a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]

    sch, block, k0, k1 = by_four()
    sch.decompose_reduction(block, k0)
    sch.tensorize(k1, "tests.dot")
    equal(sch, expected)
    same(product, sch, native=True)
    assert "tensorize(" in str(sch.trace)
    assert "tests.dot" in str(sch.trace)


@pytest.mark.parametrize("how", ["loop", "block", "intrin"])
def test_of_a_loop_or_a_block(how):
    sch, _, _, k1 = by_four()
    intrin = TensorIntrin.get("tests.dot") if how == "intrin" else "tests.dot"
    sch.tensorize(sch.blockize(k1) if how == "block" else k1, intrin)  # the init stays in the new block
    same(product, sch, native=True)
    assert only(sch).script().count("match_buffer") == 3


def test_operands_turned_round_and_more_dimensions():
    @T.prim_func
    def batched(A: T.Buffer((2, 8, 12), "float32"), B: T.Buffer((8, 12), "float32"), C: T.Buffer((2, 8), "float32")):
        for n, i, k in T.grid(2, 8, 12):
            with T.block("C"):
                vn, vi, vk = T.axis.remap("SSR", [n, i, k])
                with T.init():
                    C[vn, vi] = T.float32(0)
                C[vn, vi] = B[vi, vk] * A[vn, vi, vk] + C[vn, vi]

    sch, _, _, k1 = by_four(batched)
    sch.tensorize(k1, "tests.dot")
    same(batched, sch)


def test_indices_of_64_bits():
    text = product.script()
    for n in (8, 12):
        text = text.replace(f"({n}, ", f"(T.int64({n}), ").replace(f", {n})", f", T.int64({n}))")
    text = text.replace("T.grid(T.int64(8), 8,", "T.grid(T.int64(8), T.int64(8),")
    wide = tvm.script.from_source(text)
    sch, block, k0, k1 = by_four(wide)
    sch.decompose_reduction(block, k0)
    sch.tensorize(k1, "tests.dot")
    same(wide, sch, native=True)
    views = sch.get(sch.get_block("C_update_o")).match_buffers
    assert {n.dtype for v in views for n in v.buffer.shape} == {"int64"}


def test_layouts_made_for_an_intrinsic():
    """The description has a packed operand; the program reads it through quotients and remainders."""

    @T.prim_func
    def desc(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (4,), "uint8", offset_factor=1)
        B = T.match_buffer(b, (8, 4), "int8", offset_factor=1)
        C = T.match_buffer(c, (8,), "int32", offset_factor=1)
        with T.block("root"):
            T.reads(C[0:8], A[0:4], B[0:8, 0:4])
            T.writes(C[0:8])
            for i, k in T.grid(8, 4):
                with T.block("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.Cast("int32", A[vk]) * T.Cast("int32", B[vi, vk])

    @T.prim_func
    def impl(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (4,), "uint8", offset_factor=1)
        B = T.match_buffer(b, (8, 4), "int8", offset_factor=1)
        C = T.match_buffer(c, (8,), "int32", offset_factor=1)
        with T.block("root"):
            T.reads(C[0:8], A[0:4], B[0:8, 0:4])
            T.writes(C[0:8])
            T.evaluate(T.call_extern("int32", "packed_dot", C.access_ptr("rw"), A.access_ptr("r"), B.access_ptr("r")))

    @T.prim_func
    def dense(X: T.Buffer((4, 16), "uint8"), W: T.Buffer((16, 16), "int8"), Y: T.Buffer((4, 16), "int32")):
        for i, j, k in T.grid(4, 16, 16):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = 0
                Y[vi, vj] = Y[vi, vj] + T.Cast("int32", X[vi, vk]) * T.Cast("int32", W[vj, vk])

    sch = Schedule(dense)
    block = sch.get_block("Y")
    sch.transform_layout(block, "W", lambda i, j: (i // 8, j // 4, i % 8, j % 4))
    _, j, k = sch.get_loops(block)
    _, j1 = sch.split(j, [None, 8])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(k0, j1, k1)
    sch.decompose_reduction(block, k0)
    sch.tensorize(j1, TensorIntrin(desc, impl))
    x, w, y = data(dense)
    want = results(dense, [x, w, y])[2]

    def packed_dot(c, a, b):
        c[:8] += b[:32].astype("int32").reshape(8, 4) @ a[:4].astype("int32")
        return 0

    packed = w.reshape(2, 8, 4, 4).transpose(0, 2, 1, 3).copy()
    interpret(only(sch), x, packed, y, externs={"packed_dot": packed_dot})
    assert np.array_equal(y, want)


def test_index_arithmetic_is_simplified_on_both_sides():
    @T.prim_func
    def desc(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (1,), "int32", offset_factor=1)
        B = T.match_buffer(b, (8,), "int32", offset_factor=1)
        with T.block("root"):
            T.reads(A[0:1])
            T.writes(B[0:8])
            for i in range(8):
                with T.block("decode"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = T.bitwise_and(T.shift_right(A[vi // 8], vi % 8 * 4), 15)

    @T.prim_func
    def decode(A: T.Buffer((4, 2), "int32"), B: T.Buffer((4, 16), "int32")):
        for i, j in T.grid(4, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.bitwise_and(T.shift_right(A[vi, vj // 8], vj % 8 * 4), 15)

    sch = Schedule(decode)
    _, j = sch.get_loops(sch.get_block("B"))
    _, j1 = sch.split(j, [2, 8])
    sch.tensorize(j1, TensorIntrin(desc, desc))
    same(decode, sch)


def test_what_does_not_match():
    sch, _, _, k1 = by_four()
    j = sch.get_loops(sch.get_block("C"))[1]
    message = refused("TW0488", "the extent of the loop 'j' is 8, not 4", lambda: sch.tensorize(j, "tests.dot"))
    assert "the intrinsic describes" in message
    minus = tvm.script.from_source(product.script().replace("C[vi, vj] + A", "C[vi, vj] - A"))
    sch, _, _, k1 = by_four(minus)
    refused("TW0488", "stands where the description has", lambda: sch.tensorize(k1, "tests.dot"))
    same_twice = tvm.script.from_source(product.script().replace("B[vj, vk]", "A[vj, vk]"))
    sch, _, _, k1 = by_four(same_twice)
    refused("TW0488", "is read or written where the description has B", lambda: sch.tensorize(k1, "tests.dot"))
    ints = tvm.script.from_source(product.script().replace("float32", "int32"))
    sch, _, _, k1 = by_four(ints)
    refused("TW0488", "is of int32", lambda: sch.tensorize(k1, "tests.dot"))
    sch, _, _, k1 = by_four()
    sch.annotate(k1, "note", 1)
    refused("TW0488", "other annotations", lambda: sch.tensorize(k1, "tests.dot"))
    sch, _, _, k1 = by_four()
    sch.unroll(k1)
    refused("TW0488", "is unrolled, not serial", lambda: sch.tensorize(k1, "tests.dot"))
    strided = tvm.script.from_source(product.script().replace("A[vi, vk]", "A[vi, 11 - vk]"))
    sch, _, _, k1 = by_four(strided)
    refused("TW0488", "in another way", lambda: sch.tensorize(k1, "tests.dot"))
    sch, block, k0, k1 = by_four()
    sch.cache_write(block, 0, "local")
    refused("TW0488", "is in local memory, the intrinsic takes it in global", lambda: sch.tensorize(k1, "tests.dot"))


def test_registering():
    assert TensorIntrin.get("tests.nothing", allow_missing=True) is None
    with pytest.raises(ValueError, match=r"(?s)TW0490.*did you mean 'tests.dot'"):
        TensorIntrin.get("tests.dott")
    with pytest.raises(ValueError, match="already"):
        TensorIntrin.register("tests.dot", dot_desc, dot_impl)
    TensorIntrin.register("tests.dot", dot_desc, dot_impl, override=True)
    with pytest.raises(ValueError, match="TW0491.*has 3 parameters, impl has 2"):
        TensorIntrin(dot_desc, two_params)
    with pytest.raises(ValueError, match="TW0491.*is of float32 in desc"):
        TensorIntrin(dot_desc, tvm.script.from_source(dot_impl.script().replace('"float32"', '"int32"').replace(
            "(4,), offset_factor", '(4,), "int32", offset_factor').replace("(), offset", '(), "int32", offset')))  # fmt: skip
    with pytest.raises(ValueError, match="is one block"):
        TensorIntrin(no_block, no_block)


@T.prim_func
def two_params(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (4,), "float32")
    B = T.match_buffer(b, (4,), "float32")
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        B[0] = A[0]


@T.prim_func
def no_block(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[i]
