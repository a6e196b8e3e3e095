"""Tensor-core fragments get their shape and layout from the intrinsics that use them, as attributes of their memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.arith.expr import Call, IntImm, PrimExpr, StringImm, Var
from tilewright.ir.node import replace, walk
from tilewright.ir.op import Op
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, func_pass
from tilewright.tir.transform.gpu.thread_sync import scope_of

__all__ = ["InferFragment", "infer_fragment"]


class _Fragment(NamedTuple):
    shape: tuple[int, int, int]
    layout: str


def infer_fragment(f: t.PrimFunc) -> t.PrimFunc:
    """The function with `fragment_shape` and `fragment_layout` around the memory of tensor-core fragments.

    Raises TW0576 where two intrinsics use one fragment with different shapes or layouts.
    """
    found = _fragments(f)
    if not found:
        return f
    body = _Annotate(found).visit(f.body)
    return replace(f, body=body)


def InferFragment() -> Pass:
    """Annotate the memory of tensor-core fragments; see `infer_fragment`."""
    return func_pass("InferFragment", infer_fragment)


_NAMES = ("tir.tvm_load_matrix_sync", "tir.tvm_store_matrix_sync", "tir.tvm_fill_fragment")


def _fragments(f: t.PrimFunc) -> dict[Var, _Fragment]:
    found: dict[Var, _Fragment] = {}
    for n in walk(f.body):
        name = n.op.name if isinstance(n, Call) and isinstance(n.op, Op) else ""
        if isinstance(n, Call) and name in _NAMES and isinstance(n.args[0], Var):
            sizes = [x.value if isinstance(x, IntImm) else 0 for x in n.args[1:4]]
            layout = ""
            if name != "tir.tvm_fill_fragment" and scope_of(n.args[0]) in ("wmma.matrix_a", "wmma.matrix_b"):
                last: Any = n.args[7]
                layout = last.value if isinstance(last, StringImm) else ""
            _same(found, n.args[0], _Fragment((sizes[0], sizes[1], sizes[2]), layout))
    for n in walk(f.body):
        if isinstance(n, Call) and isinstance(n.op, Op) and n.op.name in ("tir.tvm_mma_sync", "tir.tvm_bmma_sync"):
            shapes = {found[v].shape for v in n.args[0::2] if isinstance(v, Var) and v in found}
            if len(shapes) > 1:
                raise DeviceError.at(
                    "TW0576", f"a tensor-core product uses fragments of different shapes: {sorted(shapes)}"
                )
    return found


def _same(found: dict[Var, _Fragment], v: Var, new: _Fragment) -> None:
    old = found.setdefault(v, new)
    if old.shape != new.shape or (old.layout and new.layout and old.layout != new.layout):
        raise DeviceError.at(
            "TW0576", f"fragment {v.name!r} is used as {old.shape} {old.layout} and as {new.shape} {new.layout}"
        )  # fmt: skip


class _Annotate(Mutator):
    def __init__(self, found: dict[Var, _Fragment]) -> None:
        self.found = found

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Allocate(self, s: t.Allocate) -> t.Stmt:
        new: t.Stmt = self.generic(s)
        info = self.found.get(s.buffer_var)
        if info is None:
            return new
        new = t.AttrStmt(s.buffer_var, "fragment_shape", StringImm(", ".join(map(str, info.shape))), new)
        return t.AttrStmt(s.buffer_var, "fragment_layout", StringImm(info.layout), new) if info.layout else new
