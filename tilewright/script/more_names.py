"""Further names of the `T` namespace: classes, maps of indices, and names of older programs (`T.Ptr`, `T.buffer_decl`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as E
from tilewright.script.namespace import Buffer, DtypeFactory, HandleFactory
from tilewright.tir import ir as tir
from tilewright.tir.index_map import IndexMap

__all__ = ["NAMES", "find", "index_map"]


class PtrFactory(HandleFactory):
    """`T.Ptr(T.int32, "shared")`, `T.Ptr[T.int32]`: what `T.handle("int32", "shared")` is now."""

    def __call__(self, dtype: Any = None, storage_scope: str = "global", *, is_size_var: bool = False) -> Any:
        if isinstance(dtype, DtypeFactory):
            dtype = dtype.dtype
        return super().__call__(dtype, storage_scope, is_size_var=is_size_var)

    def __getitem__(self, args: Any) -> Any:
        return self(*args) if isinstance(args, tuple) else self(args)


def index_map(
    mapping: Callable[..., Any],
    *,
    inverse_index_map: Callable[..., Any] | None = None,
    index_dtype: str = "int64",
) -> IndexMap:
    """`T.index_map(lambda i, j: (j, i // 4, i % 4))`"""
    names = getattr(mapping, "names", None)
    if names is None:
        return IndexMap.from_func(mapping, inverse_index_map=inverse_index_map, index_dtype=index_dtype)
    variables = [E.Var(n, index_dtype) for n in names]
    result = mapping(*variables)
    final = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    inverse = None if inverse_index_map is None else index_map(inverse_index_map, index_dtype=index_dtype)
    return IndexMap(
        variables, [E.convert(e) if isinstance(e, E.PrimExpr) else E.const(e, index_dtype) for e in final], inverse
    )


def _logical(name: str) -> Callable[..., Any]:
    build = getattr(E, name)

    def call(*args: Any) -> Any:
        return build(*map(E.convert, args))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = build.__doc__
    return call


def _from_builder(name: str) -> Any:
    from tilewright.script import ir_builder

    return vars(ir_builder.tir)[name]


NAMES: dict[str, Any] = {
    "buffer_decl": Buffer,
    "Ptr": PtrFactory(),
    "index_map": index_map,
    "IndexMap": IndexMap,
    "boolean": DtypeFactory("bool"),
    "logical_and": _logical("logical_and"),
    "logical_or": _logical("logical_or"),
    "logical_not": _logical("logical_not"),
    "PrimExpr": E.PrimExpr,
    **{
        c.__name__: c
        for c in (tir.BufferLoad, tir.BufferStore, tir.IterVar, tir.ProducerLoad, tir.Block, tir.For, tir.AttrStmt)
    },
}
"""The names."""


def find(name: str) -> Any:
    """The object of that name; None where there is none. `T.arg`, `T.func_name`, `T.func_ret` are those of IRBuilder."""
    if name in ("arg", "func_name", "func_ret"):
        return _from_builder(name)
    return NAMES.get(name)
