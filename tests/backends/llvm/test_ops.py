"""Every operation on every dtype, scalar and vector, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.arith import expr as E
from tilewright.arith.expr import Ramp, Var, call_intrin, const
from tilewright.backends.llvm.testing import load_kernel
from tilewright.ir import dtype as dt
from tilewright.tir import ir as T
from tilewright.tir.interp import interpret

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
SMALL = ["float8_e4m3fn", "float8_e5m2"]
N = 64


def values(dtype, seed, positive=False):
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, N).astype(bool)
    if dt.is_float(dtype):
        x = rng.normal(size=N) * np.exp(rng.uniform(-3, 3, N))
        x[:4] = [0.0, 1.0, -1.0, 2.0]
        if not positive and not dtype.startswith("float8"):
            x[4:7] = [np.inf, -np.inf, np.nan]
        if positive:
            x = np.abs(x) + 0.25
        with np.errstate(all="ignore"):
            return x.astype(dt.to_numpy(dtype))
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, N, dtype=dtype, endpoint=True)
    x[: N // 2] = rng.integers(0 if info.min == 0 else -20, 20, N // 2).astype(dtype)
    if positive:
        x = np.where(x == 0, 1, x).astype(dtype)
        x = np.where(x == info.min, 3, x).astype(dtype) if info.min else x
    return x


def elementwise(f, dtypes, out_dtype, lanes):
    """out[i] = f(in0[i], in1[i], ...)."""
    ins = [T.decl_buffer([N], d, f"x{i}") for i, d in enumerate(dtypes)]
    out = T.decl_buffer([N], out_dtype, "y")
    i = Var("i", "int64")
    index = i if lanes == 1 else Ramp(i * lanes, E.IntImm("int64", 1), lanes)
    value = f(*(T.BufferLoad(b, (index,)) for b in ins))
    body = T.For(
        i, E.IntImm("int64", 0), E.IntImm("int64", N // lanes), T.ForKind.SERIAL, T.BufferStore(out, value, (index,))
    )
    return T.PrimFunc((*(b.data for b in ins), out.data), body, attrs={"global_symbol": "f", "tir.noalias": True})


def check(f, dtypes, out_dtype, arrays, lanes, opt="auto"):
    func = elementwise(f, dtypes, out_dtype, lanes)
    want = np.zeros(N, dt.to_numpy(out_dtype))
    got = np.zeros(N, dt.to_numpy(out_dtype))
    interpret(func, *arrays, want)
    load_kernel(func, opt=opt)(*arrays, got)
    if dt.is_float(out_dtype):
        a, b = got.astype("f8"), want.astype("f8")
        rtol = {"float32": 1e-6, "float64": 1e-14, "float16": 2e-3, "bfloat16": 1e-2}.get(out_dtype, 0)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=0)
    else:
        np.testing.assert_array_equal(got, want)


BINARY = {"add": E.Add, "sub": E.Sub, "mul": E.Mul, "min": E.Min, "max": E.Max}
DIVIDE = {"div": E.Div, "mod": E.Mod, "floordiv": E.FloorDiv, "floormod": E.FloorMod}
COMPARE = {"eq": E.EQ, "ne": E.NE, "lt": E.LT, "le": E.LE, "gt": E.GT, "ge": E.GE}


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", INTS + FLOATS)
def test_arithmetic(dtype, lanes):
    a, b = values(dtype, 0), values(dtype, 1)
    for node in BINARY.values():
        check(lambda x, y, node=node: node(x, y), [dtype] * 2, dtype, [a, b], lanes)
    for node in COMPARE.values():
        check(lambda x, y, node=node: node(x, y), [dtype] * 2, "bool", [a, b], lanes)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", [*INTS, "float32", "float64"])
def test_division(dtype, lanes):
    a, b = values(dtype, 0, positive=dt.is_float(dtype)), values(dtype, 1, positive=True)
    for name, node in DIVIDE.items():
        check(lambda x, y, node=node: node(x, y), [dtype] * 2, dtype, [a, b], lanes)
        if dt.is_int(dtype) and name.startswith("floor"):
            for k in (1, 3, 7, 8, 64):
                check(lambda x, k=k, node=node: node(x, const(k, x.dtype)), [dtype], dtype, [a], lanes)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", INTS)
def test_bits(dtype, lanes):
    a, b = values(dtype, 0), values(dtype, 1)
    shift = (np.arange(N) % dt.bits(dtype)).astype(dtype)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        check(lambda x, y, n=name: call_intrin(x.dtype, "tir." + n, x, y), [dtype] * 2, dtype, [a, b], lanes)
    for name in ("shift_left", "shift_right"):
        check(lambda x, y, n=name: call_intrin(x.dtype, "tir." + n, x, y), [dtype] * 2, dtype, [a, shift], lanes)
    for name in ("bitwise_not", "popcount", "clz"):
        check(lambda x, n=name: call_intrin(x.dtype, "tir." + n, x), [dtype], dtype, [a], lanes)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("source", [*INTS, *FLOATS, *SMALL, "bool"])
def test_casts(source, lanes):
    a = values(source, 3)
    for target in [*INTS, *FLOATS, *SMALL, "bool"]:
        x = a
        if dt.is_float(source) and dt.is_int(target):
            x = np.clip(
                np.nan_to_num(a.astype("f8"), nan=1, posinf=2, neginf=-2), -100 if not dt.is_uint(target) else 0, 100
            )
            x = x.astype(a.dtype)
        if source == "uint64" and dt.is_float(target):
            x = a >> np.uint64(2)  # the interpreter's float types take no greater integers
        check(lambda v, t=target: E.Cast(dt.with_lanes(t, lanes), v), [source], target, [x], lanes)


@pytest.mark.parametrize("lanes", [1, 8])
def test_logic_and_select(lanes):
    a, b, c = values("bool", 0), values("bool", 1), values("float32", 2)
    check(lambda x, y: E.And(E.Not(x), E.Or(x, y)), ["bool"] * 2, "bool", [a, b], lanes)
    check(lambda x, y: E.Select(x, y, y + y), ["bool", "float32"], "float32", [a, c], lanes)
    check(
        lambda x, y: call_intrin(y.dtype, "tir.if_then_else", x, y, y * y),
        ["bool", "float32"],
        "float32",
        [a, c],
        lanes,
    )
    check(lambda x: call_intrin(dt.with_lanes("bool", lanes), "tir.isnan", x), ["float32"], "bool", [c], lanes)


@pytest.mark.parametrize("dtype", SMALL)
def test_float8_all_codes_both_ways(dtype):
    codes = np.arange(256, dtype=np.uint8).view(dt.to_numpy(dtype))
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        wide = rng.integers(0, 2**32, 4096, dtype=np.uint64).astype(np.uint32).view(np.float32)
        wide[:2000] = rng.normal(size=2000) * 100
        wide[2000:2256] = codes.astype("f4")
        steps = np.sort(codes.astype("f4")[np.isfinite(codes.astype("f4"))])
        wide[2300 : 2300 + len(steps) - 1] = (steps[1:] + steps[:-1]) / 2
    for source, target, x in ((dtype, "float32", codes), ("float32", dtype, wide)):
        n = len(x)
        a, y = T.decl_buffer([n], source, "a"), T.decl_buffer([n], target, "y")
        i = Var("i", "int32")
        index = Ramp(i * 8, const(1), 8)
        value = E.Cast(target + "x8", T.BufferLoad(a, (index,)))
        body = T.For(i, const(0), const(n // 8), T.ForKind.SERIAL, T.BufferStore(y, value, (index,)))
        out = np.zeros(n, dt.to_numpy(target))
        load_kernel(T.PrimFunc((a.data, y.data), body, attrs={"global_symbol": "f"}))(x, out)
        with np.errstate(all="ignore"):
            want = x.astype(dt.to_numpy(target))
        np.testing.assert_array_equal(out.astype("f4"), want.astype("f4"))


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_conversions_exhaustive(dtype, target):
    codes = np.arange(65536, dtype=np.uint16).view(dt.to_numpy(dtype))
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 2**32, 65536, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        wide[:30000] = rng.normal(size=30000) * np.exp(rng.uniform(-18, 12, 30000))
        wide[30000:40000] = codes[::6][:10000].astype("f4")
    for source, to, x in ((dtype, "float32", codes), ("float32", dtype, wide)):
        n = len(x)
        a, y = T.decl_buffer([n], source, "a"), T.decl_buffer([n], to, "y")
        i = Var("i", "int32")
        index = Ramp(i * 8, const(1), 8)
        value = E.Cast(to + "x8", T.BufferLoad(a, (index,)))
        body = T.For(i, const(0), const(n // 8), T.ForKind.SERIAL, T.BufferStore(y, value, (index,)))
        out = np.zeros(n, dt.to_numpy(to))
        load_kernel(T.PrimFunc((a.data, y.data), body, attrs={"global_symbol": "f"}), target)(x, out)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out.astype("f4"), x.astype(dt.to_numpy(to)).astype("f4"))


def test_relu_is_one_instruction():
    func = elementwise(lambda x: E.Max(x, const(0.0, "float32x8")), ["float32"], "float32", 8)
    text = load_kernel(func).assembly()
    assert "vmaxps" in text
    assert "vcmp" not in text
    assert "vblend" not in text
    check(lambda x: E.Max(x, const(0.0, "float32x8")), ["float32"], "float32", [values("float32", 0)], 8)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "float16"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_reduce_lanes(dtype, lanes):
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, N).astype(dt.to_numpy(dtype))
    for kind in ("add", "mul", "min", "max"):
        x, y = T.decl_buffer([N], dtype, "x"), T.decl_buffer([N // lanes], dtype, "y")
        i = Var("i", "int32")
        value = call_intrin(dtype, "tir.reduce_lanes", kind, T.BufferLoad(x, (Ramp(i * lanes, const(1), lanes),)))
        body = T.For(i, const(0), const(N // lanes), T.ForKind.SERIAL, T.BufferStore(y, value, (i,)))
        func = T.PrimFunc((x.data, y.data), body, attrs={"global_symbol": "f"})
        got, want = np.zeros((2, N // lanes), dt.to_numpy(dtype))
        interpret(func, a, want)
        load_kernel(func)(a, got)
        np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=1e-3 if dtype == "float16" else 1e-6)
