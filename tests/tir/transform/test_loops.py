"""Passes on loops and branches: unrolling, hoisting, partitions, what has no effect, unique names."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.node import walk
from tilewright.ir.structure import structural_equal
from tilewright.script import tir as T
from tilewright.tir import transform as tr

from .programs import POOL, same_meaning


def apply(f, *passes, **config):
    mod = tvm.IRModule.from_expr(f.with_attr("global_symbol", "main"))
    with tvm.transform.PassContext(config={k.replace("__", "."): v for k, v in config.items()}):
        return tvm.transform.Sequential(list(passes))(mod)["main"]


def expect(f, expected, *passes, **config):
    got = apply(f, *passes, **config)
    simple = tr.Simplify()
    assert structural_equal(apply(got, simple), apply(expected, simple)), f"{got.script()}\n{expected.script()}"
    if not any(isinstance(x, tir.Call) and x.op.name == "tir.call_extern" for x in walk(f.body)):
        same_meaning(f, got)


LOWER = (tr.LowerInitBlock, tr.ConvertBlocksToOpaque, tr.LowerMatchBuffer, tr.LowerOpaqueBlock, tr.FlattenBuffer)
PASSES = {
    "UnrollLoop": (tr.UnrollLoop, {}),
    "UnrollAll": (tr.UnrollLoop, {"tir__UnrollLoop": {"auto_max_step": 64}}),
    "UnrollMark": (tr.UnrollLoop, {"tir__UnrollLoop": {"auto_max_step": 64, "explicit_unroll": False}}),
    "HoistExpression": (tr.HoistExpression, {}),
    "HoistIfThenElse": (tr.HoistIfThenElse, {}),
    "LoopPartition": (tr.LoopPartition, {"tir__LoopPartition": {"partition_const_loop": True}}),
    "RemoveNoOp": (tr.RemoveNoOp, {"tir__RemoveNoOp": {"use_dataflow_analysis": True}}),
    "ConvertSSA": (tr.ConvertSSA, {}),
    "RewriteUnsafeSelect": (tr.RewriteUnsafeSelect, {}),
    "ConvertForLoopsToSerial": (tr.ConvertForLoopsToSerial, {}),
    "SkipAssert": (tr.SkipAssert, {}),
    "CombineContextCall": (tr.CombineContextCall, {}),
    "RemoveAssume": (tr.RemoveAssume, {}),
    "Simplify": (tr.Simplify, {}),
}


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("name", POOL)
@pytest.mark.parametrize("case", PASSES)
def test_each_pass_keeps_the_meaning(case, name, flat):
    make, config = PASSES[case]
    f = apply(POOL[name], *(p() for p in LOWER)) if flat else POOL[name]
    out = apply(f, make(), **config)
    same_meaning(POOL[name], out)
    tir.analysis.verify_well_formed(out)


# ---- unrolling -----------------------------------------------------------------------------------------------------------


@T.prim_func
def nest(A: T.Buffer((64,), "float32")):
    for i in T.serial(4):
        for j in T.unroll(3):
            for k in T.serial(2):
                A[i * 6 + j * 2 + k] = 1.0


def loops(f):
    return [(s.loop_var.name, s.kind) for s in walk(f.body) if isinstance(s, tir.For)]


def test_marked_loops_are_unrolled():
    assert [name for name, _ in loops(apply(nest, tr.UnrollLoop()))] == ["i", "k", "k", "k"]


@pytest.mark.parametrize(("steps", "left"), [(1, ["i", "k", "k", "k"]), (6, ["i"]), (23, ["i"]), (24, [])])
def test_short_loops_are_unrolled_by_a_budget(steps, left):
    out = apply(nest, tr.UnrollLoop(), tir__UnrollLoop={"auto_max_step": steps})
    assert [name for name, _ in loops(out)] == left


def test_pragmas_set_the_budget_of_what_is_inside():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32")):
        with T.attr(T.int32(0), "pragma_auto_unroll_max_step", 16), T.attr(T.int32(0), "pragma_unroll_explicit", 0):
            for i in T.serial(4):
                A[i] = 1.0
        for i in T.serial(4, annotations={"pragma_auto_unroll_max_step": 4}):
            A[i + 4] = 1.0
        for i in T.serial(4):
            A[i + 8] = 1.0

    out = apply(f, tr.UnrollLoop())
    assert loops(out) == [("i", tir.ForKind.UNROLLED), ("i", tir.ForKind.SERIAL)]
    same_meaning(f, out)


def test_a_loop_of_unknown_length_is_not_unrolled():
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), n: T.int32):
        for i in T.unroll(n):
            A[i] = 1.0

    with pytest.raises(tvm.TVMError, match="TW0533"):
        apply(f, tr.UnrollLoop())


def test_copies_define_variables_of_their_own():
    @T.prim_func
    def f(A: T.Buffer((8,), "float32")):
        for i in T.unroll(2):
            B = T.decl_buffer((4,), "float32")
            for j in range(4):
                x: T.float32 = A[i * 4 + j] * 2.0
                B[j] = x
            for j in range(4):
                A[i * 4 + j] = B[3 - j]

    out = apply(f, tr.UnrollLoop())
    defined = [s.buffer_var for s in walk(out.body) if isinstance(s, tir.Allocate)]
    assert len(set(defined)) == 2
    same_meaning(f, out)


# ---- hoisting ------------------------------------------------------------------------------------------------------------


def test_conditions_move_out_of_loops_they_do_not_depend_on():
    @T.prim_func
    def before(A: T.Buffer((4, 4), "float32"), n: T.int32):
        for i, j, _k in T.grid(4, 4, 4):
            if j < 3 and i < 2:
                A[i, j] = A[i, j] + 1.0
            if n > 1:
                A[i, j] = 2.0

    @T.prim_func
    def whole(A: T.Buffer((4, 4), "float32"), n: T.int32):
        if n > 1:
            for i in range(4):
                for j in range(4):
                    if j < 3 and i < 2:
                        for _k in range(4):
                            A[i, j] = A[i, j] + 1.0
                            A[i, j] = 2.0
                    else:
                        for _k in range(4):
                            A[i, j] = 2.0
        else:
            for i in range(4):
                for j in range(4):
                    if j < 3 and i < 2:
                        for _k in range(4):
                            A[i, j] = A[i, j] + 1.0

    expect(before, whole, tr.HoistIfThenElse())
    expect(before, whole, tr.HoistIfThenElse("basic"))
    out = apply(before, tr.HoistExpression())
    same_meaning(before, out)


def test_what_is_hoisted_can_be_chosen():
    @T.prim_func
    def f(A: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            x: T.int32 = i * 2
            A[i, j] = T.if_then_else(x < 3, T.float32(1), T.float32(2))

    def run(conditionals, lets):
        options = {"hoisted_conditionals": int(conditionals), "hoisted_let_bindings": int(lets)}
        return apply(f, tr.HoistExpression(), tir__HoistExpression=options)

    c, b = tr.HoistedConditionals, tr.HoistedLetBindings
    assert structural_equal(run(c.Never, b.Never), f.with_attr("global_symbol", "main"))
    assert isinstance(run(c.Never, b.All).body.body, tir.LetStmt)
    both = run(c.All, b.All)
    assert isinstance(both.body.body.body, tir.IfThenElse)
    same_meaning(f, both)
    with pytest.raises(tvm.TVMError, match="TW0533"):
        tr.HoistIfThenElse("fast")


# ---- partitions ----------------------------------------------------------------------------------------------------------


def test_the_middle_of_a_loop_needs_no_check():
    @T.prim_func
    def f(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in range((n + 3) // 4):
            for j in range(4):
                if T.likely(i * 4 + j < n):
                    A[i * 4 + j] = A[i * 4 + j] + 1.0

    out = apply(f, tr.LoopPartition())
    assert isinstance(out.body, tir.SeqStmt)
    assert not any(isinstance(x, tir.IfThenElse) for x in walk(out.body[0]))
    for n in (1, 4, 7, 8):
        same_meaning(f, out, n)


def test_constant_loops_are_cut_on_request():
    @T.prim_func
    def f(A: T.Buffer((12, 12), "float32"), B: T.Buffer((10, 10), "float32")):
        for i in T.serial(0, 12, annotations={"pragma_loop_partition_hint": 1}):
            for j in T.serial(12):
                A[i, j] = T.if_then_else(i >= 1 and i < 11 and j >= 1 and j < 11, B[i - 1, j - 1], T.float32(0))

    hinted = apply(f, tr.LoopPartition(), tr.Simplify())
    assert [int(s.extent) for s in walk(hinted.body) if isinstance(s, tir.For)] == [12, 10, 12, 12]
    same_meaning(f, hinted)

    @T.prim_func
    def g(A: T.Buffer((30,), "float32")):
        for i, j in T.grid(8, 4):
            if T.likely(i * 4 + j < 30):
                A[i * 4 + j] = 1.0

    assert structural_equal(apply(g, tr.LoopPartition()), g.with_attr("global_symbol", "main"))
    for extra in ({}, {"no_unroll_loop_with_extent_one": True}):
        out = apply(g, tr.LoopPartition(), tr.Simplify(), tir__LoopPartition={"partition_const_loop": True, **extra})
        assert not any(isinstance(x, tir.IfThenElse) for x in walk(out.body))
        same_meaning(g, out)


# ---- what has no effect --------------------------------------------------------------------------------------------------


def test_what_has_no_effect_goes():
    @T.prim_func
    def before(A: T.Buffer((16,), "int32")):
        for i in range(16):
            if i < 8:
                T.evaluate(0)
            else:
                A[i] = 42
        for i in range(16):
            x: T.int32 = i * 2
            A[i] = A[i]
        for i in range(16):
            for j in range(i - 20):
                A[i] = j

    @T.prim_func
    def after(A: T.Buffer((16,), "int32")):
        for i in range(16):
            if not i < 8:
                A[i] = 42

    expect(before, after, tr.RemoveNoOp())


def test_overwritten_stores_go_on_request():
    @T.prim_func
    def before(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
        for i in range(4, 12):
            A[i] = 100
        for i in range(16):
            B[i] = 0
        for i in range(16):
            A[i] = 1
            A[i] = 42

    @T.prim_func
    def after(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
        for i in range(16):
            B[i] = 0
        for i in range(16):
            A[i] = 42

    assert structural_equal(apply(before, tr.RemoveNoOp()), before.with_attr("global_symbol", "main"))
    expect(before, after, tr.RemoveNoOp(), tir__RemoveNoOp={"use_dataflow_analysis": True})

    @T.prim_func
    def read(A: T.Buffer((16,), "int32")):
        for i in range(16):
            A[i] = 100
        for i in range(15):
            A[i] = A[i + 1]

    out = apply(read, tr.RemoveNoOp(), tir__RemoveNoOp={"use_dataflow_analysis": True})
    assert structural_equal(out, read.with_attr("global_symbol", "main"))


def test_calls_stay():
    @T.prim_func
    def f(A: T.Buffer((16,), "int32")):
        x: T.int32 = T.call_extern("int32", "f")
        for i in range(4):
            T.evaluate(T.call_extern("int32", "g", i))

    out = apply(f, tr.RemoveNoOp())
    assert sum(isinstance(x, tir.Call) for x in walk(out.body)) == 2


def test_assumptions_and_undefined_values():
    @T.prim_func
    def before(A: T.Buffer((16,), "int32")):
        for i in range(16):
            T.evaluate(T.assume(i < 16))
            A[i] = 1
        for i in range(16):
            A[i] = T.undef(dtype="int32")

    @T.prim_func
    def after(A: T.Buffer((16,), "int32")):
        for i in range(16):
            A[i] = 1

    got = apply(before, tr.RemoveAssume(), tr.RemoveStoreUndef())
    assert structural_equal(got, after.with_attr("global_symbol", "main"))

    @T.prim_func
    def used(A: T.Buffer((16,), "int32")):
        T.evaluate(T.call_extern("int32", "f", T.undef(dtype="int32")))

    with pytest.raises(tvm.TVMError, match="TW0534"):
        apply(used, tr.RemoveStoreUndef())


def test_unsafe_selects_choose_first():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(16):
            A[i] = T.Select(i < 8, T.float32(1), T.Select(i > 9, T.float32(3), T.float32(2)))
        for i in range(16):
            A[i] = T.Select(i < 8, B[i % 8], T.float32(0))

    out = apply(f, tr.RewriteUnsafeSelect())
    assert sum(isinstance(x, tir.Select) for x in walk(out.body)) == 2
    assert sum(isinstance(x, tir.Call) for x in walk(out.body)) == 1


def test_unique_names():
    v = tir.Var("v", "int32")
    A = tir.decl_buffer((4,), "int32", "A")
    one = tir.For(v, tir.const(0), tir.const(4), tir.ForKind.SERIAL, tir.BufferStore(A, v, [v]))
    p = tir.Var("a", "handle")
    f = tir.PrimFunc([p], tir.SeqStmt([one, one]), None, {p: A})
    mod = tvm.IRModule({tvm.ir.GlobalVar("f"): f, tvm.ir.GlobalVar("g"): f})
    assert not tir.analysis.verify_ssa(f)
    out = tr.ConvertSSA()(mod)
    assert tir.analysis.verify_ssa(out["f"])
    defined = [s.loop_var for g in out.functions.values() for s in walk(g.body) if isinstance(s, tir.For)]
    assert len(set(defined)) == 4
    assert out["f"].params[0] is not out["g"].params[0]
    same_meaning(f, out["g"])


# ---- modules and contexts ------------------------------------------------------------------------------------------------


def test_functions_are_filtered_and_changed():
    mod = tvm.IRModule({tvm.ir.GlobalVar("a"): POOL["chain"], tvm.ir.GlobalVar("b"): POOL["matmul"]})
    kept = tr.Filter(lambda f: len(f.params) == 3)(mod)
    assert [v.name_hint for v in kept] == ["b"]
    marked = tr.Apply(lambda f: f.with_attr("x", 1))(mod)
    assert all(f.attrs["x"] == 1 for f in marked.functions.values())


def test_the_entry_and_targets():
    one = tvm.IRModule.from_expr(POOL["chain"])
    assert next(iter(tr.AnnotateEntryFunc()(one).functions.values())).attrs["tir.is_entry_func"]
    target = tvm.target.Target("opencl", host="llvm")
    bound = tr.BindTarget(target)(one)
    assert next(iter(bound.functions.values())).attrs["target"] == target
    host = one.with_({v: f.with_attr("tir.is_host_func", True) for v, f in one.functions.items()})
    f = next(iter(tr.BindTarget(target)(host).functions.values()))
    assert f.attrs["target"].kind.name == "llvm"
    assert "tir.is_host_func" not in f.attrs


def test_constants_are_listed_once():
    import numpy as np

    data = np.arange(4, dtype="float32")

    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        p = T.allocate_const(data, "float32", [4])
        q = T.allocate_const(data, "float32", [4])
        P = T.Buffer((4,), "float32", data=p)
        Q = T.Buffer((4,), "float32", data=q)
        for i in range(4):
            A[i] = P[i] + Q[i]

    out = tr.ExtractPrimFuncConstants()(tvm.IRModule.from_expr(f))
    assert len(out.attrs["constants"]) == 1


def test_options_are_checked():
    with pytest.raises(tvm.TVMError, match=r"(?s)TW0535.*tir.UnrollLoop"):
        tvm.transform.PassContext(config={"tir.UnrolLoop": {}})
    with pytest.raises(AttributeError, match=r"(?s)TW0535.*auto_max_step"):
        tvm.transform.PassContext(config={"tir.UnrollLoop": {"auto_max_steps": 3}})
    with pytest.raises(tvm.TVMError, match="TW0535"):
        tvm.transform.PassContext(config={"tir.UnrollLoop": 3})
    with pytest.raises(tvm.TVMError, match="TW0535"):
        tvm.transform.PassContext(config={"tir.vtcm_capacity": "large"})
    assert "tir.UnrollLoop" in tvm.transform.PassContext.list_configs()


# ---- branches --------------------------------------------------------------------------------------------------------------


def test_a_branch_that_changes_nothing_elsewhere_goes():
    @T.prim_func
    def f(A: T.Buffer((16,), "int32"), B: T.Buffer((1,), "int32")):
        for i in range(16):
            if i < 14:
                A[i] = 1
                T.evaluate(0)
            else:
                A[i] = 1
        for i in range(16):
            if i > 0:
                B[0] = B[0] + i * i
        for i in range(16):
            if i < 8:
                A[i] = A[i] + 1

    out = apply(f, tr.ReduceBranchingThroughOvercompute())
    assert sum(isinstance(x, tir.IfThenElse) for x in walk(out.body)) == 1
    same_meaning(f, out)


@pytest.mark.parametrize("skip", [False, True])
def test_blocks_that_rewrite_weights_are_emptied(skip):
    @T.prim_func
    def f(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        W = T.alloc_buffer((8, 2, 4))
        for i, j in T.grid(8, 8):
            with T.block("layout"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(W[vj, vi // 4, vi % 4])
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                W[vj, vi // 4, vi % 4] = A[vi, vj]
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = W[vj, vi // 4, vi % 4] * 2.0

    out = apply(f, tr.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=skip))
    weight = out.buffer_map[out.params[0]]
    assert [int(n) for n in weight.shape] == ([8, 8] if skip else [8, 2, 4])
    stores = [x for x in walk(out.body) if isinstance(x, tir.BufferStore)]
    assert [x.buffer.name for x in stores] == ["C"]


def test_conditions_by_what_they_are_bound_to():
    @T.prim_func
    def before(A: T.Buffer((4,), "bool"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            condition: T.bool = i < 3
            if i < 3:
                if condition:
                    A[i] = condition
            B[i] = B[i]
            B[3 - i] = T.Cast("int32", T.ceil(T.log2(T.float64(14))))

    @T.prim_func
    def after(A: T.Buffer((4,), "bool"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            condition: T.bool = i < 3
            if i < 3:
                A[i] = condition
            B[3 - i] = 4

    expect(before, after, tr.Simplify())


def test_private_functions_are_inlined():
    A = tir.decl_buffer((16,), "float32", "A")
    i, x = tir.Var("i", "int32"), tir.Var("x", "float32")
    data = tir.Var("p", "handle", A.data.type_annotation)
    memory = tir.decl_buffer((16,), "float32", "m", data=data)
    j = tir.Var("j", "int32")
    body = tir.For(j, tir.const(0), tir.const(4), tir.ForKind.SERIAL, tir.BufferStore(memory, x, [i * 4 + j]))
    fill = tir.PrimFunc([data, i, x], body)
    gv = tvm.ir.GlobalVar("fill")
    calls = [
        tir.Evaluate(tir.Call("int32", gv, (A.data, tir.const(n), tir.const(float(n), "float32")))) for n in range(4)
    ]
    p = tir.Var("a", "handle")
    main = tir.PrimFunc([p], tir.SeqStmt(calls), None, {p: A}).with_attr("global_symbol", "main")
    mod = tvm.IRModule({tvm.ir.GlobalVar("main"): main, gv: fill})
    out = tr.InlinePrivateFunctions()(mod)
    assert [v.name_hint for v in out] == ["main"]
    assert not any(isinstance(c, tir.Call) for c in walk(out["main"].body))
    assert tir.analysis.verify_ssa(out["main"])
    import numpy as np

    from tilewright.tir.interp import interpret

    a = np.zeros(16, "float32")
    interpret(out["main"], a)
    np.testing.assert_array_equal(a, np.repeat(np.arange(4), 4))
    again = tr.InlinePrivateFunctions()(tvm.IRModule({gv: fill}))
    assert [v.name_hint for v in again] == ["fill"]
