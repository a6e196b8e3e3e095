"""Passes that lower blocks: what they make of a program, and that it means the same."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.structure import structural_equal
from tilewright.script import tir as T
from tilewright.tir import transform as tr

from . import programs
from .programs import POOL, same_meaning

LOWERING = [
    tr.LowerInitBlock, tr.PlanAndUpdateBufferAllocationLocation, tr.ConvertBlocksToOpaque, tr.CompactBufferAllocation,
    tr.LowerMatchBuffer, tr.LowerOpaqueBlock, tr.FlattenBuffer, tr.Simplify,
]  # fmt: skip


def apply(f, *passes):
    mod = tvm.IRModule.from_expr(f.with_attr("global_symbol", "main"))
    return tvm.transform.Sequential(list(passes))(mod)["main"]


def expect(f, expected, *passes):
    got = apply(f, *passes)
    want = apply(expected, tr.Simplify())
    assert structural_equal(apply(got, tr.Simplify()), want), f"{got.script()}\n{want.script()}"


@pytest.mark.parametrize("name", POOL)
@pytest.mark.parametrize("n", range(1, len(LOWERING) + 1))
def test_lowering_keeps_the_meaning(name, n):
    f = POOL[name]
    out = apply(f, *(p() for p in LOWERING[:n]))
    same_meaning(f, out)
    tir.analysis.verify_well_formed(out)


def test_init_is_guarded_by_the_reduction_axes():
    @T.prim_func
    def after(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")):
        for i, j, k in T.grid(8, 16, 12):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(A[vi, vk], B[vk, vj])
                T.writes(C[vi, vj])
                if vk == 0:
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    expect(programs.matmul, after, tr.LowerInitBlock())


def test_a_buffer_moves_into_the_loop_that_holds_its_accesses():
    @T.prim_func
    def before(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        B = T.alloc_buffer((8, 8))
        unused = T.alloc_buffer((8, 8))
        for i in range(8):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj]
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, 7 - vj]

    @T.prim_func
    def after(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i in range(8):
            with T.block(""):
                T.reads(A[i, 0:8])
                T.writes(C[i, 0:8])
                B = T.alloc_buffer((8, 8))
                for j in range(8):
                    with T.block("B"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        B[vi, vj] = A[vi, vj]
                for j in range(8):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        C[vi, vj] = B[vi, 7 - vj]

    expect(before, after, tr.PlanAndUpdateBufferAllocationLocation())


def test_what_an_opaque_axis_carries_stays_outside_of_its_loop():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((8,), "int32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
            with T.block("C"):
                vi = T.axis.opaque(8, i)
                C[vi] = B[vi] + T.if_then_else(vi > 0, B[vi - 1], 0)

    out = apply(before, tr.PlanAndUpdateBufferAllocationLocation())
    assert out.body.block.alloc_buffers
    same_meaning(before, out)


def test_iterators_are_replaced_by_their_values():
    @T.prim_func
    def after(A: T.Buffer((12, 16), "float32"), C: T.Buffer((12, 16), "float32")):
        B = T.alloc_buffer((12, 16))
        for i, j in T.grid(12, 16):
            with T.block("B"):
                T.reads(A[i, j])
                T.writes(B[i, j])
                B[i, j] = A[i, j] + T.float32(1)
        for i, j in T.grid(12, 16):
            with T.block("C"):
                T.reads(B[i, j])
                T.writes(C[i, j])
                C[i, j] = B[i, j] * T.float32(2)

    expect(programs.chain, after, tr.ConvertBlocksToOpaque())


def test_an_init_or_an_own_iterator_in_the_predicate_is_refused():
    with pytest.raises(tvm.TVMError, match="TW0531"):
        apply(programs.matmul, tr.ConvertBlocksToOpaque())

    @T.prim_func(check_well_formed=False)
    def own(A: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                T.where(vi < 6)
                A[vi] = 1

    with pytest.raises(tvm.TVMError, match="TW0531"):
        apply(own, tr.ConvertBlocksToOpaque())
    with pytest.raises(tvm.TVMError, match="TW0531"):
        apply(programs.chain, tr.LowerOpaqueBlock())


def _shapes(f):
    from tilewright.ir.node import walk

    return {
        b.name: tuple(int(n) for n in b.shape)
        for s in walk(f.body)
        if isinstance(s, tir.Block)
        for b in s.alloc_buffers
    }


def test_buffers_shrink_to_what_is_accessed():
    @T.prim_func
    def f(A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
        for i, j in T.grid(8, 8):
            with T.block(""):
                B = T.alloc_buffer((64, 64))
                D = T.alloc_buffer((64, 64))
                E = T.alloc_buffer((64, 64))
                for p, q in T.grid(8, 8):
                    with T.block("B"):
                        T.where(p * 8 + q < 60)
                        B[i * 8 + p, j * 8 + q] = A[i * 8 + p, j * 8 + q]
                        D[p * 8 + q, j] = A[i * 8 + p, j * 8 + q]
                        if q < 4:
                            E[p, q] = 0.0
                        else:
                            E[p, q - 2] = 1.0
                for p, q in T.grid(8, 8):
                    with T.block("C"):
                        T.where(p * 8 + q < 60)
                        C[i * 8 + p, j * 8 + q] = B[i * 8 + p, j * 8 + q] + D[p * 8 + q, j]

    out = apply(f, tr.CompactBufferAllocation())
    assert _shapes(out) == {"B": (8, 8), "D": (60, 1), "E": (8, 6)}
    same_meaning(f, out)


def test_storage_align_gives_strides():
    @T.prim_func
    def f(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
        for i in range(4):
            with T.block(""):
                B = T.alloc_buffer((16, 16))
                for p, q in T.grid(4, 16):
                    with T.block("B"):
                        T.writes(B[i * 4 + p, q])
                        T.block_attr({"buffer_dim_align": [[0, 0, 32, 8]]})
                        B[i * 4 + p, q] = A[i * 4 + p, q]
                for p, q in T.grid(4, 16):
                    with T.block("C"):
                        C[i * 4 + p, q] = B[i * 4 + p, 15 - q]

    out = apply(f, tr.CompactBufferAllocation())
    buffer = next(b for s in tir_walk(out.body) if isinstance(s, tir.Block) for b in s.alloc_buffers)
    assert [int(x) for x in buffer.shape] == [4, 16]
    assert [int(x) for x in buffer.strides] == [40, 1]
    flat = apply(out, tr.LowerOpaqueBlock(), tr.FlattenBuffer())
    same_meaning(f, flat)


def tir_walk(n):
    from tilewright.ir.node import walk

    return walk(n)


def test_threads_share_memory_by_its_scope():
    @T.prim_func
    def f(A: T.Buffer((32, 16), "float32"), C: T.Buffer((32, 16), "float32")):
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for x in T.thread_binding(8, thread="threadIdx.x"):
                with T.block(""):
                    S = T.alloc_buffer((32, 16), scope="shared")
                    L = T.alloc_buffer((32, 16), scope="local")
                    for j in range(16):
                        S[b * 8 + x, j] = A[b * 8 + x, j]
                        L[b * 8 + x, j] = A[b * 8 + x, j]
                    for j in range(16):
                        C[b * 8 + x, j] = S[b * 8 + x, j] + L[b * 8 + x, 15 - j]

    assert _shapes(apply(f, tr.CompactBufferAllocation())) == {"S": (8, 16), "L": (1, 16)}


def test_a_pointer_that_escapes_keeps_the_buffer():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32")):
        for i in range(4):
            with T.block(""):
                T.reads()
                T.writes()
                B = T.alloc_buffer((16,))
                T.evaluate(T.call_extern("int32", "g", B.data))
                B[i] = A[i]

    assert _shapes(apply(f, tr.CompactBufferAllocation())) == {"B": (16,)}


def test_views_become_accesses_of_their_source():
    @T.prim_func
    def after(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("tile"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4])
                T.writes(C[vj * 4 : vj * 4 + 4, vi * 4 : vi * 4 + 4])
                for p, q in T.grid(4, 4):
                    C[vj * 4 + q, vi * 4 + p] = A[vi * 4 + p, vj * 4 + q] + T.float32(1)

    expect(programs.views, after, tr.LowerMatchBuffer())


def test_symbols_of_a_view_take_the_offset_and_the_strides():
    @T.prim_func
    def before(A: T.Buffer((16, 32, 64), "float32")):
        for i, j in T.grid(16, 2):
            with T.block(""):
                T.reads()
                T.writes(A[i, j * 16 : j * 16 + 16, 0:16])
                s0, s1, start = T.int32(), T.int32(), T.int32()
                sub = T.match_buffer(
                    A[i, j * 16 : j * 16 + 16, 0:16], (16, 16), strides=[s0, s1], elem_offset=start, offset_factor=16
                )
                T.evaluate(T.call_extern("int32", "g", sub.data, start, s0, s1))

    @T.prim_func
    def after(A: T.Buffer((16, 32, 64), "float32")):
        for i, j in T.grid(16, 2):
            with T.block(""):
                T.reads()
                T.writes(A[i, j * 16 : j * 16 + 16, 0:16])
                T.evaluate(T.call_extern("int32", "g", A.data, i * 2048 + j * 1024, 64, 1))

    expect(before, after, tr.LowerMatchBuffer())


@pytest.mark.parametrize("what", ["offset", "stride", "shape", "scope"])
def test_a_view_that_does_not_fit_is_refused(what):
    options = {
        "offset": {"elem_offset": 0},
        "stride": {"strides": [3, 1], "offset_factor": 1},
        "shape": {"offset_factor": 1},
        "scope": {"scope": "shared", "offset_factor": 1},
    }[what]
    rows = 2 if what == "shape" else 1

    @T.prim_func(check_well_formed=False)
    def f(A: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 2):
            with T.block(""):
                T.reads()
                T.writes(A[i, j * 4 : j * 4 + 4])
                sub = T.match_buffer(A[i, j * 4 : j * 4 + 4], (rows, 4), **options)
                sub[0, 0] = 1.0

    with pytest.raises(tvm.TVMError, match="TW0532"):
        apply(f, tr.LowerMatchBuffer())


def test_opaque_blocks_become_statements():
    @T.prim_func
    def before(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
        for i, u, j in T.grid(5, 1, 7):
            with T.block(""):
                T.where(i * 7 + u * 7 + j < 32)
                T.reads(A[i * 7 + j])
                T.writes(C[i * 7 + j])
                B = T.alloc_buffer((4, 8), strides=(10, 1))
                B[0, 0] = A[i * 7 + u * 7 + j]
                C[i * 7 + u * 7 + j] = B[0, 0]

    @T.prim_func
    def after(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
        for i, j in T.grid(5, 7):
            B_data = T.allocate([4, 10], "float32", "global")
            B = T.decl_buffer((4, 8), "float32", data=B_data, strides=(10, 1))
            if i * 7 + j < 32:
                B[0, 0] = A[i * 7 + j]
                C[i * 7 + j] = B[0, 0]

    expect(before, after, tr.LowerOpaqueBlock())


def test_pragmas_become_attributes_and_other_annotations_stay():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32")):
        for i in T.serial(16, annotations={"pragma_b": 1, "pragma_a": "x", "keep": 3}):
            A[i] = 0.0

    body = apply(f, tr.LowerOpaqueBlock()).body
    assert body.attr_key == "pragma_a"
    assert body.value.value == "x"
    assert body.body.attr_key == "pragma_b"
    assert int(body.body.value) == 1
    assert body.body.body.annotations == {"keep": 3}


def test_thread_loops_become_launches():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32")):
        for i in T.thread_binding(4, thread="blockIdx.x"):
            for j in T.thread_binding(4, thread="vthread.x"):
                A[i * 4 + j] = 0.0

    outer = apply(f, tr.LowerOpaqueBlock()).body
    assert (outer.attr_key, outer.node.thread_tag) == ("thread_extent", "blockIdx.x")
    assert (outer.body.attr_key, outer.body.node.thread_tag) == ("virtual_thread", "vthread.x")


def test_flat_buffers():
    @T.prim_func
    def before(a: T.handle, c: T.handle, n: T.int32):
        A = T.match_buffer(a, (4, n, n), "float32")
        C = T.match_buffer(c, (4, n, n), "float32")
        for i in range(n * n * 4):
            C[i // (n * n), i % (n * n) // n, i % n] = A[i // (n * n), i % (n * n) // n, i % n]

    @T.prim_func
    def after(a: T.handle, c: T.handle, n: T.int32):
        A = T.match_buffer(a, (4, n, n), "float32")
        C = T.match_buffer(c, (4, n, n), "float32")
        A_flat = T.Buffer((4 * n * n,), "float32", data=A.data)
        C_flat = T.Buffer((4 * n * n,), "float32", data=C.data)
        for i in range(n * n * 4):
            C_flat[i] = A_flat[i]

    out = apply(before, tr.FlattenBuffer())
    same_meaning(before, out)
    same_meaning(before, after)


def test_axis_separators_keep_dimensions():
    @T.prim_func
    def before():
        A = T.alloc_buffer([2, 3, 5, 7], axis_separators=[2])
        for i, j, k, m in T.grid(2, 3, 5, 7):
            T.evaluate(A[i, j, k, m])

    @T.prim_func
    def after():
        A = T.alloc_buffer([6, 35], axis_separators=[1])
        for i, j, k, m in T.grid(2, 3, 5, 7):
            T.evaluate(A[i * 3 + j, k * 7 + m])

    expect(before, after, tr.FlattenBuffer())


def test_bools_are_stored_as_bytes():
    out = apply(programs.bools, tr.FlattenBuffer())
    loads = [x for x in tir_walk(out.body) if isinstance(x, tir.BufferLoad)]
    assert {x.buffer.dtype for x in loads} == {"float32", "int8"}
