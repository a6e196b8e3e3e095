"""Marks what runs on the device: `T.attr(target, "target", 0)` around each launch of threads.

A function that launches no threads but is made for a device belongs there as a whole, save the statements that only a host
can run (calls of packed functions).
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Call, IntImm, PrimExpr
from tilewright.ir.node import replace, walk
from tilewright.ir.op import Op
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.ir.target import Target
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, func_pass, target_of

__all__ = ["AnnotateDeviceRegions", "annotate_device_regions", "host_only", "without_host"]

_KEYS = ("thread_extent", "device_scope", "pipeline_exec_scope")
_HOST_ONLY = {"tir.tvm_call_packed", "tir.tvm_call_cpacked", "tir.call_packed", "tir.tvm_stack_alloca"}


def without_host(target: Target) -> Target:
    """The target without its host."""
    if target.host is None:
        return target
    new = Target(target)
    new.host = None
    return new


def annotate_device_regions(f: t.PrimFunc) -> t.PrimFunc:
    """The function with its device regions marked by its target. Raises TW0561 where the function has no target."""
    target = target_of(f)
    if target is None:
        raise DeviceError.at(
            "TW0561",
            f"function {f.attrs.get('global_symbol', '')!r} has no target: its device regions cannot be marked",
            hint='give it one: f.with_attr("target", Target("cuda", host="llvm"))',
        )
    if target.host is not None and target.host.kind.device_type == target.kind.device_type:
        return f
    device = without_host(target)
    run = _Annotate(device)
    body = run.visit(f.body)
    if not run.found and target.kind.device_type != "cpu":
        body = _whole(f.body, device)
    return f if body is f.body else replace(f, body=body)


def AnnotateDeviceRegions() -> Pass:
    """Mark the regions that run on the device; see `annotate_device_regions`."""
    return func_pass("AnnotateDeviceRegions", annotate_device_regions)


def _mark(device: Target, body: t.Stmt) -> t.Stmt:
    return t.AttrStmt(device, "target", IntImm("int32", 0), body)


class _Annotate(Mutator):
    def __init__(self, device: Target) -> None:
        self.device, self.found = device, False

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key == "target":
            self.found = True
            return s
        if s.attr_key in _KEYS:
            self.found = True
            return _mark(self.device, s)
        return self.generic(s)


def host_only(s: t.Stmt) -> bool:
    """Does the statement hold a call that only a host can make?"""
    return any(isinstance(n, Call) and isinstance(n.op, Op) and n.op.name in _HOST_ONLY for n in walk(s))


def _whole(s: t.Stmt, device: Target) -> t.Stmt:
    """The statement on the device, but for what only a host runs."""
    if not host_only(s):
        nothing = isinstance(s, t.Evaluate) and isinstance(s.value, IntImm)
        return s if nothing else _mark(device, s)
    if isinstance(s, t.SeqStmt):
        out: list[t.Stmt] = []
        run: list[t.Stmt] = []
        for x in s.seq:
            if host_only(x):
                if run:
                    out.append(_mark(device, t.seq(*run)))
                    run = []
                out.append(_whole(x, device))
            else:
                run.append(x)
        if run:
            out.append(_mark(device, t.seq(*run)))
        return t.seq(*out)
    body: Any = getattr(s, "body", None)
    if isinstance(body, t.Stmt):
        return replace(s, body=_whole(body, device))
    return s
