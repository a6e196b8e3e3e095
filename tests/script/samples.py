"""Samples of every node class: what the round-trip test prints and parses back."""

# ruff: noqa: E731

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arith import expr as E
from tilewright.ir.module import IRModule
from tilewright.ir.op import GlobalVar, Op, PointerType, PrimType
from tilewright.relax import calls
from tilewright.relax import ir as rx
from tilewright.relax import struct_info as si
from tilewright.relax.values import const as rconst
from tilewright.tir import ir as tir

i32 = lambda v: E.IntImm("int32", v)
i64 = lambda v: E.IntImm("int64", v)
TRUE = E.IntImm("bool", 1)
i, j, n = E.Var("i"), E.Var("j"), E.Var("n", "int64")
x, y = E.Var("x", "float32"), E.Var("y", "float32")
p, q = E.Var("p", "bool"), E.Var("q", "bool")
A = tir.decl_buffer((16, 8), "float32", "A")
B = tir.decl_buffer((16,), "int32", "B")
S = tir.decl_buffer((), "float32", "S")
V = tir.decl_buffer((16,), "float32x4", "V")
nop = tir.Evaluate(i32(0))
one = tir.Evaluate(E.Call("int32", Op.get("tir.call_extern"), (E.StringImm("f"), i)))


def binary(kind: Any, a: Any, b: Any, *consts: Any) -> list[Any]:
    """A class of two sides: of variables, and with what the builders would fold or convert."""
    return [kind(a, b), kind(kind(a, b), kind(b, a)), kind(a, kind(b, kind(a, b))), *(kind(*c) for c in consts)]


INTS = [
    (i, i32(0)),
    (i32(0), i),
    (i, i32(1)),
    (i32(1), i),
    (i32(2), i32(3)),
    (i, i32(-1)),
    (i32(-5), i),
    (n, i64(3)),
    (i32(7), i32(0)),
]
BOOLS = [(p, TRUE), (TRUE, q), (TRUE, TRUE)]

EXPRESSIONS: dict[type, list[Any]] = {
    E.Var: [
        i,
        n,
        x,
        p,
        E.Var("h", "handle"),
        E.Var("h", "handle", PointerType(PrimType("float32"), "shared")),
        E.Var("class", "int8"),
        E.Var("v", "float32x4"),
        E.Var("a b", "uint8"),
    ],
    E.SizeVar: [E.SizeVar("m", "int64"), E.SizeVar("m") + 1],
    E.IntImm: [
        i32(0),
        i32(-1),
        i64(5),
        i64(2**62),
        E.IntImm("uint8", 255),
        TRUE,
        E.IntImm("bool", 0),
        E.IntImm("int4", -8),
        E.IntImm("uint64", 2**64 - 1),
        E.IntImm("int32", -(2**31)),
    ],
    E.FloatImm: [
        E.FloatImm(t, v)
        for t in ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn")
        for v in (0.0, -0.0, 1.0, -2.5, 0.1, 1e30, float("inf"), float("-inf"), float("nan"))
    ],
    E.StringImm: [
        E.Call("int32", Op.get("tir.call_extern"), (E.StringImm(t),))
        for t in ("", "a", 'say "hi"', "it's", "\n\\n\t", "日本", "'\"")
    ],
    E.Cast: [E.Cast("int64", i), E.Cast("float32", i32(1)), E.Cast("int32", i), E.Cast("float32x4", E.Broadcast(i, 4))],
    E.Add: binary(
        E.Add,
        i,
        j,
        *INTS,
        (x, E.FloatImm("float32", 0.0)),
        (i, n),
        (n, i32(1)),
        (E.FloatImm("float32", 1.0), E.FloatImm("float32", 2.0)),
    ),
    E.Sub: binary(E.Sub, i, j, *INTS, (x, E.FloatImm("float32", 0.0))),
    E.Mul: binary(E.Mul, i, j, *INTS, (x, E.FloatImm("float32", -1.0))),
    E.Div: binary(E.Div, x, y, *INTS) + binary(E.Div, i, j),
    E.Mod: binary(E.Mod, i, j, *INTS),
    E.FloorDiv: binary(E.FloorDiv, i, j, *INTS),
    E.FloorMod: binary(E.FloorMod, i, j, *INTS),
    E.Min: binary(E.Min, i, j, *INTS, (i, i)),
    E.Max: binary(E.Max, x, y, (x, E.FloatImm("float32", 0.0)), (x, x), (i, n)),
    **{
        c: [
            c(i, j),
            c(E.Add(i, j), E.Mul(j, i)),
            c(i32(1), i32(2)),
            c(i, n),
            c(E.Broadcast(i, 4), E.Ramp(j, i32(1), 4)),
        ]
        for c in (E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE)
    },
    E.And: binary(E.And, p, q, *BOOLS) + [E.And(E.LT(i, j), E.LT(j, i)), E.And(E.Or(p, q), p)],
    E.Or: binary(E.Or, p, q, *BOOLS) + [E.Or(E.And(p, q), E.Not(p))],
    E.Not: [
        E.Not(p),
        E.Not(E.Not(p)),
        E.Not(E.And(p, q)),
        E.Not(TRUE),
        E.And(E.Not(p), E.Not(E.LT(i, j))),
        E.EQ(E.Not(p), q),
    ],
    E.Select: [E.Select(p, x, y), E.Select(TRUE, x, y), E.Select(E.LT(i, j), i32(1), i32(2))],
    E.Let: [
        E.Let(i, E.Add(j, i32(1)), E.Mul(i, i)),
        E.Add(E.Let(i, j, i), E.Let(i, j, E.Let(j, i, E.Add(j, i)))),
        E.Let(i, i32(3), i),
    ],
    E.Call: [
        E.call_intrin("float32", "tir.exp", x),
        E.call_intrin("float64", "tir.exp", x),
        E.call_intrin("float32", "tir.pow", x, i32(2)),
        E.call_intrin("int32", "tir.foo.bar", i),
        E.call_intrin("float32", "tir.if_then_else", p, x, y),
        E.call_intrin("int32", "tir.if_then_else", TRUE, i, j),
        E.call_intrin("int32", "tir.shift_left", i, i32(2)),
        E.call_intrin("int32", "tir.bitwise_and", i32(1), i32(2)),
        E.call_intrin("bool", "tir.isnan", x),
        E.call_intrin("bool", "tir.likely", E.LT(i, j)),
        E.call_intrin("float32", "tir.reinterpret", i),
        E.call_intrin("handle", "tir.reinterpret", n),
        E.call_intrin("int32", "tir.call_extern", "f", i, 3),
        E.call_intrin("float32", "tir.call_pure_extern", "g", x),
        E.call_intrin("float32", "tir.call_llvm_pure_intrin", "llvm.x", x),
        E.call_intrin("int32", "tir.tvm_call_packed", "p", A[i, j]),
        E.call_intrin("handle", "tir.address_of", A[i, 0]),
        E.call_intrin("int32", "tir.tw_raise", "ValueError", "%lld", n),
        E.call_intrin("int32", "tir.ret", i),
        E.call_intrin("float32", "tir.reduce_lanes", "add", E.Broadcast(x, 4)),
        E.Call("int32", GlobalVar("f"), (x, i32(1))),
        E.Call("float32", GlobalVar("odd name"), (x,)),
        E.call_intrin("int32", "tir.tvm_storage_sync", "shared"),
        E.call_intrin("float32", "tir.undef"),
        E.Call("int32", Op.get("tir.x"), (tir.BufferRegion(A, (tir.Range(i, i32(1)), tir.Range(i32(0), i32(8)))),)),
        E.Call("handle", Op.get("tir.y"), (A,)),
        E.call_intrin("int32", "tir.clz", i),
        E.Call("handle", Op.get("tir.z"), (A.data, None, "text", 3))
        if False
        else E.call_intrin("handle", "tir.z", A.data),
    ],
    E.Ramp: [
        E.Ramp(i, i32(1), 4),
        E.Ramp(n, i64(2), 8),
        E.Ramp(E.Broadcast(i, 2), E.Broadcast(i32(3), 2), 4),
        E.Ramp(n, i32(1), 4),
    ],
    E.Broadcast: [E.Broadcast(x, 4), E.Broadcast(i32(1), 4), E.Broadcast(E.Broadcast(x, 2), 3)],
    E.Shuffle: [E.Shuffle((E.Broadcast(x, 4), E.Ramp(y, x, 4)), (i32(0), i32(5))), E.Shuffle((x,), (i32(0),))],
    tir.BufferLoad: [
        A[i, j],
        A[i + 1, 0],
        S[()],
        V[3],
        A[i, E.Ramp(j, i32(1), 4)],
        tir.BufferLoad(B, (n,)),
        tir.BufferLoad(B, (i64(3),)),
    ],
    tir.Reduce: [
        tir.Reduce(
            tir.CommReducer((x,), (y,), (E.Add(x, y),), (E.FloatImm("float32", 0.0),)),
            (A[0, j],),
            (tir.IterVar(tir.Range(i32(0), i32(8)), j, 2),),
            TRUE,
            0,
        ),
        tir.Reduce(
            tir.CommReducer(
                (x, i), (y, j), (E.Max(x, y), E.Select(E.GT(x, y), i, j)), (E.FloatImm("float32", -1.0), i32(0))
            ),
            (A[0, 1], B[0]),
            (tir.IterVar(tir.Range(i32(2), i32(8)), E.Var("k"), 2),),
            p,
            1,
            (E.FloatImm("float32", 0.5), i32(7)),
        ),
    ],
}

root = lambda body, **kw: tir.BlockRealize((), TRUE, tir.Block((), (), (), "root", body, **kw))
region = lambda b, *ranges: tir.BufferRegion(b, tuple(tir.Range(a, c) for a, c in ranges))


def block(**kw: Any) -> tir.Block:
    """A block over the variables vi, vj."""
    vi, vj = E.Var("vi"), E.Var("vj")
    kw = {"init": None, "kinds": (0, 2), **kw}
    kinds = kw.pop("kinds")
    iters = (
        tir.IterVar(tir.Range(i32(0), i32(16)), vi, kinds[0]),
        tir.IterVar(tir.Range(i32(0), i32(8)), vj, kinds[1]),
    )
    store = tir.BufferStore(A, A[vi, vj] + E.FloatImm("float32", 1.0), (vi, vj))
    return tir.Block(
        iters,
        (region(A, (vi, i32(1)), (vj, i32(1))),),
        (region(A, (vi, i32(1)), (i32(0), i32(8))),),
        kw.pop("name_hint", "b"),
        kw.pop("body", store),
        **kw,
    )


def loops(body: Any, *pairs: Any) -> Any:
    for v, extent in reversed(pairs):
        body = tir.For(v, E.const(0, extent.dtype), extent, tir.ForKind.SERIAL, body)
    return body


def bound(b: tir.Block, predicate: Any = TRUE) -> Any:
    """The block under two loops."""
    a, c = E.Var("a"), E.Var("c")
    return loops(tir.BlockRealize((a, c), predicate, b), (a, i32(16)), (c, i32(8)))


C = tir.decl_buffer((4, 4), "float32", "C", scope="shared")
sub = tir.decl_buffer(
    (4, 4), "float32", "sub", strides=(E.Var("s0"), E.Var("s1")), elem_offset=E.Var("off"), offset_factor=1
)
ptr = E.pointer_var("buf", "float32", "local")
odd = E.Var("odd", "handle", PointerType(PrimType("int8"), "global"))
tx = tir.IterVar(None, E.Var("tx"), 1, "threadIdx.x")
launched = tir.IterVar(tir.Range(i32(0), i32(32)), E.Var("tx"), 1, "threadIdx.x")
flat = tir.Buffer(ptr, "float32", (i32(64),), name="flat")

STATEMENTS: dict[type, list[Any]] = {
    tir.BufferStore: [
        tir.BufferStore(A, x, (i, j)),
        tir.BufferStore(A, i32(1), (i, j)),
        tir.BufferStore(B, i32(1), (i,)),
        tir.BufferStore(S, x, ()),
        tir.BufferStore(A, E.Broadcast(x, 4), (i, E.Ramp(i32(0), i32(1), 4))),
        tir.BufferStore(B, n, (i,)),
    ],
    tir.LetStmt: [
        tir.LetStmt(i, j, one),
        tir.LetStmt(x, E.FloatImm("float32", 1.0), nop),
        tir.SeqStmt((tir.LetStmt(i, j, one), nop)),
        tir.SeqStmt((tir.LetStmt(n, j, one), nop)),
        tir.LetStmt(odd, E.call_intrin("handle", "tir.z"), one),
        tir.LetStmt(E.SizeVar("m"), i, nop),
        tir.LetStmt(n, i32(3), nop),
        tir.SeqStmt((tir.LetStmt(odd, E.call_intrin("handle", "tir.z"), one), nop)),
    ],
    tir.AttrStmt: [
        tir.AttrStmt(None, "key", i32(1), one),
        tir.AttrStmt(A.data, "key", E.StringImm("v"), tir.SeqStmt((one, nop))),
        tir.SeqStmt((tir.AttrStmt(i, "k", j, one), nop)),
        tir.AttrStmt(
            launched,
            "thread_extent",
            i32(32),
            tir.Evaluate(E.call_intrin("int32", "tir.call_extern", "f", launched.var)),
        ),
        tir.SeqStmt((tir.AttrStmt(launched, "thread_extent", i32(32), one), nop)),
        tir.AttrStmt(tx, "thread_extent", i32(32), one),
        tir.AttrStmt("name", "k", i32(0), one),
        tir.AttrStmt({"a": (1, 2.5, [True, None])}, "k", i32(0), one),
        tir.AttrStmt(A, "k", i32(0), one),
    ],
    tir.AssertStmt: [
        tir.AssertStmt(E.LT(i, j), E.StringImm("ValueError: no"), one),
        tir.SeqStmt((tir.AssertStmt(p, E.StringImm("no"), nop), one)),
    ],
    tir.Allocate: [
        tir.Allocate(ptr, "float32", (i32(64),), TRUE, tir.DeclBuffer(flat, tir.BufferStore(flat, x, (i,)))),
        tir.SeqStmt((tir.Allocate(ptr, "float32", (i32(4), n), p, nop, {"k": 1}), one)),
        tir.Allocate(odd, "float32", (i32(4),), TRUE, nop),
        tir.SeqStmt((tir.Allocate(odd, "float32", (i32(4),), TRUE, nop), nop)),
    ],
    tir.AllocateConst: [
        tir.AllocateConst(ptr, "float32", (i32(3),), np.array([1, 2.5, -3], "float32"), nop),
        tir.AllocateConst(ptr, "float32", (i32(100),), np.arange(100, dtype="float32"), nop),
        tir.SeqStmt(
            (
                tir.AllocateConst(
                    E.pointer_var("c", "int64"), "int64", (i32(2), i32(2)), np.array([[1, 2], [3, 4]], "int64"), nop
                ),
                one,
            )
        ),
        tir.AllocateConst(ptr, "float32", (i32(1),), np.array([np.nan], "float32"), nop),
        tir.AllocateConst(ptr, "float32", (i32(1),), None, nop),
    ],
    tir.DeclBuffer: [
        tir.DeclBuffer(flat, tir.BufferStore(flat, x, (i,))),
        tir.SeqStmt((tir.DeclBuffer(flat, nop), one)),
        tir.DeclBuffer(
            tir.decl_buffer((n, 4), "int8", "d", data=odd, elem_offset=i, data_alignment=16, axis_separators=(1,)), nop
        ),
    ],
    tir.BufferRealize: [
        tir.BufferRealize(
            C, (tir.Range(i32(0), i32(4)), tir.Range(i, i32(4))), TRUE, tir.BufferStore(C, x, (0 * i, i))
        ),
        tir.SeqStmt((tir.BufferRealize(C, (tir.Range(i32(0), i32(4)), tir.Range(i, i32(1))), p, nop), one)),
    ],
    tir.SeqStmt: [
        tir.SeqStmt((nop, one)),
        tir.SeqStmt(()),
        tir.SeqStmt((nop,)),
        tir.SeqStmt((nop, tir.SeqStmt((one, nop)), one)),
        tir.SeqStmt((nop, tir.SeqStmt((one, nop)))),
        tir.SeqStmt((tir.SeqStmt((one, nop)), one)),
        tir.SeqStmt((tir.SeqStmt((one,)), one)),
        loops(tir.SeqStmt((tir.LetStmt(i, j, tir.SeqStmt((one, nop))),)), (j, i32(4))),
    ],
    tir.IfThenElse: [
        tir.IfThenElse(p, one),
        tir.IfThenElse(E.LT(i, j), one, tir.SeqStmt((nop, one))),
        tir.IfThenElse(p, one, tir.IfThenElse(q, nop, one)),
        tir.IfThenElse(TRUE, one),
        tir.IfThenElse(p, one, tir.IfThenElse(E.Let(q, p, q), nop)),
        tir.IfThenElse(p, tir.IfThenElse(q, one), nop),
    ],
    tir.Evaluate: [nop, one, tir.Evaluate(E.Add(i, j)), tir.Evaluate(E.call_intrin("int32", "tir.ret", i))],
    tir.For: [
        loops(one, (i, i32(4)), (j, i32(8))),
        loops(one, (i, n)),
        tir.For(i, i32(2), i32(8), tir.ForKind.SERIAL, one),
        tir.For(i, j, E.Mul(j, i32(2)), tir.ForKind.PARALLEL, one),
        tir.For(i, i32(0), i32(8), tir.ForKind.VECTORIZED, one),
        tir.For(i, i32(0), i32(8), tir.ForKind.UNROLLED, one, None, {"pragma": "x", "n": 1, "e": i32(1)}),
        tir.For(i, i32(0), i32(8), tir.ForKind.THREAD_BINDING, one, tx),
        tir.For(i, i32(0), i32(8), tir.ForKind.UNROLLED, one, tx, {"a": True}),
        loops(one, (i, i32(4)), (j, E.Add(i, i32(1)))),
        tir.For(E.Var("l", "int64"), i32(0), i32(4), tir.ForKind.SERIAL, one),
        loops(one, (i, E.Add(n, i64(1))), (j, i64(3))),
        tir.For(i, j, i32(0), tir.ForKind.SERIAL, one),
        tir.For(i, i32(0), i32(8), tir.ForKind.SERIAL, one, None, {"k": "v"}),
        tir.For(i, E.Add(j, i32(3)), i32(5), tir.ForKind.SERIAL, loops(tir.SeqStmt((one, one)), (E.Var("i"), i32(3)))),
        tir.For(i, i32(0), i32(0), tir.ForKind.SERIAL, one),
        tir.For(i, E.Sub(j, i32(1)), i32(1), tir.ForKind.SERIAL, one),
        tir.For(i, i64(0), i32(4), tir.ForKind.SERIAL, one),
    ],
    tir.While: [tir.While(E.LT(B[0], i32(3)), one), tir.While(TRUE, tir.SeqStmt((one, one)))],
    tir.Block: [block(), block(name_hint='odd "name"')],
    tir.BlockRealize: [
        bound(block()),
        bound(block(init=tir.BufferStore(A, x, (i, j)))),
        bound(block(kinds=(3, 4))),
        bound(block(annotations={"k": 1, "l": [1, 2], "s": "t", "e": i32(3), "d": {"x": 1.5}})),
        bound(block(), E.LT(i, j)),
        bound(
            block(
                alloc_buffers=(C,),
                match_buffers=(tir.MatchBufferRegion(sub, region(A, (i32(0), i32(4)), (i, i32(4)))),),
            )
        ),
        root(bound(block())),
        root(bound(block()), alloc_buffers=(C,)),
        root(one),
        root(one, annotations={"a": 1}),
        root(root(one)),
        tir.BlockRealize((E.Add(i, j), i32(0)), TRUE, block()),
        tir.SeqStmt((bound(block()), bound(block()))),
        root(tir.BlockRealize((i32(1), j), TRUE, block())),
        tir.BlockRealize((), p, tir.Block((), (), (), "x", root(one))),
        tir.BlockRealize(
            (i,), TRUE, tir.Block((tir.IterVar(tir.Range(i32(2), i32(5)), E.Var("vk"), 2),), (), (), "x", one)
        ),
        tir.BlockRealize(
            (n,), TRUE, tir.Block((tir.IterVar(tir.Range(i64(0), n), E.Var("vk", "int64"), 0),), (), (), "x", one)
        ),
    ],
}

a, b = E.Var("a", "handle"), E.Var("b", "handle")
m, k = E.Var("m"), E.Var("k", "int64")
sym = tir.decl_buffer((m, 8), "float16", "sym")
store = tir.BufferStore(sym, E.FloatImm("float16", 1.0), (i32(0), i32(0)))
typed = E.Var("t", "handle", PointerType(PrimType("float32"), "global"))
FUNCTIONS: list[Any] = [
    tir.PrimFunc((), nop),
    tir.PrimFunc((a,), tir.BufferStore(B, i32(1), (i32(0),)), None, {a: B}, {"global_symbol": "f"}),
    tir.PrimFunc(
        (a, m),
        store,
        None,
        {a: sym},
        {
            "global_symbol": "main",
            "tir.noalias": True,
            "n": 3,
            "x": 1.5,
            "t": ("a", [1]),
            "e": i32(2),
            "s": E.StringImm("q"),
        },
    ),
    tir.PrimFunc((m, a), store, None, {a: sym}),
    tir.PrimFunc((i, x, E.SizeVar("z", "int64"), typed, a), one, PrimType("int32"), {}, {"global_symbol": "odd.name"}),
    tir.PrimFunc((a,), root(bound(block()), alloc_buffers=(C,)), None, {a: A}),
    tir.PrimFunc((a,), bound(block()), None, {a: A}),
    tir.PrimFunc((a,), root(bound(block())), None, {a: A}),
    tir.PrimFunc((a,), root(one)),
    tir.PrimFunc(
        (a, b),
        tir.Evaluate(E.call_intrin("handle", "tir.z", a, A.data)),
        None,
        {a: A, b: tir.decl_buffer((4,), "int8", "A2", data=A.data)},
    ),
    tir.PrimFunc((a,), tir.BufferStore(sub, x, (i32(0), i32(0))), None, {a: sub}),
    tir.PrimFunc(
        (typed,),
        tir.BufferStore(flat2 := tir.Buffer(typed, "float32", (i32(4),), name="z"), x, (i32(0),)),
        None,
        {typed: flat2},
    ),
    tir.PrimFunc((a,), root(root(one)), None, {a: A}),
    tir.PrimFunc(
        (a,),
        root(tir.SeqStmt((bound(block()), bound(block())))),
        None,
        {a: A},
        {"f": float("inf"), "none": None, "arr": np.arange(40)},
    ),
    tir.PrimFunc((a,), root(tir.BlockRealize((i32(1), i32(0)), TRUE, block())), None, {a: A}),
    tir.PrimFunc((x,), nop, PointerType(PrimType("int8"), "shared")),
]

T = si.tensor
d = E.Var("n", "int64")
rv = rx.Var("x", T((d, 4)))
rw = rx.Var("w", T((4, 4)))
cond = rx.Var("c", T((), "bool"))
INFOS: dict[type, list[Any]] = {
    si.TensorStructInfo: [
        T((1, 2)),
        T((d, d * 2 + 1), "int8"),
        T(()),
        T((3,)),
        si.TensorStructInfo(None, "float16", 3),
        si.TensorStructInfo(None, "", -1),
        si.TensorStructInfo((1,), ""),
        T((E.floordiv(d, 2), E.maximum(d, 3), E.cast(i, "int64"))),
    ],
    si.ShapeStructInfo: [
        si.ShapeStructInfo((1, d)),
        si.ShapeStructInfo(()),
        si.ShapeStructInfo(None, 2),
        si.ShapeStructInfo(),
    ],
    si.PrimStructInfo: [
        si.PrimStructInfo("int64"),
        si.PrimStructInfo("int64", d),
        si.PrimStructInfo("int64", i64(3)),
        si.PrimStructInfo("float32"),
    ],
    si.ObjectStructInfo: [si.ObjectStructInfo()],
    si.TupleStructInfo: [
        si.TupleStructInfo(()),
        si.TupleStructInfo((T((1,)),)),
        si.TupleStructInfo((T((d,)), si.TupleStructInfo((si.ObjectStructInfo(),)))),
    ],
    si.FuncStructInfo: [
        si.FuncStructInfo((T((d,)), si.ObjectStructInfo()), T((d,))),
        si.FuncStructInfo(None, si.ObjectStructInfo(), False),
        si.FuncStructInfo((), T((1,))),
        si.FuncStructInfo((T((1,)),), si.TupleStructInfo(())),
    ],
}
gv = GlobalVar("f")
GRAPH: dict[type, list[Any]] = {
    rx.Var: [rv, rx.Var("y", si.ObjectStructInfo()), rx.Var("z")],
    rx.DataflowVar: [rx.DataflowVar("lv", T((1,)))],
    rx.Constant: [
        rconst(1.0),
        rconst(True),
        rconst(np.float16(0.1)),
        rconst([1, 2, 3], "int64"),
        rconst(np.arange(100.0)),
        rconst(np.zeros((0, 3), "float32")),
        rconst(np.array(np.inf, "float32")),
        rconst(np.array(np.nan, "float32")),
        rconst(np.array([np.nan], "float32")),
        rconst(1.5, "bfloat16"),
        rconst([[1.5, 2]], "bfloat16"),
        rconst(np.array(0.1, "float64")),
        rconst(np.array([-0.0, 1e-45], "float32")),
        rconst(np.array(5, "uint8")),
    ],
    rx.ShapeExpr: [rx.ShapeExpr((1, d, d + 1)), rx.ShapeExpr(())],
    rx.PrimValue: [
        rx.PrimValue(1),
        rx.PrimValue(1.5),
        rx.PrimValue(True),
        rx.PrimValue(d * 2),
        rx.PrimValue(i32(3)),
        rx.PrimValue(E.FloatImm("float16", 1.0)),
    ],
    rx.StringImm: [rx.StringImm('a "b"')],
    rx.DataTypeImm: [rx.DataTypeImm("float16")],
    rx.Tuple: [rx.Tuple(()), rx.Tuple((rv,)), rx.Tuple((rv, rx.Tuple((rw, rconst(1)))))],
    rx.TupleGetItem: [
        rx.TupleGetItem(rx.Var("t", si.TupleStructInfo((T((1,)),))), 0),
        rx.TupleGetItem(rx.Tuple((rv, rw)), 1),
    ],
    rx.ExternFunc: [rx.ExternFunc("my.func")],
    rx.Call: [
        calls.call_tir(gv, (rv, rw), T((d, 4))),
        calls.call_tir(gv, (rv,), [T((d, 4)), T((1,), "int8")], (d, 3)),
        calls.call_tir(gv, (), T((1,))),
        calls.call_dps_packed("my.f", (rv,), T((1,))),
        calls.call_packed("my.f", rv, 3, "s", sinfo_args=T((1,))),
        calls.call_packed("my.f"),
        calls.call_packed("my.f", sinfo_args=[T((1,)), T((2,))]),
        calls.call_pure_packed("p", rv),
        calls.call_tir_inplace(gv, (rv, rw), [0, -1], [T((d, 4)), T((1,))]),
        rx.Call(gv, (rv, rconst(1))),
        rx.Call(rx.Var("g"), (rv,)),
        rx.Call(rx.ExternFunc("h"), (rv,), (T((1,)),)),
        rx.Call(gv, (rv,), (T((1,)),)),
        calls.call_tir(gv, (rv,), si.TupleStructInfo((T((1,)),))),
    ],
}
z = rx.Var("z", T((d, 4)))
l1, l2 = rx.DataflowVar("lv", T((d, 4))), rx.DataflowVar("lv", T((d, 4)))
call = lambda *args: calls.call_pure_packed("op", *args, sinfo_args=T((d, 4)))
vb = rx.VarBinding
flow = rx.DataflowBlock((vb(l1, call(rv)), vb(l2, call(l1)), vb(z, call(l2))))
t1, t2, t3, t4 = (rx.Var(s, T((d, 4))) for s in "abcd")
kk = E.Var("k", "int64")
mc = rx.Var("mc", T((kk, 4)))
branch = rx.If(cond, rx.SeqExpr((rx.BindingBlock((vb(t1, call(rv)),)),), t1), rx.SeqExpr((), rv))
deep = rx.If(cond, rx.SeqExpr((flow,), z), rx.SeqExpr((rx.BindingBlock((vb(t2, call(rv)), vb(t3, branch))),), t3))
BINDINGS: dict[type, list[Any]] = {
    rx.VarBinding: [vb(z, call(rv)), vb(rx.Var("s", rv.struct_info), rv), vb(rx.Var("r", T((d, 4))), branch)],
    rx.MatchCast: [rx.MatchCast(mc, rv, T((kk, 4)))],
    rx.BindingBlock: [rx.BindingBlock((vb(t1, call(rv)), rx.MatchCast(mc, t1, T((kk, 4))), vb(t2, call(mc))))],
    rx.DataflowBlock: [flow],
    rx.SeqExpr: [
        rx.SeqExpr(
            (flow, rx.BindingBlock((vb(t1, call(z)),)), rx.DataflowBlock((vb(t2, call(t1)),))), rx.Tuple((t1, t2))
        ),
        rx.SeqExpr((), rv),
    ],
    rx.If: [branch, deep],
}
inner_p = rx.Var("u", T((1,)))
inner = rx.Function((inner_p,), rx.SeqExpr((), inner_p), T((1,)))
local = rx.Var("inner", si.FuncStructInfo((T((1,)),), T((1,))))
RELAX_FUNCTIONS: list[Any] = [
    rx.Function((rv, rw), rx.SeqExpr((flow,), z), T((d, 4)), True, {"global_symbol": "main", "num_input": 1}),
    rx.Function((cond, rv), rx.SeqExpr((rx.BindingBlock((vb(t4, deep),)),), t4), T((d, 4))),
    rx.Function(
        (rx.Var("only", T((3,))),),
        rx.SeqExpr(
            (rx.BindingBlock((vb(local, inner), vb(rx.Var("o", T((1,))), rx.Call(local, (rconst([1.0]),))))),),
            rx.Tuple(()),
        ),
        si.TupleStructInfo(()),
        False,
        {"global_symbol": "odd name"},
    ),
    rx.Function(
        (rv,),
        rx.SeqExpr((rx.BindingBlock((rx.MatchCast(mc, rv, T((kk, 4))),)),), mc),
        si.TensorStructInfo(None, "float32", 2),
    ),
    rx.Function(
        (
            rx.Var("s", si.ShapeStructInfo((d, 3))),
            rx.Var("v", si.PrimStructInfo("int64", d)),
            rx.Var("o", si.ObjectStructInfo()),
        ),
        rx.SeqExpr((), rconst(np.arange(50))),
        T((50,), "int64"),
    ),
]

f1 = tir.PrimFunc((a,), tir.BufferStore(B, i32(1), (i32(0),)), None, {a: B}, {"global_symbol": "f1"})
g1, g2, g3 = GlobalVar("f1"), GlobalVar("a.b"), GlobalVar("main")
xb = rx.Var("x", T((16,), "int32"))
out1, out2 = rx.Var("y", T((16,), "int32")), rx.Var("y2", T((16,), "int32"))
uses = rx.BindingBlock(
    (vb(out1, calls.call_tir(g1, (xb,), T((16,), "int32"))), vb(out2, calls.call_tir(g2, (xb,), T((16,), "int32"))))
)
MODULES: list[Any] = [
    IRModule({}, {}),
    IRModule({}, {"a": 1}),
    IRModule({g1: f1}),
    IRModule(
        {
            g1: f1,
            g3: rx.Function((xb,), rx.SeqExpr((uses,), out2), T((16,), "int32"), True, {"global_symbol": "main"}),
            g2: f1.without_attr("global_symbol"),
        },
        {"version": (1, 2)},
    ),
    IRModule({g2: tir.PrimFunc((i,), tir.Evaluate(E.Call("int32", g1, (i,))), None, {}, {}), g1: f1}),
]
OTHERS: dict[type, list[Any]] = {
    tir.Range: [
        tir.Range(i32(0), i32(4)),
        tir.Range(i, j),
        tir.Range(i64(0), n),
        tir.Range(i, n),
        tir.Range(i, i32(0)),
    ],
    tir.IterVar: [tir.IterVar(tir.Range(i32(0), i32(4)), i, t) for t in range(9)] + [tx, launched],
    tir.Buffer: [
        A,
        B,
        S,
        V,
        C,
        sub,
        flat,
        tir.decl_buffer((n, 4), "bool", "m", data_alignment=128, axis_separators=(1,)),
    ],
    tir.BufferRegion: [
        region(A, (i32(0), i32(16)), (i, i32(1))),
        region(A, (i, i32(1)), (j, i32(1))),
        region(S),
        region(A, (i, n), (j, i32(2))),
    ],
    tir.MatchBufferRegion: [
        tir.MatchBufferRegion(sub, region(A, (i32(0), i32(4)), (i, i32(4)))),
        tir.MatchBufferRegion(S, region(A, (i, i32(1)), (j, i32(1)))),
    ],
    tir.CommReducer: [
        tir.CommReducer((x,), (y,), (E.Add(x, y),), (E.FloatImm("float32", 0.0),)),
        tir.CommReducer((i, x), (j, y), (E.Max(i, j), E.Add(x, y)), (i32(-5), E.FloatImm("float32", 0.0))),
    ],
    Op: [Op.get("tir.exp")],
    GlobalVar: [GlobalVar("f"), GlobalVar("a b")],
    PrimType: [PrimType("float32")],
    PointerType: [PointerType(PrimType("int8"), "shared"), PointerType(PointerType(PrimType("int8")), "global")],
}
