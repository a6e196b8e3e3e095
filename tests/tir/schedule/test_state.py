"""The program under a schedule: handles that stay good, dependences of a scope, properties of blocks, what is verified."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.structure import structural_equal
from tilewright.script import tir as T
from tilewright.tir.schedule import DepKind, Schedule, ScheduleError, ScheduleState, StmtSRef, has_block
from tilewright.tir.schedule.analysis import is_output_block


@T.prim_func
def two_steps(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    B = T.alloc_buffer((16, 8), "float32")
    for i, j in T.grid(16, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + 1.0
    for i, j in T.grid(16, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] * 2.0


@T.prim_func
def parts(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("start"):
            vi = T.axis.spatial(8, i)
            C[vi] = 0.0
        for k in range(8):
            with T.block("add"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]


@T.prim_func
def overwritten(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + 1.0
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * 2.0


@T.prim_func
def same_names(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("X"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] + 1.0
    for i in range(8):
        with T.block("X"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] * 2.0


def code_of(step: Any) -> str:
    with pytest.raises(ScheduleError) as caught:
        step()
    return caught.value.diagnostics[0].code


def test_handles_stay_good_while_the_program_changes() -> None:
    sch = Schedule(two_steps, debug_mask="all")
    block = sch.get_block("C")
    sref = sch.get_sref(block)
    assert isinstance(sref, StmtSRef)
    assert sref.stmt is sch.get(block)
    assert sch.state.get_sref(sch.get(block)) is sref
    i, j = sch.get_loops(block)
    loop = sch.get_sref(i)
    sch.annotate(block, "k", 1)
    assert sref.stmt.annotations == {"k": 1}
    sch.reorder(j, i)
    assert sref.parent is loop
    assert loop.parent is sch.get_sref(j)
    assert sch.get_sref(j).seq_index == 1
    sch.split(i, [None, 4])
    assert loop.stmt is None
    with pytest.raises(IndexError):
        sch.get_sref(i)
    assert StmtSRef.inline_mark() is not StmtSRef.root_mark()


def test_dependences() -> None:
    def edges(f: Any, at: str) -> list[tuple[str, str, DepKind]]:
        s = ScheduleState(f)
        sch = Schedule(f)
        scope = s.get_block_scope(s.get_sref(sch.get(sch.get_block("root"))))
        me = s.get_sref(sch.get(sch.get_block(at)))
        return [(d.src.stmt.name_hint, d.dst.stmt.name_hint, d.kind) for d in scope.get_deps_by_src(me)]

    assert edges(two_steps, "B") == [("B", "C", DepKind.RAW)]
    assert edges(parts, "start") == [("start", "add", DepKind.RAW), ("start", "add", DepKind.WAW)]
    assert edges(overwritten, "C") == [("C", "B", DepKind.WAR)]
    sch = Schedule(parts)
    assert [b.name for b in sch.get_producers("add")] == ["start"]
    assert [b.name for b in sch.get_consumers("start")] == ["add"]
    assert [b.name for b in sch.get_output_blocks("root")] == ["start", "add"]
    assert is_output_block(sch, "add")
    assert not is_output_block(Schedule(two_steps), "B")
    assert has_block(sch, "add")
    assert not has_block(sch, "none")


def test_properties() -> None:
    def flags(f: Any, name: str) -> Any:
        sch = Schedule(f)
        return sch.state._get_cached_flags(sch.get_sref(sch.get_block(name)))

    assert tuple(flags(two_steps, "root")) == (True, True, True)
    assert tuple(flags(two_steps, "C")) == (True, True, True)
    assert tuple(flags(parts, "add")) == (True, True, True)
    assert not flags(overwritten, "root").stage_pipeline

    @T.prim_func
    def half(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((16,), "float32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi]
        for i, _j in T.grid(16, 2):
            with T.block("C"):
                vi = T.axis.spatial(16, i)
                C[vi] = B[vi]

    assert not flags(half, "C").region_cover
    assert not flags(half, "root").stage_pipeline


def test_blocks_that_share_a_name() -> None:
    sch = Schedule(same_names)
    assert code_of(lambda: sch.get_block("X")) == "TW0402"
    first, second = sch.get_child_blocks(sch.get_block("root"))
    sch.split(sch.get_loops(second)[0], [None, 4])
    assert len(sch.get_loops(first)) == 1
    assert len(sch.get_loops(second)) == 2
    assert sch.get_sref(first) is not sch.get_sref(second)


def test_replacing_statements() -> None:
    s = ScheduleState(two_steps, debug_mask="all")
    body = s.mod["main"].body.block.body
    sref = s.get_sref(body[1])
    kept = s.get_sref(body[0])
    s.replace(
        sref, tir.For(body[1].loop_var, body[1].min, body[1].extent, tir.ForKind.SERIAL, tir.Evaluate(tir.const(0)))
    )
    assert isinstance(s.mod["main"].body.block.body[1].body, tir.Evaluate)
    assert kept.stmt is body[0]
    assert sref.stmt is s.mod["main"].body.block.body[1]
    block = s.get_sref(body[0].body.body.block)
    other = parts.body.block.body.body[0].block
    s.replace(block, other, {block.stmt: other})
    assert block.stmt is other
    assert code_of(lambda: s.replace(kept, other)) == "TW0404"
    s.replace(kept, tir.Evaluate(tir.const(0)))
    assert kept.stmt is None
    assert code_of(lambda: s.replace(kept, body[0])) == "TW0403"


def test_functions_of_a_module() -> None:
    mod = tvm.IRModule({"f": two_steps, "g": parts})
    sch = Schedule(mod)
    assert sch.func_working_on is None
    with pytest.raises(ValueError, match="which function to be working on"):
        sch.get_block("C")
    sch.work_on("g")
    assert sch.func_working_on == sch.mod.get_global_var("g")
    sch.get_block("add")
    (i,) = sch.get_loops("start")
    sch.parallel(i)
    sch.unroll(sch.get_loops(sch.get_block("B", "f"))[1])
    text = sch.mod.script()
    assert "T.parallel" in text
    assert "T.unroll" in text
    assert sch.trace.as_python()[0] == 'b0 = sch.get_block(name="add", func_name="g")'


def test_levels_of_errors() -> None:
    texts: dict[str, str] = {}
    for level in ("detail", "fast", "none"):
        sch = Schedule(two_steps, error_render_level=level)
        i, _ = sch.get_loops("B")
        with pytest.raises(ScheduleError) as caught:
            sch.split(i, [2, 3])
        (texts[level],) = caught.value.args
    assert "for i, j in T.grid(16, 8)" in texts["detail"]
    assert "T.grid" not in texts["fast"]
    assert "6 iterations" in texts["fast"]
    assert "(not rendered)" in texts["none"]
    assert code_of(lambda: Schedule(two_steps, error_render_level="much")) == "TW0424"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sch.nothing()


def test_what_is_verified() -> None:
    assert code_of(lambda: Schedule(two_steps, debug_mask="some")) == "TW0424"
    with pytest.raises(TypeError):
        Schedule(two_steps, debug_mask=1.5)  # pyright: ignore
    from tilewright.ir.node import replace
    from tilewright.tir.schedule import checks

    s = ScheduleState(two_steps)
    body = s.mod["main"].body.block.body
    s.set_body(
        "main",
        replace(s.mod["main"].body, block=replace(s.mod["main"].body.block, body=tir.SeqStmt((body[0], body[0])))),
    )
    assert code_of(lambda: checks.verify_handles(s)) == "TW0424"
    sch = Schedule(two_steps, debug_mask="verify-cached-flags")
    path = sch.state.block_path(sch.get_block("B"))
    short = replace(path[-1], block=replace(path[-1].block, reads=()))
    sch.state.put("main", path, short)
    assert code_of(lambda: sch.annotate("B", "k", 1)) == "TW0424"
    before = sch.mod
    assert code_of(lambda: sch.annotate("B", "k", 1)) == "TW0424"
    assert structural_equal(before, sch.mod)
    Schedule(sch.mod, debug_mask="all").annotate("B", "k", 1)  # it came so


def test_numbers_and_forgotten_handles() -> None:
    sch = Schedule(two_steps, seed=1)
    v = sch.sample_categorical([3], [1.0])
    assert sch.get(v) == 3
    assert sch.get(v * 2 + 1) == 7
    block = sch.get_block("B")
    sch.remove_rv(block)
    with pytest.raises(IndexError):
        sch.get(block)
    with pytest.raises(IndexError):
        sch.get_loops(block)
    sch.remove_rv(v)
    with pytest.raises(IndexError):
        sch.get(v)
    with pytest.raises(TypeError):
        sch.get_sref(3)
    assert sch[sch.get_sref(sch.get_block("C"))].name_hint == "C"
