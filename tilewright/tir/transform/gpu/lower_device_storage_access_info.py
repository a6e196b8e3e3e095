"""Memory with a description of its own (`tvm.info.mem.<scope>`) is not allocated: the host sees it at its address, or not at all."""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import PrimExpr
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.runtime.registry import get_global_func
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import func_pass
from tilewright.tir.transform.gpu.thread_sync import scope_of

__all__ = ["LowerDeviceStorageAccessInfo", "lower_device_storage_access_info"]


def lower_device_storage_access_info(f: t.PrimFunc) -> t.PrimFunc:
    """The function without allocations of memory that has a description."""
    body = _Lower().visit(f.body)
    return f if body is f.body else replace(f, body=body)


def LowerDeviceStorageAccessInfo() -> Pass:
    """Replace allocations of described memory by its address; see `lower_device_storage_access_info`."""
    return func_pass("LowerDeviceStorageAccessInfo", lower_device_storage_access_info)


def memory_info(scope: str) -> Any:
    """The description of a tagged memory scope, or None."""
    if scope.count(".") == 0 or scope in ("shared.dyn",):
        return None
    make = get_global_func(f"tvm.info.mem.{scope}", allow_missing=True)
    return None if make is None else make()


class _Lower(Mutator):
    def __init__(self) -> None:
        self.gone: set[Any] = set()

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        info = memory_info(scope_of(s.buffer_var))
        if info is None:
            return self.generic(s)
        address = getattr(info, "head_address", None)
        if address is None:
            self.gone.add(s.buffer_var)
            return self.visit(s.body)
        return t.LetStmt(s.buffer_var, address, self.visit(s.body))

    def visit_DeclBuffer(self, s: t.DeclBuffer) -> t.Stmt:
        body = self.visit(s.body)
        if s.buffer.data in self.gone:
            return body
        return s if body is s.body else replace(s, body=body)
