"""Traces: Python text that runs, the JSON form of the field, replay with other decisions."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.structure import structural_equal
from tilewright.script import tir as T
from tilewright.tir.schedule import BlockRV, Instruction, InstructionKind, LoopRV, Schedule, ScheduleError, Trace
from tilewright.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip


@T.prim_func
def mm(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), D: T.Buffer((16, 16), "float32")):
    C = T.alloc_buffer((16, 16), "float32")
    for i, j, k in T.grid(16, 16, 16):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(16, 16):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], 0.0)


def busy() -> Schedule:
    sch = Schedule(mm, seed=7)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    tile = sch.sample_perfect_tile(i, n=2, max_innermost_factor=8)
    i0, i1 = sch.split(i, factors=tile)
    j0, j1 = sch.split(j, factors=[None, 4], preserve_unit_iters=False)
    sch.reorder(i0, j0, k, i1, j1)
    v = sch.sample_categorical([1, 2, 4], [0.2, 0.3, 0.5])
    sch.annotate(k, "steps", v)
    sch.annotate(c, "notes", {"a": [1, 2.5, 'a "quoted" word'], "b": True})
    sch.reverse_compute_at("D", j0)
    sch.enter_postproc()
    sch.decompose_reduction(c, k)
    sch.vectorize(j1)
    sch.unannotate(c, "notes")
    return sch


def test_text_of_a_trace() -> None:
    sch = Schedule(mm)
    b = sch.get_block("D")
    i, j = sch.get_loops(b)
    sch.split(j, [None, 4])
    sch.fuse(i)
    sch.get_child_blocks(sch.get_block("root"))
    assert str(sch.trace).splitlines() == [
        "# from tvm import tir",
        "def apply_trace(sch: tir.Schedule) -> None:",
        '  b0 = sch.get_block(name="D", func_name="main")',
        "  l1, l2 = sch.get_loops(block=b0)",
        "  l3, l4 = sch.split(loop=l2, factors=[None, 4], preserve_unit_iters=True, disable_predication=False)",
        "  l5 = sch.fuse(l1, preserve_unit_iters=True)",
        '  b6 = sch.get_block(name="root", func_name="main")',
        "  b7, b8 = sch.get_child_blocks(b6)",
    ]
    assert str(Trace([], {})).splitlines()[-1] == "  pass"


def test_the_text_runs() -> None:
    sch = busy()
    names: dict[str, Any] = {"tir": tir}
    exec(str(sch.trace), names)
    again = Schedule(mm)
    names["apply_trace"](again)
    assert structural_equal(again.mod, sch.mod)
    verify_trace_roundtrip(sch, mm)
    with pytest.raises(ValueError):
        verify_trace_roundtrip(sch, mm, text_format="xml")


def test_json() -> None:
    sch = Schedule(mm)
    b = sch.get_block("C")
    i, j, k = sch.get_loops(b)
    v = sch.sample_categorical([2, 4], [0.5, 0.5], decision=1)
    sch.split(i, [None, v])
    sch.reorder(k, j)
    sch.annotate(b, "key", "text")
    steps, decisions = json.loads(json.dumps(sch.trace.as_json()))
    assert steps == [
        ["GetBlock", [], ["C", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
        ["SampleCategorical", [], [[2, 4], [0.5, 0.5]], ["v4"]],
        ["Split", ["l1", "None", "v4"], [True, False], ["l5", "l6"]],
        ["Reorder", ["l3", "l2"], [], []],
        ["Annotate", ["b0", '"text"'], ["key"], []],
    ]
    assert decisions == [[2, 1]]
    for bad in (3, [[["Nothing", [], [], []]], []], [[["GetBlock", [], ["C", "main"], []]], []]):
        with pytest.raises(ScheduleError) as caught:
            Trace.apply_json_to_schedule(bad, Schedule(mm))
        assert caught.value.diagnostics[0].code == "TW0425"


def test_replay_with_other_decisions() -> None:
    sch = busy()
    tile = next(x for x in sch.trace.insts if x.kind.name == "SamplePerfectTile")
    assert len(sch.trace.get_decision(tile)) == 2
    changed = sch.trace.with_decision(tile, [4, 4], remove_postproc=True)
    assert changed.get_decision(tile) == [4, 4]
    again = Schedule(mm)
    changed.apply_to_schedule(again, remove_postproc=False)
    assert [x.value for x in (again.get(n).extent for n in again.get_loops("C")[:1])] == [4]
    assert "C_init" not in again.mod.script()

    def provide(inst: Instruction, inputs: list[Any], attrs: list[Any], decision: Any) -> Any:
        return [8, 2] if inst.same_as(tile) else decision

    third = Schedule(mm)
    sch.trace.apply_to_schedule(third, remove_postproc=False, decision_provider=provide)
    assert third.get(third.get_loops("C_update")[0]).extent.value == 8
    with pytest.raises(ScheduleError) as caught:
        Trace([Instruction(InstructionKind.get("GetBlock"), [], ["C", "main"], [])]).apply_to_schedule(Schedule(mm))
    assert caught.value.diagnostics[0].code == "TW0425"


def test_a_trace_made_by_hand() -> None:
    b, i, j, k = BlockRV(), LoopRV(), LoopRV(), LoopRV()
    look = Instruction(InstructionKind.get("GetBlock"), [], ["C", "main"], [b])
    loops = Instruction(InstructionKind.get("GetLoops"), [b], [], [i, j, k])
    trace = Trace([look, loops], {})
    assert trace.decisions == {}
    assert trace.get_decision(look) is None
    unroll = Instruction(InstructionKind.get("Unroll"), [k], [], [])
    trace.append(unroll)
    assert repr(unroll) == "sch.unroll(loop=l0)"
    sch = Schedule(mm)
    trace.apply_to_schedule(sch)
    assert "T.unroll" in sch.mod.script()
    assert trace.pop() is unroll
    assert trace.simplified(False).insts == []
    assert Trace([]).pop() is None
    assert InstructionKind.get("GetBlock").is_pure
    assert not InstructionKind.get("Split").is_pure
    with pytest.raises(ValueError, match="no instruction kind"):
        InstructionKind.get("Nothing")


def test_simplified_keeps_what_is_used() -> None:
    sch = Schedule(mm)
    sch.get_block("D")
    c = sch.get_block("C")
    loops = sch.get_loops(c)
    sch.sample_perfect_tile(loops[0], 2)
    sch.unroll(loops[2])
    assert [x.kind.name for x in sch.trace.simplified(remove_postproc=False).insts] == [
        "GetBlock",
        "GetLoops",
        "Unroll",
    ]


def test_symbols_of_functions_are_ignored() -> None:
    assert_structural_equal_ignore_global_symbol(mm, mm.with_attr("global_symbol", "other"))
    mod = tvm.IRModule({"main": mm})
    assert_structural_equal_ignore_global_symbol(mod, tvm.IRModule({"main": mm.with_attr("global_symbol", "other")}))
