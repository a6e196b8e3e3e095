"""Small integer tensors whose elements are formulas of the dimensions.

Models compute shapes with tensor operators: `concat(take(shape_of(x), 0), [8])` feeds a `reshape`. Here such a tensor's
elements are kept beside it as scalar expressions, so that what needs a shape gets a ShapeExpr of symbolic dimensions.

    values = ShapeValues()
    values.record(var, call)          after every binding
    values.as_shape(var)              -> ShapeExpr, or None
    values.fold(call)                 -> a simpler expression for a call, or None
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arith import expr as E
from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.ir import dtype as dt
from tilewright.ir.node import replace
from tilewright.relax.dims import as_int, as_ints, difference, prove_equal, simplify_dim
from tilewright.relax.ir import Call, Constant, Expr, PrimValue, ShapeExpr, Tuple, TupleGetItem, Var
from tilewright.relax.struct_info import PrimStructInfo, ShapeStructInfo, TensorStructInfo, TupleStructInfo

__all__ = ["LIMIT", "ShapeValues"]

LIMIT = 256
"""Tensors of more elements are not taken for shapes."""

Objects = NDArray[Any]


class _Unknown(Exception):
    """A formula stands where a number is needed."""


def _clean(values: Any) -> Objects:
    out = np.empty(np.shape(values), dtype=object)
    flat = out.reshape(-1)
    for i, v in enumerate(np.asarray(values, dtype=object).reshape(-1)):
        if isinstance(v, PrimExpr):
            if v.dtype in ("int64", "int32"):
                v = simplify_dim(v)
            if isinstance(v, IntImm):
                v = v.value
        elif isinstance(v, np.generic):
            v = v.item()
        flat[i] = v
    return out


def _numbers(values: Objects) -> NDArray[Any]:
    if any(isinstance(v, PrimExpr) for v in values.reshape(-1)):
        raise _Unknown
    return values.astype(np.int64)


def _each(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: np.frompyfunc(f, len(arrays), 1)(*arrays)


def _divide(a: Any, b: Any) -> Any:
    """Integers truncate; a formula of dimensions is not negative where its factors are not, so it may round down."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    exact = simplify_dim(E.div(_wide(a), _wide(b)))
    return exact if not isinstance(exact, E.Div) else E.floordiv(exact.a, exact.b) if _not_negative(exact.a) else exact


def _wide(v: Any) -> PrimExpr:
    return E.convert(v, "int64") if not isinstance(v, PrimExpr) else v


def _not_negative(e: PrimExpr) -> bool:
    if isinstance(e, IntImm):
        return e.value >= 0
    if isinstance(e, E.Var):
        return True
    if isinstance(e, (E.Add, E.Mul, E.FloorDiv, E.Div, E.Max, E.Min)):
        return _not_negative(e.a) and _not_negative(e.b)
    return isinstance(e, E.FloorMod)


def _extreme(pick: Callable[..., Any], build: Callable[..., PrimExpr]) -> Callable[[Any, Any], Any]:
    return lambda a, b: build(_wide(a), _wide(b)) if isinstance(a, PrimExpr) or isinstance(b, PrimExpr) else pick(a, b)


def _compare(test: Callable[[int], bool]) -> Callable[[Any, Any], Any]:
    """A comparison that is decided if the difference is a number."""

    def decide(a: Any, b: Any) -> Any:
        gap = difference(_wide(int(a) if isinstance(a, bool) else a), _wide(int(b) if isinstance(b, bool) else b))
        if gap is None:
            raise _Unknown
        return test(gap)

    return decide


def _where(c: Any, a: Any, b: Any) -> Any:
    if isinstance(c, PrimExpr):
        raise _Unknown
    return a if c else b


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": _each(lambda a, b: a + b),
    "subtract": _each(lambda a, b: a - b),
    "multiply": _each(lambda a, b: a * b),
    "divide": _each(_divide),
    "floor_divide": _each(lambda a, b: a // b),
    "mod": _each(lambda a, b: a % b),
    "floor_mod": _each(lambda a, b: a % b),
    "negative": _each(lambda a: 0 - a),
    "maximum": _each(_extreme(max, E.maximum)),
    "minimum": _each(_extreme(min, E.minimum)),
    "equal": _each(_compare(lambda d: d == 0)),
    "not_equal": _each(_compare(lambda d: d != 0)),
    "less": _each(_compare(lambda d: d < 0)),
    "less_equal": _each(_compare(lambda d: d <= 0)),
    "greater": _each(_compare(lambda d: d > 0)),
    "greater_equal": _each(_compare(lambda d: d >= 0)),
    "where": _each(_where),
}

_MOVES = frozenset(
    ["reshape", "permute_dims", "concat", "split", "expand_dims", "squeeze", "flatten", "broadcast_to", "take", "tile",
     "repeat", "flip", "strided_slice", "dynamic_strided_slice", "gather_elements", "gather_nd", "stack", "full"]
)  # fmt: skip
"""Operators that only move elements: their numpy reference does it with formulas as well."""

_INDEX_OPERANDS = {"take": (1,), "gather_elements": (1,), "gather_nd": (1,), "dynamic_strided_slice": (1, 2, 3)}


def _reduced(op: Any, x: Objects, f: Callable[[Any, Any], Any], unit: Any) -> Objects:
    axis = getattr(op, "axis", None)
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    keep = bool(getattr(op, "keepdims", False))
    out = x
    for a in sorted((a % max(x.ndim, 1) for a in axes), reverse=True):
        parts = [np.take(out, i, axis=a) for i in range(out.shape[a])]
        folded = reduce(np.frompyfunc(f, 2, 1), parts) if parts else np.full((), unit, dtype=object)
        out = np.asarray(folded, dtype=object)
        out = np.expand_dims(out, a) if keep else out
    return out


_REDUCTIONS: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "sum": (lambda a, b: a + b, 0),
    "prod": (lambda a, b: a * b, 1),
    "max": (_extreme(max, E.maximum), 0),
    "min": (_extreme(min, E.minimum), 0),
}


class ShapeValues:
    """The side table; see the head of the module."""

    def __init__(self) -> None:
        self.table: dict[Var, Any] = {}

    # ---- asking --------------------------------------------------------------------------------------------------------

    def values(self, e: Any) -> Objects | None:
        """The elements of an integer or bool tensor as Python numbers and PrimExprs (an object array), or None."""
        if isinstance(e, Var):
            found = self.table.get(e)
            if found is not None:
                return found if isinstance(found, np.ndarray) else None
            si = e.struct_info
            return _clean(si.values) if isinstance(si, ShapeStructInfo) and si.values is not None else None
        if isinstance(e, Constant):
            small = e.data.size <= LIMIT and (e.data.dtype.kind in "iub")
            return _clean(e.data) if small else None
        if isinstance(e, ShapeExpr):
            return _clean(e.values)
        if isinstance(e, PrimValue):
            return _clean(e.value) if e.value.dtype in ("int64", "int32", "bool") else None
        if isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Var):
            found = self.table.get(e.tuple_value)
            return found[e.index] if isinstance(found, list) else None  # pyright: ignore
        return None

    def as_shape(self, e: Any) -> ShapeExpr | None:
        """The tensor of rank 1 (or the shape) `e` as a ShapeExpr, if its elements are known."""
        found = self.values(e)
        return ShapeExpr(tuple(found.tolist())) if found is not None and found.ndim == 1 else None

    def as_scalar(self, e: Any) -> PrimExpr | None:
        """The tensor of one element `e` as a scalar expression, if it is known."""
        found = self.values(e)
        return _wide(found.reshape(-1)[0]) if found is not None and found.size == 1 else None

    # ---- learning ------------------------------------------------------------------------------------------------------

    def alias(self, new: Var, old: Var) -> None:
        """`new` took the place of `old`."""
        if old in self.table:
            self.table[new] = self.table[old]

    def record(self, var: Var, e: Any) -> None:
        """Learn what a binding tells of its variable."""
        if isinstance(e, Call):
            found = self.evaluate(e)
        elif isinstance(e, Tuple):
            parts = [self.values(f) for f in e.fields]
            found = parts if any(p is not None for p in parts) else None
        else:
            found = self.values(e)
        if found is not None:
            self.table[var] = found

    def evaluate(self, call: Call) -> Any:
        """The elements of a call's result (a list of them for a tuple), or None."""
        si = call.struct_info
        infos = si.fields if isinstance(si, TupleStructInfo) else (si,)
        for info in infos:
            if isinstance(info, TensorStructInfo) and not (dt.is_int(info.dtype) or dt.is_bool(info.dtype)):
                return None
            if isinstance(info, TensorStructInfo) and info.shape is not None:
                shape = as_ints(info.shape)
                if shape is None or int(np.prod(shape, dtype=np.int64)) > LIMIT:
                    return None
        try:
            found = self._evaluate(call)
        except _Unknown:
            return None
        if found is None:
            return None
        return [_clean(f) for f in found] if isinstance(si, TupleStructInfo) else _clean(found)

    def _evaluate(self, call: Call) -> Any:
        name = getattr(call.op, "name", "")
        if name in ("shape_of", "size"):
            return self._shape(call, name)
        if name in ("tensor_to_shape", "shape_to_tensor"):
            return self.values(call.args[0])
        if name == "astype":
            return self._cast(call)
        if name in _ELEMENTWISE:
            operands = [self.values(a) for a in call.args]
            return None if any(o is None for o in operands) else _ELEMENTWISE[name](*operands)
        if name in _REDUCTIONS:
            x = self.values(call.args[0])
            f, unit = _REDUCTIONS[name]
            return None if x is None else _reduced(call.op, x, f, unit)
        if name in _MOVES:
            return self._move(call, name)
        return None

    def _shape(self, call: Call, name: str) -> Any:
        si = call.args[0].struct_info
        if not isinstance(si, TensorStructInfo) or si.shape is None:
            return None
        values = np.empty(len(si.shape), dtype=object)
        values[:] = si.shape
        return reduce(lambda a, b: a * b, si.shape, IntImm("int64", 1)) if name == "size" else values

    def _cast(self, call: Call) -> Any:
        x = self.values(call.args[0])
        target = call.struct_info
        if x is None or not isinstance(target, TensorStructInfo):
            return None
        if dt.is_bool(target.dtype):
            return _numbers(x) != 0
        return np.frompyfunc(lambda v: int(v) if isinstance(v, bool) else v, 1, 1)(x) if x.size else x

    def _move(self, call: Call, name: str) -> Any:
        indices = _INDEX_OPERANDS.get(name, ())
        operands = [self._moved(a, i in indices) for i, a in enumerate(call.args)]
        if any(o is None for o in operands):
            return None
        try:
            return call.op.reference(*operands)
        except (TypeError, ValueError, IndexError, AttributeError):
            return None

    def _moved(self, e: Any, index: bool) -> Any:
        """An operand of a move as its reference takes it; a shape or an index has to be numbers."""
        if isinstance(e, ShapeExpr):
            return as_ints(e.values)
        if isinstance(e, PrimValue):
            return as_int(e.value)
        if isinstance(e, Tuple):
            parts = [self._moved(f, index) for f in e.fields]
            return None if any(p is None for p in parts) else tuple(parts)
        found = self.values(e)
        if found is None:
            return None
        return _numbers(found) if index else found

    # ---- folding -------------------------------------------------------------------------------------------------------

    def fold(self, call: Call) -> Expr | None:
        """A simpler expression for a call: a constant or a ShapeExpr for what is known, a shape operand in place of a tensor."""
        si = call.struct_info
        if isinstance(si, ShapeStructInfo):
            found = self.evaluate(call)
            return ShapeExpr(tuple(found.tolist())) if found is not None and found.ndim == 1 else None
        if isinstance(si, TensorStructInfo) and (dt.is_int(si.dtype) or dt.is_bool(si.dtype)):
            found = self.evaluate(call)
            if found is not None and not any(isinstance(v, PrimExpr) for v in found.reshape(-1)):
                return Constant(found.astype(dt.to_numpy(si.dtype)))
        return self._shape_operands(call)

    def _shape_operands(self, call: Call) -> Expr | None:
        """The call with operands that are known shapes (variables of ShapeStructInfo) written out."""
        args = list(call.args)
        for i, a in enumerate(args):
            info = getattr(a, "struct_info", None)
            if isinstance(a, Var) and isinstance(info, (ShapeStructInfo, PrimStructInfo)):
                known = self.as_shape(a) if isinstance(info, ShapeStructInfo) else None
                if known is not None:
                    args[i] = known
        if all(a is b for a, b in zip(args, call.args)):
            return None
        return replace(call, args=tuple(args), struct_info=None)


def same_values(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Are two rows of elements provably equal?"""
    return len(a) == len(b) and all(prove_equal(_wide(x), _wide(y)) for x, y in zip(a, b))
