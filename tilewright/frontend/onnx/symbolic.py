"""Shape arithmetic at import time: small integer tensors whose elements are known as formulas of the dimensions.

Exporters compute shapes with tensor operators (Shape, Gather, Concat, Mul, ... -> Reshape). Here such a tensor is a
`Symbolic`: a numpy array of objects, each an int, a bool, or a PrimExpr, so that an operator on it is the numpy function of
its name and everything that feeds a Reshape becomes a formula of the input's dimensions. One that is needed as a real
tensor is made by a kernel (`convert.Importer.tensor`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arith import expr as e
from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.ir import dtype as dt
from tilewright.relax.dims import simplify_dim

__all__ = ["LIMIT", "SYMBOLIC", "Symbolic", "clean", "evaluate"]

LIMIT = 256
"""Tensors of more elements are not taken for shapes."""

Objects = NDArray[Any]


class Symbolic:
    """A tensor whose elements are known as expressions: `values` (an object array) and the ONNX dtype."""

    __slots__ = ("dtype", "values")

    def __init__(self, values: Objects, dtype: str = "int64") -> None:
        self.values, self.dtype = clean(values), dtype

    def __repr__(self) -> str:
        return f"Symbolic({self.values.tolist()}, {self.dtype})"

    @property
    def known(self) -> NDArray[Any] | None:
        """The plain array, if no element depends on a dimension."""
        if any(isinstance(v, PrimExpr) for v in self.values.flat):
            return None
        return self.values.astype(dt.to_numpy(self.dtype))


def clean(values: Any) -> Objects:
    """Constants among the elements as Python numbers, formulas simplified."""
    out = np.empty(np.shape(values), dtype=object)
    flat = np.asarray(values, dtype=object).reshape(-1)
    for i, v in enumerate(flat):
        out.reshape(-1)[i] = _simple(v)
    return out


def _simple(v: Any) -> Any:
    if isinstance(v, PrimExpr):
        v = simplify_dim(v) if v.dtype in ("int64", "int32") else v
        if isinstance(v, IntImm):
            return bool(v.value) if v.dtype == "bool" else v.value
        return v.value if isinstance(v, e.FloatImm) else v
    return v.item() if isinstance(v, np.generic) else v


def _elementwise(f: Callable[..., Any]) -> Callable[..., Objects]:
    """`f` on each element, operands broadcast."""

    def apply(n: Any, *arrays: Objects) -> Objects:
        del n
        return np.frompyfunc(f, len(arrays), 1)(*arrays)

    return apply


def _variadic(f: Callable[[Any, Any], Any]) -> Callable[..., Objects]:
    def apply(n: Any, *arrays: Objects) -> Objects:
        del n
        pairwise: Any = np.frompyfunc(f, 2, 1)
        return reduce(pairwise, arrays)

    return apply


def _div(a: Any, b: Any) -> Any:
    """Integers truncate in ONNX; dimensions are not negative, so a formula may round down."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if isinstance(a, float) or isinstance(b, float) or _is_float(a) or _is_float(b):
        return _as_float(a) / _as_float(b)
    return e.floordiv(a, b)


def _is_float(v: Any) -> bool:
    return isinstance(v, float) or (isinstance(v, PrimExpr) and dt.is_float(v.dtype))


def _as_float(v: Any) -> Any:
    return e.cast(v, "float64") if isinstance(v, PrimExpr) else float(v)


def _to_int(v: Any) -> Any:
    """A float formula as an integer one (truncated), where it is exact on non-negative values: (float(d) * 2.0) is d * 2."""
    if isinstance(v, (int, float)):
        return int(v)
    if not _is_float(v):
        return e.cast(v, "int64")
    match v:
        case e.Cast(_, inner) if dt.is_int(inner.dtype):
            return e.cast(inner, "int64")
        case e.Mul(a, e.FloatImm(_, c)) | e.Mul(e.FloatImm(_, c), a) if _whole(a) is not None:
            exact = _scaled(_whole(a), c)
            return exact if exact is not None else e.cast(v, "int64")
        case e.Div(a, e.FloatImm(_, c)) if _whole(a) is not None and float(c).is_integer() and c > 0:
            return e.floordiv(_whole(a), int(c))
        case e.Call(_, op, (a,)) if getattr(op, "name", "") == "tir.floor":
            return _to_int(a)
        case _:
            return e.cast(v, "int64")


def _whole(v: PrimExpr) -> Any:
    """The integer that a float formula is the conversion of, or None."""
    match v:
        case e.Cast(_, inner) if dt.is_int(inner.dtype):
            return e.cast(inner, "int64")
        case e.FloatImm(_, value) if float(value).is_integer():
            return int(value)
        case e.Mul(a, b) if _whole(a) is not None and _whole(b) is not None:
            return e.mul(_whole(a), _whole(b))
        case _:
            return None


def _scaled(a: Any, c: float) -> Any:
    if float(c).is_integer():
        return e.mul(a, int(c))
    if c > 0 and float(1 / c).is_integer() and 1 / (1 / c) == c and np.log2(1 / c).is_integer():
        return e.floordiv(a, int(1 / c))  # a power of two: the float product is exact
    return None


def _floor(v: Any) -> Any:
    if isinstance(v, PrimExpr):
        return e.call_intrin(v.dtype, "tir.floor", v) if _is_float(v) else v
    return float(np.floor(v))


def _ceil(v: Any) -> Any:
    if isinstance(v, PrimExpr):
        return e.call_intrin(v.dtype, "tir.ceil", v) if _is_float(v) else v
    return float(np.ceil(v))


def _compare(kind: type[e.CmpOp]) -> Callable[..., Objects]:
    return _elementwise(lambda a, b: e.cmp(kind, _same_kind(a, b), b) if _formula(a, b) else e.cmp(kind, a, b))


def _same_kind(a: Any, b: Any) -> Any:
    return e.convert(a, b.dtype) if isinstance(b, PrimExpr) and not isinstance(a, PrimExpr) else a


def _formula(*values: Any) -> bool:
    return any(isinstance(v, PrimExpr) for v in values)


def _min(a: Any, b: Any) -> Any:
    return e.minimum(a, b) if _formula(a, b) else min(a, b)


def _max(a: Any, b: Any) -> Any:
    return e.maximum(a, b) if _formula(a, b) else max(a, b)


def _mod(a: Any, b: Any) -> Any:
    return e.floormod(a, b) if _formula(a, b) else a % b


def _cast(n: Any, x: Objects) -> Objects:
    target = n.dtype_attr("to")
    if dt.is_float(target):
        f: Callable[[Any], Any] = _as_float
    elif dt.is_bool(target):
        f = lambda v: v if isinstance(v, PrimExpr) and v.dtype == "bool" else e.cmp(e.NE, v, 0)  # noqa: E731
    else:
        f = _to_int
    n.result_dtype = target
    return np.asarray(np.frompyfunc(f, 1, 1)(x), dtype=object)


def _gather(n: Any, x: Objects, index: Objects) -> Objects:
    return np.take(x, index.astype(np.int64), axis=n.attr("axis", 0))


def _concat(n: Any, *xs: Objects) -> Objects:
    return np.concatenate(xs, axis=n.attr("axis"))


def _axes(n: Any, given: Objects | None, attribute: str = "axes") -> tuple[int, ...] | None:
    if given is not None:
        return tuple(int(a) for a in given.reshape(-1))
    found = n.attr(attribute, None)
    return None if found is None else tuple(found)


def _squeeze(n: Any, x: Objects, axes: Objects | None = None) -> Objects:
    return np.squeeze(x, axis=_axes(n, axes))


def _unsqueeze(n: Any, x: Objects, axes: Objects | None = None) -> Objects:
    found = _axes(n, axes) or ()
    rank = x.ndim + len(found)
    for a in sorted(a % rank for a in found):
        x = np.expand_dims(x, a)
    return x


def _slice(n: Any, x: Objects, starts: Objects | None = None, ends: Objects | None = None, axes: Objects | None = None,
           steps: Objects | None = None) -> Objects:  # fmt: skip
    begin, end = _axes(n, starts, "starts") or (), _axes(n, ends, "ends") or ()
    where = _axes(n, axes) or tuple(range(len(begin)))
    step = _axes(n, steps, "steps") or (1,) * len(begin)
    index = [slice(None)] * x.ndim
    for a, b, f, s in zip(where, begin, end, step):
        index[a] = slice(b, None if s < 0 and f < -(2**31) else f, s)
    return x[tuple(index)]


def _reduce(f: Callable[[Any, Any], Any], unit: Any) -> Callable[..., Objects]:
    def apply(n: Any, x: Objects, axes: Objects | None = None) -> Objects:
        found = _axes(n, axes) or tuple(range(x.ndim))
        keep = bool(n.attr("keepdims", 1))
        out: Any = x
        for a in sorted((a % max(x.ndim, 1) for a in found), reverse=True):
            parts = [np.take(out, i, axis=a) for i in range(out.shape[a])]
            out = np.asarray(reduce(np.frompyfunc(f, 2, 1), parts) if parts else np.full(1, unit), dtype=object)
            out = np.expand_dims(out, a) if keep else out
        return out

    return apply


def _reshape(n: Any, x: Objects, shape: Objects) -> Objects:
    new = [int(d) for d in shape.reshape(-1)]
    if not n.attr("allowzero", 0):
        new = [x.shape[i] if d == 0 else d for i, d in enumerate(new)]
    return x.reshape(new)


def _range(n: Any, start: Objects, limit: Objects, delta: Objects) -> Objects:
    del n
    return np.arange(int(start), int(limit), int(delta)).astype(object)


def _constant_of_shape(n: Any, shape: Objects) -> Objects:
    value = n.attr("value", None)
    n.result_dtype = "float32" if value is None else str(value.dtype)
    return np.full(tuple(int(d) for d in shape), 0.0 if value is None else value.reshape(()).item(), dtype=object)


def _where(c: Any, a: Any, b: Any) -> Any:
    if isinstance(c, PrimExpr):
        return e.select(c, e.convert(a, "int64"), e.convert(b, "int64"))
    return a if c else b


def _expand(n: Any, x: Objects, shape: Objects) -> Objects:
    del n
    target = tuple(int(d) for d in shape)
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, target))


SYMBOLIC: dict[str, Callable[..., Objects]] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Div": _elementwise(_div),
    "Mod": _elementwise(_mod),
    "Neg": _elementwise(lambda a: -a),
    "Abs": _elementwise(lambda a: _max(a, -a)),
    "Floor": _elementwise(_floor),
    "Ceil": _elementwise(_ceil),
    "Min": _variadic(_min),
    "Max": _variadic(_max),
    "Sum": _variadic(lambda a, b: a + b),
    "Equal": _compare(e.EQ),
    "Less": _compare(e.LT),
    "LessOrEqual": _compare(e.LE),
    "Greater": _compare(e.GT),
    "GreaterOrEqual": _compare(e.GE),
    "Not": _elementwise(e.logical_not),
    "And": _elementwise(e.logical_and),
    "Or": _elementwise(e.logical_or),
    "Where": _elementwise(_where),
    "Cast": _cast,
    "Identity": lambda n, x: x,
    "Gather": _gather,
    "Concat": _concat,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Reshape": _reshape,
    "Flatten": lambda n, x: x.reshape(int(np.prod(x.shape[: n.attr("axis", 1)])), -1),
    "Expand": _expand,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "ReduceProd": _reduce(lambda a, b: a * b, 1),
    "ReduceSum": _reduce(lambda a, b: a + b, 0),
    "ReduceMin": _reduce(_min, 0),
    "ReduceMax": _reduce(_max, 0),
    "Transpose": lambda n, x: np.transpose(x, n.attr("perm", None)),
}
"""What an operator does to tensors of formulas: (node context, object arrays) -> object array."""

_BOOL_RESULT = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not", "And", "Or"}


def evaluate(n: Any, op_type: str, operands: list[Symbolic | None]) -> Symbolic | None:
    """The result as formulas, or None where only a kernel can say (an index or a bound that is a formula itself)."""
    n.result_dtype = "bool" if op_type in _BOOL_RESULT else next(o.dtype for o in operands if o is not None)
    if op_type == "Where":
        n.result_dtype = next(o.dtype for o in operands[1:] if o is not None)
    try:
        result = SYMBOLIC[op_type](n, *(None if o is None else o.values for o in operands))
    except (TypeError, ValueError, IndexError):
        return None  # a formula where a number is needed
    array = np.asarray(result, dtype=object)
    return Symbolic(array, n.result_dtype) if array.size <= LIMIT else None
