"""Who calls whom among the loop programs of a module."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tilewright.arith.expr import Call
from tilewright.ir.module import attrs_of
from tilewright.ir.op import GlobalVar
from tilewright.ir.rewrite import collect
from tilewright.tir.ir import PrimFunc

__all__ = ["called_functions", "is_private"]


def called_functions(functions: Iterable[PrimFunc]) -> set[str]:
    """The names of the module's functions that these call directly."""
    calls = (c for f in functions for c in collect(f.body, Call))
    return {c.op.name_hint for c in calls if isinstance(c.op, GlobalVar)}


def is_private(f: PrimFunc, name: str, called: Collection[str]) -> bool:
    """Is the function for other functions of its module only: marked so, or without a symbol and called by one?"""
    attrs = attrs_of(f)
    return bool(attrs.get("tir.is_private")) or ("global_symbol" not in attrs and name in called)
