"""One program for each construct of script: it prints, parses back to the same, and prints the same again."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright.script import from_source

HEAD = "@T.prim_func\ndef f(A: T.Buffer((16, 16)), n: T.int32, p: T.handle, q: T.handle('float32', 'shared')):\n"

BODIES: dict[str, str] = {
    "flat views": "B = T.Buffer((256,), data=A.data)\nB[n] = B[n + 1]",
    "declared views": "B = T.decl_buffer((256,), data=A.data)\nC = T.decl_buffer((64, 4), data=B.data)\nC[n, 0] = A[n, 0]",
    "declared memory": "B = T.decl_buffer((4,), 'int8')\nB[n] = T.int8(1)",
    "strides with names": "B = T.match_buffer(p, (4, 4), strides=('s0', 's1'))\nB[0, n] = 1.0",
    "memory that begins anywhere": "B = T.match_buffer(p, (4, 4), 'float16', offset_factor=16, scope='warp', align=128)\n"
    "T.evaluate(T.tvm_access_ptr(T.type_annotation('float16'), B.data, B.elem_offset, 16, 1))",
    "symbolic shapes": "m = T.int64()\nB = T.match_buffer(p, (m, m + T.int64(1)))\nfor i in range(m):\n    B[i, i] = 0.0",
    "size variables": "m = T.int32(is_size_var=True)\nB = T.match_buffer(p, (m,))\nB[m - 1] = 0.0",
    "older names": "B = T.buffer_decl((256,), 'float32', data=A.data)\nr: T.Ptr[T.float32] = T.address_of(B[n])\nT.evaluate(r)",
    "axis separators": "B = T.alloc_buffer((4, 4), axis_separators=[1])\nB[0, 0] = 1.0",
    "loops": "for i in T.serial(2, n, annotations={'k': 1}):\n    for j in T.unroll(4):\n        for k in T.vectorized(0, 4):\n            A[i, j * 4 + k] = 1.0",
    "threads": "for b in T.thread_binding(4, 'blockIdx.x'):\n    for t in T.thread_binding(T.int64(4), thread='threadIdx.x', annotations={'k': [1, 2]}):\n        A[b, t] = 1.0",
    "launched threads": "bx = T.launch_thread('blockIdx.x', 4)\nvx = T.launch_thread('vthread.x', T.int64(2))\nA[bx, vx] = 1.0",
    "environment threads": "tx = T.env_thread('threadIdx.x')\nwith T.launch_thread(tx, 16):\n    A[tx, 0] = 1.0\nT.launch_thread(tx, 16)\nA[tx, 1] = 1.0",
    "while and if": "while A[0, 0] < T.float32(n):\n    if n > 3 and A[0, 0] > 0.0:\n        A[0, 0] = A[0, 0] + 1.0\n    elif n == 2 or not n < 1:\n        A[0, 0] = 2.0\n    else:\n        A[0, 0] = 3.0",
    "assertions": "assert n > 0, 'n is positive'\nwith T.Assert(n < 9, 'n is small'):\n    A[n, 0] = 1.0\nA[0, 0] = 1.0",
    "lets": "x = n + 1\ny: T.float32 = T.float32(0.5)\nwith T.LetStmt(x * 2) as z:\n    A[x, z] = y\nA[x, 0] = y",
    "let expressions": "v = T.int32()\nA[n, 0] = T.float32(T.Let(v * v, where={v: n}))",
    "attributes": "T.attr(A.data, 'storage_alignment', 64)\nwith T.attr(0, 'pragma', T.int32(1)):\n    A[0, 0] = 1.0\nA[0, 1] = 1.0",
    "allocations": "a = T.allocate([4], 'int32', 'local', condition=n > 0, annotations={'k': 'v'})\nB = T.Buffer((4,), 'int32', data=a, scope='local')\nB[0] = n",
    "constants": "c = T.allocate_const([1, 2, 3, 4], 'int32', [2, 2])\nB = T.decl_buffer((2, 2), 'int32', data=c)\nA[n, 0] = T.float32(B[n, 1])",
    "realized": "B = T.Buffer((8, 8))\nT.realize(B[0:4, 2:8], 'local', n > 0)\nB[0, 2] = A[0, 0]",
    "blocks": "for i, j in T.grid(4, 8):\n    with T.block('b'):\n        vi = T.axis.spatial((2, 6), i + 2)\n        vj = T.axis.reduce(8, j)\n        T.where(i * 8 + j < 30)\n        T.reads(A[vi, 0:vj])\n        T.writes(A[vi, vj])\n        T.block_attr({'a': 1, 'b': {'c': [1, 2.5, True, 'x']}})\n        with T.init():\n            A[vi, vj] = 0.0\n        A[vi, vj] = A[vi, vj] + 1.0",
    "other axes": "for i, j in T.grid(4, 8):\n    with T.block('b'):\n        vi = T.axis.scan(4, i)\n        vj = T.axis.opaque(8, j)\n        A[vi, vj] = 1.0",
    "blocks in init": "for i in range(4):\n    with T.block('b'):\n        vi = T.axis.reduce(4, i)\n        with T.init():\n            for k in range(16):\n                with T.block('zero'):\n                    vk = T.axis.spatial(16, k)\n                    A[0, vk] = 0.0\n        A[0, vi] = A[0, vi] + 1.0",
    "views": "for i in range(4):\n    with T.block('b'):\n        vi = T.axis.spatial(4, i)\n        s = T.int32()\n        V = T.match_buffer(A[vi * 4 : vi * 4 + 4, 0:4], (4, 4), strides=[s, 1], offset_factor=1)\n        V[0, 0] = T.float32(s)",
    "a root of its own": "with T.block('root'):\n    T.reads(A[0, 0])\n    T.writes()\n    with T.block('inner'):\n        A[0, 0] = 1.0",
    "vectors": "A[0, 0:4] = T.Ramp(n, 2, 4).astype('float32x4')\nA[1, 0:8:2] = T.Broadcast(T.float32(1), 4) * A[2, 4:8]\nA[3, n : n + 1 : 1] = T.Shuffle([A[0, 0], A[0, 1]], [n])",
    "choices": "A[0, 0] = T.if_then_else(n > 0, A[n, 0], T.float32(0))\nA[0, 1] = T.Select(n > 0, A[0, 2], T.max(A[0, 0], A[0, 1]))\nA[0, 2] = A[0, 0] if n < 2 else A[0, 1]",
    "integers": "A[T.truncdiv(n, 4), T.truncmod(n, 4)] = T.Cast('float32', T.ceildiv(n, 3) << 2 | n >> 1 & 7 ^ ~n)",
    "dtypes": "A[0, 0] = T.float32(T.float16(0.5)) + T.Cast('float32', T.e4m3_float8(1.0)) + T.float32('inf') - T.float32('nan')\nT.evaluate(T.bfloat16(1.0))\nT.evaluate(T.uint64(2**64 - 1))\nT.evaluate(T.int32(-2147483648))",
    "limits": "T.evaluate(T.min_value('int8') + T.max_value('int8'))\nA[0, 0] = T.infinity('float32')",
    "calls": "T.evaluate(T.call_extern('int32', 'f', A.data, n))\nT.call_packed('g', A[0, 0], n)\nT.call_cpacked('h', n)\nA[0, 0] = T.call_pure_extern('float32', 'sqrtf', A[0, 0])\nT.evaluate(T.call_llvm_pure_intrin('int32', 'llvm.ctpop.i32', n))",
    "tensor cores": "T.evaluate(T.tvm_fill_fragment(q, 16, 16, 16, 0, T.float32(0)))\nT.evaluate(T.tvm_load_matrix_sync(q, 16, 16, 16, n, T.tvm_access_ptr(T.type_annotation('float32'), A.data, 0, 256, 1), 16, 'row_major'))\nT.evaluate(T.tvm_mma_sync(q, 0, q, 0, q, 0, q, 0))",
    "asynchronous copies": "T.ptx_cp_async('float32', q, 0, A.data, n, 16)\nT.ptx_commit_group()\nT.ptx_wait_group(0)\nT.ptx_ldmatrix('float16', True, 4, '.b16', p, 0, q, n)",
    "reducers": "T.attr(T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), 'reduce_scope', T.reinterpret('handle', T.uint64(0)))\nT.tvm_thread_allreduce(T.uint32(1), A[0, 0], T.bool(True), q, n)",
    "assumptions": "T.assume(n > 3)\nA[n, 0] = T.undef('float32')\nif T.likely(n < 9):\n    A[0, 0] = 1.0",
    "maps": "with T.block('b'):\n    T.block_attr({'layout': T.index_map(lambda i, j: (j, i // 4, i % 4))})\n    A[0, 0] = 1.0",
    "function attributes": "T.func_attr({'tir.noalias': True, 'target': T.target('llvm'), 'list': [1, 'a'], 'text': 'a\"b'})\nA[0, 0] = 1.0",
    "sequences": "with T.seq():\n    A[0, 0] = 1.0\n    A[0, 1] = 2.0\nA[0, 2] = 3.0",
    "return": "return n + 1",
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_construct(name: str) -> None:
    text = HEAD + "".join(f"    {line}\n" for line in BODIES[name].split("\n"))
    check = name != "realized"  # its buffer gets memory further down only
    f = from_source(text, check_well_formed=check)
    printed = f.script()
    back = from_source(printed)
    tvm.ir.assert_structural_equal(back, f, map_free_vars=True)
    assert back.script() == printed


def test_metadata_is_not_needed_for_any() -> None:
    """Nothing of these programs is kept out of the text."""
    for body in BODIES.values():
        f = from_source(HEAD + "".join(f"    {line}\n" for line in body.split("\n")), check_well_formed=False)
        assert "metadata" not in f.script()


def test_regions_that_are_left_out_read_well() -> None:
    """A region from the lesser to the greater of two indices is written by its two ends."""
    f = from_source(
        "@T.prim_func\n"
        "def f(D: T.Buffer((16,)), X: T.Buffer((16,), 'int32'), C: T.Buffer((1,))):\n"
        "    with T.block('b'):\n"
        "        C[0] = D[X[X[3]]] + D[X[0]]\n"
    )
    printed = f.script()
    assert "D[T.min(X[X[3]], X[0]):T.max(X[X[3]], X[0]) + 1]" in printed
    tvm.ir.assert_structural_equal(from_source(printed), f)
