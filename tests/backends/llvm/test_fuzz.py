"""Random flat functions: the machine code does what the interpreter does."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilewright.arith import expr as E
from tilewright.arith.expr import Broadcast, Ramp, Var, call_intrin, const
from tilewright.backends.llvm.testing import load_kernel
from tilewright.tir import ir as T
from tilewright.tir.interp import interpret

N = 64


class Maker:
    """Makes random statements over int32 and float32 buffers `a`, `b`, `c` of N elements."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.itype = self.r.choice(["int32", "int64"])
        self.bufs = [
            T.decl_buffer([N], d, n) for n, d in (("a", "int32"), ("b", "float32"), ("c", "int32"), ("d", "float32"))
        ]
        self.vars = []
        self.lets = 0

    def num(self, depth, lanes):
        """A random integer expression (index dtype), any value."""
        r = self.r
        if depth == 0 or r.random() < 0.2:
            return self.leaf(lanes)
        kind = r.choice(
            ["add", "sub", "mul", "fdiv", "fmod", "div", "mod", "min", "max", "select", "ite", "load", "let"]
        )
        if kind in ("fdiv", "fmod", "div", "mod"):
            node = {"fdiv": E.FloorDiv, "fmod": E.FloorMod, "div": E.Div, "mod": E.Mod}[kind]
            k = r.choice([1, 2, 3, 4, 7, 8, -3, 16])
            return node(self.num(depth - 1, lanes), self.vec(const(k, self.itype), lanes))
        if kind == "select":
            return E.Select(self.cond(depth - 1, lanes), self.num(depth - 1, lanes), self.num(depth - 1, lanes))
        if kind == "ite":
            return call_intrin(
                self.dtype(lanes),
                "tir.if_then_else",
                self.cond(depth - 1, lanes),
                self.num(depth - 1, lanes),
                self.num(depth - 1, lanes),
            )
        if kind == "load":
            return E.cast(
                T.BufferLoad(r.choice([self.bufs[0], self.bufs[2]]), (self.index(depth - 1, lanes),)), self.dtype(lanes)
            )
        if kind == "let":
            v = Var(f"l{self.lets}", self.dtype(lanes))
            self.lets += 1
            value = self.num(depth - 1, lanes)
            return E.Let(v, value, E.Add(v, E.Mul(v, self.num(depth - 1, lanes))))
        node = {"add": E.Add, "sub": E.Sub, "mul": E.Mul, "min": E.Min, "max": E.Max}[kind]
        x = self.num(depth - 1, lanes)
        if kind == "mul":  # keep numbers small: overflow in indices is no one's business
            return node(
                E.FloorMod(x, self.vec(const(50, self.itype), lanes)),
                self.vec(const(r.choice([2, 3, 8]), self.itype), lanes),
            )
        return node(x, self.num(depth - 1, lanes))

    def dtype(self, lanes):
        return self.itype if lanes == 1 else f"{self.itype}x{lanes}"

    def vec(self, e, lanes):
        return e if lanes == 1 else Broadcast(e, lanes)

    def leaf(self, lanes):
        r = self.r
        scalar = r.choice(self.vars) if self.vars and r.random() < 0.7 else const(r.randint(-9, 40), self.itype)
        if lanes == 1:
            return scalar
        if r.random() < 0.6:
            return Ramp(scalar, const(r.choice([1, 1, 1, 2, 3, -1, 0]), self.itype), lanes)
        return Broadcast(scalar, lanes)

    def cond(self, depth, lanes):
        node = self.r.choice([E.LT, E.LE, E.EQ, E.NE, E.GT, E.GE])
        one = node(self.num(depth, lanes), self.num(0, lanes))
        if self.r.random() < 0.3:
            return self.r.choice([E.And, E.Or])(one, E.Not(node(self.num(0, lanes), self.num(0, lanes))))
        return one

    def index(self, depth, lanes):
        """An index within the buffers: affine where that is known to fit, or anything modulo N."""
        r = self.r
        if lanes > 1 and r.random() < 0.6:
            base = E.FloorMod(self.num(depth, 1), const(8, self.itype))
            stride = r.choice([1, 1, 1, 2, 3, -1, 0])
            if stride < 0:
                base = base + lanes
            out = Ramp(base, const(stride, self.itype), lanes)
            return E.Add(out, Broadcast(const(4, self.itype), lanes)) if r.random() < 0.5 else out
        return E.FloorMod(self.num(depth, lanes), self.vec(const(N, self.itype), lanes))

    def store(self):
        lanes = self.r.choice([1, 1, 4, 8])
        b = self.r.choice(self.bufs)
        value = E.cast(self.num(3, lanes), "int32" if lanes == 1 else f"int32x{lanes}")
        if b.dtype == "float32":
            other = T.BufferLoad(self.bufs[1], (self.index(1, lanes),))
            value = E.Max(E.cast(value, other.dtype), other * E.const(0.5, other.dtype))
        index = self.index(2, lanes)
        return T.BufferStore(b, value, (index,))

    def parallel(self):
        """A parallel loop whose iterations write one element each, of a buffer that none of them reads."""
        v = Var(f"p{len(self.vars)}", self.itype)
        target = T.decl_buffer([N], "int32", "out")
        self.vars.append(v)
        value = E.cast(self.num(3, 1), "int32")
        self.vars.pop()
        annotations = {"grain": self.r.choice([1, 3])} if self.r.random() < 0.5 else {}
        low = self.r.choice([0, 2])
        loop = T.For(
            v, const(low, self.itype), E.FloorMod(self.num(1, 1), const(20, self.itype)), T.ForKind.PARALLEL,
            T.BufferStore(target, value, (v,)), annotations=annotations,
        )  # fmt: skip
        z = Var("z", self.itype)
        clear = T.For(
            z, const(0, self.itype), const(N, self.itype), T.ForKind.SERIAL, T.BufferStore(target, const(0), (z,))
        )
        back = T.For(
            z, const(0, self.itype), const(N, self.itype), T.ForKind.SERIAL,
            T.BufferStore(self.bufs[2], self.bufs[2][z] + target[z], (z,)),
        )  # fmt: skip
        return T.Allocate(target.data, "int32", (const(N),), const(True), T.seq(clear, loop, back))

    def stmt(self, depth):
        r = self.r
        if depth == 0:
            return self.store()
        kind = r.choice(["for", "for", "if", "seq", "let", "store", "alloc", "parallel"])
        if kind == "parallel":
            return self.parallel()
        if kind == "for":
            v = Var(f"i{len(self.vars)}", self.itype)
            low = const(r.choice([0, 0, 2, -3]), self.itype)
            extent = (
                const(r.choice([1, 2, 5]), self.itype)
                if r.random() < 0.7
                else E.FloorMod(self.num(1, 1), const(5, self.itype))
            )
            self.vars.append(v)
            body = self.stmt(depth - 1)
            self.vars.pop()
            return T.For(v, low, extent, T.ForKind.SERIAL, body)
        if kind == "if":
            return T.IfThenElse(
                self.cond(1, 1), self.stmt(depth - 1), self.stmt(depth - 1) if r.random() < 0.5 else None
            )
        if kind == "let":
            v = Var(f"v{len(self.vars)}", self.itype)
            value = self.num(2, 1)
            self.vars.append(v)
            body = self.stmt(depth - 1)
            self.vars.pop()
            return T.LetStmt(v, value, body)
        if kind == "alloc":
            tmp = T.decl_buffer([N], "int32", "tmp", scope=r.choice(["local", "global"]))
            z = Var("z", self.itype)
            clear = T.For(
                z,
                const(0, self.itype),
                const(N, self.itype),
                T.ForKind.SERIAL,
                T.BufferStore(tmp, E.cast(z, "int32"), (z,)),
            )
            old = self.bufs[2]
            self.bufs[2] = tmp
            body = self.stmt(depth - 1)
            self.bufs[2] = old
            back = T.BufferStore(old, tmp[self.index(1, 1)], (self.index(1, 1),))
            return T.Allocate(tmp.data, "int32", (const(N),), const(True), T.seq(clear, body, back))
        if kind == "seq":
            return T.seq(self.stmt(depth - 1), self.stmt(depth - 1))
        return self.store()


def one(seed, opt="auto"):
    m = Maker(seed)
    n = Var("n", m.itype)
    m.vars.append(n)
    body = T.seq(*(m.stmt(3) for _ in range(3)))
    params = (*(b.data for b in m.bufs), n)
    f = T.PrimFunc(params, body, attrs={"global_symbol": "f", "tir.noalias": True})
    rng = np.random.default_rng(seed)
    start = [
        rng.integers(-99, 99, N).astype("i4"), rng.normal(size=N).astype("f4"),
        rng.integers(-9, 99, N).astype("i4"), rng.normal(size=N).astype("f4"),
    ]  # fmt: skip
    want, got = [x.copy() for x in start], [x.copy() for x in start]
    interpret(f, *want, 7)
    load_kernel(f, opt=opt)(*got, 7)
    for x, y, name in zip(want, got, "abcd", strict=True):
        np.testing.assert_array_equal(y, x, err_msg=f"seed {seed}, buffer {name}")


@pytest.mark.parametrize("seed", range(40))
def test_random_functions(seed):
    one(seed)


@pytest.mark.slow
def test_many_random_functions():
    for seed in range(1000, 3000):
        one(seed, ["kernel", "scalar", "O3"][seed % 3])
