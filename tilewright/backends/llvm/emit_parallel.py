"""Parallel loops: the body becomes a function over a range of iterations that the runtime's threads call."""

from __future__ import annotations

from typing import Any

from tilewright.arith import expr as E
from tilewright.backends.llvm.emit_core import llvm_type, symbol
from tilewright.backends.llvm.emit_stmt import StmtWriter
from tilewright.ir.node import children
from tilewright.tir import ir as T

__all__ = ["captured", "parallel_loop"]


def captured(s: T.For, known: Any) -> list[E.Var]:
    """The variables of `known` that the body of the loop uses, in order of appearance."""
    found: dict[E.Var, None] = {}
    seen: set[int] = set()

    def visit(n: Any) -> None:
        if id(n) in seen:
            return
        seen.add(id(n))
        if isinstance(n, E.Var):
            if n in known:
                found[n] = None
            return
        for child in children(n):
            visit(child)

    visit(s.min)
    visit(s.body)
    if "grain" in s.annotations:
        visit(s.extent)
    return list(found)


def parallel_loop(w: StmtWriter, s: T.For) -> None:
    """Write the loop `s` as a call of `tw_parallel_for`. Annotation `grain`: iterations that one task takes at least."""
    free = captured(s, w.env.keys() | w.wide.keys())
    free = [v for v in free if v is not s.loop_var]
    values = [w.variable(v) for v in free]
    # Global constants need no place in the closure.
    passed = [(v, x) for v, x in zip(free, values, strict=True) if x[0] == "%"]
    fixed = {v: x for v, x in zip(free, values, strict=True) if x[0] != "%"}
    name = f"{w.name}_par{w.parallel}"
    w.parallel += 1
    closure_type = "{ " + ", ".join(llvm_type(v.dtype) for v, _ in passed) + " }"
    closure = w.alloca(f"{closure_type}, align 16") if passed else "null"
    for i, (v, x) in enumerate(passed):
        slot = w.op(f"getelementptr {closure_type}, ptr {closure}, i64 0, i32 {i}")
        w.do(f"store {llvm_type(v.dtype)} {x}, ptr {slot}")
    count = w.scalar64(s.extent)
    grain = int(getattr(s.annotations.get("grain", 1), "value", s.annotations.get("grain", 1)))
    tasks = count
    if grain > 1:
        tasks = w.op(f"sdiv i64 {w.op(f'add i64 {count}, {grain - 1}')}, {grain}")
    run = w.mod.declare("tw_parallel_for", "i32 (ptr, ptr, i64)")
    status = w.inst(f"call i32 {run}(ptr {symbol(name)}, ptr {closure}, i64 {tasks})")
    w.clobber(None)
    w.check_status(status)
    _write_body(w, s, name, passed, fixed, grain)
    _write_unpack(w, name, closure_type, passed)


def _write_body(
    w: StmtWriter, s: T.For, name: str, passed: list[tuple[E.Var, str]], fixed: dict[E.Var, str], grain: int
) -> None:
    inner = StmtWriter(w.mod, name, w.signatures)
    inner.in_parallel = True
    inner.root, inner.where = w.root, w.where
    inner.natural = set(w.natural)
    inner.distinct = set(w.distinct)
    inner.raw = set(w.raw)
    apart = not w.raw
    params: list[str] = []
    for i, (v, _) in enumerate(passed):
        inner.env[v] = f"%p{i}"
        mark = " noalias" if apart and v in w.distinct else ""
        params.append(f"{llvm_type(v.dtype)}{mark} %p{i}")
    inner.env.update(fixed)
    begin, end = "%begin", "%end"
    if grain > 1:
        begin = inner.op(f"mul i64 %begin, {grain}")
        last = inner.op(f"mul i64 %end, {grain}")
        total = inner.scalar64(s.extent)
        end = inner.intrinsic("smin", "i64", last, total)
    if type(s.min) is not E.IntImm or s.min.value != 0:
        low = inner.scalar64(s.min)
        begin, end = inner.op(f"add i64 {begin}, {low}"), inner.op(f"add i64 {end}, {low}")
    if type(s.min) is E.IntImm and s.min.value >= 0:
        inner.natural.add(s.loop_var)
    inner.loop(s.loop_var, begin, end, True, lambda: inner.stmt(s.body))
    params += ["i64 %begin", "i64 %end"]
    w.mod.functions.append(inner.finish(f"define internal i32 {symbol(name + '_body')}({', '.join(params)}) #0"))


def _write_unpack(w: StmtWriter, name: str, closure_type: str, passed: list[tuple[E.Var, str]]) -> None:
    lines = [f"define internal i32 {symbol(name)}(ptr %closure, i64 %begin, i64 %end) #0 {{"]
    args: list[str] = []
    for i, (v, _) in enumerate(passed):
        ty = llvm_type(v.dtype)
        lines.append(f"  %a{i} = getelementptr {closure_type}, ptr %closure, i64 0, i32 {i}")
        lines.append(f"  %p{i} = load {ty}, ptr %a{i}")
        args.append(f"{ty} %p{i}")
    args += ["i64 %begin", "i64 %end"]
    lines.append(f"  %status = call i32 {symbol(name + '_body')}({', '.join(args)})")
    lines += ["  ret i32 %status", "}"]
    w.mod.functions.append("\n".join(lines))
