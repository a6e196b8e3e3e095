"""The whole pipeline on one page: a model comes in, a callable comes out.

load          ONNX (a path, bytes, a ModelProto), an IRModule, a function        -> IRModule of graph functions
graph         relax passes: fold, layout, legalise, fuse                          -> main of call_tir + PrimFuncs
host          lower main to calls of kernels on planned memory                    -> host PrimFunc + packed entry
kernels       schedule, lower, emit, machine code; each kernel from the cache     -> objects
link          LLVM's JIT linker, in this process                                  -> Executable
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Union

import numpy as np

from tilewright.arith.expr import IntImm, PrimExpr, Var, const
from tilewright.backends.llvm.codegen import compile_assembly, compile_object
from tilewright.backends.llvm.emit import emit_module
from tilewright.driver import cache as disk
from tilewright.driver.kernels import Kernel, compile_kernels, fingerprint, lower_one
from tilewright.ir.module import IRModule, attrs_of
from tilewright.ir.node import replace
from tilewright.ir.op import GlobalVar
from tilewright.ir.passes import Sequential
from tilewright.ir.rewrite import collect, transform
from tilewright.ir.target import Target
from tilewright.relax import ir as rx
from tilewright.relax.transform.lower_to_host import HostFunction, lower_to_host
from tilewright.support.diagnostics import CompileError
from tilewright.tir.analysis.calls import called_functions, is_private
from tilewright.tir.ir import Evaluate, PrimFunc
from tilewright.tir.lower import lower_kernel
from tilewright.tir.lower.kernel_abi import kernel_params
from tilewright.tir.lower.make_packed_api import make_packed_api
from tilewright.tir.lower.return_slot import return_dtype, with_return_slot

__all__ = ["Compiled", "Progress", "compile_module", "load_model"]

Progress = Callable[[str, int, int], None]
"""Told what is being done: the stage's name, how many pieces are done, how many there are."""

Model = Union[str, "PathLike[str]", bytes, IRModule, rx.Function, PrimFunc, Any]


@dataclass
class Compiled:
    """Everything that compilation made, before it is linked: objects by symbol, constants, signature, statistics."""

    target: Target
    module: IRModule
    """The module after the graph passes: what `Executable.script()` shows."""
    objects: dict[str, bytes]
    constants: list[tuple[str, np.ndarray[Any, Any]]]
    entries: dict[str, dict[str, Any]]
    """Public functions by name, each with its signature."""
    stats: dict[str, Any] = field(default_factory=dict[str, Any])
    functions: list[PrimFunc] = field(default_factory=list[PrimFunc])
    """The flat entry functions, for textual output."""
    kernels: dict[str, PrimFunc] = field(default_factory=dict[str, PrimFunc])
    """The kernels by symbol, before they are scheduled, for textual output."""

    def source(self, fmt: str = "ll") -> str:
        """The whole program as text: "ll" (LLVM IR), "asm" (the machine's assembly). Kernels are lowered anew: they may
        have come from the cache. Raises ValueError for another format."""
        if fmt not in ("ll", "asm"):
            raise ValueError(f'there is no source in format {fmt!r}; use "ll" or "asm"')
        lowered = [lower_one(f, symbol, self.target) for symbol, f in self.kernels.items()]
        text = emit_module([*lowered, *self.functions], self.target).text
        return text if fmt == "ll" else compile_assembly(text, self.target, "scalar")


def load_model(
    model: Model, shapes: Mapping[str, Sequence[int]] | None = None, dtypes: Mapping[str, str] | None = None
) -> IRModule:
    """`model` as an IRModule; `shapes` fixes dynamic inputs of an imported model by name."""
    if isinstance(model, IRModule):
        return model
    if isinstance(model, (rx.Function, PrimFunc)):
        return IRModule.from_expr(model)
    from tilewright.frontend.onnx import from_onnx

    return from_onnx(model, shape_dict=shapes, dtype_dict=dtypes)


def compile_module(
    mod: IRModule,
    target: Target,
    *,
    output_names: Sequence[str] = (),
    progress: Progress | None = None,
    use_cache: bool = True,
) -> Compiled:
    """Everything between a module and its object code; graph functions and PrimFuncs become public entries of their name."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20000))
    _check_target(target)
    start = time.perf_counter()
    mod = graph_passes(mod, target)
    graphs = [v.name_hint for v, f in mod.functions.items() if isinstance(f, rx.Function)]
    hosts = {name: lower_to_host(mod, name, output_names) for name in graphs}
    called = {k for host in hosts.values() for k in host.kernels}
    prims = [(v, f) for v, f in mod.functions.items() if isinstance(f, PrimFunc)]
    kernels = [(v, f) for v, f in prims if v in called]
    compiled = compile_kernels([(v.name_hint, f) for v, f in kernels], target, progress, use_cache)
    symbols = {v: GlobalVar(k.symbol) for (v, _), k in zip(kernels, compiled, strict=True)}
    out = Compiled(target, mod, {k.symbol: k.code for k in compiled}, [], {})
    out.kernels = {k.symbol: f for (_, f), k in zip(kernels, compiled, strict=True)}
    entry_functions: list[PrimFunc] = []
    for name, host in hosts.items():
        entry_functions += _host_functions(name, host, symbols)
        out.entries[name] = signature_of(mod[name], host.func)
    subroutines = called_functions(f for _, f in prims)
    for v, f in prims:
        if v in called:
            continue
        if v.name_hint in subroutines and return_dtype(f):
            raise CompileError.at(
                "TW0532",
                f"{v.name_hint} returns a value and is called by another function of the module",
                hint="let it write its result into a buffer",
            )
        entry = _prim_entry(v.name_hint, f, target)
        if is_private(f, v.name_hint, subroutines):
            entry_functions += entry[:1] if v.name_hint in subroutines else []
        else:
            entry_functions += entry
            out.entries[v.name_hint] = signature_of(f, f)
    _emit_entries(out, entry_functions, target, use_cache)
    out.stats = _statistics(out, hosts, compiled, time.perf_counter() - start)
    return out


def graph_passes(mod: IRModule, target: Target) -> IRModule:
    """The relax passes, on modules that have graph functions."""
    if not any(isinstance(f, rx.Function) for f in mod.functions.values()):
        return mod
    from tilewright.relax.transform import graph_pipeline

    return Sequential(graph_pipeline(target), name="graph")(mod)


def _check_target(target: Target) -> None:
    if target.kind.name != "llvm":
        raise CompileError.at(
            "TW0651",
            f"target {target} compiles loop programs (tvm.build), no graphs yet",
            hint='use "llvm"; `tilewright targets` lists what there is',
        )


def _flat(func: PrimFunc, symbol: str) -> PrimFunc:
    """A host function with the kernel's calling convention: data pointers, scalars, symbols."""
    flat, symbols = kernel_params(func)
    return PrimFunc((*flat, *symbols), func.body, None, {}, {"global_symbol": symbol})


def _host_functions(name: str, host: HostFunction, symbols: Mapping[GlobalVar, GlobalVar]) -> list[PrimFunc]:
    body = transform(host.func, lambda n: symbols.get(n) if isinstance(n, GlobalVar) else None)
    symbol = f"tw_host_{name}"
    return [_flat(body, symbol), make_packed_api(replace(host.func, body=Evaluate(const(0))), GlobalVar(symbol))]


def _prim_entry(name: str, func: PrimFunc, target: Target) -> list[PrimFunc]:
    """A PrimFunc that is called from outside: lowered as it is scheduled, with a packed entry."""
    symbol = f"tw_prim_{name}"
    func = func.with_attr({"global_symbol": name, "ret_dtype": return_dtype(func)})
    lowered = with_return_slot(func)
    if called_functions([func]):
        rename = {g: GlobalVar(f"tw_prim_{g.name_hint}") for g in collect(func.body, GlobalVar)}
        lowered = replace(
            lowered, body=transform(lowered.body, lambda n: rename.get(n) if isinstance(n, GlobalVar) else None)
        )
    return [
        lower_kernel(lowered, target).with_attr({"global_symbol": symbol}),
        make_packed_api(replace(func, body=Evaluate(const(0))), GlobalVar(symbol)),
    ]


def _emit_entries(out: Compiled, functions: list[PrimFunc], target: Target, use_cache: bool) -> None:
    """Entry functions are emitted together; their object is cached by its text."""
    emitted = emit_module(functions, target, "entries")
    out.constants = list(emitted.constants)
    out.functions = functions
    key = f"entries {hashlib.blake2b(emitted.text.encode()).hexdigest()} {target.cache_key()} {fingerprint()}"
    store = disk.default() if use_cache else None
    entry = store.get(key) if store else None
    code = entry.data if entry is not None else compile_object(emitted.text, target, "scalar")
    if store and entry is None:
        store.put(key, code)
    out.objects["entries"] = code


def signature_of(func: Any, host: PrimFunc) -> dict[str, Any]:
    """Names, dtypes and shapes of a function's inputs and outputs; symbolic dimensions as text."""
    n = int(attrs_of(host).get("num_outputs", 0))
    params: list[dict[str, Any]] = []
    for p in host.params:
        buffer = host.buffer_map.get(p)
        shape = (
            [int(d) if isinstance(d, IntImm) else _dimension(d) for d in buffer.shape] if buffer is not None else None
        )
        params.append(
            {
                "name": buffer.name if buffer is not None else p.name,
                "dtype": buffer.dtype if buffer is not None else p.dtype,
                "shape": shape,
            }
        )
    split = len(params) - n
    tuple_ = bool(attrs_of(host).get("returns_tuple"))
    return {
        "inputs": params[:split],
        "outputs": params[split:],
        "returns_tuple": tuple_,
        "graph": not isinstance(func, PrimFunc),
    }


def _dimension(d: PrimExpr) -> str:
    return d.name if isinstance(d, Var) else str(d)


def _statistics(
    out: Compiled, hosts: Mapping[str, HostFunction], compiled: Sequence[Kernel], seconds: float
) -> dict[str, Any]:
    unique = {k.symbol: k for k in compiled}
    plan = next(iter(hosts.values())).plan if hosts else None
    return {
        "compile_seconds": seconds,
        "kernels": len(unique),
        "kernels_cached": sum(k.cached for k in unique.values()),
        "code_bytes": sum(len(code) for code in out.objects.values()),
        "constant_bytes": sum(a.nbytes for _, a in out.constants),
        "arena_bytes": plan.size.value if plan and isinstance(plan.size, IntImm) else None,
        "arena_lower_bound": plan.lower_bound if plan else None,
        "arena_without_reuse": plan.without_reuse if plan else None,
    }
