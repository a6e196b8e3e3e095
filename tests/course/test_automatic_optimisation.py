"""The course's chapter on automatic program optimisation: traces, stochastic schedules, random search."""

import numpy as np

import tilewright as tvm
from tilewright.script import tir as T


@tvm.script.ir_module
class Matmul:
    @T.prim_func
    def main(
        A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")
    ):
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        for i, j, k in T.grid(128, 128, 128):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def schedule_mm(sch, jfactor=4):
    block_c = sch.get_block("C", "main")
    i, j, k = sch.get_loops(block=block_c)
    j0, j1 = sch.split(loop=j, factors=[None, jfactor])
    sch.reorder(i, j0, k, j1)
    sch.decompose_reduction(block_c, k)
    return sch


def stochastic_schedule_mm(sch):
    block_c = sch.get_block("C", "main")
    i, j, k = sch.get_loops(block=block_c)
    factors = sch.sample_perfect_tile(loop=j, n=2)
    j0, j1 = sch.split(loop=j, factors=factors)
    sch.reorder(i, j0, k, j1)
    sch.decompose_reduction(block_c, k)
    return sch


def correct(mod):
    rng = np.random.default_rng(0)
    a = rng.random((128, 128)).astype("float32")
    b = rng.random((128, 128)).astype("float32")
    c = tvm.nd.array(np.zeros((128, 128), dtype="float32"))
    rt = tvm.build(mod, target="llvm")
    rt["main"](tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-5)
    return rt, (tvm.nd.array(a), tvm.nd.array(b), c)


def test_a_trace_says_what_was_done_and_does_it_again():
    sch = schedule_mm(tvm.tir.Schedule(Matmul))
    text = str(sch.trace)
    for word in ("get_block", "split", "reorder", "decompose_reduction", "factors=[None, 4]"):
        assert word in text
    again = tvm.tir.Schedule(Matmul)
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)
    scope = {"tir": tvm.tir, "T": T}
    exec(text, scope)
    pasted = tvm.tir.Schedule(Matmul)
    scope["apply_trace"](pasted)
    tvm.ir.assert_structural_equal(pasted.mod, sch.mod)
    correct(sch.mod)


def test_a_sampled_step_is_a_random_variable_with_a_decision():
    seen = set()
    for seed in range(12):
        sch = tvm.tir.Schedule(Matmul, seed=seed)
        block = sch.get_block("C", "main")
        _, j, _ = sch.get_loops(block)
        factors = sch.sample_perfect_tile(loop=j, n=2)
        assert all(isinstance(f, tvm.tir.PrimExpr) for f in factors)
        values = [int(sch.get(f)) for f in factors]
        assert values[0] * values[1] == 128
        seen.add(tuple(values))
        decisions = sch.trace.decisions
        assert [int(d) for d in next(iter(decisions.values()))] == values
    assert len(seen) > 3


def test_stochastic_schedules_stay_correct_and_replay():
    for seed in range(4):
        sch = stochastic_schedule_mm(tvm.tir.Schedule(Matmul, seed=seed))
        again = tvm.tir.Schedule(Matmul)
        sch.trace.apply_to_schedule(again, remove_postproc=False)
        tvm.ir.assert_structural_equal(again.mod, sch.mod)
        correct(sch.mod)


def random_search(mod, trials):
    best, best_sch = None, None
    for seed in range(trials):
        sch = stochastic_schedule_mm(tvm.tir.Schedule(mod, seed=seed))
        rt, arrays = correct(sch.mod)
        seconds = rt.time_evaluator("main", dev=tvm.cpu(), number=3)(*arrays).mean
        if best is None or seconds < best:
            best, best_sch = seconds, sch
    return best, best_sch


def test_random_search_finds_a_program_no_worse_than_its_candidates():
    best, sch = random_search(Matmul, 5)
    assert best > 0
    assert "sample_perfect_tile" in str(sch.trace)
    correct(sch.mod)


def test_decisions_can_be_changed():
    sch = stochastic_schedule_mm(tvm.tir.Schedule(Matmul, seed=1))
    inst = next(i for i in sch.trace.insts if i.kind.name == "SamplePerfectTile")
    changed = sch.trace.with_decision(inst, [32, 4], remove_postproc=True)
    again = tvm.tir.Schedule(Matmul)
    changed.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, schedule_mm(tvm.tir.Schedule(Matmul), 4).mod)
