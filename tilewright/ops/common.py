"""What the operator classes share: checks of operands and attributes, whose errors name the operator and the way out.

Codes: TW0201 not a tensor, TW0202 shape unknown, TW0203 dimensions differ (these from relax), TW0204 dtype, TW0205 rank,
TW0206 attribute, TW0207 axis, TW0208 kind of operand, TW0209 number of elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import new_class
from typing import Any, NoReturn

import numpy as np

from tilewright.arith.expr import Add, FloorDiv, IntImm, Max, Min, Mul, PrimExpr, Var
from tilewright.ir import dtype as dt
from tilewright.relax.dims import as_int, require_equal, show_dim, show_shape, simplify_dim
from tilewright.relax.ir import Constant, Expr, PrimValue, Tuple
from tilewright.relax.op import Op, operator
from tilewright.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
    broadcast_shapes,
    describe,
    shape_of,
    tensor_info,
)
from tilewright.support.diagnostics import CompileError

__all__ = [
    "Dims", "as_int", "axes", "axis", "check_dtype", "check_rank", "dims_equal", "fail", "fields", "floats", "ints", "known",
    "like", "member", "nonnegative", "numpy_dtype", "out", "pair_up", "prim_value", "result_shape", "rng", "same_dtype", "shape_operand", "show_dim",
    "show_shape", "simplify_dim", "tensor",
]  # fmt: skip

Dims = tuple[PrimExpr, ...]


def fail(op: Op, code: str, message: str, hint: str | None = None, operand: Any = None) -> NoReturn:
    """Raise CompileError: `message` said of the operator, placed at the operand if it has a place."""
    raise CompileError.at(code, f"{op.name}: {message}", getattr(operand, "span", None), hint=hint)


def tensor(op: Op, x: Any, what: str = "the operand") -> TensorStructInfo:
    """The struct info of a tensor operand."""
    return tensor_info(x, f"{op.name}: {what}")


def known(op: Op, x: Any, what: str = "the operand", rank: int | Sequence[int] | None = None) -> Dims:
    """The dimensions of a tensor operand, of the rank (or one of the ranks) given."""
    tensor(op, x, what)
    dims = shape_of(x, f"{op.name}: {what}")
    if rank is not None:
        check_rank(op, dims, what, rank, x)
    return dims


def check_rank(op: Op, dims: Sequence[Any], what: str, rank: int | Sequence[int], operand: Any = None) -> None:
    """Raise TW0205 unless the number of dimensions is (one of) `rank`."""
    allowed = (rank,) if isinstance(rank, int) else tuple(rank)
    if len(dims) not in allowed:
        text = " or ".join(map(str, allowed))
        fail(op, "TW0205", f"{what} needs {text} dimensions, got {len(dims)}: {show_shape(dims)}", None, operand)


def check_dtype(op: Op, dtype: str, kinds: str, what: str = "the operand", operand: Any = None) -> None:
    """Raise TW0204 unless `dtype` is of one of the kinds, letters of "f" (float), "i" (integer), "b" (bool)."""
    fits = (
        ("f" in kinds and dt.is_float(dtype))
        or ("i" in kinds and dt.is_int(dtype))
        or ("b" in kinds and dt.is_bool(dtype))
        or not dtype
    )
    if not fits:
        names = [n for k, n in (("f", "a floating-point"), ("i", "an integer"), ("b", "a bool")) if k in kinds]
        fail(
            op,
            "TW0204",
            f"{what} has dtype {dtype}, needs {' or '.join(names)} dtype",
            "convert it with astype",
            operand,
        )


def floats(op: Op, x: Any, what: str = "the operand") -> TensorStructInfo:
    """The struct info of a floating-point tensor operand."""
    si = tensor(op, x, what)
    check_dtype(op, si.dtype, "f", what, x)
    return si


def same_dtype(op: Op, infos: Sequence[TensorStructInfo], names: Sequence[str]) -> str:
    """The dtype that all operands share; raises TW0204 that names the two that differ."""
    first, label = infos[0].dtype, names[0]
    for si, name in zip(infos[1:], names[1:], strict=True):
        if not first:
            first, label = si.dtype, name
        elif si.dtype and si.dtype != first:
            fail(
                op,
                "TW0204",
                f"dtypes differ: {label} is {first}, {name} is {si.dtype}",
                "convert one of them with astype",
            )
    return first


def axis(op: Op, value: int, ndim: int, what: str = "axis") -> int:
    """`value` as an axis of `ndim` dimensions, not negative; raises TW0207 that says what it may be."""
    if not -ndim <= value < ndim:
        dims = "dimension" if ndim == 1 else "dimensions"
        hint = f"use {-ndim}..{ndim - 1}" if ndim else "a scalar has no axis"
        fail(op, "TW0207", f"{what} {value} is out of range for {ndim} {dims}", hint)
    return value + ndim if value < 0 else value


def axes(op: Op, values: Any, ndim: int, what: str = "axis") -> tuple[int, ...]:
    """Several axes, not negative, in order; None means all. Raises TW0207 on one out of range or given twice."""
    if values is None:
        return tuple(range(ndim))
    items = (values,) if isinstance(values, int) else tuple(values)
    found = [axis(op, v, ndim, what) for v in items]
    if len(set(found)) != len(found):
        fail(op, "TW0207", f"{what} {list(items)} names a dimension twice")
    return tuple(found)


def dims_equal(op: Op, a: PrimExpr, b: PrimExpr, what: str) -> PrimExpr:
    """The better of two dimensions that have to be equal; what nothing proves is checked at run time."""
    return require_equal(a, b, f"{op.name}: {what}")


def result_shape(op: Op, *shapes: Sequence[PrimExpr]) -> Dims:
    """The broadcast shape."""
    if len(shapes) == 1:
        return tuple(shapes[0])
    return broadcast_shapes(*shapes, what=f"{op.name}: operands")


def out(shape: Sequence[Any] | None, dtype: str, ndim: int = -1) -> TensorStructInfo:
    """The struct info of a result; dimensions are simplified."""
    if shape is None:
        return TensorStructInfo(None, dtype, ndim)
    return TensorStructInfo(tuple(simplify_dim(d) for d in shape), dtype)


def like(si: TensorStructInfo, dtype: str | None = None) -> TensorStructInfo:
    """The same shape, perhaps with another dtype."""
    return si if dtype is None or dtype == si.dtype else TensorStructInfo(si.shape, dtype, si.ndim)


def shape_operand(op: Op, x: Any, what: str = "shape") -> Dims:
    """The values of a shape operand (a ShapeExpr, or an int64 constant of one dimension). Raises TW0208 otherwise."""
    if isinstance(x, Constant) and x.data.ndim == 1:
        return tuple(IntImm("int64", int(v)) for v in x.data)
    si = getattr(x, "struct_info", None)
    if isinstance(si, ShapeStructInfo):
        return shape_of(x, f"{op.name}: {what}")
    fail(op, "TW0208", f"{what} has to be a shape, got {describe(si)}", "pass a tuple of sizes", x)


def prim_value(op: Op, x: Any, what: str) -> PrimExpr | None:
    """The value of a scalar operand, or None where only its dtype is known. Raises TW0208 if it is no scalar."""
    if isinstance(x, PrimValue):
        return x.value
    si = getattr(x, "struct_info", None)
    if isinstance(si, PrimStructInfo):
        return si.value
    fail(op, "TW0208", f"{what} has to be a scalar value, got {describe(si)}", "pass a number", x)


def fields(op: Op, x: Any, what: str = "the operand") -> list[TensorStructInfo]:
    """The struct infos of a tuple of tensors. Raises TW0208 if it is none, or empty."""
    if isinstance(x, Tuple):
        infos = [tensor(op, f, f"{what} {k}") for k, f in enumerate(x.fields)]
    else:
        si = getattr(x, "struct_info", None)
        if not isinstance(si, TupleStructInfo):
            fail(op, "TW0208", f"{what} has to be a tuple of tensors, got {describe(si)}", None, x)
        infos = [tensor_info(f, f"{op.name}: {what} {k}") for k, f in enumerate(si.fields)]
    if not infos:
        fail(op, "TW0208", f"{what} has no tensors", None, x)
    return infos


def ints(op: Op, what: str, values: Any, count: int, least: int = 0) -> tuple[int, ...]:
    """An attribute of `count` ints, each at least `least`; one int stands for all. Raises TW0206."""
    items = (values,) * count if isinstance(values, (int, np.integer)) else tuple(values)
    if len(items) != count:
        fail(op, "TW0206", f"{what} {list(items)} has {len(items)} values, needs {count}")
    for v in items:
        if v < least:
            fail(op, "TW0206", f"{what} {list(items)}: {v} is less than {least}")
    return tuple(int(v) for v in items)


def pair_up(values: Any, rank: int) -> tuple[int, ...]:
    """Padding as the amounts before, then after, each of `rank` dimensions; one value, or one a dimension, is symmetric."""
    items = (values,) if isinstance(values, (int, np.integer)) else tuple(values)
    if len(items) == 1:
        items = items * (2 * rank)
    elif len(items) == rank:
        items = items * 2
    return tuple(int(v) for v in items)


def nonnegative(e: PrimExpr) -> bool:
    """Is a formula of dimensions never negative, as can be seen from its form?"""
    if isinstance(e, IntImm):
        return e.value >= 0
    if isinstance(e, Var):
        return True
    if isinstance(e, (Add, Mul, Min, FloorDiv)):
        return nonnegative(e.a) and nonnegative(e.b)
    return isinstance(e, Max) and (nonnegative(e.a) or nonnegative(e.b))


def numpy_dtype(dtype: str) -> Any:
    """The numpy dtype of elements."""
    return dt.to_numpy(dtype)


def member(label: str, base: type[Op], body: dict[str, Any], **options: Any) -> Any:
    """A class of a family of operators: `base` with the attributes of `body`; `options` as `name=`, `onnx=`, `torch=`."""
    made = new_class(label, (base,), options, lambda namespace: namespace.update(body))
    # without attributes of its own the class inherits everything that `dataclass` would make anew, slowly, at import
    return operator(made) if body.get("__annotations__") else made


def rng(seed: int = 0) -> Any:
    """A seeded generator for samples."""
    return np.random.default_rng(seed)


def is_expr(x: Any) -> bool:
    """Is it a graph expression?"""
    return isinstance(x, Expr)
