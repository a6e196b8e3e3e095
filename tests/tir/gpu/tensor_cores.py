"""Tensor intrinsics of wmma, and a matmul scheduled with them."""

import tilewright as tvm
from tilewright.script import tir as T


def load(scope, layout):
    @T.prim_func
    def desc(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (16, 16), "float16", align=64, offset_factor=16, scope="shared")
        C = T.match_buffer(c, (16, 16), "float16", align=64, offset_factor=16, scope=scope)
        with T.block("root"):
            T.reads(A[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.block("load"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = A[vi, vj]

    @T.prim_func
    def impl(a: T.handle, c: T.handle):
        s1 = T.int32()
        s0 = T.int32()
        d1 = T.int32()
        d0 = T.int32()
        A = T.match_buffer(a, (16, 16), "float16", align=64, offset_factor=16, scope="shared", strides=[s1, s0])
        C = T.match_buffer(c, (16, 16), "float16", align=64, offset_factor=16, scope=scope, strides=[d1, d0])
        with T.block("root"):
            T.reads(A[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            T.tvm_load_matrix_sync(
                C.data,
                16,
                16,
                16,
                C.elem_offset // d1 // 16 * (d1 // 16) + C.elem_offset % d1 // 16,
                A.access_ptr("r"),
                s1,
                layout,
            )

    return desc, impl


@T.prim_func
def fill_desc(c: T.handle):
    C = T.match_buffer(c, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator")
    with T.block("root"):
        T.reads()
        T.writes(C[0:16, 0:16])
        for i, j in T.grid(16, 16):
            with T.block("init"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.float32(0)


@T.prim_func
def fill_impl(c: T.handle):
    d1 = T.int32()
    d0 = T.int32()
    C = T.match_buffer(c, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator", strides=[d1, d0])
    with T.block("root"):
        T.reads()
        T.writes(C[0:16, 0:16])
        T.tvm_fill_fragment(
            C.data, 16, 16, 16, C.elem_offset // d1 // 16 * (d1 // 16) + C.elem_offset % d1 // 16, T.float32(0)
        )


@T.prim_func
def mma_desc(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_a")
    B = T.match_buffer(b, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_b")
    C = T.match_buffer(c, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator")
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, j, k in T.grid(16, 16, 16):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj])


@T.prim_func
def mma_impl(a: T.handle, b: T.handle, c: T.handle):
    a1 = T.int32()
    a0 = T.int32()
    b1 = T.int32()
    b0 = T.int32()
    c1 = T.int32()
    c0 = T.int32()
    A = T.match_buffer(a, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_a", strides=[a1, a0])
    B = T.match_buffer(b, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_b", strides=[b1, b0])
    C = T.match_buffer(c, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator", strides=[c1, c0])
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        T.tvm_mma_sync(
            C.data,
            C.elem_offset // c1 // 16 * (c1 // 16) + C.elem_offset % c1 // 16,
            A.data,
            A.elem_offset // a1 // 16 * (a1 // 16) + A.elem_offset % a1 // 16,
            B.data,
            B.elem_offset // b1 // 16 * (b1 // 16) + B.elem_offset % b1 // 16,
            C.data,
            C.elem_offset // c1 // 16 * (c1 // 16) + C.elem_offset % c1 // 16,
        )


@T.prim_func
def store_desc(a: T.handle, c: T.handle):
    A = T.match_buffer(a, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator")
    C = T.match_buffer(c, (16, 16), "float32", align=64, offset_factor=16, scope="global")
    with T.block("root"):
        T.reads(A[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, j in T.grid(16, 16):
            with T.block("store"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj]


@T.prim_func
def store_impl(a: T.handle, c: T.handle):
    s1 = T.int32()
    s0 = T.int32()
    d1 = T.int32()
    d0 = T.int32()
    A = T.match_buffer(a, (16, 16), "float32", align=64, offset_factor=16, scope="wmma.accumulator", strides=[d1, d0])
    C = T.match_buffer(c, (16, 16), "float32", align=64, offset_factor=16, scope="global", strides=[s1, s0])
    with T.block("root"):
        T.reads(A[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        T.tvm_store_matrix_sync(
            A.data,
            16,
            16,
            16,
            A.elem_offset // d1 // 16 * (d1 // 16) + A.elem_offset % d1 // 16,
            C.access_ptr("w"),
            s1,
            "row_major",
        )


@T.prim_func
def matmul(A: T.Buffer((64, 64), "float16"), B: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float32")):
    for i, j, k in T.grid(64, 64, 64):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj])


def wmma_matmul():
    """The matmul on tensor cores, 16 by 16 by 16."""
    intrin = tvm.tir.TensorIntrin
    intrin.register("test_wmma_load_a", *load("wmma.matrix_a", "row_major"), override=True)
    intrin.register("test_wmma_load_b", *load("wmma.matrix_b", "row_major"), override=True)
    intrin.register("test_wmma_fill", fill_desc, fill_impl, override=True)
    intrin.register("test_wmma_sync", mma_desc, mma_impl, override=True)
    intrin.register("test_wmma_store", store_desc, store_impl, override=True)
    sch = tvm.tir.Schedule(matmul)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i, ii = sch.split(i, [None, 16])
    j, ji = sch.split(j, [None, 16])
    k, ki = sch.split(k, [None, 16])
    sch.reorder(i, j, k, ii, ji, ki)
    sch.bind(i, "blockIdx.y")
    sch.bind(j, "blockIdx.x")
    out = sch.cache_write(block, 0, "wmma.accumulator")
    sch.reverse_compute_at(out, j)
    shared = [sch.cache_read(block, n, "shared") for n in (0, 1)]
    a = sch.cache_read(block, 0, "wmma.matrix_a")
    b = sch.cache_read(block, 1, "wmma.matrix_b")
    for copy in (a, b, *shared):
        sch.compute_at(copy, k)
    for copy in shared:
        fused = sch.fuse(*sch.get_loops(copy)[-2:])
        _, tx, v = sch.split(fused, [None, 32, 8])
        sch.bind(tx, "threadIdx.x")
        sch.vectorize(v)
    init = sch.decompose_reduction(block, k)
    sch.tensorize(sch.get_loops(init)[-2], "test_wmma_fill")
    sch.tensorize(sch.get_loops(a)[-2], "test_wmma_load_a")
    sch.tensorize(sch.get_loops(b)[-2], "test_wmma_load_b")
    sch.tensorize(sch.get_loops(block)[-3], "test_wmma_sync")
    sch.tensorize(sch.get_loops(out)[-2], "test_wmma_store")
    return sch.mod
