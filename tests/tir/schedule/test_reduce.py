"""decompose_reduction and rfactor: structure, meaning, and what they refuse."""

from __future__ import annotations

import pytest

from tests.tir.schedule.meaning import equal, only, refused, same
from tilewright.script import tir as T
from tilewright.tir.schedule import Schedule


@T.prim_func
def product(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    for i, j, k in T.grid(8, 8, 12):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def product_split(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(8, 8):
        with T.block("C_init"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads()
            T.writes(C[vi, vj])
            C[vi, vj] = T.float32(0)
    for i, j, k in T.grid(8, 8, 12):
        with T.block("C_update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def test_init_before_the_outermost_loop():
    sch = Schedule(product)
    block = sch.get_block("C")
    init = sch.decompose_reduction(block, sch.get_loops(block)[0])
    equal(sch, product_split)
    same(product, sch, native=True)
    assert sch.get(init).name_hint == "C_init"
    assert sch.get(block).name_hint == "C_update"


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_init_keeps_loop_kinds_and_predicates(at):
    sch = Schedule(product)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [3, 3])
    sch.reorder(i0, i1, k, j)
    sch.vectorize(j)
    sch.annotate(i1, "note", 1)
    sch.annotate(block, "mark", 2)
    init = sch.decompose_reduction(block, sch.get_loops(block)[min(at, 2)])
    assert sch.get(init).annotations == {"mark": 2}
    assert "T.where" in only(sch).script()
    assert only(sch).script().count("T.vectorized") == 2
    same(product, sch, native=True)


def test_init_of_a_nest_of_blocks():
    @T.prim_func
    def nested(A: T.Buffer((8, 4, 16), "float32"), B: T.Buffer((8, 4), "float32")):
        for i, k0 in T.grid(8, 2):
            with T.block("outer"):
                vi, vk0 = T.axis.remap("SR", [i, k0])
                with T.init():
                    for j in range(4):
                        with T.block("B_init"):
                            vj = T.axis.spatial(4, j)
                            B[vi, vj] = T.float32(0)
                for j, k1 in T.grid(4, 8):
                    with T.block("B"):
                        vj = T.axis.spatial(4, j)
                        vk = T.axis.reduce(16, vk0 * 8 + k1)
                        B[vi, vj] = B[vi, vj] + A[vi, vj, vk]

    sch = Schedule(nested)
    block = sch.get_block("outer")
    sch.decompose_reduction(block, sch.get_loops(block)[0])
    same(nested, sch)
    assert [r.buffer.name for r in sch.get(block).reads] == ["B", "A"]


def test_init_bound_to_threads():
    @T.prim_func
    def rows(A: T.Buffer((32, 16), "float32"), B: T.Buffer((32,), "float32")):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for r in range(16):
                with T.block("B"):
                    vi, vr = T.axis.remap("SR", [t, r])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vr]

    sch = Schedule(rows)
    sch.decompose_reduction(sch.get_block("B"), sch.get_loops(sch.get_block("B"))[0])
    assert only(sch).script().count('thread="threadIdx.x"') == 2
    same(rows, sch)


def test_decompose_refuses():
    sch = Schedule(product)
    block = sch.get_block("C")
    i, _, k = sch.get_loops(block)
    sch.reorder(k, i)
    message = refused("TW0462", "belongs to the reduction", lambda: sch.decompose_reduction(block, i))
    assert "decompose at 'k'" in message
    init = sch.decompose_reduction(block, k)
    refused("TW0461", "has no init", lambda: sch.decompose_reduction(block, k))
    refused("TW0461", "has no init", lambda: sch.decompose_reduction(init, k))
    other = Schedule(two_sums)
    loop = other.get_loops(other.get_block("D"))[2]
    message = refused("TW0462", "is not around", lambda: other.decompose_reduction(other.get_block("C"), loop))
    assert "choose among: i, j, k" in message


@T.prim_func
def two_sums(A: T.Buffer((4, 4, 8), "float32"), D: T.Buffer((4, 4), "float32")):
    C = T.alloc_buffer((4, 4))
    for i, j in T.grid(4, 4):
        for k in range(8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vj, vk]
        for q in range(8):
            with T.block("D"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, q])
                with T.init():
                    D[vi, vj] = T.float32(0)
                D[vi, vj] = D[vi, vj] + A[vi, vj, vk] * C[vi, vj]


@T.prim_func
def product_factored(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    C_rf = T.alloc_buffer((8, 4, 8))
    for i, j, k_0, k_1 in T.grid(8, 8, 3, 4):
        with T.block("C_rf"):
            vk_1, vi, vj, vk_0 = T.axis.remap("SSSR", [k_1, i, j, k_0])
            with T.init():
                C_rf[vi, vk_1, vj] = T.float32(0)
            C_rf[vi, vk_1, vj] = C_rf[vi, vk_1, vj] + A[vi, vk_0 * 4 + vk_1] * B[vk_0 * 4 + vk_1, vj]
    for i, j, k_1 in T.grid(8, 8, 4):
        with T.block("C"):
            vk_1, vi, vj = T.axis.remap("RSS", [k_1, i, j])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + C_rf[vi, vk_1, vj]


@pytest.mark.parametrize("axis", [1, -2])
def test_rfactor(axis):
    sch = Schedule(product)
    block = sch.get_block("C")
    _, _, k = sch.get_loops(block)
    _, k1 = sch.split(k, [None, 4])
    first = sch.rfactor(k1, axis)
    equal(sch, product_factored)
    same(product, sch, native=True)
    assert sch.get(first).name_hint == "C_rf"
    assert sch.get(block).name_hint == "C"


@pytest.mark.parametrize("factors", [[3, 4], [4, 4], [2, 3, 2], [12, 1], [1, 12]])
@pytest.mark.parametrize("pick", [0, -1])
def test_rfactor_after_splits(factors, pick):
    sch = Schedule(product)
    block = sch.get_block("C")
    _, _, k = sch.get_loops(block)
    loops = sch.split(k, factors)
    if factors == [4, 4] and pick == 0:  # the fourth block of four has no element
        refused("TW0463", "never be started", lambda: sch.rfactor(loops[0]))
        return
    sch.rfactor(loops[pick], 0)
    same(product, sch, native=True)


def test_rfactor_of_the_whole_axis_needs_no_init():
    sch = Schedule(product)
    first = sch.rfactor(sch.get_loops(sch.get_block("C"))[2])
    assert sch.get(first).init is None
    same(product, sch)


def test_rfactor_beside_other_blocks():
    sch = Schedule(two_sums)
    loop = sch.get_loops(sch.get_block("C"))[2]
    sch.rfactor(loop, 2)
    same(two_sums, sch)
    assert only(sch).script().count("T.block(") == 3
    loop = sch.get_loops(sch.get_block("D"))[2]
    refused("TW0463", "is not the first one", lambda: sch.rfactor(loop, 0))


def _best(order: bool, native: bool = False):
    @T.prim_func
    def best(V: T.Buffer((6, 24), "float32"), I: T.Buffer((6, 24), "int32"), P: T.Buffer((6,), "int32"),
             Q: T.Buffer((6,), "float32")):  # fmt: skip
        for i, k in T.grid(6, 24):
            with T.block("best"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(V[vi, vk], I[vi, vk])
                T.writes(P[vi], Q[vi])
                with T.init():
                    P[vi] = -1
                    Q[vi] = T.min_value("float32")
                p: T.int32 = T.Select(Q[vi] >= V[vi, vk], P[vi], I[vi, vk])
                q: T.float32 = T.Select(Q[vi] >= V[vi, vk], Q[vi], V[vi, vk])
                P[vi] = p
                Q[vi] = q

    return best


def test_rfactor_of_an_argmax():
    import numpy as np

    from tests.tir.schedule.meaning import results

    f = _best(True)
    sch = Schedule(f)
    block = sch.get_block("best")
    _, k = sch.get_loops(block)
    k0, _ = sch.split(k, [4, 6])
    sch.rfactor(k0, 1)
    v = np.random.default_rng(0).permutation(6 * 24).reshape(6, 24).astype("float32")
    index = np.tile(np.arange(24, dtype="int32"), (6, 1))
    got = results(only(sch), [v, index, np.zeros(6, "int32"), np.zeros(6, "float32")])
    assert np.array_equal(got[2], v.argmax(1))
    assert np.array_equal(got[3], v.max(1))
    assert [w.buffer.name for w in sch.get(sch.get_block("best_rf")).writes] == ["P_rf", "Q_rf"]


def test_rfactor_of_sums_of_pairs_and_of_a_let():
    @T.prim_func
    def moments(X: T.Buffer((4, 12), "float32"), S: T.Buffer((4,), "float32"), Q: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 12):
            with T.block("m"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.float32(0)
                    Q[vi] = T.float32(0)
                s: T.float32 = S[vi] + X[vi, vk]
                q: T.float32 = Q[vi] + X[vi, vk] * X[vi, vk]
                S[vi] = s
                Q[vi] = q

    @T.prim_func
    def single(X: T.Buffer((4, 12), "float32"), S: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 12):
            with T.block("m"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.min_value("float32")
                s: T.float32 = T.max(X[vi, vk], S[vi])
                S[vi] = s

    for f in (moments, single):
        for whole in (True, False):
            sch = Schedule(f)
            loop = sch.get_loops(sch.get_block("m"))[1]
            sch.rfactor(loop if whole else sch.split(loop, [3, 4])[1], 0)
            same(f, sch)


def test_rfactor_of_a_scalar_and_of_symbolic_rows():
    @T.prim_func
    def total(A: T.Buffer((16,), "float32"), B: T.Buffer((), "float32")):
        for k in range(16):
            with T.block("B"):
                vk = T.axis.reduce(16, k)
                with T.init():
                    B[()] = T.float32(0)
                B[()] = B[()] + A[vk]

    sch = Schedule(total)
    sch.rfactor(sch.get_loops(sch.get_block("B"))[0], 0)
    same(total, sch)

    @T.prim_func
    def rows(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, n))
        B = T.match_buffer(b, (n,))
        for i, k in T.grid(n, n):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(1)
                B[vi] = B[vi] * A[vi, vk]

    sch = Schedule(rows)
    sch.rfactor(sch.get_loops(sch.get_block("B"))[1], 1)
    same(rows, sch, {"n": 5})


def _changed(text_from: str, text_to: str):
    import tilewright as tvm

    text = product.script()
    assert text_from in text
    return tvm.script.from_source(text.replace(text_from, text_to))


@pytest.mark.parametrize(
    "old, new, code, message",
    [
        ("C[vi, vj] + A", "C[vi, vj] - A", "TW0481", "no reducer fits"),
        ("C[vi, vj] = T.float32(0.0)", "C[vi, vj] = T.float32(2.0)", "TW0481", "no reducer fits"),
        ("C[vi, vj] = T.float32(0.0)", "C[vj, vi] = T.float32(0.0)", "TW0481", "not all at the same indices"),
        ("C[vi, vj] = T.float32(0.0)", "A[vi, vj] = T.float32(0.0)", "TW0481", "different buffers"),
        ("T.writes(C[vi, vj])", "T.writes(C[vi, vk])", "TW0461", "depends on the reduction iterator 'vk'"),
        ("for i, j, k in T.grid(8, 8, 12):", "for i, j, k in T.grid(8, 8, 4):", "TW0461", "no affine map"),
    ],
)
def test_rfactor_refuses_other_forms(old, new, code, message):
    f = _changed(old, new)
    if code == "TW0461" and "affine" in message:
        text = f.script().replace('vi, vj, vk = T.axis.remap("SSR", [i, j, k])', 'vi, vj = T.axis.remap("SS", [i, j])\n'
            "            vk = T.axis.reduce(12, k * k // 2)")  # fmt: skip
        import tilewright as tvm

        f = tvm.script.from_source(text)
    sch = Schedule(f)
    loop = sch.get_loops(sch.get_block("C"))[2]
    refused(code, message, lambda: sch.rfactor(loop))
    assert only(sch) is not None


def test_rfactor_refuses_loops_and_axes():
    sch = Schedule(product)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    refused("TW0463", "no reduction loop", lambda: sch.rfactor(i))
    refused("TW0463", "factor_axis must be in [-3, 2]", lambda: sch.rfactor(k, 3))
    refused("TW0463", "factor_axis must be in [-3, 2]", lambda: sch.rfactor(k, -4))
    k0, k1 = sch.split(k, [None, 4])
    sch.unroll(k1)
    refused("TW0463", "unrolled, not serial", lambda: sch.rfactor(k1))
    sch.fuse(j, k0)
    refused("TW0463", "and a reduction one", lambda: sch.rfactor(sch.get_loops(block)[1]))
    outer = Schedule(two_sums)
    refused("TW0463", "holds 2 blocks", lambda: outer.rfactor(outer.get_loops(outer.get_block("C"))[0]))
