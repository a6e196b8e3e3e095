"""Operators become calls of kernels: `Op.lower`, by default one kernel made of `Op.compute`.

Operators on compact tensors that change the shape only (reshape and its like) stay: the host function makes views of them.
An operator made of others (`lower` builds calls) is legalised to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass, PassContext
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.calls import CallDPSPacked, CallPacked, CallPurePacked, CallTIR, CallTIRInplace
from tilewright.relax.dims import Assumptions, collect_assumptions, difference
from tilewright.relax.ir import Call, Expr, Var
from tilewright.relax.op import Op
from tilewright.relax.rewrite import GraphMutator
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, describe
from tilewright.support.diagnostics import CompileError, Diagnostic

__all__ = ["KEPT", "VIEWS", "legalise", "legalise_ops"]

VIEWS = frozenset(["reshape", "expand_dims", "squeeze", "flatten"])
"""Operators that a row-major tensor undergoes without moving an element."""

KEPT = (CallTIR, CallTIRInplace, CallDPSPacked, CallPacked, CallPurePacked)
"""What is legal already."""

Lowering = Callable[..., Expr]


def is_view(call: Any) -> bool:
    """Is it a change of shape of a compact tensor, with a result whose shape is known?"""
    if not isinstance(call, Call) or getattr(call.op, "name", "") not in VIEWS:
        return False
    si = call.struct_info
    return isinstance(si, TensorStructInfo) and si.shape is not None


class _Builder(BlockBuilder):
    """A builder that legalises every call it is given."""

    lowerings: Mapping[str, Lowering] = {}

    def normal(self, expr: Any) -> Any:
        made = super().normal(expr)
        if isinstance(made, Call) and isinstance(made.op, Op) and not isinstance(made.op, KEPT) and not is_view(made):
            return self.legalise(made)
        return made

    def legalise(self, call: Call) -> Any:
        """The call of a kernel (or what else it becomes) for a call of an operator."""
        custom = self.lowerings.get(call.op.name)
        try:
            with collect_assumptions(Assumptions()):  # inference checked them already
                lowered = custom(self, call) if custom else call.op.lower(self, *call.args)
        except CompileError as e:
            raise CompileError(*(_in_operator(d, call) for d in e.diagnostics)) from None
        made = self.normal(lowered)
        return _with_info(made, call)


def _in_operator(d: Diagnostic, call: Call) -> Diagnostic:
    from dataclasses import replace as copy

    name = call.op.name
    return copy(d, message=d.message if name in d.message else f"{name}: {d.message}", span=d.span or call.span)


def _with_info(made: Any, call: Call) -> Any:
    """The kernel call with what inference knew of the result, which is what the rest of the function relies on."""
    known, found = call.struct_info, getattr(made, "struct_info", None)
    if found is known or known is None:
        return made
    if _contradict(known, found):
        raise CompileError.at(
            "TW0290",
            f"{call.op.name}: the kernel gives {describe(found)}, but inference said {describe(known)}",
            call.span,
            hint="this is a fault of the operator's definition; please report it",
        )
    if isinstance(made, Call) and made.sinfo_args and _has_shape(known):
        return replace(made, sinfo_args=(known,), struct_info=known, span=call.span or made.span)
    return made


def _has_shape(si: StructInfo | None) -> bool:
    if isinstance(si, TupleStructInfo):
        return all(_has_shape(f) for f in si.fields)
    return isinstance(si, TensorStructInfo) and si.shape is not None and bool(si.dtype)


def _contradict(a: StructInfo | None, b: StructInfo | None) -> bool:
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        return len(a.fields) != len(b.fields) or any(map(_contradict, a.fields, b.fields))
    if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo):
        if (a.dtype and b.dtype and a.dtype != b.dtype) or (a.ndim >= 0 and b.ndim >= 0 and a.ndim != b.ndim):
            return True
        return any(difference(x, y) not in (0, None) for x, y in zip(a.shape or (), b.shape or ()))
    return type(a) is not type(b)


class _Legaliser(GraphMutator):
    def __init__(self, mod: IRModule, lowerings: Mapping[str, Lowering]) -> None:
        super().__init__(mod)
        self.bb: _Builder = _Builder(mod)
        self.bb.lowerings = lowerings

    def call(self, call: Call, var: Var) -> Expr:
        if not isinstance(call.op, Op) or isinstance(call.op, KEPT) or is_view(call):
            return call
        return self.bb.legalise(call)


def legalise_ops(customize_legalize_map: Mapping[str, Lowering] | None = None) -> Pass:
    """The pass LegalizeOps. `customize_legalize_map`: operator name (`relax.nn.relu` or `nn.relu`) to `f(bb, call) -> expr`."""
    table = {k.removeprefix("relax."): f for k, f in (customize_legalize_map or {}).items()}

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        return _Legaliser(mod, table).run()

    return Pass(run, "LegalizeOps", needs="graph", gives="legal", ends="graph", doc=__doc__)


legalise = legalise_ops()
"""LegalizeOps without changes to any operator's lowering."""
