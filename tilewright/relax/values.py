"""Making graph expressions of Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.arith.expr import PrimExpr
from tilewright.ir import dtype as dt
from tilewright.ir.op import BaseExpr
from tilewright.relax.ir import Constant, DataflowVar, Expr, PrimValue, ShapeExpr, StringImm, Tuple, Var
from tilewright.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo

if TYPE_CHECKING:
    from tilewright.support.span import Span

__all__ = ["array", "const", "convert", "make_tuple", "make_var", "var"]


def array(value: Any, dtype: str | None = None) -> np.ndarray[Any, Any]:
    """`value` as a numpy array of `dtype`; Python floats become float32 and ints int32 (int64 where they do not fit)."""
    if dtype is not None:
        return np.ascontiguousarray(np.asarray(value, dtype=dt.to_numpy(dtype))).reshape(np.shape(value))
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if hasattr(value, "numpy"):
        return np.asarray(value.numpy())
    made = np.asarray(value)
    if made.dtype == np.float64:
        return made.astype(np.float32)
    if made.dtype == np.int64:
        small = made.astype(np.int32)
        return small if np.array_equal(small, made) else made
    return made


def const(value: Any, dtype: str | None = None) -> Constant:
    """A tensor constant of a number, a nested list or an array. See `array` for the dtype when none is given."""
    return Constant(array(value, dtype))


def make_tuple(fields: Sequence[Any]) -> Tuple:
    """A tuple expression; its struct info is known if that of every field is."""
    items = tuple(convert(f) for f in fields)
    infos = [f.struct_info for f in items]
    known = [si for si in infos if si is not None]
    return Tuple(items, struct_info=TupleStructInfo(tuple(known)) if len(known) == len(infos) else None)


def convert(value: Any) -> Any:
    """`value` as a graph expression.

    Expressions stay; a numpy array (anything with `.numpy()`) becomes a Constant, a number or scalar expression a
    PrimValue, a string a StringImm, a sequence of numbers and scalar expressions a ShapeExpr, another sequence a Tuple.
    Raises TypeError on anything else.
    """
    if isinstance(value, (Expr,)):
        return value
    if isinstance(value, PrimExpr):
        return PrimValue(value)
    if isinstance(value, BaseExpr):  # a GlobalVar, a function
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return Constant(np.asarray(value))
    if isinstance(value, (bool, int, float)):
        return PrimValue(value)
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, (tuple, list)):
        items: Sequence[Any] = value  # pyright: ignore[reportUnknownVariableType]
        if all(isinstance(v, (int, PrimExpr, np.integer)) for v in items):
            return ShapeExpr(tuple(int(v) if isinstance(v, np.integer) else v for v in items))
        return make_tuple(items)
    if hasattr(value, "numpy"):
        return Constant(np.asarray(value.numpy()))
    raise TypeError(f"cannot make a graph expression of {value!r} ({type(value).__name__})")


def var(name: str, shape: Any = None, dtype: str = "float32", *, struct_info: StructInfo | None = None) -> Var:
    """A variable: a tensor of `shape` and `dtype`, or of the given struct info."""
    return Var(name_hint=name, struct_info=struct_info or TensorStructInfo(shape, dtype))


def make_var(name: str, struct_info: StructInfo | None, dataflow: bool = False, span: Span | None = None) -> Var:
    """A new variable, of a dataflow block or not."""
    made: Any = (DataflowVar if dataflow else Var)(name_hint=name, struct_info=struct_info)
    made.span = span
    return made
