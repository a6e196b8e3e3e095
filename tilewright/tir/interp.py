"""The reference interpreter: what a function of the loop IR means, in numpy. Every transformation is tested against it.

It runs any form: blocks (with init, predicates, match_buffer), scheduled loops (thread-bound loops one after the other),
flat code with vectors. Integers wrap, floats round after each operation to their dtype, both sides of a Select are
evaluated, fresh memory is poisoned (nan, odd integers), every access is checked. What needs raw addresses (the packed calling
convention) or barriers between threads is refused with error TW0950.

Each function becomes Python source once (`interp_compile`), kept while it is among the last used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.ir.module import IRModule, attrs_of
from tilewright.ir.op import GlobalVar
from tilewright.tir.interp_compile import generate
from tilewright.tir.interp_runtime import Return, unsupported
from tilewright.tir.ir import PrimFunc

__all__ = ["interpret", "interpreter_source"]

_CACHE: OrderedDict[tuple[PrimFunc, bool], Callable[..., Any]] = OrderedDict()
_LIMIT = 128


def interpret(
    func: PrimFunc | IRModule,
    *args: Any,
    name: str | None = None,
    externs: Mapping[str, Callable[..., Any]] | None = None,
    backwards: bool = False,
) -> Any:
    """Run a function on numpy arrays (written in place) and numbers; gives what `tir.ret` returned, else None.

    Of a module, `name` picks the function (by default the only PrimFunc, or `main`). `externs` gives Python functions for
    the names that `call_extern` and `call_packed` use; pointers arrive there as flat arrays, buffers as arrays.
    `backwards` runs parallel, vectorized and thread-bound loops from the end: what then differs was not parallel. Raises
    TypeError or ValueError for arguments that do not fit, IndexError for an access out of bounds, what AssertStmt and
    tw_raise say, and CompileError TW0950 for what cannot be run.
    """
    module = func if isinstance(func, IRModule) else None
    if module is not None:
        func = _pick(module, name)
    assert isinstance(func, PrimFunc)
    run = _compiled(func, module, externs or {}, backwards)
    if len(args) != len(func.params):
        raise TypeError(f"{_label(func)} takes {len(func.params)} arguments, got {len(args)}")
    with np.errstate(all="ignore"):
        try:
            return run(*args)
        except Return as r:
            return r.value


def interpreter_source(func: PrimFunc) -> str:
    """The Python source that the interpreter runs for `func`, for people to read."""
    return generate(func, _label(func), lambda v: None)[0]


def _label(f: PrimFunc) -> str:
    return str(attrs_of(f).get("global_symbol", "main"))


def _pick(module: IRModule, name: str | None) -> PrimFunc:
    if name is not None:
        found = module[name]
    else:
        funcs = [f for f in module.functions.values() if isinstance(f, PrimFunc)]
        found = module["main"] if len(funcs) != 1 and "main" in module else funcs[0] if len(funcs) == 1 else None
        if found is None:
            raise ValueError(f"name the function to run; the module has {', '.join(v.name_hint for v in module)}")
    if not isinstance(found, PrimFunc):
        raise unsupported(f"{name or 'main'}", "it is no function of the loop IR")
    return found


def _compiled(
    func: PrimFunc, module: IRModule | None, externs: Mapping[str, Callable[..., Any]], backwards: bool
) -> Callable[..., Any]:
    """The Python function for a PrimFunc; cached where it cannot call others."""
    found = _CACHE.get((func, backwards))
    if found is not None:
        _CACHE.move_to_end((func, backwards))
        return found
    used: list[GlobalVar] = []

    def resolve(v: GlobalVar) -> Callable[..., Any]:
        used.append(v)
        if v.name_hint in externs:
            return externs[v.name_hint]
        if module is None or v not in module:
            raise unsupported(f"a call of {v.name_hint}", "neither the module nor `externs` has it")

        def call(*args: Any) -> Any:
            assert module is not None
            out = interpret(module, *args, name=v.name_hint, externs=externs, backwards=backwards)
            return 0 if out is None else out

        return call

    source, names = generate(func, _label(func), resolve, backwards)
    exec(compile(source, f"<interpreted {_label(func)}>", "exec"), names)
    run = names["run"]
    if not used:
        _CACHE[func, backwards] = run
        if len(_CACHE) > _LIMIT:
            _CACHE.popitem(last=False)
    return run
