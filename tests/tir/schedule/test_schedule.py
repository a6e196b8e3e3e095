"""Schedule primitives: every step keeps the program's meaning (judged by the interpreter), or says why it cannot be taken."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tilewright import te
from tilewright.arith.expr import const, maximum
from tilewright.ir.structure import structural_equal
from tilewright.ir.target import Target
from tilewright.tir.interp import interpret
from tilewright.tir.ir import PrimFunc
from tilewright.tir.lower import lower_kernel
from tilewright.tir.schedule import Schedule, ScheduleError


def mm_relu(m: int = 12, n: int = 10, k: int = 6) -> PrimFunc:
    a, b = te.placeholder((m, k), "float32", name="A"), te.placeholder((k, n), "float32", name="B")
    r = te.reduce_axis((0, k), name="k")
    y = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="Y")
    c = te.compute((m, n), lambda i, j: maximum(y[i, j], const(0.0, "float32")), name="C")
    return te.create_prim_func([a, b, c])


def chain(m: int = 9, n: int = 8) -> PrimFunc:
    a = te.placeholder((m, n), "float32", name="A")
    b = te.compute((m, n), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((m, n), lambda i, j: b[i, j] * b[i, j], name="C")
    d = te.compute((n, m), lambda i, j: c[j, i] - 3.0, name="D")
    return te.create_prim_func([a, d])


def blur(n: int = 20) -> PrimFunc:
    a = te.placeholder((n,), "float32", name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((n - 2,), lambda i: b[i] + b[i + 1] + b[i + 2], name="C")
    return te.create_prim_func([a, c])


def row_sum(m: int = 5, n: int = 24) -> PrimFunc:
    a, r = te.placeholder((m, n), "float32", name="A"), te.reduce_axis((0, n), name="k")
    return te.create_prim_func([a, te.compute((m,), lambda i: te.sum(a[i, r], axis=r), name="S")])


def run(f: PrimFunc, seed: int = 0) -> np.ndarray[Any, Any]:
    """The last buffer after running `f` on random inputs."""
    rng = np.random.default_rng(seed)
    args = [rng.standard_normal([int(n) for n in b.shape]).astype("float32") for b in f.param_buffers]
    args[-1][...] = 0
    interpret(f, *args)
    return args[-1]


def check(sch: Schedule, f: PrimFunc, lowered: bool = True) -> None:
    """The scheduled function, also lowered to flat form, computes what `f` computes."""
    want = run(f)
    now = sch.mod["main"]
    np.testing.assert_allclose(run(now), want, rtol=1e-5, atol=1e-5)
    if lowered:
        flat = lower_kernel(now, Target("llvm"))
        rng = np.random.default_rng(0)
        args = [rng.standard_normal([int(n) for n in b.shape]).astype("float32") for b in f.param_buffers]
        args[-1][...] = 0
        interpret(flat, *(a.reshape(-1) for a in args))
        np.testing.assert_allclose(args[-1], want, rtol=1e-5, atol=1e-5)


def test_matmul_of_the_course() -> None:
    f = mm_relu()
    sch = Schedule(f)
    y = sch.get_block("Y", func_name="main")
    i, j, k = sch.get_loops(y)
    j0, j1 = sch.split(j, factors=[None, 5])
    sch.reorder(j0, k, j1)
    sch.reverse_compute_at(sch.get_block("C", "main"), j0)
    check(sch, f)
    sch.decompose_reduction(y, k)
    sch.parallel(i)
    sch.vectorize(j1)
    check(sch, f)
    text = sch.mod.script()
    assert 'T.block("Y_init")' in text
    assert 'T.block("Y_update")' in text
    assert "T.parallel(12)" in text


@pytest.mark.parametrize(
    "factors", [[3, 4], [None, 4], [5, None], [None, 5], [2, 3, 2], [None, 2, 4], [1, None], [None]]
)
def test_split(factors: list[int | None]) -> None:
    f = mm_relu()
    sch = Schedule(f)
    i, *_ = sch.get_loops(sch.get_block("Y"))
    loops = sch.split(i, factors=factors)
    assert len(loops) == len(factors)
    check(sch, f)


def test_split_that_divides_needs_no_predicate() -> None:
    sch = Schedule(mm_relu())
    i, *_ = sch.get_loops(sch.get_block("Y"))
    sch.split(i, [None, 4])
    assert "T.where" not in sch.mod.script()
    sch = Schedule(mm_relu())
    i, *_ = sch.get_loops(sch.get_block("Y"))
    sch.split(i, [None, 5])
    assert "T.where" in sch.mod.script()


def test_fuse_after_split_is_the_loop_again() -> None:
    f = mm_relu()
    sch = Schedule(f)
    i, *_ = sch.get_loops(sch.get_block("Y"))
    i0, i1 = sch.split(i, [3, 4])
    fused = sch.fuse(i0, i1)
    block = sch.get(sch.get_block("Y"))
    assert block.name_hint == "Y"
    assert sch.get(fused).loop_var.name == "i_0_i_1_fused"
    assert "//" not in sch.mod.script()
    check(sch, f)


def test_fuse_spatial_and_reduce_loops() -> None:
    f = mm_relu()
    sch = Schedule(f)
    i, j, k = sch.get_loops(sch.get_block("Y"))
    sch.fuse(i, j, k)
    check(sch, f)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_reorder(order: tuple[int, ...]) -> None:
    f = mm_relu()
    sch = Schedule(f)
    loops = sch.get_loops(sch.get_block("Y"))
    sch.reorder(*(loops[n] for n in order))
    assert [x.var for x in sch.get_loops(sch.get_block("Y"))] == [loops[n].var for n in order]
    check(sch, f)


def test_reorder_some_leaves_the_others() -> None:
    sch = Schedule(mm_relu())
    i, j, k = sch.get_loops(sch.get_block("Y"))
    sch.reorder(k, i)
    assert [x.var for x in sch.get_loops(sch.get_block("Y"))] == [k.var, j.var, i.var]


def test_inlining() -> None:
    f = chain()
    sch = Schedule(f)
    sch.compute_inline(sch.get_block("B"))
    check(sch, f)
    sch.reverse_compute_inline(sch.get_block("D"))
    check(sch, f)
    assert sch.mod.script().count("T.block(") == 1
    assert "alloc_buffer" not in sch.mod.script()


def test_compute_at_with_a_window() -> None:
    f = blur()
    sch = Schedule(f)
    (i,) = sch.get_loops(sch.get_block("C"))
    i0, _ = sch.split(i, [None, 6])
    sch.compute_at(sch.get_block("B"), i0)
    check(sch, f)
    assert "range(8)" in sch.mod.script() or "8" in sch.mod.script()


def test_compute_at_of_a_reduction() -> None:
    f = mm_relu()
    sch = Schedule(f)
    i, j = sch.get_loops(sch.get_block("C"))
    j0, _ = sch.split(j, [None, 3])
    sch.compute_at(sch.get_block("Y"), j0)
    check(sch, f)
    assert len(sch.get_loops(sch.get_block("Y"))) == 4
    assert i.var in [x.var for x in sch.get_loops(sch.get_block("Y"))]


def test_reverse_compute_at_of_a_transpose() -> None:
    f = chain()
    sch = Schedule(f)
    i, j = sch.get_loops(sch.get_block("C"))
    sch.reverse_compute_at(sch.get_block("D"), i)
    check(sch, f)
    sch = Schedule(f)
    i, j = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, j, i1)
    sch.reverse_compute_at(sch.get_block("D"), j)
    check(sch, f)


def test_caches() -> None:
    f = mm_relu()
    sch = Schedule(f)
    y = sch.get_block("Y")
    w = sch.cache_write(y, 0, "local")
    a = sch.cache_read(y, 0, "local")
    b = sch.cache_read(y, 1, "shared")
    check(sch, f)
    i, j, k = sch.get_loops(y)
    j0, j1 = sch.split(j, [None, 5])
    sch.reorder(i, j0, k, j1)
    sch.reverse_compute_at(w, j0)
    sch.compute_at(a, i)
    sch.compute_at(b, k)
    check(sch, f)
    assert 'scope="local"' in sch.mod.script()


def test_decompose_reduction_at_each_loop() -> None:
    f = mm_relu()
    for n in range(3):
        sch = Schedule(f)
        y = sch.get_block("Y")
        init = sch.decompose_reduction(y, sch.get_loops(y)[n])
        check(sch, f)
        assert sch.get(init).name_hint == "Y_init"
        assert sch.get(y).name_hint == "Y_update"


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_rfactor(axis: int) -> None:
    f = row_sum()
    sch = Schedule(f)
    _, k = sch.get_loops(sch.get_block("S"))
    k0, k1 = sch.split(k, [None, 8])
    sch.rfactor(k1, axis)
    check(sch, f)
    sch = Schedule(f)
    _, k = sch.get_loops(sch.get_block("S"))
    k0, k1 = sch.split(k, [None, 8])
    rf = sch.rfactor(k0, axis)
    check(sch, f)
    loops = sch.get_loops(rf)
    sch.parallel(next(x for x in loops if x.var.name == "k_0"))
    check(sch, f)


def test_rfactor_of_a_matmul() -> None:
    f = mm_relu()
    sch = Schedule(f)
    _i, _j, k = sch.get_loops(sch.get_block("Y"))
    k0, _k1 = sch.split(k, [None, 2])
    sch.rfactor(k0, 2)
    check(sch, f)


def test_how_loops_run() -> None:
    f = mm_relu()
    sch = Schedule(f)
    i, _j, k = sch.get_loops(sch.get_block("Y"))
    sch.unroll(k)
    sch.vectorize(sch.get_loops(sch.get_block("C"))[1])
    sch.parallel(i)
    check(sch, f)


def test_bind() -> None:
    sch = Schedule(mm_relu())
    i, j, _ = sch.get_loops(sch.get_block("Y"))
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    assert "thread_binding" in sch.mod.script()


def test_annotations_and_neighbours() -> None:
    sch = Schedule(chain())
    b = sch.get_block("B")
    sch.annotate(b, "key", "value")
    assert sch.get(b).annotations == {"key": "value"}
    sch.unannotate(b, "key")
    assert not sch.get(b).annotations
    assert [x.name for x in sch.get_consumers(b)] == ["C"]
    assert [x.name for x in sch.get_producers(sch.get_block("D"))] == ["C"]
    assert [x.name for x in sch.get_child_blocks(sch.get_block("root"))] == ["B", "C", "D"]
    assert [x.name for x in sch.get_output_blocks("root")] == ["D"]


def test_trace_prints_and_replays() -> None:
    f = mm_relu()
    sch = Schedule(f, seed=3)
    y = sch.get_block("Y")
    i, j, _k = sch.get_loops(y)
    tile = sch.sample_perfect_tile(i, n=2)
    sch.split(i, factors=tile)
    _, j1 = sch.split(j, factors=[None, 5])
    sch.vectorize(j1)
    sch.unroll(sch.get_loops(y)[-1])
    again = Schedule(f)
    sch.trace.apply_to_schedule(again)
    assert structural_equal(sch.mod, again.mod)
    from_json = Schedule(f)
    type(sch.trace).apply_json_to_schedule(sch.trace.as_json(), from_json)
    assert structural_equal(sch.mod, from_json.mod)
    assert "sch.sample_perfect_tile(loop=l1, n=2, max_innermost_factor=16, decision=" in str(sch.trace)
    assert "sch.vectorize(loop=" in str(sch.trace)


def test_copy_is_independent() -> None:
    sch = Schedule(mm_relu())
    i, *_ = sch.get_loops(sch.get_block("Y"))
    other = sch.copy()
    other.split(i, [None, 4])
    assert "i_0" not in sch.mod.script()
    sch.parallel(i)
    assert "parallel" not in other.mod.script()


def test_a_failed_step_changes_nothing() -> None:
    sch = Schedule(mm_relu())
    before, steps = sch.mod, len(sch.trace.insts)
    _, _, k = sch.get_loops(sch.get_block("Y"))
    with pytest.raises(ScheduleError):
        sch.parallel(k)
    assert structural_equal(before, sch.mod)
    assert len(sch.trace.insts) == steps + 2


def _error(code: str, step: Any) -> str:
    with pytest.raises(ScheduleError) as caught:
        step()
    assert caught.value.diagnostics[0].code == code
    return str(caught.value)


def test_errors_name_place_reason_and_alternatives() -> None:
    sch = Schedule(mm_relu())
    y, c = sch.get_block("Y"), sch.get_block("C")
    i, _j, k = sch.get_loops(y)
    ci, cj = sch.get_loops(c)
    text = _error("TW0416", lambda: sch.parallel(k))
    assert "for i, j, k in T.grid(12, 10, 6)" in text
    assert "^" in text
    assert "choose among: i, j" in text
    assert "choose among: root, Y, C" in _error("TW0402", lambda: sch.get_block("nothing"))
    _error("TW0412", lambda: sch.split(i, [2, 3]))
    _error("TW0412", lambda: sch.split(i, [None, None]))
    _error("TW0413", lambda: sch.fuse(i, k))
    _error("TW0414", lambda: sch.reorder(i, cj))
    _error("TW0417", lambda: sch.bind(i, "threadIdx.w"))
    _error("TW0421", lambda: sch.compute_inline(y))
    _error("TW0421", lambda: sch.compute_inline(c))
    _error("TW0421", lambda: sch.reverse_compute_inline(c))
    _error("TW0431", lambda: sch.compute_at(y, k))
    _error("TW0433", lambda: sch.compute_at(c, i))
    _error("TW0432", lambda: sch.reverse_compute_at(y, ci))
    _error("TW0451", lambda: sch.cache_read(y, 7, "local"))
    _error("TW0452", lambda: sch.set_scope(c, 0, "local"))
    _error("TW0461", lambda: sch.decompose_reduction(c, ci))
    sch.reorder(k, i)
    _error("TW0462", lambda: sch.decompose_reduction(y, i))
    _error("TW0463", lambda: sch.rfactor(i))
    _error("TW0405", lambda: sch.unannotate(y, "none"))
    sch.split(i, [None, 4])
    _error("TW0403", lambda: sch.parallel(i))
    sch.vectorize(cj)
    _error("TW0411", lambda: sch.split(cj, [None, 2]))
    with pytest.raises(TypeError, match="split"):
        sch.split(ci)


def random_step(sch: Schedule, rng: random.Random) -> None:
    """One step picked at random; most are possible, the others must raise ScheduleError."""
    blocks = [b for b in sch.state.block_names("main") if b != "root"]
    block = sch.get_block(rng.choice(blocks))
    loops = sch.get_loops(block)
    if not loops:
        return
    loop = rng.choice(loops)
    step = rng.randrange(10)
    if step <= 2:
        sch.split(loop, [None, rng.choice([1, 2, 3, 5])])
    elif step == 3:
        n = rng.randrange(len(loops))
        sch.fuse(*loops[n : n + 2])
    elif step == 4:
        some = rng.sample(loops, min(len(loops), 3))
        sch.reorder(*some)
    elif step == 5:
        sch.reverse_compute_at(block, rng.choice(sch.get_loops(sch.get_block(rng.choice(blocks))) or loops))
    elif step == 6:
        sch.compute_at(block, rng.choice(sch.get_loops(sch.get_block(rng.choice(blocks))) or loops))
    elif step == 7:
        sch.cache_write(block, 0, "global") if rng.random() < 0.5 else sch.cache_read(block, 0, "global")
    elif step == 8:
        sch.decompose_reduction(block, loop)
    else:
        rng.choice([sch.unroll, sch.vectorize, sch.parallel])(loop)


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules_keep_the_meaning(seed: int) -> None:
    rng = random.Random(seed)
    f = rng.choice([mm_relu, chain, blur, row_sum])()
    sch = Schedule(f)
    done = 0
    for _ in range(12):
        try:
            random_step(sch, rng)
            done += 1
        except ScheduleError:
            continue
    try:
        check(sch, f)
    except AssertionError:
        print(sch.trace)
        raise


def _scan() -> PrimFunc:
    """A running sum: its axis is ordered."""
    from tilewright.ir.node import map_children, replace
    from tilewright.tir.ir import Block, IterVar, Stmt

    f = row_sum()

    def ordered(x: Any) -> Any:
        if isinstance(x, Block) and x.name_hint == "S":
            iters = tuple(replace(iv, iter_type=IterVar.Ordered) if i else iv for i, iv in enumerate(x.iter_vars))
            return replace(x, iter_vars=iters)
        return map_children(x, lambda c: ordered(c) if isinstance(c, Stmt) else c)

    return f.with_body(ordered(f.body))


def test_errors_of_rarer_faults() -> None:
    _error("TW0401", lambda: Schedule("no module"))  # pyright: ignore
    sch = Schedule(_scan())
    i, k = sch.get_loops(sch.get_block("S"))
    assert "is scan" in _error("TW0415", lambda: sch.reorder(k, i))
    sch = Schedule(mm_relu())
    y, relu = sch.get_block("Y"), sch.get_block("C")
    i, j, k = sch.get_loops(y)
    _error("TW0441", lambda: sch.sample_perfect_tile(i, 2, decision=[5]))
    _error("TW0441", lambda: sch.sample_categorical([1, 2], [1.0]))
    sch.reverse_compute_at(relu, j)
    sch = Schedule(mm_relu())
    y = sch.get_block("Y")
    sch.decompose_reduction(y, sch.get_loops(y)[2])
    ci, _ = sch.get_loops(sch.get_block("C"))
    _error("TW0433", lambda: sch.compute_at(y, ci))


def test_a_function_cannot_lose_all_its_blocks() -> None:
    a = te.placeholder((4,), "float32", name="A")
    sch = Schedule(te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0, name="B")]))
    path = sch.state.block_path(sch.get_block("B"))
    _error("TW0404", lambda: sch.state.put("main", path, None))
