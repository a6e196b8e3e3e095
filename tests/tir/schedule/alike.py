"""Judging schedules: a program before and after must compute the same, interpreted and as native code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright.ir.structure import structural_equal
from tilewright.tir.interp import interpret
from tilewright.tir.ir import PrimFunc
from tilewright.tir.schedule import Schedule, ScheduleError


def program(sch: Schedule) -> PrimFunc:
    """The function of a schedule of one function."""
    (found,) = [f for f in sch.mod.functions.values() if isinstance(f, PrimFunc)]
    return found


def arguments(f: PrimFunc, seed: int, sizes: dict[str, int] | None = None) -> list[Any]:
    """Random arrays for the buffers of a function, numbers for its scalar parameters; symbolic sizes by name."""
    rng = np.random.default_rng(seed)
    values = sizes or {}
    out: list[Any] = []
    for p in f.params:
        b = f.buffer_map.get(p)
        if b is None:
            out.append(values[p.name])
            continue
        shape = [_size(n, values) for n in b.shape]
        if b.dtype.startswith("float"):
            out.append(rng.integers(-8, 8, shape).astype(b.dtype) / 4)
        else:
            out.append(rng.integers(0, 5, shape).astype(b.dtype))
    return out


def _size(n: Any, values: dict[str, int]) -> int:
    from tilewright.arith.analyzer import simplify
    from tilewright.arith.expr import const
    from tilewright.ir.rewrite import free_vars, substitute

    return int(simplify(substitute(n, {v: const(values[v.name], v.dtype) for v in free_vars(n)})))  # pyright: ignore


def same_meaning(
    before: PrimFunc, after: PrimFunc, *, sizes: dict[str, int] | None = None, native: bool = True, seed: int = 0
) -> None:
    """Both functions leave the same in all their arguments; the second also run backwards where it is parallel, and built."""
    want = arguments(before, seed, sizes)
    interpret(before, *want)
    for backwards in (False, True):
        got = arguments(before, seed, sizes)
        interpret(after, *got, backwards=backwards)
        _alike(got, want)
    if native:
        got = arguments(before, seed, sizes)
        rt = tvm.build(after.with_attr("global_symbol", "main"))
        arrays = [tvm.nd.array(a) if isinstance(a, np.ndarray) else a for a in got]
        rt["main"](*arrays)
        _alike([a.numpy() if hasattr(a, "numpy") else a for a in arrays], want)


def _alike(got: list[Any], want: list[Any]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)


def expect(sch: Schedule, after: PrimFunc) -> None:
    """The schedule's program is this one, names apart."""
    got = program(sch).with_attr("global_symbol", "main")
    want = after.with_attr("global_symbol", "main")
    if not structural_equal(got, want):
        raise AssertionError(f"got\n{got.script()}\nwant\n{want.script()}")


def refused(code: str, step: Callable[[], Any]) -> str:
    """The message of the ScheduleError that the step raises."""
    with pytest.raises(ScheduleError) as caught:
        step()
    assert caught.value.diagnostics[0].code == code, str(caught.value)
    return str(caught.value)
