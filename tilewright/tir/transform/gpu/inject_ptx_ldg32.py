"""Loads from global memory under a condition become predicated 32-bit loads of PTX (CUDA only).

C[i] = T.if_then_else(cond, A[i], 0)    ▶    pred[0] = cond;  value[0] = 0
                                             T.ptx_ldg32(value, pred[0], A[i], 0);  C[i] = value[0]
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Call, FloatImm, IntImm, PrimExpr, cast
from tilewright.ir.node import replace
from tilewright.ir.op import Op
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import allocate, func_pass, local_buffer, target_of

__all__ = ["InjectPTXLDG32", "inject_ptx_ldg32"]


def inject_ptx_ldg32(f: t.PrimFunc) -> t.PrimFunc:
    """The function with `ptx_ldg32` for conditional loads of 32 bits; only for CUDA."""
    target = target_of(f)
    if target is None or target.kind.name != "cuda":
        return f
    run = _Inject()
    body = run.visit(f.body)
    if run.predicate is None:
        return f
    assert run.value is not None
    return replace(f, body=allocate(run.value, allocate(run.predicate, body)))


def InjectPTXLDG32(enable_ptx_ldg32: bool = True) -> Pass:
    """Use predicated loads of PTX; see `inject_ptx_ldg32`. `enable_ptx_ldg32=False`: do nothing."""
    return func_pass("InjectPTXLDG32", inject_ptx_ldg32 if enable_ptx_ldg32 else lambda f: f)


class _Inject(Mutator):
    def __init__(self) -> None:
        self.predicate: t.Buffer | None = None
        self.value: t.Buffer | None = None

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        e: Any = s.value
        if not (isinstance(e, Call) and isinstance(e.op, Op) and e.op.name == "tir.if_then_else"):
            return s
        condition, yes, no = e.args
        zero = isinstance(no, (IntImm, FloatImm)) and no.value == 0
        if not (zero and isinstance(yes, t.BufferLoad) and yes.buffer.scope() == "global" and e.dtype == "float32"):
            return s
        if self.predicate is None or self.value is None:
            self.predicate, self.value = local_buffer("predicate", "bool"), local_buffer("addr", "float32")
        at = IntImm("int32", 0)
        load = Call(e.dtype, Op.get("tir.ptx_ldg32"), (self.value.data, t.BufferLoad(self.predicate, (at,)), yes, at))
        return t.seq(
            t.BufferStore(self.predicate, cast(condition, "bool"), (at,)),
            t.BufferStore(self.value, no, (at,)),
            t.Evaluate(load),
            t.BufferStore(s.buffer, t.BufferLoad(self.value, (at,)), s.indices),
        )
