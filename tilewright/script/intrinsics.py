"""How intrinsics are called in script: `T.exp(x)`, `T.call_extern("int32", "f", x)`, or by their full name.

`T.<name>` is the builder of that name in `tir/build.py` or `tir/build_calls.py`, which converts numbers and chooses the dtype. A
call that its builder would not make exactly so is written `T.call_intrin("float32", "tir.name", ...)`. Programs may say the
dtype of any intrinsic by `dtype=`; where the intrinsic itself decides it, that is only a comment.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilewright.tir import build, intrin
from tilewright.tir.build_calls import CALLS, DTYPE_FIRST_CALLS, call_dtype
from tilewright.tir.intrin_calls import SIGNATURES

__all__ = ["BUILDERS", "DTYPE_FIRST", "find"]

DTYPE_FIRST = DTYPE_FIRST_CALLS | {
    "reinterpret", "call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin", "vectorlow", "vectorhigh",
    "vectorcombine", "call_intrin",
}  # fmt: skip
"""Intrinsics whose dtype the caller chooses: it is their first argument in script."""

BUILDERS: dict[str, Callable[..., Any]] = {
    **CALLS,
    **{name: getattr(build, name) for name in build.__all__ if f"tir.{name}" in intrin.INTRINSICS},
}
"""The builders by the name of the intrinsic, without its prefix."""


def _argument(a: Any) -> Any:
    """An argument of an intrinsic: an axis is its variable."""
    from tilewright.tir.ir import IterVar

    return a.var if isinstance(a, IterVar) else a


def find(name: str) -> Callable[..., Any] | None:
    """`T.<name>`: the builder, taking `dtype=` as well; None where there is none."""
    build_ = BUILDERS.get(name) or (getattr(build, name) if name in build.__all__ else None)
    if build_ is None:
        return None
    if name in DTYPE_FIRST:

        @functools.wraps(build_)
        def with_dtype(*args: Any, **kwargs: Any) -> Any:
            if "dtype" in kwargs:
                return build_(call_dtype(kwargs.pop("dtype")), *map(_argument, args), **kwargs)
            return build_(call_dtype(args[0]), *map(_argument, args[1:]), **kwargs) if args else build_(**kwargs)

        return with_dtype
    if _says_dtype(name, build_):
        return build_

    @functools.wraps(build_)
    def plain(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("dtype", None)
        return build_(*map(_argument, args), **kwargs)

    return plain


def _says_dtype(name: str, build_: Callable[..., Any]) -> bool:
    """Does the builder have a parameter `dtype` of its own, or is it no plain function?"""
    if name in CALLS:
        return any(p == "dtype" for p, _ in SIGNATURES[name].params)
    code = getattr(build_, "__code__", None)
    return code is None or "dtype" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
