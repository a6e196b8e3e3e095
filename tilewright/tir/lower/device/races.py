"""Races that can be told from a program: refused, with the reason.

A reduction that was decomposed and then bound to threads updates one element from many of them. Local memory is each
thread's own: what another thread has written there cannot be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arith.expr import Call, PrimExpr, Select, Var
from tilewright.ir.node import children
from tilewright.ir.op import Op
from tilewright.ir.rewrite import free_vars
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, launch
from tilewright.tir.transform.gpu.shared_access import READ, WRITE, Access, elements
from tilewright.tir.transform.gpu.thread_sync import scope_of

__all__ = ["check_local_memory", "check_updates"]


def check_updates(f: t.PrimFunc) -> t.PrimFunc:
    """Raise TW0578 where a block without an init reduces, over a loop bound to threads, into memory that they share."""
    _updates(f.body, {})
    return f


def _updates(s: Any, bound: dict[Any, str]) -> None:
    if isinstance(s, t.For) and s.thread_binding is not None:
        bound = {**bound, s.loop_var: s.thread_binding.thread_tag}
    if isinstance(s, t.BlockRealize) and s.block.init is None:
        for iv, v in zip(s.block.iter_vars, s.iter_values, strict=True):
            tags = [bound[x] for x in free_vars(v) if x in bound and not bound[x].startswith("vthread")]
            if iv.iter_type == t.IterVar.CommReduce and tags and _update(s.block):
                raise DeviceError.at(
                    "TW0578",
                    f"block {s.block.name_hint!r} adds to {s.block.writes[0].buffer.name!r} from the threads of {tags[0]} at once: "
                    f"its reduction over {iv.var.name!r} is bound to them, but it has no init to start each thread's part from",
                    hint="bind before decompose_reduction, or do not decompose: a reduction over threads starts by itself",
                )
    if isinstance(s, PrimExpr) or s.identity:
        return
    for c in children(s):
        _updates(c, bound)


def _update(b: t.Block) -> bool:
    """Does the block read what it writes, in memory that threads share?"""
    shared = {w.buffer for w in b.writes if w.buffer.scope() not in ("local", "warp") and "." not in w.buffer.scope()}
    return any(r.buffer in shared for r in b.reads)


def check_local_memory(kernel: t.PrimFunc) -> None:
    """Raise TW0579 where a thread reads local memory that only another thread has written."""
    found = _Local()
    found.visit(kernel.body, False)
    for data, accesses in found.accesses.items():
        if data in found.escaped or len(accesses) > 64:
            continue
        writes = [a for a, _ in accesses if a.kind == WRITE]
        reads = [a for a, guarded in accesses if a.kind == READ and not guarded]
        if not writes or not reads:
            continue
        have = [elements(a) for a in writes]
        if any(x is None for x in have):
            continue
        keys = np.unique(np.concatenate([x for x in have if x is not None]), axis=0)
        own = {tuple(k) for k in keys.tolist()}
        for r in reads:
            need = elements(r)
            if need is None:
                continue
            missing = next((k for k in map(tuple, need.tolist()) if k not in own), None)
            if missing is not None:
                raise DeviceError.at(
                    "TW0579",
                    f"local memory {data.name!r} is each thread's own, but thread {missing[0]} reads element {missing[1]}, which it "
                    "has not written",
                    hint='use "shared" memory for what threads exchange, or let each thread compute what it reads',
                )


class _Local:
    """Finds the accesses to local memory."""

    def __init__(self) -> None:
        self.threads: dict[Var, PrimExpr] = {}
        self.loops: dict[Var, t.Range] = {}
        self.local: set[Any] = set()
        self.escaped: set[Any] = set()
        self.accesses: dict[Any, list[tuple[Access, bool]]] = {}

    def visit(self, n: Any, guarded: bool) -> None:
        if isinstance(n, t.AttrStmt):
            axis = launch(n)
            if axis is not None and axis.tag.startswith("threadIdx"):
                self.threads[axis.var] = axis.extent
        if isinstance(n, t.For):
            self.loops[n.loop_var] = t.Range(n.min, n.extent)
        if isinstance(n, t.Allocate) and scope_of(n.buffer_var) == "local":
            self.local.add(n.buffer_var)
        if isinstance(n, (t.BufferLoad, t.BufferStore)) and n.buffer.data in self.local:
            kind = READ if isinstance(n, t.BufferLoad) else WRITE
            access = Access(kind, n.buffer, n.buffer.data, n.indices, dict(self.threads), dict(self.loops))
            self.accesses.setdefault(n.buffer.data, []).append((access, guarded))
        inside = guarded or isinstance(n, (t.IfThenElse, t.While, Select))
        if isinstance(n, Call):
            inside = inside or not isinstance(n.op, Op) or n.op.name == "tir.if_then_else"
            for a in n.args:
                if isinstance(a, Var) and a in self.local:
                    self.escaped.add(a)
                if getattr(n.op, "name", "") == "tir.address_of" and isinstance(a, t.BufferLoad):
                    self.escaped.add(a.buffer.data)
        if not n.identity:
            for c in children(n):
                if not isinstance(c, t.Buffer):
                    self.visit(c, inside)
