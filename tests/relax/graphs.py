"""Small graphs for the tests of graph passes, hand-made and random, and what compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewright.ops
from tilewright.arith.expr import Var as Symbol
from tilewright.ir.module import IRModule
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.evaluate import evaluate
from tilewright.relax.ir import Call, Function, Var
from tilewright.relax.op import OPS
from tilewright.relax.rewrite import all_bindings
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.values import const
from tilewright.relax.verify import problems

_ = tilewright.ops


def symbol(name: str) -> Symbol:
    """A symbolic dimension."""
    return Symbol(name, "int64")


def op(name: str, *args: Any, **attrs: Any) -> Call:
    """A call of an operator by name."""
    return OPS[name](**attrs)(*args)


def tensor(name: str, *shape: Any, dtype: str = "float32") -> Var:
    """A variable."""
    return Var(name, TensorStructInfo(shape, dtype))


def array(seed: int, *shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Random values in -1..1."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def weights(seed: int, *shape: int) -> Any:
    """A random constant."""
    return const(array(seed, *shape))


def function(params: Sequence[Var], build: Callable[[BlockBuilder], Any], dataflow: bool = True) -> IRModule:
    """A module whose `main` is what `build` emits and returns."""
    bb = BlockBuilder()
    with bb.function("main", params):
        if dataflow:
            with bb.dataflow():
                made = build(bb)
                outs = [bb.emit_output(v) for v in (made if isinstance(made, tuple) else (made,))]
            bb.emit_func_output(tuple(outs) if isinstance(made, tuple) else outs[0])
        else:
            bb.emit_func_output(build(bb))
    return bb.get()


def names(mod: IRModule, func: str = "main") -> list[str]:
    """What the bindings of a function do: names of operators and kernels, kinds of other nodes."""
    out: list[str] = []
    for b in all_bindings(mod[func]):
        value: Any = getattr(b, "value", None)
        name = getattr(getattr(value, "op", None), "name", None)
        if name == "call_tir":
            name = value.args[0].name_hint
        out.append(name or (value.op.name_hint if isinstance(value, Call) else type(value).__name__))
    return out


def kernels(mod: IRModule) -> list[str]:
    """The names of the functions that are no graph functions."""
    return [v.name_hint for v, f in mod.functions.items() if not isinstance(f, Function)]


def same(before: IRModule, after: IRModule, *inputs: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Both modules are well formed and mean the same on these inputs."""
    assert problems(after) == []
    want, got = evaluate(before, *inputs), evaluate(after, *inputs)
    for a, b in zip(
        want if isinstance(want, tuple) else (want,), got if isinstance(got, tuple) else (got,), strict=True
    ):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
