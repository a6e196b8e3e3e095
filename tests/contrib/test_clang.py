"""C becomes LLVM IR, and LLVM IR of somebody else is linked into a program of ours."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import tilewright as tvm
from tilewright.contrib import clang
from tilewright.script import tir as T
from tilewright.support.diagnostics import CompileError
from tilewright.tir.schedule import Schedule

NO_COMPILER = not clang.find_clang(required=False) and importlib.util.find_spec("ziglang") is None
needs_clang = pytest.mark.skipif(NO_COMPILER, reason="no clang and no ziglang")

SCALE = """
define i32 @scale(ptr %out, ptr %in, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr float, ptr %in, i32 %i
  %q = getelementptr float, ptr %out, i32 %i
  %x = load float, ptr %p
  %y = fmul float %x, 3.0
  store float %y, ptr %q
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}
"""


@T.prim_func
def rows(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    for i in range(4):
        with T.block("row"):
            vi = T.axis.spatial(4, i)
            T.reads(A[vi, 0:8])
            T.writes(B[vi, 0:8])
            a = T.match_buffer(A[vi, 0:8], (8,), offset_factor=1)
            b = T.match_buffer(B[vi, 0:8], (8,), offset_factor=1)
            T.evaluate(T.call_extern("int32", "scale", b.access_ptr("w"), a.access_ptr("r"), 8))


def run(mod, *shapes):
    arrays = [np.random.default_rng(0).standard_normal(s).astype("float32") for s in shapes]
    args = [tvm.nd.array(a) for a in arrays]
    tvm.build(mod, target="llvm")[next(iter(mod.functions)).name_hint](*args)
    return arrays, [a.numpy() for a in args]


@pytest.mark.parametrize("place", ["loop", "block"])
def test_text_from_an_annotation(place):
    sch = Schedule(rows)
    block = sch.get_block("row")
    target = block if place == "block" else sch.get_loops(block)[0]
    sch.annotate(target, "pragma_import_llvm", SCALE)
    (a, _), (_, b) = run(sch.mod, (4, 8), (4, 8))
    np.testing.assert_allclose(b, a * 3)


def test_text_from_an_attribute_and_from_a_file(tmp_path):
    path = tmp_path / "scale.ll"
    path.write_text(SCALE.replace("3.0", "5.0"))
    file = str(path)

    @T.prim_func
    def whole(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        T.attr("default", "pragma_import_llvm", file)
        with T.block("all"):
            T.reads(A[0:16])
            T.writes(B[0:16])
            T.evaluate(T.call_extern("int32", "scale", B.access_ptr("w"), A.access_ptr("r"), 16))

    mod = tvm.IRModule({"main": whole})
    (a, _), (_, b) = run(mod, 16, 16)
    np.testing.assert_allclose(b, a * 5)
    path.write_text(SCALE.replace("3.0", "7.0"))  # the cache goes by the text, not by the path
    (a, _), (_, b) = run(mod, 16, 16)
    np.testing.assert_allclose(b, a * 7)


def test_two_functions_may_import_the_same():
    first, second = Schedule(rows), Schedule(rows)
    for sch in (first, second):
        sch.annotate(sch.get_block("row"), "pragma_import_llvm", SCALE)
    f, g = (next(iter(s.mod.functions.values())) for s in (first, second))
    mod = tvm.IRModule({"one": f.with_attr("global_symbol", "one"), "two": g.with_attr("global_symbol", "two")})
    built = tvm.build(mod, target="llvm")
    a = np.ones((4, 8), "float32")
    for name in ("one", "two"):
        out = tvm.nd.array(np.zeros((4, 8), "float32"))
        built[name](tvm.nd.array(a), out)
        np.testing.assert_allclose(out.numpy(), a * 3)


def test_what_cannot_be_linked():
    def build(text):
        sch = Schedule(rows)
        sch.annotate(sch.get_block("row"), "pragma_import_llvm", text)
        tvm.build(sch.mod, target="llvm")

    with pytest.raises(CompileError, match=r"TW0493.*cannot be linked"):
        build("this is\nno LLVM IR")
    with pytest.raises(CompileError, match=r"TW0493.*cannot be linked"):  # defined twice
        build("define i32 @rows(ptr %p) {\n  ret i32 0\n}\ndefine i32 @rows(ptr %p) {\n  ret i32 0\n}\n")
    with pytest.raises(CompileError, match=r"TW0493.*is for riscv64-linux"):
        build('target triple = "riscv64-linux"\ndefine i32 @scale() {\n  ret i32 0\n}\n')
    with pytest.raises(CompileError, match=r"TW0492.*is no file"):
        build("/nowhere/scale.ll")
    with pytest.raises(CompileError, match=r"TW0492.*takes the text"):
        build(3)


@needs_clang
def test_c_becomes_text(tmp_path):
    one = 'extern "C" int one(float *x) { x[0] = 1; return 0; }'
    text = clang.create_llvm(one, output=str(tmp_path / "one.ll"), options=["-O1"])
    assert "define" in text
    assert "@one" in text
    assert (tmp_path / "one.ll").exists()
    assert text == clang.create_llvm(one, options=["-O1"])
    source = tmp_path / "two.cc"
    source.write_text('extern "C" int two(float *x) { x[0] = 2; return 0; }')
    both = clang.create_llvm([one, str(source)], options=["-O1"])
    assert "@one" in both
    assert "@two" in both
    with pytest.raises(RuntimeError, match="failed"):
        clang.create_llvm("this is no C")


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no ziglang")
def test_the_clang_of_ziglang(monkeypatch):
    monkeypatch.setattr(clang, "find_clang", lambda required=True: [])
    text = clang.create_llvm('extern "C" int scale(float *o, const float *x, int n) { for (int i = 0; i < n; ++i) '
                             "o[i] = x[i] * 4; return 0; }")  # fmt: skip
    sch = Schedule(rows)
    sch.annotate(sch.get_block("row"), "pragma_import_llvm", text)
    (a, _), (_, b) = run(sch.mod, (4, 8), (4, 8))
    np.testing.assert_allclose(b, a * 4)


@needs_clang
def test_a_matrix_product_by_a_micro_kernel():
    """A C function multiplies blocks of 16; tensorize puts it into a tiled product of 64."""
    text = clang.create_llvm(
        """
        extern "C" int block_update(float *c, const float *a, const float *b, int sc, int sa, int sb) {
          for (int i = 0; i < 16; ++i)
            for (int j = 0; j < 16; ++j) {
              float sum = c[i * sc + j];
              for (int k = 0; k < 16; ++k) sum += a[i * sa + k] * b[j * sb + k];
              c[i * sc + j] = sum;
            }
          return 0;
        }
        """
    )

    @T.prim_func
    def desc(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (16, 16), "float32", offset_factor=1)
        B = T.match_buffer(b, (16, 16), "float32", offset_factor=1)
        C = T.match_buffer(c, (16, 16), "float32", offset_factor=1)
        with T.block("root"):
            T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            for i, j, k in T.grid(16, 16, 16):
                with T.block("update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]

    @T.prim_func
    def impl(a: T.handle, b: T.handle, c: T.handle):
        sa = T.int32()
        sb = T.int32()
        sc = T.int32()
        A = T.match_buffer(a, (16, 16), "float32", offset_factor=1, strides=[sa, 1])
        B = T.match_buffer(b, (16, 16), "float32", offset_factor=1, strides=[sb, 1])
        C = T.match_buffer(c, (16, 16), "float32", offset_factor=1, strides=[sc, 1])
        with T.block("root"):
            T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
            T.writes(C[0:16, 0:16])
            T.evaluate(T.call_extern("int32", "block_update", C.access_ptr("rw"), A.access_ptr("r"),
                                     B.access_ptr("r"), sc, sa, sb))  # fmt: skip

    @T.prim_func
    def product(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
        for i, j, k in T.grid(64, 64, 64):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]

    sch = Schedule(product)
    block = sch.get_block("C")
    tiles = [sch.split(x, [None, 16]) for x in sch.get_loops(block)]
    sch.reorder(*(t[0] for t in tiles), *(t[1] for t in tiles))
    sch.decompose_reduction(block, tiles[2][0])
    sch.tensorize(tiles[0][1], tvm.tir.TensorIntrin(desc, impl))
    sch.annotate(tiles[0][0], "pragma_import_llvm", text)
    (a, b, _), (_, _, c) = run(sch.mod, (64, 64), (64, 64), (64, 64))
    np.testing.assert_allclose(c, a @ b.T, rtol=1e-3, atol=1e-3)
