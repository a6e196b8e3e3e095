"""Passes on memory, dtypes, shared computations and entries; `tvm.lower`; analyses of whole functions."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.node import walk
from tilewright.ir.structure import structural_equal
from tilewright.script import tir as T
from tilewright.tir import analysis
from tilewright.tir import transform as tr
from tilewright.tir.interp import interpret

from .programs import POOL, arguments, run, same_meaning


def apply(f, *passes, **config):
    mod = tvm.IRModule.from_expr(f.with_attr("global_symbol", "main"))
    with tvm.transform.PassContext(config={k.replace("__", "."): v for k, v in config.items()}):
        return tvm.transform.Sequential(list(passes))(mod)["main"]


def flat(f):
    return apply(
        f, tr.LowerInitBlock(), tr.ConvertBlocksToOpaque(), tr.LowerMatchBuffer(), tr.LowerOpaqueBlock(), tr.FlattenBuffer()
    )  # fmt: skip


def of(f, kind):
    return [x for x in walk(f.body) if isinstance(x, kind)]


PASSES = {
    "StorageRewrite": tr.StorageRewrite, "CommonSubexprElimTIR": tr.CommonSubexprElimTIR, "InjectDoubleBuffer": tr.InjectDoubleBuffer,
    "Narrow16": lambda: tr.NarrowDataType(16), "Narrow32": lambda: tr.NarrowDataType(32), "LowerIntrin": tr.LowerIntrin,
    "RenormalizeSplitPattern": tr.RenormalizeSplitPattern, "BF16ComputeLegalize": tr.BF16ComputeLegalize,
    "FP8ComputeLegalize": tr.FP8ComputeLegalize, "LowerTVMBuiltin": tr.LowerTVMBuiltin, "TextureFlatten": tr.TextureFlatten,
    "LowerCustomDatatypes": tr.LowerCustomDatatypes,
    "VerifyMemory": tr.VerifyMemory,
}  # fmt: skip


@pytest.mark.parametrize("name", POOL)
@pytest.mark.parametrize("case", PASSES)
def test_each_pass_keeps_the_meaning(case, name):
    out = apply(flat(POOL[name]), PASSES[case]())
    same_meaning(POOL[name], out)
    analysis.verify_well_formed(out)


# ---- storage -------------------------------------------------------------------------------------------------------------


def test_allocations_move_out_and_share_memory():
    @T.prim_func
    def f(C: T.Buffer((20,), "float32"), n: T.int32):
        for _i in range(n):
            for j in range(10):
                A = T.decl_buffer((20,), "float32")
                A[j] = T.float32(1)
                C[j] = A[j]
            for j in range(10):
                B = T.decl_buffer((16,), "float32")
                B[j] = T.float32(2)
                C[10 + j] = B[j]

    out = apply(f, tr.StorageRewrite())
    assert isinstance(out.body, tir.Allocate)
    assert [int(s.extents[0]) for s in of(out, tir.Allocate)] == [20]
    same_meaning(f, out)


def test_what_is_alive_together_is_apart_and_threads_have_their_own():
    @T.prim_func
    def f(C: T.Buffer((8, 8), "float32")):
        for i in T.parallel(8):
            A = T.decl_buffer((8,), "float32")
            B = T.decl_buffer((8,), "float32")
            D = T.decl_buffer((8,), "float32")
            for j in range(8):
                A[j] = T.float32(1)
                B[j] = A[j] + T.float32(1)
            for j in range(8):
                D[j] = B[j]
            for j in range(8):
                C[i, j] = D[j] + B[j]

    out = apply(f, tr.StorageRewrite())
    assert isinstance(out.body, tir.For)
    assert len(of(out, tir.Allocate)) == 2
    same_meaning(f, out)


def test_a_loop_keeps_what_it_uses_from_outside():
    @T.prim_func
    def f(C: T.Buffer((8,), "float32")):
        A = T.decl_buffer((8,), "float32")
        for j in range(8):
            A[j] = T.float32(1)
        for _i in range(4):
            B = T.decl_buffer((8,), "float32")
            for j in range(8):
                B[j] = A[j]
            for j in range(8):
                C[j] = C[j] + B[j]

    out = apply(f, tr.StorageRewrite())
    assert len(of(out, tir.Allocate)) == 2
    same_meaning(f, out)


# ---- common subexpressions -----------------------------------------------------------------------------------------------


def test_expressions_are_computed_once():
    @T.prim_func
    def before(B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32, z: T.int32):
        B[0] = (x + y) * z
        B[1] = (x + y) * z
        B[2] = x + y
        for i in range(3):
            B[i + 3] = x * z + i
            B[i + 6] = x * z + i

    @T.prim_func
    def after(B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32, z: T.int32):
        c: T.int32 = x * z
        a: T.int32 = x + y
        b: T.int32 = a * z
        B[0] = b
        B[1] = b
        B[2] = a
        for i in range(3):
            d: T.int32 = c + i
            B[i + 3] = d
            B[i + 6] = d

    out = apply(before, tr.CommonSubexprElimTIR())
    same_meaning(before, out)
    assert structural_equal(out, after.with_attr("global_symbol", "main")), out.script()
    assert structural_equal(
        apply(before, tr.CommonSubexprElimTIR(enable_cse_tir=False)), before.with_attr("global_symbol", "main")
    )


def test_only_what_is_computed_in_any_case_moves():
    @T.prim_func
    def f(B: T.Buffer((50,), "int32"), x: T.int32, y: T.int32):
        if x > 3:
            B[0] = 7 // y
            B[1] = 7 // y
        else:
            B[0] = 1

    out = apply(f, tr.CommonSubexprElimTIR())
    assert isinstance(out.body, tir.IfThenElse)
    assert isinstance(out.body.then_case, tir.LetStmt)

    @T.prim_func
    def loads(A: T.Buffer((50,), "int32"), B: T.Buffer((50,), "int32")):
        B[0] = A[0] + A[0]
        B[1] = A[0] + A[0]

    assert structural_equal(apply(loads, tr.CommonSubexprElim()), loads.with_attr("global_symbol", "main"))


# ---- double buffers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_double_buffers_are_filled_one_iteration_ahead(n, split):
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(n):
            data = T.allocate([8], "float32", "shared")
            B = T.Buffer((8,), "float32", data=data, scope="shared")
            with T.attr(data, "double_buffer_scope", 1):
                for j in range(8):
                    B[j] = A[i * 8 + j]
            for j in range(8):
                C[j] = C[j] + B[7 - j]

    out = apply(f, tr.StorageRewrite(), tr.InjectDoubleBuffer(), tir__InjectDoubleBuffer={"split_loop": split})
    assert [int(s.extents[0]) for s in of(out, tir.Allocate)] == [16]
    assert not any(s.attr_key == "double_buffer_scope" for s in of(out, tir.AttrStmt))
    same_meaning(f, out)
    same_meaning(f, apply(out, tr.Simplify()))


def test_a_double_buffer_needs_a_loop_and_an_even_split():
    @T.prim_func
    def f(A: T.Buffer((8,), "float32")):
        data = T.allocate([8], "float32", "global")
        B = T.Buffer((8,), "float32", data=data)
        with T.attr(data, "double_buffer_scope", 1):
            B[0] = A[0]

    with pytest.raises(tvm.TVMError, match="TW0533"):
        apply(f, tr.InjectDoubleBuffer())
    with pytest.raises(tvm.TVMError, match="TW0533"):
        apply(f, tr.InjectDoubleBuffer(), tir__InjectDoubleBuffer={"split_loop": 3})


# ---- dtypes --------------------------------------------------------------------------------------------------------------


def test_indices_narrow_where_they_fit():
    @T.prim_func
    def before(A: T.Buffer((128,), "float32"), B: T.Buffer((130,), "float32")):
        for i, j in T.grid(T.int64(2), T.int64(65)):
            B[i * T.int64(65) + j] = T.if_then_else(
                i * T.int64(65) + j >= T.int64(0) and i * T.int64(65) + j < T.int64(128),
                A[i * T.int64(65) + j],
                T.float32(0),
            )

    @T.prim_func
    def after(A: T.Buffer((128,), "float32"), B: T.Buffer((130,), "float32")):
        for i, j in T.grid(2, 65):
            B[i * 65 + j] = T.if_then_else(i * 65 + j >= 0 and i * 65 + j < 128, A[i * 65 + j], T.float32(0))

    out = apply(before, tr.NarrowDataType(32))
    assert structural_equal(out, after.with_attr("global_symbol", "main")), out.script()
    same_meaning(before, out)


@pytest.mark.parametrize(("m", "n", "bits", "want"), [
    (4, 4, 32, "int32"), (1 << 16, 1 << 16, 32, "int64"), (4, 4, 16, "int16"), (1 << 10, 1 << 10, 16, "int64"),
])  # fmt: skip
def test_what_does_not_fit_stays_wide(m, n, bits, want):
    @T.prim_func
    def f(a: T.handle):
        A = T.match_buffer(a, (T.int64(m * n),), "float32")
        for i, j in T.grid(T.int64(m), T.int64(n)):
            A[i * T.int64(n) + j] = T.float32(0)

    out = apply(f, tr.NarrowDataType(bits))
    assert {s.loop_var.dtype for s in of(out, tir.For)} == {want}


def test_indices_are_made_int32_by_force():
    @T.prim_func
    def before(A: T.Buffer((T.int64(4), T.int64(8)), "float32"), B: T.Buffer((T.int64(32),), "float32")):
        for i in range(T.int64(32)):
            with T.block("b"):
                v = T.axis.spatial(T.int64(32), i)
                B[v] = A[v // T.int64(8), v % T.int64(8)] + T.Cast("float32", v)

    out = apply(before, tr.ForceNarrowIndexToInt32())
    assert all(v.dtype != "int64" for v in of(out, tir.Var))
    assert all(n.dtype == "int32" for b in out.buffer_map.values() for n in b.shape)
    same_meaning(before, out)

    @T.prim_func
    def data(A: T.Buffer((8,), "int64")):
        for i in range(T.int64(8)):
            A[i] = T.int64(0)

    with pytest.raises(tvm.TVMError, match="TW0533"):
        apply(data, tr.ForceNarrowIndexToInt32())


def test_bfloat16_is_computed_in_float32():
    ml_dtypes = pytest.importorskip("ml_dtypes")

    @T.prim_func
    def f(A: T.Buffer((32,), "bfloat16"), C: T.Buffer((32,), "bfloat16")):
        B = T.decl_buffer((32,), "bfloat16")
        for i in range(32):
            B[i] = A[i] + A[31 - i]
            C[i] = T.exp(B[i])

    computed = apply(f, tr.BF16ComputeLegalize())
    arithmetic = [x for x in walk(computed.body) if isinstance(x, tir.Add)]
    assert all(x.dtype != "bfloat16" for x in arithmetic)
    assert [s.dtype for s in of(computed, tir.Allocate)] == ["float32"]
    stored = apply(computed, tr.BF16StorageLegalize())
    assert all("bfloat16" not in b.dtype for b in stored.buffer_map.values())
    a = np.linspace(-1, 1, 32).astype(ml_dtypes.bfloat16)
    want, got = np.zeros(32, ml_dtypes.bfloat16), np.zeros(32, "uint16")
    interpret(computed, a, want)
    interpret(stored, a.view("uint16"), got)
    np.testing.assert_array_equal(got, want.view("uint16"))
    exact = np.exp(a.astype("float32") + a[::-1].astype("float32"))
    np.testing.assert_allclose(want.astype("float32"), exact, rtol=1e-2)


def test_float8_is_computed_in_float16():
    @T.prim_func
    def f(A: T.Buffer((8,), "float8_e4m3fn"), C: T.Buffer((8,), "float8_e4m3fn")):
        for i in range(8):
            C[i] = A[i] * A[i]

    out = apply(f, tr.FP8ComputeLegalize())
    assert {x.dtype for x in walk(out.body) if isinstance(x, tir.Mul)} == {"float16"}
    wide = apply(f, tr.FP8ComputeLegalize("float32"), tr.FP8StorageLegalize())
    assert {b.dtype for b in wide.buffer_map.values()} == {"uint8"}
    with pytest.raises(tvm.TVMError, match="TW0533"):
        tr.FP8ComputeLegalize("float64")


# ---- divisions and entries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [-3, 3, 8])
def test_floor_divisions_for_machines(d):
    @T.prim_func
    def f(A: T.Buffer((41, 4), "int32"), n: T.int32):
        for i in range(41):
            A[i, 0] = (i - 20) // d
            A[i, 1] = (i - 20) % d
            A[i, 2] = (i - 20) // (n - 5)
            A[i, 3] = i % (n + 1)

    out = apply(f, tr.LowerIntrin())
    assert not of(out, (tir.FloorDiv, tir.FloorMod))
    for n in (2, 8):
        same_meaning(f, out, n)


def test_remainders_that_are_divided():
    @T.prim_func
    def f(A: T.Buffer((64,), "int32")):
        for i in range(64):
            A[i] = i % 32 // 4

    out = apply(f, tr.RenormalizeSplitPattern())
    assert isinstance(out.body.body.value, tir.FloorMod)
    same_meaning(f, out)


def test_entries_need_a_target():
    f = flat(POOL["chain"])
    mod = tvm.IRModule.from_expr(f)
    for make in (tr.MakePackedAPI, tr.MakeUnpackedAPI):
        with pytest.raises(tvm.TVMError, match="TW0538"):
            make()(mod)
    bound = tr.BindTarget("llvm")(mod)
    packed = tr.MakePackedAPI()(bound)["main"]
    assert [p.name for p in packed.params] == ["self", "args", "num_args", "ret"]
    plain = tr.MakeUnpackedAPI()(bound)["main"]
    assert not plain.buffer_map
    args = arguments(POOL["chain"])
    want = run(POOL["chain"], args)
    got = [a.copy().reshape(-1) for a in args]
    assert interpret(plain, *got) == 0
    np.testing.assert_allclose(got[1].reshape(want[1].shape), want[1])
    private = tvm.IRModule({tvm.ir.GlobalVar("f"): f.without_attr("global_symbol")})
    assert tr.MakePackedAPI()(private) is private


def test_what_is_not_there_says_so():
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        B = T.decl_buffer((4,), "float32", scope="global.texture")
        B[0] = A[0]

    for make in (tr.TextureFlatten, tr.InstrumentProfileIntrinsics):
        with pytest.raises(tvm.TVMError, match="TW0538"):
            apply(f, make())
    gpu = POOL["strided"].with_attr("target", tvm.target.Target("cuda"))
    assert not analysis.verify_memory(gpu)
    with pytest.raises(tvm.TVMError, match="TW0538"):
        apply(gpu, tr.VerifyMemory())


# ---- lower ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("simple", [False, True])
@pytest.mark.parametrize("name", POOL)
def test_lower_gives_flat_programs(name, simple):
    f = POOL[name]
    mod = tvm.lower(f, simple_mode=simple)
    assert not of(mod["main"], (tir.Block, tir.BlockRealize))
    same_meaning(f, mod)
    if not simple:
        args = arguments(f)
        want = run(f, args)
        got = [tvm.nd.array(a) if isinstance(a, np.ndarray) else a for a in args]
        tvm.build(mod, "llvm")["main"](*got)
        for g, w in zip([a for a in got if not isinstance(a, int)], want, strict=True):
            np.testing.assert_allclose(g.numpy(), w, rtol=1e-5, atol=1e-6)


def test_lower_takes_schedules_modules_and_tensors():
    sch = tir.Schedule(POOL["matmul"])
    assert list(tvm.lower(sch))
    assert [v.name_hint for v in tvm.lower(POOL["chain"], name="f")] == ["f"]
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] * 2.0, name="B")
    assert [v.name_hint for v in tvm.lower([A, B], name="double")] == ["double"]
    with pytest.raises(TypeError):
        tvm.lower(3)
    with pytest.raises(tvm.TVMError, match="TW0537"):
        tvm.lower(POOL["chain"], binds={A: None})


def test_passes_of_ones_own_go_in():
    seen = []

    @tr.prim_func_pass(opt_level=0)
    def look(f, mod, ctx):
        seen.append(any(isinstance(x, tir.Block) for x in walk(f.body)))
        return f

    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(0, look), (1, look), (3, look)]}):
        tvm.lower(POOL["matmul"])
    assert seen == [True, False, False]


# ---- analyses --------------------------------------------------------------------------------------------------------------


def test_memory_that_a_function_needs():
    @T.prim_func
    def f(A: T.Buffer((128,), "int8")):
        c = T.allocate_const(np.zeros(10, "int8"), "int8", [10])
        x = T.allocate([100], "int8", "global")
        for _i in range(4):
            y = T.allocate([50], "int8", "global")
            T.evaluate(T.call_extern("int32", "g", y))
        z = T.allocate([60], "float32", "global.vtcm")
        A[0] = T.int8(0)

    assert analysis.calculate_allocated_bytes(f)["main"]["global.vtcm"] == 240
    assert analysis.calculate_constant_bytes(f, 16) == 16
    assert analysis.calculate_workspace_bytes(f, 16) >= 112 + 64
    mod = tvm.IRModule({tvm.ir.GlobalVar("f"): f})
    assert set(analysis.calculate_allocated_bytes(mod)) == {"f"}


def test_purity():
    @T.prim_func
    def pure(A: T.Buffer((16,), "float32")) -> T.float32:
        S = T.decl_buffer((1,), "float32")
        S[0] = T.float32(0)
        for i in range(16):
            S[0] = S[0] + T.cos(A[i])
        T.ret(S[0])

    assert analysis.is_pure_function(pure)
    assert analysis.assert_pure_function(pure)
    assert not analysis.is_pure_function(POOL["chain"])
    with pytest.raises(AssertionError, match="TW0536"):
        analysis.assert_pure_function(POOL["chain"])


def test_accesses_known_to_be_out_of_bounds():
    analysis.OOBChecker()(tvm.IRModule.from_expr(POOL["padded"]))

    @T.prim_func(check_well_formed=False)
    def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            B[i] = A[i + 1]

    with pytest.raises(tvm.TVMError, match="TW0536"):
        analysis.OOBChecker()(tvm.IRModule.from_expr(f))


def test_the_anchor_and_the_passes_to_flat_memory():
    mod = tvm.IRModule.from_expr(POOL["padded"])
    assert analysis.find_anchor_block(mod).name_hint == "C"
    assert analysis.find_anchor_block(tvm.IRModule.from_expr(POOL["chain"])) is None
    out = tvm.transform.Sequential(analysis.get_vtcm_compaction_passes())(mod)
    assert not of(next(iter(out.functions.values())), tir.Block)
