"""The library of tensor intrinsics: every pair is well made, and both sides compute the same where that can be run."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tests.tir.schedule.meaning import data, only, same
from tilewright import te
from tilewright.backends.llvm.testing import compile_assembly
from tilewright.tir import TensorIntrin
from tilewright.tir.interp import interpret
from tilewright.tir.schedule import Schedule
from tilewright.tir.tensor_intrin import arm_cpu, cuda, dot_product_common, hexagon, rocm, x86

NAMES = sorted(
    {
        value
        for module in (x86, arm_cpu, cuda, dot_product_common, rocm, hexagon)
        for key, value in vars(module).items()
        if "_INTRIN" in key
    }
)
RUNNABLE = [
    x86.VNNI_DOT_16x4_INTRIN, x86.AVX512_DOT_16x4_INTRIN, arm_cpu.ARM_DOT_4x4_i8_NEON_INTRIN, arm_cpu.ARM_DOT_4x4_i8_SDOT_INTRIN,
    arm_cpu.ARM_DOT_4x4_u8_UDOT_INTRIN, arm_cpu.ARM_DOT_4x4_u8_HDOT_INTRIN, dot_product_common.DP4A_S8S8S32_INTRIN,
    rocm.AMDGPU_SDOT4_INTRIN, hexagon.VRMPY_u8u8i32_INTRIN, hexagon.VRMPY_u8i8i32_INTRIN, hexagon.VDMPY_i16i16i32_INTRIN,
    hexagon.VRMPY_u8u8i32_VTCM_INTRIN, hexagon.VRMPY_u8i8i32_VTCM_INTRIN,
]  # fmt: skip


def test_there_are_many():
    assert len(NAMES) > 60
    assert all(TensorIntrin.get(n, allow_missing=True) is not None for n in ("dot_16x4_vnni", "sdot4", "dp4a_u8u8u32"))


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_pair_of_functions_of_the_same_buffers(name):
    intrin = TensorIntrin.get(name)
    assert intrin.name == name
    for a, b in zip(intrin.desc.param_buffers, intrin.impl.param_buffers, strict=True):
        assert a.scope() == b.scope()
        assert [int(n) for n in a.shape] == [int(n) for n in b.shape]
    for f in (intrin.desc, intrin.impl):
        again = tvm.script.from_source(f.script())
        assert again.script() == f.script()


@pytest.mark.parametrize("name", RUNNABLE)
def test_both_sides_compute_the_same(name):
    intrin = TensorIntrin.get(name)
    for seed in range(3):
        args = data(intrin.desc, seed=seed)
        args[0] = (args[0] * (9 if seed == 2 else 1)).astype(args[0].dtype)
        want, got = ([a.copy() for a in args] for _ in range(2))
        interpret(intrin.desc, *want)
        interpret(intrin.impl, *got)
        for x, y in zip(want, got, strict=True):
            assert np.array_equal(x, y)


def dense(n: int, k: int, dtypes):
    a, w, out = dtypes
    x, y = te.placeholder((n, k), a, name="X"), te.placeholder((n, k), w, name="W")
    r = te.reduce_axis((0, k), name="k")
    z = te.compute((n, n), lambda i, j: te.sum(x[i, r].astype(out) * y[j, r].astype(out), axis=r), name="compute")
    return te.create_prim_func([x, y, z])


PACKED = [
    (x86.VNNI_DOT_16x4_INTRIN, ("uint8", "int8", "int32"), 16, 4),
    (x86.AVX512_DOT_16x4_INTRIN, ("uint8", "int8", "int32"), 16, 4),
    (arm_cpu.ARM_DOT_4x4_i8_SDOT_INTRIN, ("int8", "int8", "int32"), 4, 4),
    (arm_cpu.ARM_DOT_4x4_i8_NEON_INTRIN, ("int8", "int8", "int32"), 4, 4),
    (hexagon.VRMPY_u8u8i32_INTRIN, ("uint8", "uint8", "int32"), 32, 4),
    (hexagon.VDMPY_i16i16i32_INTRIN, ("int16", "int16", "int32"), 32, 2),
]


def tensorized(name, dtypes, rows, inner):
    f = dense(32, 32, dtypes)
    sch = Schedule(f)
    block = sch.get_block("compute")
    sch.transform_layout(block, "W", lambda i, j: (i // rows, j // inner, i % rows, j % inner))
    _, j, k = sch.get_loops(block)
    _, ji = sch.split(j, factors=[None, rows])
    ko, ki = sch.split(k, factors=[None, inner])
    sch.reorder(ko, ji, ki)
    sch.decompose_reduction(block, ko)
    sch.tensorize(ji, name)
    return f, sch


@pytest.mark.parametrize("name, dtypes, rows, inner", PACKED)
def test_in_a_packed_product(name, dtypes, rows, inner):
    f, sch = tensorized(name, dtypes, rows, inner)
    x, w, y = data(f)
    packed = w.reshape(32 // rows, rows, 32 // inner, inner).transpose(0, 2, 1, 3).copy()
    interpret(only(sch), x, packed, y)
    assert np.array_equal(y, x.astype("int32") @ w.astype("int32").T)


@pytest.mark.parametrize(
    "name, dtypes, target, instruction",
    [
        (x86.VNNI_DOT_16x4_INTRIN, PACKED[0][1], "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake", "vpdpbusd"),
        (x86.AVX512_DOT_16x4_INTRIN, PACKED[0][1], "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", "vpmaddubsw"),
        (arm_cpu.ARM_DOT_4x4_i8_SDOT_INTRIN, PACKED[2][1], "llvm -mtriple=aarch64-linux-gnu -mattr=+dotprod", "sdot"),
        (arm_cpu.ARM_DOT_4x4_i8_NEON_INTRIN, PACKED[2][1], "llvm -mtriple=aarch64-linux-gnu", "smull"),
    ],
)
def test_the_instruction_is_emitted(name, dtypes, target, instruction):
    from tilewright.backends.llvm.emit import emit_module
    from tilewright.ir.target import Target
    from tilewright.tir.lower import lower_kernel

    rows = 16 if "16x4" in name else 4
    _, sch = tensorized(name, dtypes, rows, 4)
    chosen = Target(target)
    flat = lower_kernel(only(sch), chosen).with_attr("global_symbol", "product")
    text = compile_assembly(emit_module([flat], chosen).text, chosen)
    assert instruction in text


def test_four_bytes_on_a_gpu():
    for name, dtypes in [
        (rocm.AMDGPU_SDOT4_INTRIN, ("int8", "int8", "int32")),
        (dot_product_common.DP4A_S8S8S32_INTRIN, ("int8", "int8", "int32")),
    ]:
        f = dense(16, 16, dtypes)
        sch = Schedule(f)
        block = sch.get_block("compute")
        _, j, k = sch.get_loops(block)
        ko, ki = sch.split(k, [None, 4])
        out = sch.cache_write(block, 0, "local")
        sch.reverse_compute_at(out, j)
        for i in range(2):
            copy = sch.cache_read(block, i, "shared")
            sch.compute_at(copy, ko)
        sch.decompose_reduction(block, ko)
        sch.tensorize(ki, name)
        same(f, sch)


def fragments(trans: bool):
    """A product of half floats by wmma: fragments loaded from shared memory, multiplied, stored."""
    x, y = te.placeholder((32, 32), "float16", name="X"), te.placeholder((32, 32), "float16", name="Y")
    r = te.reduce_axis((0, 32), name="k")
    z = te.compute(
        (32, 32),
        lambda i, j: te.sum(x[i, r].astype("float32") * (y[j, r] if trans else y[r, j]).astype("float32"), axis=r),
        name="Z",
    )
    sch = Schedule(te.create_prim_func([x, y, z]))
    group = cuda.get_wmma_intrin_group("shared", "global", "float16", "float32", trans)
    block = sch.get_block("Z")
    tiles = [sch.split(v, [None, 16]) for v in sch.get_loops(block)]
    sch.reorder(*(t[0] for t in tiles), *(t[1] for t in tiles))
    inner = sch.blockize(tiles[0][1])
    loads = []
    for i, kind in enumerate("ab"):
        sch.cache_read(inner, i, "shared")
        loads.append(sch.cache_read(inner, i, f"wmma.matrix_{kind}"))
    out = sch.cache_write(inner, 0, "wmma.accumulator")
    init = sch.decompose_reduction(inner, sch.get_loops(inner)[2])
    return sch, group, inner, init, loads, out


@pytest.mark.parametrize("trans", [False, True])
def test_wmma_in_a_product(trans):
    sch, group, inner, init, loads, out = fragments(trans)
    sch.tensorize(init, group["init"])
    sch.tensorize(inner, group["compute"])
    for load, key in zip(loads, ("load_a", "load_b")):
        i, j = sch.get_loops(load)[-2:]
        (i0, i1), (j0, j1) = sch.split(i, [None, 16]), sch.split(j, [None, 16])
        sch.reorder(i0, j0, i1, j1)
        sch.tensorize(i1, group[key])
    i, j = sch.get_loops(out)[-2:]
    (i0, i1), (j0, j1) = sch.split(i, [None, 16]), sch.split(j, [None, 16])
    sch.reorder(i0, j0, i1, j1)
    sch.tensorize(i1, group["store"])
    text = only(sch).script()
    for call in ("tvm_mma_sync", "tvm_load_matrix_sync", "tvm_fill_fragment", "tvm_store_matrix_sync"):
        assert call in text
    assert ('"col_major"' in text) == trans


def test_layouts_of_fragments():
    for f, rows, columns in [
        (cuda.shared_16x16_to_ldmatrix_32x8_layout, 16, 16),
        (cuda.shared_16x32_to_ldmatrix_32x16_layout, 16, 32),
        (cuda.shared_32x16_to_ldmatrix_32x16_layout, 32, 16),
    ]:
        places = {f(i, j) for i in range(rows) for j in range(columns)}
        assert places == {(t, n) for t in range(32) for n in range(rows * columns // 32)}
    for i in range(16):
        for j in range(16):
            assert cuda.ldmatrix_32x8_to_shared_16x16_layout(*cuda.shared_16x16_to_ldmatrix_32x8_layout(i, j)) == (i, j)


def test_groups_by_name():
    assert cuda.get_wmma_intrin_group("shared.dyn", "global", "int8", "int32", True) == {
        "init": "wmma_fill_16x16x16_s32",
        "load_a": "wmma_load_16x16x16_s8_a_shared_dyn",
        "load_b": "wmma_load_16x16x16_s8_b_trans_shared_dyn",
        "compute": "wmma_sync_16x16x16_s8s8s32_trans",
        "store": "wmma_store_16x16x16_s32_global",
    }
    group = cuda.get_mma_intrin_group("shared", "global", "float16", "float32", False, True)
    assert all(TensorIntrin.get(name) for name in group.values())
    with pytest.raises(ValueError, match=r"TW0490.*float64"):
        cuda.get_wmma_intrin_group("shared", "global", "float64", "float32", False)


def test_tiles_for_an_intrinsic():
    from tilewright.tir.schedule.transform import tile_with_tensor_intrin

    f = dense(32, 32, ("uint8", "int8", "int32"))
    sch = Schedule(f)
    block = sch.get_block("compute")
    sch.transform_layout(block, "W", lambda i, j: (i // 16, j // 4, i % 16, j % 4))
    loop = tile_with_tensor_intrin(sch, block, x86.VNNI_DOT_16x4_INTRIN)
    loops = sch.get_loops(block)
    assert [int(sch.get(x).extent) for x in loops] == [32, 2, 8, 16, 4]
    assert sch.get(loop) is sch.get(loops[3])
    sch.decompose_reduction(block, loops[2])
    sch.tensorize(loop, x86.VNNI_DOT_16x4_INTRIN)
    odd = Schedule(dense(30, 30, ("uint8", "int8", "int32")))
    assert tile_with_tensor_intrin(odd, odd.get_block("compute"), x86.VNNI_DOT_16x4_INTRIN) is None
    assert tile_with_tensor_intrin(odd, odd.get_block("compute"), x86.VNNI_DOT_16x4_INTRIN, True) is not None
    same(dense(30, 30, ("uint8", "int8", "int32")), odd)
