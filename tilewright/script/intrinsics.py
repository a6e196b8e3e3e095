"""Which dtype a named intrinsic gives, so that `T.exp(x)` needs no dtype and prints without one.

A rule is the index of the argument whose dtype is taken over, or a dtype. An intrinsic with no rule here (or whose call
has another dtype than its rule says) is written `T.call_intrin("float32", "tir.name", ...)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.expr import PrimExpr
from tilewright.ir import dtype as dt

__all__ = ["DTYPE_FIRST", "RULES", "intrinsic_dtype"]

_LIKE_FIRST = """
    exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt rsqrt sigmoid
    erf erfc tgamma lgamma abs fabs floor ceil round nearbyint rint trunc pow fmod atan2 copysign hypot ldexp nextafter
    popcount likely bitwise_and bitwise_or bitwise_xor bitwise_not shift_left shift_right ret fma q_multiply_shift
    q_multiply_shift_per_axis vscale_like tvm_warp_shuffle_like
"""

RULES: dict[str, int | str] = {
    **dict.fromkeys(_LIKE_FIRST.split(), 0),
    "if_then_else": 1,
    "isnan": "bool",
    "isinf": "bool",
    "isfinite": "bool",
    "isnullptr": "bool",
    "clz": "int32",
    "address_of": "handle",
    "call_packed": "int32",
    "call_packed_lowered": "int32",
    "tvm_call_packed": "int32",
    "tvm_access_ptr": "handle",
    "tvm_storage_sync": "int32",
    "tvm_thread_allreduce": "handle",
    "tvm_stack_alloca": "handle",
    "type_annotation": "void",
    "tw_raise": "int32",
    "break_loop": "void",
    "continue_loop": "void",
    "assume": "bool",
    "undef": "int32",
    "vscale": "int32",
}
"""Rule by name without the `tir.` prefix."""

DTYPE_FIRST = frozenset(
    "reinterpret call_extern call_pure_extern call_llvm_intrin call_llvm_pure_intrin call_spirv_pure_glsl450 "
    "tvm_struct_get vectorlow vectorhigh vectorcombine large_uint_imm lookup_param".split()
)
"""Intrinsics that are written with the dtype as their first argument."""


def intrinsic_dtype(name: str, args: Sequence[Any]) -> str | None:
    """The dtype that `T.<name>(*args)` has by its rule; None without a rule."""
    rule = RULES.get(name)
    if rule is None or isinstance(rule, str):
        if rule == "bool" and args and isinstance(args[0], PrimExpr) and dt.lanes(args[0].dtype) > 1:
            return dt.with_lanes("bool", dt.lanes(args[0].dtype))
        return rule
    if rule >= len(args) or not isinstance(args[rule], PrimExpr):
        return None
    return args[rule].dtype
