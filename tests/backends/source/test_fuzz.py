"""Random expressions of every dtype as C, OpenCL C and CUDA C: C and OpenCL give bit for bit what LLVM's code gives, CUDA compiles."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright.arith import expr as E
from tilewright.backends.c import cc
from tilewright.backends.c.emit import emit_c
from tilewright.backends.cuda import build as _cuda  # noqa: F401  (fills the table of intrinsics)
from tilewright.backends.cuda.compile import compile_source, compiler
from tilewright.backends.cuda.dialect import CudaDialect
from tilewright.backends.llvm.testing import run_kernel
from tilewright.backends.opencl.dialect import OpenCLDialect
from tilewright.backends.opencl.runtime import API
from tilewright.ir import dtype as dt
from tilewright.ir.op import Op, PointerType, PrimType
from tilewright.tir import ir as t

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float32", "float16", "bfloat16", "float64"]
DTYPES = [*INTEGERS, *FLOATS, "bool"]
COUNT = 32
BINARY = [E.Add, E.Sub, E.Mul, E.Min, E.Max]
DIVISIONS = [E.FloorDiv, E.FloorMod, E.Div, E.Mod]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]


class Generator:
    """Random expressions over loads and a loop variable."""

    def __init__(self, seed: int, leaves: list[E.PrimExpr]) -> None:
        self.random, self.leaves = random.Random(seed), leaves

    def expr(self, dtype: str, depth: int) -> E.PrimExpr:
        r = self.random
        if depth <= 0 or r.random() < 0.15:
            return self.leaf(dtype)
        if dtype == "bool":
            return self.condition(depth - 1)
        choice = r.randrange(7)
        if choice == 0 and not dt.is_float(dtype):
            return r.choice(DIVISIONS)(self.expr(dtype, depth - 1), E.IntImm(dtype, r.choice([1, 2, 3, 4, 7])))
        if choice == 1 and not dt.is_float(dtype):
            name = r.choice([*BITS, "shift_left", "shift_right"])
            b = E.IntImm(dtype, r.randint(0, 5)) if name.startswith("shift") else self.expr(dtype, depth - 1)
            return E.Call(dtype, Op.get("tir." + name), (self.expr(dtype, depth - 1), b))
        if choice == 2:
            source = r.choice([*INTEGERS, "bool", *(FLOATS if dt.is_float(dtype) else [])])
            return E.Cast(dtype, self.expr(source, depth - 1)) if source != dtype else self.leaf(dtype)
        if choice == 3:
            v = E.Var("v", r.choice(INTEGERS))
            value = self.expr(v.dtype, depth - 1)
            self.leaves.append(v)
            body = self.expr(dtype, depth - 1)
            self.leaves.pop()
            return E.Let(v, value, body)
        if choice == 4:
            parts = self.expr("bool", depth - 1), self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
            return E.Select(*parts) if r.random() < 0.5 else E.Call(dtype, Op.get("tir.if_then_else"), parts)
        return r.choice(BINARY)(self.expr(dtype, depth - 1), self.expr(dtype, depth - 1))

    def leaf(self, dtype: str) -> E.PrimExpr:
        known = [x for x in self.leaves if x.dtype == dtype]
        if known and self.random.random() < 0.8:
            return self.random.choice(known)
        if dt.is_float(dtype):
            return E.FloatImm(dtype, self.random.choice([0.5, 1.0, -2.0, 3.25, 0.0]))
        return E.IntImm(
            dtype,
            self.random.randint(0, 1) if dtype == "bool" else self.random.randint(0 if dt.is_uint(dtype) else -5, 7),
        )

    def condition(self, depth: int) -> E.PrimExpr:
        r = self.random
        kind = r.randrange(4)
        if kind == 0:
            return E.Not(self.expr("bool", depth))
        if kind == 1:
            return r.choice([E.And, E.Or])(self.expr("bool", depth), self.expr("bool", depth))
        dtype = r.choice([*INTEGERS, *FLOATS])
        return r.choice([E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE])(self.expr(dtype, depth), self.expr(dtype, depth))


def buffer(name: str, dtype: str) -> t.Buffer:
    return t.decl_buffer((COUNT,), dtype, name, data=E.Var(name, "handle", PointerType(PrimType(dtype), "global")))


def program(seed: int, name: str) -> t.PrimFunc:
    """out[i] = a random expression of one element of every dtype."""
    given = [buffer("b_" + d, d) for d in DTYPES]
    i = E.Var("i", "int32")
    make = Generator(seed, [*(t.BufferLoad(b, (i,)) for b in given), i])
    out = buffer("out", make.random.choice([*INTEGERS, *FLOATS]))
    body = t.BufferStore(out, make.expr(out.dtype, 4), (i,))
    loop = t.For(i, E.IntImm("int32", 0), E.IntImm("int32", COUNT), t.ForKind.SERIAL, body)
    return t.PrimFunc((*(b.data for b in given), out.data), loop, None, {}, {"global_symbol": name, "calling_conv": 2})


def operands(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    found: list[Any] = []
    for d in DTYPES:
        kind = dt.to_numpy(d)
        if d == "bool":
            found.append(rng.integers(0, 2, COUNT).astype(bool))
        elif dt.is_float(d):
            found.append((rng.integers(-8, 8, COUNT) * 0.5).astype(kind))
        else:
            info = np.iinfo(kind)
            found.append(rng.integers(info.min, info.max, COUNT, kind, endpoint=True))
    return found


def out_of(f: t.PrimFunc) -> Any:
    return np.zeros(COUNT, dt.to_numpy(f.params[-1].type_annotation.element_type.dtype))


def check(seeds: range, tmp_path: Any) -> None:
    funcs = [program(s, f"k{s}") for s in seeds]
    wants: list[Any] = []
    for s, f in zip(seeds, funcs):
        wants.append(out_of(f))
        run_kernel(f, *operands(s), wants[-1])
    if cc.get_cc() is not None:
        path = tmp_path / "k.c"
        path.write_text(emit_c(funcs))
        cc.create_shared(str(tmp_path / "k.so"), [str(path)], ["-std=c99", "-O2", "-fno-strict-aliasing", "-lm"])
        library = ctypes.CDLL(str(tmp_path / "k.so"))
        for s, f, want in zip(seeds, funcs, wants):
            arrays = [*operands(s), out_of(f)]
            assert library[f"k{s}"](*[ctypes.c_void_p(a.ctypes.data) for a in arrays]) == 0
            np.testing.assert_array_equal(
                arrays[-1].astype(np.float64), want.astype(np.float64), err_msg=f"C, seed {s}"
            )
    if API.reason() is None:
        kernels = {k.function_name: k for k in API.program(0, OpenCLDialect().emit(funcs)).all_kernels()}
        for s, f, want in zip(seeds, funcs, wants):
            given = [tvm.nd.array(a, tvm.opencl(0)) for a in [*operands(s), out_of(f)]]
            API.launch(
                0, kernels[f"k{s}"], ["handle"] * len(given), [int(a.data_ptr()) for a in given], [1] * 3, [1] * 3, 0
            )
            np.testing.assert_array_equal(
                given[-1].numpy().astype(np.float64), want.astype(np.float64), err_msg=f"OpenCL, seed {s}"
            )
    if compiler() is not None:
        assert compile_source(CudaDialect().emit(funcs), "sm_80", "cubin")


@pytest.mark.filterwarnings("ignore")
def test_some(tmp_path):
    check(range(12), tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", range(10))
def test_many(batch, tmp_path):
    check(range(100 + 25 * batch, 125 + 25 * batch), tmp_path)
