"""What the marks of asynchronous stages become: groups and waits of PTX, or plain copies where a device has no such thing.

with T.attr(0, "async_commit_queue_scope", 0): s          ▶   s; T.ptx_commit_group()
with T.attr(0, "async_wait_queue_scope", 0):
    with T.attr(0, "async_wait_inflight_count", n): s     ▶   T.ptx_wait_group(n); s
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Call, IntImm, PrimExpr
from tilewright.ir.node import replace, walk
from tilewright.ir.op import Op
from tilewright.ir.passes import PassContext
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import target_of
from tilewright.tir.transform.gpu.inject_ptx_async_copy import inject_ptx_async_copy

__all__ = ["async_copies"]

_MARKS = ("async_scope", "async_commit_queue_scope", "async_wait_queue_scope", "async_wait_inflight_count")


def async_copies(f: t.PrimFunc) -> t.PrimFunc:
    """The function without marks of asynchronous stages. For CUDA with the option `tir.use_async_copy`: as PTX."""
    if not any(isinstance(n, t.AttrStmt) and n.attr_key in _MARKS for n in walk(f.body)):
        return f
    target = target_of(f)
    ptx = bool(PassContext.current().config.get("tir.use_async_copy")) and (
        target is not None and target.kind.name == "cuda"
    )
    if ptx:
        f = inject_ptx_async_copy(f)
    return replace(f, body=_Lower(ptx).visit(f.body))


def _ptx(name: str, *args: Any) -> t.Stmt:
    return t.Evaluate(Call("void", Op.get(f"tir.{name}"), args))


class _Lower(Mutator):
    def __init__(self, ptx: bool) -> None:
        self.ptx = ptx

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key not in _MARKS:
            return self.generic(s)
        body = self.visit(s.body)
        if not self.ptx:
            return body
        if s.attr_key == "async_commit_queue_scope":
            return t.seq(body, _ptx("ptx_commit_group"))
        if s.attr_key == "async_wait_inflight_count":
            # the instruction takes a constant; what varies waits for all
            count = s.value if isinstance(s.value, IntImm) else IntImm("int32", 0)
            return t.seq(_ptx("ptx_wait_group", count), body)
        return body
