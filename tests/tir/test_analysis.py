"""Regions, work, lifetimes, unbound variables."""

import itertools
import random

import numpy as np

from tilewright import te, tir
from tilewright.arith.expr import const
from tilewright.ir.node import replace, walk
from tilewright.ir.structure import structural_equal
from tilewright.tir import analysis
from tilewright.tir import ir as t
from tilewright.tir.interp import interpret

A = t.decl_buffer((64, 64), "float32", "A")
B = t.decl_buffer((64, 64), "float32", "B")
V, W = tir.Var("v", "int32"), tir.Var("w", "int32")
I, J = tir.Var("i", "int32"), tir.Var("j", "int32")


def loop(v, extent, body, start=0):
    return t.For(v, const(start), const(extent), t.ForKind.SERIAL, body)


def block(body, **kw):
    iters = [t.IterVar(t.Range(const(0), const(8)), v) for v in (V, W)]
    return t.Block(tuple(iters), (), (), "blk", body, **kw)


def text(region):
    return region.buffer.name, [(repr(r.min), repr(r.extent)) for r in region.region]


def shown(regions):
    return [text(r) for r in regions]


def test_points_and_the_accumulator():
    body = t.BufferStore(A, A[V, W] + B[W, V + 1], (V, W))
    reads, writes, opaque = analysis.get_block_access_region(block(body))
    assert shown(reads) == [("B", [("w", "1"), ("v + 1", "1")])]
    assert shown(writes) == [("A", [("v", "1"), ("w", "1")])]
    assert opaque == []


def test_loops_inside_are_relaxed():
    body = loop(I, 4, loop(J, 3, t.BufferStore(A, B[V * 4 + I, J * 2 + 1], (V * 4 + I, W))))
    reads, writes, _ = analysis.get_block_access_region(block(body))
    assert [r.extent.value for r in reads[0].region] == [4, 5]
    assert [r.extent.value for r in writes[0].region] == [4, 1]


def test_vectors_negative_strides_quotients():
    body = loop(I, 8, t.BufferStore(A, t.BufferLoad(B, (7 - I, tir.Ramp(W * 4, const(1), 4))), (V * 2 + I // 4, I % 4)))
    reads, writes, _ = analysis.get_block_access_region(block(body))
    assert [r.extent.value for r in reads[0].region] == [8, 4]
    assert [r.extent.value for r in writes[0].region] == [2, 4]


def test_nested_blocks_give_their_declared_regions():
    inner_v = t.IterVar(t.Range(const(0), const(32)), tir.Var("u", "int32"))
    u = inner_v.var
    one = t.Range(u, const(1))
    inner = t.Block((inner_v,), (t.BufferRegion(B, (one, one)),), (t.BufferRegion(A, (one, one)),), "in",
                    t.BufferStore(A, B[u, u], (u, u)))  # fmt: skip
    body = loop(I, 4, t.BlockRealize((V * 4 + I,), const(True), inner))
    reads, writes, _ = analysis.get_block_access_region(block(body))
    assert [r.extent.value for r in reads[0].region] == [4, 4]
    assert writes[0].buffer is A


def test_own_buffers_match_buffers_and_pointers():
    tmp = t.decl_buffer((4,), "float32", "tmp")
    view = t.decl_buffer((4,), "float32", "view")
    region = t.BufferRegion(B, (t.Range(V, const(1)), t.Range(W * 4, const(4))))
    body = t.SeqStmt(
        (
            loop(I, 4, t.BufferStore(tmp, view[I], (I,))),
            t.Evaluate(tir.call_extern("int32", "f", tir.address_of(A[V, W]))),
        )
    )
    b = block(body, alloc_buffers=(tmp,), match_buffers=(t.MatchBufferRegion(view, region),))
    reads, writes, opaque = analysis.get_block_access_region(b)
    assert [x.buffer for x in reads] == [B]
    assert reads[0].region[1].extent.value == 4
    assert writes == []
    assert [x.buffer for x in opaque] == [A]
    both = analysis.get_block_read_write_region(b)
    assert [x.buffer for x in both[1]] == [A]


def test_regions_of_te_blocks_agree_with_detection():
    a, b = te.placeholder((6, 8), name="A"), te.placeholder((8, 5), name="B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((6, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((5, 5), lambda i, j: c[i, j] + c[i + 1, j], name="D")
    for blk in walk(te.create_prim_func([a, b, d]).body):
        if isinstance(blk, t.Block) and blk.iter_vars:
            reads, writes, _ = analysis.get_block_access_region(blk)
            assert structural_equal(tuple(reads), blk.reads, map_free_vars=True)
            assert structural_equal(tuple(writes), blk.writes, map_free_vars=True)


def random_index(rng, variables, depth=2):
    e = const(rng.randint(0, 3))
    for v in variables:
        c = rng.randint(-2, 3)
        if c:
            e = e + v * c
    kind = rng.random()
    if depth and kind < 0.3:
        return random_index(rng, variables, depth - 1) // rng.randint(2, 5) + e
    if depth and kind < 0.5:
        return random_index(rng, variables, depth - 1) % rng.randint(2, 5) + rng.randint(0, 2)
    if depth and kind < 0.6:
        return tir.min(e, random_index(rng, variables, depth - 1))
    return e


def value_of(e, env):
    out = np.zeros(1, "int32")
    o = t.decl_buffer((1,), "int32", "o")
    h = tir.Var("h", "handle")
    interpret(t.PrimFunc((*env, h), t.BufferStore(o, e, (const(0),)), None, {h: o}), *env.values(), out)
    return int(out[0])


def test_relaxed_ranges_cover_every_value():
    rng = random.Random(7)
    known = 0
    for _ in range(60):
        e = random_index(rng, [V, I, J])
        domains = {I: (const(0), const(rng.randint(1, 5))), J: (const(1), const(rng.randint(1, 4)))}
        box = analysis.relax_range(e, const(1), domains)
        if box is None:
            continue
        known += 1
        for v in (0, 3):
            low, n = (value_of(x, {V: v}) for x in box)
            ranges = [range(d[0].value, d[0].value + d[1].value) for d in domains.values()]
            for i, j in itertools.product(*ranges):
                assert low <= value_of(e, {V: v, I: i, J: j}) < low + n, (e, domains, box)
    assert known > 40


def test_flops():
    a, b = te.placeholder((6, 8), name="A"), te.placeholder((8, 5), name="B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((6, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((6, 5), lambda i, j: te.exp(c[i, j]), name="D")
    f = te.create_prim_func([a, b, d])
    assert analysis.estimate_tir_flops(f) == 2 * 6 * 5 * 8 + 6 * 5
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="Y")
    f = te.create_prim_func([x, y])
    assert analysis.estimate_tir_flops(f) == 1
    assert analysis.estimate_tir_flops(f, {n: 100}) == 100
    q = te.placeholder((8,), "int8", name="Q")
    r = te.compute((1,), lambda i: te.sum(tir.cast(q[k], "int32") * 3, axis=k), name="R")
    assert analysis.estimate_tir_flops(te.create_prim_func([q, r])) == 16
    fma = t.BufferStore(A, tir.fma(A[I, 0], A[I, 1], A[I, 2]), (I, const(0)))
    assert analysis.estimate_tir_flops(loop(I, 10, fma)) == 20
    lanes = tir.Ramp(const(0), const(1), 8)
    vector = t.BufferStore(A, t.BufferLoad(A, (I, lanes)) * tir.Broadcast(const(2.0), 8), (I, lanes))
    assert analysis.estimate_tir_flops(loop(I, 10, vector)) == 80


def test_undefined_vars_and_effects():
    s = loop(I, 4, t.BufferStore(A, B[I, V], (I, W)))
    assert set(analysis.undefined_vars(s)) >= {V, W}
    assert V not in analysis.undefined_vars(s, [V])
    assert I not in analysis.undefined_vars(s)
    assert analysis.has_side_effect(tir.call_extern("int32", "f"))
    assert not analysis.has_side_effect(tir.exp(tir.Var("x", "float32")) + 1.0)


def test_deep_equal():
    assert analysis.expr_deep_equal(I + 1, I + 1)
    assert not analysis.expr_deep_equal(I + 1, J + 1)
    assert not analysis.expr_deep_equal(I + 1, 1 + I)


def test_lifetimes_and_common_scopes():
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4,), lambda i: b[i] + 1.0, name="C")
    d = te.compute((4,), lambda i: c[i] + a[i], name="D")
    f = te.create_prim_func([a, d])
    times = {buf.name: span for buf, span in analysis.buffer_lifetimes(f).items()}
    assert times == {"A": (0, 2), "B": (0, 1), "C": (1, 2), "D": (2, 2)}
    lca = {buf.name: s for buf, s in analysis.detect_buffer_access_lca(f).items()}
    assert lca["A"] is None
    assert lca["B"].name_hint == "root"
    tmp = t.decl_buffer((1,), "float32", "tmp")
    zero = const(0)
    outer = loop(I, 4, t.SeqStmt((t.BufferStore(tmp, const(1.0), (zero,)), t.BufferStore(A, tmp[zero], (I, zero)))))
    g = replace(f, body=t.BlockRealize((), const(True), t.Block((), (), (), "root", outer, None, (tmp,))))
    assert analysis.detect_buffer_access_lca(g)[tmp] is outer
