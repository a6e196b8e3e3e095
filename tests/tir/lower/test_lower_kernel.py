"""Lowering of kernels: each pass and all of them together keep the meaning; the flat form holds nothing it must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import te
from tilewright.arith.expr import (
    Call,
    IntImm,
    Let,
    PrimExpr,
    Ramp,
    SizeVar,
    Var,
    call_intrin,
    const,
    floordiv,
    floormod,
    if_then_else,
    maximum,
)
from tilewright.ir.node import walk
from tilewright.ir.structure import structural_equal
from tilewright.support.diagnostics import CompileError
from tilewright.tir.interp import interpret
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    BufferLoad,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    MatchBufferRegion,
    PrimFunc,
    Range,
    Stmt,
    While,
    decl_buffer,
    seq,
)
from tilewright.tir.lower import kernel_params, lower_kernel
from tilewright.tir.lower.index import IndexSpace

ONE = IntImm("bool", 1)


def func(body: Stmt, *buffers: Any, alloc: Any = ()) -> PrimFunc:
    """A function of these buffers, with `body` in its root block."""
    params = tuple(Var(f"p_{b.name}", "handle") for b in buffers)
    root = BlockRealize((), ONE, Block((), (), (), "root", body, None, tuple(alloc)))
    return PrimFunc(params, root, None, dict(zip(params, buffers)), {"global_symbol": "main", "tir.noalias": True})


def loop(var: Var, n: Any, body: Stmt, kind: ForKind = ForKind.SERIAL) -> For:
    return For(var, const(0, var.dtype), const(n, var.dtype) if isinstance(n, int) else n, kind, body)


def agree(f: PrimFunc, *args: Any) -> PrimFunc:
    """The flat form of `f`, which must compute the same and hold only what code generators take."""
    flat = lower_kernel(f)
    want = [a.copy() for a in args if isinstance(a, np.ndarray)]
    got = [a.copy() for a in want]
    interpret(f, *want)
    interpret(flat, *(g.reshape(-1) for g in got), *(a for a in args if not isinstance(a, np.ndarray)))
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-6)
    check_flat(flat)
    return flat


def check_flat(f: PrimFunc) -> None:
    assert not f.buffer_map
    for n in walk(f.body):
        assert not isinstance(n, (Block, BlockRealize))
        if isinstance(n, For):
            assert n.kind in (ForKind.SERIAL, ForKind.PARALLEL)
            assert n.loop_var.dtype == "int64"
        if isinstance(n, (BufferLoad, BufferStore)):
            assert len(n.indices) == 1
            assert len(n.buffer.shape) == 1


def test_parameters_are_pointers_scalars_then_symbols() -> None:
    n, m, s = SizeVar("n", "int64"), SizeVar("m", "int64"), Var("s", "float32")
    a = decl_buffer((n, m), "float32", "A")
    b = decl_buffer((n * m, 3), "float32", "B")
    pa, pb = Var("pa", "handle"), Var("pb", "handle")
    f = PrimFunc((pa, s, pb), Evaluate(const(0)), None, {pa: a, pb: b})
    flat, symbols = kernel_params(f)
    assert flat == [a.data, s, b.data]
    assert [x.name for x in symbols] == ["n", "m"]
    with_scalar = PrimFunc((pa, n, pb), Evaluate(const(0)), None, {pa: a, pb: b})
    assert [x.name for x in kernel_params(with_scalar)[1]] == ["m"]


def test_reduction_with_init() -> None:
    a, k = te.placeholder((5, 7), "float32", name="a"), te.reduce_axis((0, 7), name="k")
    f = te.create_prim_func([a, te.compute((5,), lambda i: te.sum(a[i, k], axis=k))])
    rng = np.random.default_rng(0)
    agree(f, rng.standard_normal((5, 7)).astype("f4"), np.zeros(5, "f4"))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 16, 24, 33, 64, 100])
def test_vectorized_loops_of_any_length(n: int) -> None:
    a, b, c = (decl_buffer((n,), "float32", x) for x in "abc")
    v = Var("v", "int64")
    body = BufferStore(c, a[v] * 2.0 + b[v], (v,))
    flat = agree(func(loop(v, n, body, ForKind.VECTORIZED), a, b, c), *(np.arange(n, dtype="f4") for _ in range(3)))
    if n >= 8:
        assert any(isinstance(x, Ramp) for x in walk(flat.body))


def test_vectorized_loads_of_each_stride() -> None:
    a, c = decl_buffer((64,), "float32", "a"), decl_buffer((8,), "float32", "c")
    v = Var("v", "int64")
    x = np.arange(64, dtype="f4")
    for index in (v, v * 2, 7 - v, v * 0 + 5, v * v, floordiv(v, 2), floormod(v, 3) + 1):
        f = func(loop(v, 8, BufferStore(c, a[index], (v,)), ForKind.VECTORIZED), a, c)
        agree(f, x, np.zeros(8, "f4"))


def test_what_has_no_vector_form_runs_serially() -> None:
    a, c, s = decl_buffer((8,), "float32", "a"), decl_buffer((8,), "float32", "c"), decl_buffer((1,), "float32", "s")
    v = Var("v", "int64")
    x = np.arange(8, dtype="f4")
    total = BufferStore(s, BufferLoad(s, (const(0, "int64"),)) + a[v], (const(0, "int64"),))
    agree(func(loop(v, 8, total, ForKind.VECTORIZED), a, s), x, np.zeros(1, "f4"))
    branch = IfThenElse(v < 3, BufferStore(c, a[v], (v,)))
    agree(func(loop(v, 8, branch, ForKind.VECTORIZED), a, c), x, np.zeros(8, "f4"))
    guarded = BufferStore(c, if_then_else(v < 5, a[v + 3], 1.0), (v,))
    agree(func(loop(v, 8, guarded, ForKind.VECTORIZED), a, c), x, np.zeros(8, "f4"))


def test_lets_are_bound_anew_in_each_copy() -> None:
    a, c = decl_buffer((4, 8), "float32", "a"), decl_buffer((4, 8), "float32", "c")
    u, v, t = Var("u", "int64"), Var("v", "int64"), Var("t", "float32")
    body = LetStmt(t, a[u, v] + 1.0, BufferStore(c, t * t, (u, v)))
    nest = loop(u, 4, loop(v, 8, body, ForKind.VECTORIZED), ForKind.UNROLLED)
    flat = agree(func(nest, a, c), np.arange(32, dtype="f4").reshape(4, 8), np.zeros((4, 8), "f4"))
    bound = [x.var for x in walk(flat.body) if isinstance(x, LetStmt)]
    assert len(bound) == len(set(bound))
    inner = Var("w", "float32")
    expr = BufferStore(c, Let(inner, a[u, v] * 3.0, inner + inner), (u, v))
    agree(func(loop(u, 4, loop(v, 8, expr, ForKind.VECTORIZED)), a, c), np.ones((4, 8), "f4"), np.zeros((4, 8), "f4"))


def test_strides_and_offset_of_a_parameter() -> None:
    a = decl_buffer((3, 4), "float32", "a", strides=(8, 2), elem_offset=1)
    c = decl_buffer((3, 4), "float32", "c")
    i, j = Var("i", "int64"), Var("j", "int64")
    flat = lower_kernel(func(loop(i, 3, loop(j, 4, BufferStore(c, a[i, j], (i, j)))), a, c))
    raw, out = np.arange(30, dtype="f4"), np.zeros(12, "f4")
    interpret(flat, raw, out)
    want = [[raw[1 + 8 * x + 2 * y] for y in range(4)] for x in range(3)]
    np.testing.assert_array_equal(out.reshape(3, 4), want)


def test_match_buffer_is_a_view() -> None:
    a, c = decl_buffer((6, 8), "float32", "a"), decl_buffer((6, 8), "float32", "c")
    i, j, y = Var("i", "int64"), Var("j", "int64"), Var("y", "int64")
    offset, s0, s1 = Var("off", "int64"), Var("s0", "int64"), Var("s1", "int64")
    view = decl_buffer((2, 4), "float32", "view", strides=(s0, s1), elem_offset=offset)
    region = BufferRegion(c, (Range(y * 2, const(2, "int64")), Range(const(3, "int64"), const(4, "int64"))))
    inner = loop(i, 2, loop(j, 4, BufferStore(view, a[y * 2 + i, j] + 1.0, (i, j))))
    block = BlockRealize((), ONE, Block((), (), (), "b", inner, None, (), (MatchBufferRegion(view, region),)))
    agree(func(loop(y, 3, block), a, c), np.arange(48, dtype="f4").reshape(6, 8), np.zeros((6, 8), "f4"))


def test_allocation_inside_a_block() -> None:
    a, c = decl_buffer((5, 6), "float32", "a"), decl_buffer((5, 6), "float32", "c")
    t = decl_buffer((6,), "float32", "t")
    i, j, k = Var("i", "int64"), Var("j", "int64"), Var("k", "int64")
    body = seq(loop(j, 6, BufferStore(t, a[i, j] * 2.0, (j,))), loop(k, 6, BufferStore(c, t[5 - k], (i, k))))
    inner = BlockRealize((), ONE, Block((), (), (), "b", body, None, (t,)))
    agree(
        func(loop(i, 5, inner, ForKind.PARALLEL), a, c), np.arange(30, dtype="f4").reshape(5, 6), np.zeros((5, 6), "f4")
    )


def test_predicates_and_while() -> None:
    a, c = decl_buffer((10,), "float32", "a"), decl_buffer((10,), "float32", "c")
    i, j = Var("i", "int64"), Var("j", "int64")
    vi = Var("vi", "int64")
    from tilewright.tir.ir import IterVar

    block = Block(
        (IterVar(Range(const(0, "int64"), const(10, "int64")), vi),), (), (), "b", BufferStore(c, a[vi], (vi,))
    )
    f = func(loop(i, 3, loop(j, 4, BlockRealize((i * 4 + j,), i * 4 + j < 10, block))), a, c)
    agree(f, np.arange(10, dtype="f4"), np.zeros(10, "f4"))
    n = decl_buffer((1,), "int32", "n")
    zero = const(0, "int64")
    step = seq(
        BufferStore(c, BufferLoad(n, (zero,)).astype("float32"), (BufferLoad(n, (zero,)).astype("int64"),)),
        BufferStore(n, BufferLoad(n, (zero,)) + 1, (zero,)),
    )
    agree(func(While(BufferLoad(n, (zero,)) < 7, step), n, c), np.zeros(1, "i4"), np.zeros(10, "f4"))


def test_known_branches_and_single_loops_disappear() -> None:
    a, c = decl_buffer((4, 1), "float32", "a"), decl_buffer((4, 1), "float32", "c")
    i, j = Var("i", "int64"), Var("j", "int64")
    body = IfThenElse(i * 2 < 8, BufferStore(c, if_then_else(i >= 0, a[i, j], 7.0), (i, j)), Evaluate(const(1)))
    flat = agree(func(loop(i, 4, loop(j, 1, body)), a, c), np.ones((4, 1), "f4"), np.zeros((4, 1), "f4"))
    assert not any(isinstance(x, (IfThenElse, Call)) for x in walk(flat.body))
    assert sum(isinstance(x, For) for x in walk(flat.body)) == 1


def test_addresses_are_summed_from_the_outermost_loop_in() -> None:
    n, m = SizeVar("n", "int64"), SizeVar("m", "int64")
    c = decl_buffer((n, m, 4), "float32", "c")
    i, j, u = Var("i", "int64"), Var("j", "int64"), Var("u", "int64")
    store = BufferStore(c, const(1.0, "float32"), (i, j, u))
    flat = lower_kernel(func(loop(i, n, loop(j, m, loop(u, 4, store, ForKind.UNROLLED))), c))
    stores = [x for x in walk(flat.body) if isinstance(x, BufferStore)]
    assert len(stores) == 4
    bases = {id(s.indices[0]) if isinstance(s.indices[0], Var) else id(s.indices[0].a) for s in stores}  # pyright: ignore
    assert len(bases) == 1
    out = np.zeros(2 * 3 * 4, "f4")
    interpret(flat, out, 2, 3)
    assert out.all()


def test_shared_loads_are_made_once() -> None:
    a, b, c = decl_buffer((4,), "float32", "a"), decl_buffer((1,), "float32", "b"), decl_buffer((4,), "float32", "c")
    u = Var("u", "int64")
    f = func(loop(u, 4, BufferStore(c, a[u] * b[0], (u,)), ForKind.UNROLLED), a, b, c)
    flat = agree(f, np.arange(4, dtype="f4"), np.full(1, 3, "f4"), np.zeros(4, "f4"))
    assert sum(isinstance(x, BufferLoad) and x.buffer.data is b.data for x in walk(flat.body)) == 1


def test_a_load_is_not_shared_past_a_store_to_it() -> None:
    c = decl_buffer((8,), "float32", "c")
    u = Var("u", "int64")
    f = func(loop(u, 7, BufferStore(c, c[0] + c[u], (u + 1,)), ForKind.UNROLLED), c)
    agree(f, np.arange(8, dtype="f4"))
    again = func(loop(u, 4, BufferStore(c, c[3] + 1.0, (3 - u,)), ForKind.UNROLLED), c)
    agree(again, np.arange(8, dtype="f4"))


def test_an_index_that_is_loaded_is_not_moved_over_a_store() -> None:
    n, c = decl_buffer((2,), "int64", "n"), decl_buffer((8,), "float32", "c")
    i = Var("i", "int64")
    zero = const(0, "int64")
    body = seq(BufferStore(c, const(1.0, "float32"), (BufferLoad(n, (zero,)),)), BufferStore(n, n[0] + 2, (zero,)))
    agree(func(loop(i, 4, body), n, c), np.zeros(2, "i8"), np.zeros(8, "f4"))


def test_reduce_lanes_of_a_ramp() -> None:
    a, c = decl_buffer((8,), "float32", "a"), decl_buffer((1,), "float32", "c")
    lanes = BufferLoad(a, (Ramp(const(0, "int64"), const(1, "int64"), 8),))
    value = call_intrin("float32", "tir.reduce_lanes", "add", lanes)
    agree(func(BufferStore(c, value, (const(0, "int64"),)), a, c), np.arange(8, dtype="f4"), np.zeros(1, "f4"))


def test_a_wrong_number_of_indices_is_an_error() -> None:
    a = decl_buffer((4, 4), "float32", "a")
    bad = BufferStore(a, const(1.0, "float32"), (const(0, "int64"),))
    with pytest.raises(CompileError, match="TW0502") as caught:
        lower_kernel(func(bad, a))
    assert "2 dimensions" in str(caught.value)


def test_a_view_of_more_dimensions_is_an_error() -> None:
    a = decl_buffer((4,), "float32", "a")
    view = decl_buffer((2, 2), "float32", "v")
    region = BufferRegion(a, (Range(const(0, "int64"), const(4, "int64")),))
    store = BufferStore(view, const(1.0, "float32"), (const(0, "int64"), const(0, "int64")))
    block = BlockRealize((), ONE, Block((), (), (), "b", store, None, (), (MatchBufferRegion(view, region),)))
    with pytest.raises(CompileError, match="TW0501"):
        lower_kernel(func(block, a))


# ---- index arithmetic ------------------------------------------------------------------------------------------------


def _value(e: Any, env: dict[Var, int]) -> int:
    from tilewright.arith import expr as E

    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, Var):
        return env[e]
    a, b = _value(e.a, env), _value(e.b, env)
    ops: dict[type, Any] = {
        E.Add: lambda: a + b, E.Sub: lambda: a - b, E.Mul: lambda: a * b, E.FloorDiv: lambda: a // b,
        E.FloorMod: lambda: a % b, E.Min: lambda: min(a, b), E.Max: lambda: max(a, b),
    }  # fmt: skip
    return ops[type(e)]()


def _random_index(rng: np.random.Generator, variables: list[Var], depth: int) -> PrimExpr:
    pick = int(rng.integers(0, 8)) if depth else 0
    if pick <= 1:
        return (
            variables[int(rng.integers(0, len(variables)))]
            if rng.random() < 0.7
            else const(int(rng.integers(-6, 9)), "int64")
        )
    a, b = _random_index(rng, variables, depth - 1), _random_index(rng, variables, depth - 1)
    c = const(int(rng.integers(1, 9)), "int64")
    return [a + b, a - b, a * c, floordiv(a, c), floormod(a, c), maximum(a, b)][pick - 2]


@pytest.mark.parametrize("seed", range(150))
def test_simplified_indices_are_equal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    variables = [Var(n, "int64") for n in "ijk"]
    extents = [int(rng.integers(1, 9)) for _ in variables]
    space = IndexSpace()
    for v, n in zip(variables, extents):
        space.set_range(v, const(0, "int64"), const(n, "int64"))
    e = _random_index(rng, variables, 4)
    p = space.recombine(space.poly(e))
    simple = space.expr(p, "int64")
    low, high = space.bounds(p)
    for _ in range(40):
        env = {v: int(rng.integers(0, n)) for v, n in zip(variables, extents)}
        want = _value(e, env)
        assert _value(simple, env) == want, (e.script(), simple.script())
        assert low is None or low <= want
        assert high is None or want <= high
    assert structural_equal(space.simplify(simple), simple)


def test_divisions_that_are_known() -> None:
    i, j, n = Var("i", "int64"), Var("j", "int64"), SizeVar("n", "int64")
    space = IndexSpace()
    space.set_range(i, const(0, "int64"), const(10, "int64"))
    space.set_range(j, const(0, "int64"), n)
    x = Var("x", "int64")
    space.set_range(x, const(0, "int64"), const(16, "int64"))

    def same(a: PrimExpr, b: PrimExpr) -> bool:
        return space.recombine(space.poly(a)) == space.recombine(space.poly(b))

    assert same(floordiv(i * 16 + x, 16), i)
    assert same(floormod(i * 16 + x, 16), x)
    assert same(floordiv(i * n + j, n), i)
    assert same(floormod(i * n + j, n), j)
    assert same(floordiv(i, 4) * 4 + floormod(i, 4), i)
    assert same(floordiv(floordiv(i, 2), 3), floordiv(i, 6))
    assert same(
        (floordiv(x, 4) * n + floordiv(floormod(x, 4), 2)) * 2, floordiv(x, 4) * n * 2 + floordiv(floormod(x, 4), 2) * 2
    )
    assert same(floordiv(i, n) * n + floormod(i, n), i)
