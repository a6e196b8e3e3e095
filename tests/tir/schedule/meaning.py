"""Do two programs mean the same? Judged by the interpreter, and by native code where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright.arith.analyzer import simplify
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.ir.structure import assert_structural_equal
from tilewright.tir.interp import interpret
from tilewright.tir.ir import PrimFunc
from tilewright.tir.schedule import Schedule, ScheduleError


def only(program: Any) -> PrimFunc:
    """The function of a schedule, a module, or the function itself."""
    mod = program.mod if isinstance(program, Schedule) else program
    return mod if isinstance(mod, PrimFunc) else next(iter(mod.functions.values()))


def data(f: PrimFunc, sizes: Mapping[str, int] | None = None, seed: int = 0) -> list[Any]:
    """Random arguments for a function; `sizes` gives the values of its symbolic dimensions and scalars by name."""
    rng = np.random.default_rng(seed)
    sizes = dict(sizes or {})
    out: list[Any] = []
    for p in f.params:
        b = f.buffer_map.get(p)
        if b is None:
            out.append(sizes[p.name])
            continue
        known = {v: tvm.tir.const(sizes[v.name], v.dtype) for n in b.shape for v in free_vars(n)}
        shape = [int(simplify(substitute(n, known))) for n in b.shape]
        if "int" in b.dtype:
            out.append(rng.integers(0 if b.dtype[0] == "u" else -9, 9, shape).astype(b.dtype))
        else:
            out.append(rng.integers(-8, 8, shape).astype(b.dtype))
    return out


def results(f: PrimFunc, args: list[Any]) -> list[Any]:
    """The arguments after running the function."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    interpret(f, *copies)
    return copies


def same(before: Any, after: Any, sizes: Mapping[str, int] | None = None, native: bool = False) -> None:
    """Both give the same results on random data."""
    f, g = only(before), only(after)
    args = data(f, sizes)
    want, got = results(f, args), results(g, args)
    for x, y in zip(want, got, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-5)
    if native:
        arrays = [tvm.nd.array(a) if isinstance(a, np.ndarray) else a for a in args]
        tvm.build(g.with_attr("global_symbol", "main"), target="llvm")(*arrays)
        for x, y in zip(want, arrays, strict=True):
            if isinstance(x, np.ndarray):
                np.testing.assert_allclose(y.numpy(), x, rtol=1e-4, atol=1e-4)


def equal(program: Any, expected: PrimFunc) -> None:
    """The function of a schedule has the expected structure, its name apart."""
    assert_structural_equal(only(program).with_attr("global_symbol", "f"), expected.with_attr("global_symbol", "f"))


def refused(code: str, text: str, step: Any) -> str:
    """The step raises ScheduleError with the code and the text, and the message."""
    with pytest.raises(ScheduleError) as caught:
        step()
    message = str(caught.value)
    assert code in message, message
    assert text in message, message
    return message
