"""Random well-typed programs of the loop IR print and parse back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.script.test_round_trip import check
from tilewright.arith import expr as E
from tilewright.ir.op import Op
from tilewright.tir import ir as tir

INT, FLOAT = ("int32", "int64", "uint8", "int8"), ("float32", "float64", "float16")
ARITH = (E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max, E.FloorDiv, E.FloorMod, E.Mod)
COMPARE = (E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE)


class Maker:
    """Makes random nodes from a seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.vars: list[E.Var] = [
            E.Var(n, t) for n, t in zip("ijnxyz", ("int32", "int32", "int64", "float32", "float32", "bool"))
        ]
        self.buffers = [
            tir.decl_buffer((E.IntImm("int32", 8),) * k, t, f"B{k}{t[0]}")
            for k in (0, 1, 2)
            for t in ("int32", "float32")
        ]

    def imm(self, dtype: str) -> E.PrimExpr:
        if dtype == "bool":
            return E.IntImm("bool", self.r.randint(0, 1))
        if dtype in FLOAT:
            return E.FloatImm(dtype, self.r.choice([0.0, 1.0, -1.0, 0.5, 3.25, float("inf")]))
        return E.IntImm(dtype, self.r.choice([0, 1, 2, 3, 7] if dtype[0] == "u" else [0, 1, 2, -1, -3, 100]))

    def expr(self, dtype: str, depth: int) -> E.PrimExpr:
        r = self.r
        if depth <= 0 or r.random() < 0.15:
            known = [v for v in self.vars if v.dtype == dtype]
            return r.choice(known) if known and r.random() < 0.6 else self.imm(dtype)
        if dtype == "bool":
            kind = r.choice([*COMPARE, E.And, E.Or, E.Not])
            if kind is E.Not:
                return E.Not(self.expr("bool", depth - 1))
            side = "bool" if kind in (E.And, E.Or) else r.choice([*INT, *FLOAT])
            return kind(self.expr(side, depth - 1), self.expr(side, depth - 1))
        pick = r.random()
        if pick < 0.5:
            return r.choice(ARITH)(self.expr(dtype, depth - 1), self.expr(dtype, depth - 1))
        if pick < 0.6:
            return E.Cast(dtype, self.expr(r.choice([*INT, *FLOAT, "bool"]), depth - 1))
        if pick < 0.7:
            return E.Select(self.expr("bool", depth - 1), self.expr(dtype, depth - 1), self.expr(dtype, depth - 1))
        if pick < 0.8:
            c, a, b = self.expr("bool", depth - 1), self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
            return E.Call(dtype, Op.get("tir.if_then_else"), (c, a, b))
        if pick < 0.85:
            v = E.Var(r.choice("abi"), r.choice(["int32", "float32"]))
            value = self.expr(v.dtype, depth - 1)
            self.vars.append(v)
            out = E.Let(v, value, self.expr(dtype, depth - 1))
            self.vars.remove(v)
            return out
        if pick < 0.95:
            known = [b for b in self.buffers if b.dtype == dtype]
            if known:
                b = r.choice(known)
                return tir.BufferLoad(b, tuple(self.expr("int32", depth - 2) for _ in b.shape))
        name = r.choice(["exp", "tanh", "pow", "fma"] if dtype in FLOAT else ["shift_left", "bitwise_xor", "popcount"])
        arity = {"pow": 2, "fma": 3, "shift_left": 2, "bitwise_xor": 2}.get(name, 1)
        args = [self.expr(dtype, depth - 1) for _ in range(arity)]
        if name == "shift_left":  # by a constant that is no shift, script refuses
            args[1] = E.IntImm(dtype, r.randrange(8))
        return E.Call(dtype, Op.get(f"tir.{name}"), tuple(args))

    def within(self, v: E.Var, make: Any) -> Any:
        self.vars.append(v)
        body = make()
        self.vars.remove(v)
        return body

    def stmt(self, depth: int) -> tir.Stmt:
        r = self.r
        b = r.choice(self.buffers)
        store = tir.BufferStore(b, self.expr(b.dtype, 2), tuple(self.expr("int32", 2) for _ in b.shape))
        if depth <= 0:
            return r.choice([store, tir.Evaluate(self.expr("int32", 2))])
        kind = r.randrange(11)
        if kind < 3:
            return tir.SeqStmt(tuple(self.stmt(depth - 1) for _ in range(r.randint(0, 4))))
        if kind == 3:
            other = self.stmt(depth - 1) if r.random() < 0.5 else None
            return tir.IfThenElse(self.expr("bool", 2), self.stmt(depth - 1), other)
        if kind in (4, 5):
            dtype = r.choice(["int32", "int64"])
            v = E.Var(r.choice("ijk"), dtype)
            low, extent = (
                (self.imm(dtype), self.expr(dtype, 2))
                if r.random() < 0.5
                else (E.IntImm(dtype, 0), self.expr(dtype, 1))
            )
            notes = {"note": r.choice([1, "x", 2.5])} if r.random() < 0.2 else {}
            return tir.For(
                v, low, extent, tir.ForKind(r.randrange(4)), self.within(v, lambda: self.stmt(depth - 1)), None, notes
            )
        if kind == 6:
            v = E.Var("t", r.choice(["int32", "float32"]))
            return tir.LetStmt(v, self.expr(v.dtype, 2), self.within(v, lambda: self.stmt(depth - 1)))
        if kind == 7:
            return tir.AssertStmt(self.expr("bool", 2), E.StringImm("no"), self.stmt(depth - 1))
        if kind == 8:
            p = E.pointer_var("p", "float32", "local")
            view = tir.Buffer(p, "float32", (E.IntImm("int32", 8),), name="view")
            self.buffers.append(view)
            body = self.stmt(depth - 1)
            self.buffers.pop()
            return tir.Allocate(p, "float32", (E.IntImm("int32", 8),), E.IntImm("bool", 1), tir.DeclBuffer(view, body))
        if kind == 9:
            return tir.AttrStmt(None, "key", self.expr("int32", 1), self.stmt(depth - 1))
        return self.block(depth)

    def block(self, depth: int) -> tir.Stmt:
        r = self.r
        loop, axis = E.Var("i"), E.Var("v")
        extent = E.IntImm("int32", r.choice([4, 8]))
        value = r.choice([loop, E.Add(loop, E.IntImm("int32", 1))])
        body = self.within(axis, lambda: self.stmt(depth - 1))
        init = self.stmt(0) if r.random() < 0.3 else None
        axes = (tir.IterVar(tir.Range(E.IntImm("int32", 0), extent), axis, r.choice([0, 2, 3, 4])),)
        made = tir.Block(axes, (), (), r.choice(["a", "b"]), body, init)
        predicate = E.IntImm("bool", 1) if r.random() < 0.5 else self.within(loop, lambda: self.expr("bool", 2))
        realize = tir.BlockRealize((value,), predicate, made)
        return tir.For(loop, E.IntImm("int32", 0), extent, tir.ForKind.SERIAL, realize)


@pytest.mark.parametrize("seed", range(60))
def test_expression(seed: int) -> None:
    maker = Maker(seed)
    for dtype in ("int32", "int64", "float32", "float16", "bool"):
        check(maker.expr(dtype, 5))


@pytest.mark.parametrize("seed", range(60))
def test_statement(seed: int) -> None:
    check(Maker(1000 + seed).stmt(4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000))
def test_many(seed: int) -> None:
    check(Maker(10_000 + seed).expr("int64", 7))
    check(Maker(20_000 + seed).stmt(6))
