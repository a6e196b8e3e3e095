"""Calls that are no operators of mathematics: of kernels, and of packed functions.

    call_tir(gv, (a, b), out_sinfo[, tir_vars])   the kernel `gv` of this module, with outputs that the caller allocates
    call_dps_packed("name", (a, b), out_sinfo)    the same of a function of the registry: name(a, b, out)
    call_packed("name", a, b, sinfo_args=...)     a function of the registry that returns its result; may have effects
    call_pure_packed("name", a, b, sinfo_args=...)

`Call(CallTIR(), (gv, Tuple(args)[, ShapeExpr(tir_vars)]), sinfo_args=(out_sinfo,))`: `out_sinfo` is a TensorStructInfo, or a
TupleStructInfo when the kernel has several outputs; `tir_vars` are the symbols that no argument's shape tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.relax.ir import Call, Expr, ExternFunc, GlobalVar, ShapeExpr, Tuple
from tilewright.relax.op import Op, operator
from tilewright.relax.struct_info import ObjectStructInfo, StructInfo, TupleStructInfo
from tilewright.relax.values import convert, make_tuple

__all__ = [
    "CallDPSPacked", "CallPacked", "CallPurePacked", "CallTIR", "CallTIRInplace", "call_dps_packed", "call_function", "call_packed",
    "call_pure_packed", "call_tir", "call_tir_inplace", "is_call_dps_packed", "is_call_packed",
    "is_call_tir", "is_impure",
]  # fmt: skip


@operator
class CallTIR(Op, name="call_tir"):
    """A call of a kernel (a PrimFunc of the module) in destination-passing style."""


@operator
class CallTIRInplace(Op, name="call_tir_inplace"):
    """A call of a kernel that writes some outputs over its inputs: output i over input `inplace_indices[i]` (-1: none)."""

    inplace_indices: tuple[int, ...] = ()


@operator
class CallDPSPacked(Op, name="call_dps_packed"):
    """A call of a registered function in destination-passing style."""


@operator
class CallPacked(Op, name="call_packed"):
    """A call of a registered function, perhaps with effects."""


@operator
class CallPurePacked(Op, name="call_pure_packed"):
    """A call of a registered function without effects."""


_CALL_TIR, _CALL_DPS, _CALL_PACKED, _CALL_PURE = CallTIR(), CallDPSPacked(), CallPacked(), CallPurePacked()


def _arguments(args: Any) -> Tuple:
    if isinstance(args, Tuple):
        return args
    return make_tuple(args if isinstance(args, (tuple, list)) else (args,))


def _result(out_sinfo: StructInfo | Sequence[StructInfo]) -> StructInfo:
    return out_sinfo if isinstance(out_sinfo, StructInfo) else TupleStructInfo(tuple(out_sinfo))


def _symbols(tir_vars: Any) -> tuple[Expr, ...]:
    if tir_vars is None or isinstance(tir_vars, ShapeExpr):
        return () if tir_vars is None or not tir_vars.values else (tir_vars,)
    return (ShapeExpr(tuple(tir_vars)),) if tir_vars else ()


def call_tir(gvar: GlobalVar, args: Any, out_sinfo: StructInfo | Sequence[StructInfo], tir_vars: Any = None) -> Call:
    """The call of a kernel; see the head of the module."""
    si = _result(out_sinfo)
    return Call(_CALL_TIR, (gvar, _arguments(args), *_symbols(tir_vars)), (si,), struct_info=si)  # pyright: ignore


def call_tir_inplace(
    gvar: GlobalVar,
    args: Any,
    inplace_indices: int | Sequence[int],
    out_sinfo: StructInfo | Sequence[StructInfo],
    tir_vars: Any = None,
) -> Call:
    """The call of a kernel that writes outputs over inputs."""
    si = _result(out_sinfo)
    indices = (inplace_indices,) if isinstance(inplace_indices, int) else tuple(inplace_indices)
    return Call(CallTIRInplace(indices), (gvar, _arguments(args), *_symbols(tir_vars)), (si,), struct_info=si)  # pyright: ignore


def _function(func: Any) -> Any:
    return ExternFunc(func) if isinstance(func, str) else func


def call_dps_packed(func: str | ExternFunc, args: Any, out_sinfo: StructInfo | Sequence[StructInfo]) -> Call:
    """The call of a registered function that fills its last arguments."""
    si = _result(out_sinfo)
    return Call(_CALL_DPS, (_function(func), _arguments(args)), (si,), struct_info=si)


def _packed(op: Op, func: Any, args: Sequence[Any], sinfo_args: Any) -> Call:
    infos = (sinfo_args,) if isinstance(sinfo_args, StructInfo) else tuple(sinfo_args or ())
    si = infos[0] if len(infos) == 1 else TupleStructInfo(infos) if infos else ObjectStructInfo()
    return Call(op, (_function(func), *(convert(a) for a in args)), infos, struct_info=si)


def call_packed(func: str | ExternFunc, *args: Any, sinfo_args: Any = None) -> Call:
    """The call of a registered function; without `sinfo_args` nothing is known of its result."""
    return _packed(_CALL_PACKED, func, args, sinfo_args)


def call_pure_packed(func: str | ExternFunc, *args: Any, sinfo_args: Any = None) -> Call:
    """The call of a registered function that has no effects, so that it may be dropped or moved."""
    return _packed(_CALL_PURE, func, args, sinfo_args)


def call_function(func: Any, *args: Any) -> Call:
    """The call of a graph function of the module (by its GlobalVar), or of a variable that holds one."""
    return Call(func, tuple(convert(a) for a in args))


def is_call_tir(e: Any) -> bool:
    """Is it a call of a kernel?"""
    return isinstance(e, Call) and isinstance(e.op, CallTIR)


def is_call_dps_packed(e: Any) -> bool:
    """Is it a destination-passing call of a registered function?"""
    return isinstance(e, Call) and isinstance(e.op, CallDPSPacked)


def is_call_packed(e: Any) -> bool:
    """Is it a call of a registered function that returns its result?"""
    return isinstance(e, Call) and isinstance(e.op, (CallPacked, CallPurePacked))


def is_impure(e: Any, mod: Any = None) -> bool:
    """May evaluating this have effects? Calls of registered functions have, and of functions that say they are not pure."""
    if not isinstance(e, Call):
        return False
    if isinstance(e.op, Op):
        return isinstance(e.op, (CallPacked, CallTIRInplace)) or bool(getattr(e.op, "impure", False))
    if isinstance(e.op, GlobalVar):
        target = mod.functions.get(e.op) if mod is not None else None
        return not getattr(target, "is_pure", True)
    si = getattr(e.op, "struct_info", None)
    return not getattr(si, "purity", False)
