"""The course's second chapter on GPUs and accelerators: blocks of blocks, tensor intrinsics, a micro-kernel in C."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright.contrib import clang
from tilewright.script import tir as T


def compiler_reason():
    try:
        clang.find_clang()
    except Exception as error:
        return str(error)
    return None


NO_CLANG = compiler_reason()


@tvm.script.ir_module
class BlockMatmul:
    """A matrix product as a product of 16x16 tiles."""

    @T.prim_func
    def main(
        A: T.Buffer((256, 256), "float32"), B: T.Buffer((256, 256), "float32"), C: T.Buffer((256, 256), "float32")
    ):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        for i0, j0, k0 in T.grid(16, 16, 16):
            with T.block("tmm-16x16"):
                vi0, vj0, vk0 = T.axis.remap("SSR", [i0, j0, k0])
                with T.init():
                    for i1, j1 in T.grid(16, 16):
                        with T.block("tmm_init"):
                            vi1, vj1 = T.axis.remap("SS", [i1, j1])
                            C[vi0 * 16 + vi1, vj0 * 16 + vj1] = T.float32(0)
                for i1, j1, k1 in T.grid(16, 16, 16):
                    with T.block("tmm"):
                        vi1, vj1, vk1 = T.axis.remap("SSR", [i1, j1, k1])
                        C[vi0 * 16 + vi1, vj0 * 16 + vj1] += (
                            A[vi0 * 16 + vi1, vk0 * 16 + vk1] * B[vj0 * 16 + vj1, vk0 * 16 + vk1]
                        )


@tvm.script.ir_module
class Matmul:
    """C = A · Bᵀ"""

    @T.prim_func
    def main(
        A: T.Buffer((256, 256), "float32"), B: T.Buffer((256, 256), "float32"), C: T.Buffer((256, 256), "float32")
    ):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        for i, j, k in T.grid(256, 256, 256):
            with T.block("matmul"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] += A[vi, vk] * B[vj, vk]


@T.prim_func
def tmm16_desc(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (16, 16), "float32", offset_factor=16, scope="global.A_reg")
    B = T.match_buffer(b, (16, 16), "float32", offset_factor=16, scope="global.B_reg")
    C = T.match_buffer(c, (16, 16), "float32", offset_factor=16, scope="global.accumulator")
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, j, k in T.grid(16, 16, 16):
            with T.block(""):
                vii, vjj, vkk = T.axis.remap("SSR", [i, j, k])
                C[vii, vjj] = C[vii, vjj] + A[vii, vkk] * B[vjj, vkk]


@T.prim_func
def tmm16_impl(a: T.handle, b: T.handle, c: T.handle):
    sa, sb, sc = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (16, 16), "float32", offset_factor=16, strides=[sa, 1], scope="global.A_reg")
    B = T.match_buffer(b, (16, 16), "float32", offset_factor=16, strides=[sb, 1], scope="global.B_reg")
    C = T.match_buffer(c, (16, 16), "float32", offset_factor=16, strides=[sc, 1], scope="global.accumulator")
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        T.evaluate(T.call_extern("int32", "tmm16", C.access_ptr("w"), A.access_ptr("r"), B.access_ptr("r"), sa, sb, sc))


tvm.tir.TensorIntrin.register("course.tmm16", tmm16_desc, tmm16_impl)

KERNEL = """
extern "C" int tmm16(float* cc, float* aa, float* bb, int stride_a, int stride_b, int stride_c) {
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 16; ++j)
            for (int k = 0; k < 16; ++k)
                cc[i * stride_c + j] += aa[i * stride_a + k] * bb[j * stride_b + k];
    return 0;
}
"""


def check(mod, **options):
    rng = np.random.default_rng(5)
    a, b = rng.random((256, 256)).astype("float32"), rng.random((256, 256)).astype("float32")
    c = tvm.nd.array(np.full((256, 256), np.nan, dtype="float32"))
    tvm.build(mod, target="llvm")["main"](tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b.T, rtol=1e-4)


def test_a_program_of_blocks_in_blocks_runs():
    check(BlockMatmul)


def test_the_outer_block_is_scheduled_as_a_unit():
    sch = tvm.tir.Schedule(BlockMatmul)
    block = sch.get_block("tmm-16x16")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, j, i1, k)
    check(sch.mod)


def test_blockize_makes_the_inner_loops_a_block():
    sch = tvm.tir.Schedule(Matmul)
    i, j, k = sch.get_loops("matmul")
    i, ii = sch.split(i, factors=[None, 16])
    j, ji = sch.split(j, factors=[None, 16])
    k, ki = sch.split(k, factors=[None, 16])
    sch.reorder(i, j, k, ii, ji, ki)
    block_mm = sch.blockize(ii)
    assert len(sch.get_loops(block_mm)) == 3
    check(sch.mod)


def scheduled():
    sch = tvm.tir.Schedule(Matmul)
    i, j, k = sch.get_loops("matmul")
    i, ii = sch.split(i, factors=[None, 16])
    j, ji = sch.split(j, factors=[None, 16])
    k, ki = sch.split(k, factors=[None, 16])
    sch.reorder(i, j, k, ii, ji, ki)
    block_mm = sch.blockize(ii)
    a_reg = sch.cache_read(block_mm, 0, storage_scope="global.A_reg")
    b_reg = sch.cache_read(block_mm, 1, storage_scope="global.B_reg")
    sch.compute_at(a_reg, k)
    sch.compute_at(b_reg, k)
    write_back = sch.cache_write(block_mm, 0, storage_scope="global.accumulator")
    sch.reverse_compute_at(write_back, j)
    sch.decompose_reduction(block_mm, k)
    return sch, i, block_mm


def test_caches_around_the_block():
    check(scheduled()[0].mod)


@pytest.mark.skipif(NO_CLANG is not None, reason=str(NO_CLANG))
def test_a_micro_kernel_in_c_takes_the_place_of_the_block():
    sch, i, block_mm = scheduled()
    sch.tensorize(block_mm, "course.tmm16")
    sch.annotate(i, "pragma_import_llvm", clang.create_llvm(KERNEL, options=["-O3", "-x", "c++"]))
    assert "tmm16" in sch.mod.script()
    check(sch.mod)
