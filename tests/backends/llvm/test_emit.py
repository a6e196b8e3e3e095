"""Flat functions through text, machine code and the JIT, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.arith import expr as E
from tilewright.arith.expr import Broadcast, IntImm, Ramp, Var, call_intrin, const
from tilewright.backends.llvm.testing import load_kernel, run_kernel
from tilewright.tir import ir as T


def buf(name, dtype, n, scope="global"):
    return T.decl_buffer([n], dtype, name, scope=scope)


def func(params, body, name="f", **attrs):
    return T.PrimFunc(tuple(params), body, attrs={"global_symbol": name, "tir.noalias": True, **attrs})


def loop(var, extent, body, kind=T.ForKind.SERIAL, low=0, **annotations):
    return T.For(var, E.convert(low), E.convert(extent), kind, body, annotations=annotations)


def test_scalar_loop_adds():
    a, b, c = (buf(n, "float32", 100) for n in "abc")
    i = Var("i", "int32")
    f = func([a.data, b.data, c.data], loop(i, 100, T.BufferStore(c, a[i] + b[i] * 2.0, (i,))))
    x, y, z = np.arange(100, dtype="f4"), np.ones(100, "f4"), np.zeros(100, "f4")
    run_kernel(f, x, y, z)
    np.testing.assert_array_equal(z, x + 2 * y)


def test_vector_loads_stores_and_tail_mask():
    a, c = buf("a", "float32", 19), buf("c", "float32", 19)
    i = Var("i", "int32")
    index = Ramp(i * 8, const(1), 8)
    inside = index < Broadcast(const(19), 8)
    value = call_intrin("float32x8", "tir.if_then_else", inside, T.BufferLoad(a, (index,)), const(0.0, "float32x8"))
    body = T.IfThenElse(inside, T.BufferStore(c, value + const(1.0, "float32x8"), (index,)))
    x, z = np.arange(19, dtype="f4"), np.full(24, -1, "f4")
    run_kernel(func([a.data, c.data], loop(i, 3, body)), x, z)
    np.testing.assert_array_equal(z[:19], x + 1)
    np.testing.assert_array_equal(z[19:], -1)


def test_parallel_with_scalars_and_workspace():
    a, c = buf("a", "float32", 64), buf("c", "float32", 64)
    n, i, j = Var("n", "int64"), Var("i", "int64"), Var("j", "int64")
    tmp = buf("tmp", "float32", n)
    inner = T.seq(
        loop(j, n, T.BufferStore(tmp, a[i * n + j] * 2.0, (j,))),
        loop(j, n, T.BufferStore(c, tmp[j] + 1.0, (i * n + j,))),
    )
    body = loop(
        i,
        IntImm("int64", 8),
        T.Allocate(tmp.data, "float32", (n,), const(True), inner),
        T.ForKind.PARALLEL,
        IntImm("int64", 0),
    )
    x, z = np.arange(64, dtype="f4"), np.zeros(64, "f4")
    run_kernel(func([a.data, c.data, n], body), x, z, 8)
    np.testing.assert_array_equal(z, x * 2 + 1)


def test_raise_from_inside_parallel():
    n = Var("n", "int64")
    i = Var("i", "int64")
    bad = T.Evaluate(call_intrin("int32", "tir.tw_raise", "ValueError", "bad iteration %ld of %ld", i, n))
    body = loop(i, n, T.IfThenElse(i > 2, bad), T.ForKind.PARALLEL, IntImm("int64", 0))
    k = load_kernel(func([n], body))
    k(3)
    with pytest.raises(ValueError, match="bad iteration 3 of 4"):
        k(4)
