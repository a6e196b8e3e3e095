"""The objects of the `T` namespace that are both callable and annotations: dtypes, handles, buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir import dtype as dt
from tilewright.ir.op import PointerType, PrimType, Type
from tilewright.tir import ir as tir

__all__ = ["Buffer", "BufferFactory", "DtypeFactory", "HandleFactory", "make_buffer"]


class DtypeFactory:
    """`T.int32`: as an annotation the dtype of a parameter; `T.int32()` a new variable; `T.int32(x)` a constant or a cast."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __call__(self, value: Any = None, is_size_var: bool = False) -> Any:
        if value is None:
            return (E.SizeVar if is_size_var else E.Var)("", self.dtype)
        if isinstance(value, E.PrimExpr):
            return E.cast(value, self.dtype)
        if isinstance(value, str):
            value = float(value)
        if dt.is_float(self.dtype) and dt.lanes(self.dtype) == 1:
            return E.FloatImm(self.dtype, float(value))
        if not isinstance(value, int) and not hasattr(value, "__index__"):
            if float(value) != int(value):
                raise ValueError(f"{value!r} is no {self.dtype}")
        base = dt.element(self.dtype)
        if (
            not dt.is_bool(base)
            and not dt.is_float(base)
            and not dt.min_value(base) <= int(value) <= dt.max_value(base)
        ):
            raise ValueError(f"{value} is out of the range of {base}")
        return E.const(value, self.dtype)

    def __str__(self) -> str:
        return self.dtype

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


class HandleFactory:
    """`T.handle`: an annotation; `T.handle()`, `T.handle("float32", "shared")`: a new pointer variable, or an annotation."""

    dtype = "handle"

    def __call__(self, dtype: Any = None, storage_scope: str = "global", *, is_size_var: bool = False) -> Any:
        del is_size_var
        if dtype is None:
            return E.Var("", "handle")
        if isinstance(dtype, E.PrimExpr) and not isinstance(dtype, E.Var):
            return E.cast(dtype, "handle")
        element: Type = PrimType(str(dtype))
        if isinstance(dtype, E.Var):  # T.handle(T.handle("float32"))
            element = dtype.type_annotation or PrimType("handle")
        return E.Var("", "handle", PointerType(element, storage_scope))

    def __str__(self) -> str:
        return "handle"

    def __repr__(self) -> str:
        return "T.handle"


def make_buffer(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = (),
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 64,
    offset_factor: int = 0,
    axis_separators: Any = (),
    *,
    is_view: bool = False,
) -> tir.Buffer:
    """A buffer without a name yet (the parser gives it that of its variable).

    A buffer begins at offset 0 unless it says otherwise; of a view, 0 said so is a claim that passes check.
    """
    dims = shape if isinstance(shape, (tuple, list)) else (shape,)
    dtype = dt.canonical(str(dtype))
    dt.parse(dtype)
    pointer = data if data is not None else E.pointer_var("", dtype, scope or "global")
    shape = tuple(_dim(d) for d in dims)  # pyright: ignore[reportUnknownArgumentType]
    if elem_offset is None and offset_factor:  # it begins anywhere
        elem_offset = E.Var("elem_offset", shape[0].dtype if shape else "int32")
    start = None if elem_offset is None else E.convert(elem_offset)
    return tir.Buffer(
        pointer,
        dtype,
        shape,
        tuple(_stride(s) for s in (strides or ())),
        None if isinstance(start, E.IntImm) and start.value == 0 and not is_view else start,
        "",
        64 if align <= 0 else align,
        0 if offset_factor == 1 else offset_factor,
        tuple(int(a) for a in axis_separators or ()),
    )


def _stride(s: Any) -> E.PrimExpr:
    """A stride; a string is a new variable of that name."""
    return E.Var(s, "int32") if isinstance(s, str) else _dim(s)


def _dim(d: Any) -> E.PrimExpr:
    if isinstance(d, str):
        raise TypeError(f"the dimension {d!r} is a string: declare it by {d} = T.int32() and use T.match_buffer")
    e = E.convert(d)
    if not dt.is_int(e.dtype):
        raise TypeError(f"a dimension is an integer, not {e.dtype}")
    return e


class BufferFactory:
    """`T.Buffer((n, m), "float32")`, or `T.Buffer[(n, m), "float32"]`: a buffer, as a parameter's annotation or a value."""

    def __call__(
        self,
        shape: Any,
        dtype: Any = "float32",
        data: Any = None,
        strides: Sequence[Any] = (),
        elem_offset: Any = None,
        scope: str = "global",
        align: int = 64,
        offset_factor: int = 0,
        buffer_type: str = "",
        axis_separators: Sequence[int] = (),
    ) -> tir.Buffer:
        del buffer_type
        return make_buffer(shape, dtype, data, strides, elem_offset, scope, align, offset_factor, axis_separators)

    def __getitem__(self, args: Any) -> tir.Buffer:
        if isinstance(args, tuple) and len(args) == 2 and isinstance(args[1], str):  # pyright: ignore[reportUnknownArgumentType]
            return self(args[0], args[1])
        return self(args)


Buffer = BufferFactory()
