"""Operators as functions, with the field's signatures: `relax.op.nn.conv2d(data, weight, strides=2, padding=1)`.

`resolve("nn.conv2d")` gives a function that takes the operands, then the attributes, by position or by name, and returns the
call. The signature comes from the class: the parameters of its `infer`, then its fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from tilewright.arith.expr import FloatImm, IntImm
from tilewright.arith.expr import StringImm as TirString
from tilewright.ops.create import Arange, Eye
from tilewright.ops.index import StridedSlice
from tilewright.relax.ir import Call, DataTypeImm, Expr, PrimValue, ShapeExpr, StringImm
from tilewright.relax.op import OPS, Op
from tilewright.relax.values import convert

__all__ = ["Namespace", "names", "resolve"]

_EMPTY = inspect.Parameter.empty


def names() -> list[str]:
    """All operators."""
    return sorted(OPS)


def static(value: Any) -> Any:
    """An attribute's value as plain Python: numbers of constants, strings, tuples for sequences and shapes."""
    if isinstance(value, (IntImm, FloatImm, TirString)):
        return bool(value.value) if getattr(value, "dtype", "") == "bool" else value.value
    if isinstance(value, PrimValue):
        return static(value.value)
    if isinstance(value, (StringImm, DataTypeImm)):
        return value.value
    if isinstance(value, ShapeExpr):
        return tuple(static(v) for v in value.values)
    if isinstance(value, (list, tuple)):
        return tuple(static(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, np.dtype) else value


def _is_static(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_static(v) for v in value)
    return isinstance(value, (int, float, str, IntImm, np.integer))


@cache
def resolve(name: str) -> Callable[..., Call]:
    """The function of an operator (`relax.` in front may stand). Raises KeyError that names similar operators."""
    short = name.removeprefix("relax.")
    if short in _SPECIAL:
        return _SPECIAL[short]
    if short not in OPS:
        import difflib

        near = difflib.get_close_matches(short, OPS, 3)
        raise KeyError(f"no operator is named {short!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))
    return _function(OPS[short])


def _function(cls: type[Op]) -> Callable[..., Call]:
    operands = [p for k, p in enumerate(inspect.signature(cls.infer).parameters.values()) if k]
    attributes = {f.name: f for f in fields(cls)}
    operand_names = [p.name for p in operands]
    order = [*operand_names, *(n for n in attributes if n not in operand_names)]
    required = [p.name for p in operands if p.default is _EMPTY]

    def call(*args: Any, **kwargs: Any) -> Call:
        if len(args) > len(order):
            raise TypeError(f"{cls.name} takes {len(order)} arguments, got {len(args)}")
        given = dict(zip(order, args, strict=False))
        for key, value in kwargs.items():
            if key not in order:
                raise TypeError(f"{cls.name} has no argument {key!r}; it has: {', '.join(order)}")
            if key in given:
                raise TypeError(f"{cls.name} got {key!r} twice")
            given[key] = value
        # a name that is both (`pad_width`): numbers are the attribute, formulas the operand
        both = {n for n in operand_names if n in attributes and n in given and _is_static(given[n])}
        missing = [n for n in required if n not in given]
        if missing:
            raise TypeError(f"{cls.name} needs {', '.join(missing)}")
        op = cls(**{n: static(v) for n, v in given.items() if n in both or n not in operand_names})
        values = [None if n in both else given.get(n) for n in operand_names]
        while values and values[-1] is None:
            values.pop()
        return op(*(v if v is None else convert(v) for v in values))

    call.__name__ = cls.name.rpartition(".")[2]
    call.__qualname__ = cls.name
    call.__doc__ = cls.__doc__
    parameters = [
        inspect.Parameter(p.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=p.default) for p in operands
    ]
    for n in order[len(operand_names) :]:
        parameters.append(inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=attributes[n].default))
    seen_default = False
    for k, p in enumerate(parameters):
        seen_default = seen_default or p.default is not _EMPTY
        if seen_default and p.default is _EMPTY:
            parameters[k] = p.replace(default=None)
    call.__signature__ = inspect.Signature(parameters, return_annotation=Call)  # pyright: ignore
    return call


def _values(x: Any) -> Any:
    """A bound of a slice as a shape: a sequence of numbers, formulas and PrimValues, one number, or a shape."""
    if isinstance(x, Expr) and not isinstance(x, PrimValue) and not hasattr(x, "fields"):
        return x
    items = getattr(x, "fields", x)
    items = items if isinstance(items, (list, tuple)) else (items,)
    return ShapeExpr(
        tuple(v.value if isinstance(v, PrimValue) else int(v) if isinstance(v, np.integer) else v for v in items)
    )


def _strided_slice(x: Any, axes: Any, begin: Any, end: Any, strides: Any = None, assume_inbound: bool = False) -> Call:
    """x[begin:end:stride] along each of `axes`."""
    over = static(getattr(axes, "fields", axes))
    steps = None if strides is None else static(getattr(strides, "fields", strides))
    return StridedSlice(over, steps, assume_inbound)(x, _values(begin), _values(end))


def _arange(start: Any, end: Any = None, step: Any = 1, dtype: str | None = None) -> Call:
    """start, start + step, ... below `end`; of one number, from 0 to it."""
    if end is None:
        start, end = 0, start
    whole = all(
        isinstance(v, int) or getattr(getattr(v, "value", v), "dtype", "").startswith("int") for v in (start, end, step)
    )
    return Arange(static(dtype) or ("int64" if whole else "float32"))(start, end, step)


def _eye(n: Any, m: Any = None, k: Any = 0, dtype: str = "float32") -> Call:
    """Ones on the k-th diagonal of an n x m matrix (m: n by default)."""
    rows, columns = (getattr(v, "value", v) for v in (n, n if m is None else m))
    return Eye(static(k), static(dtype))((rows, columns))


_SPECIAL: dict[str, Callable[..., Call]] = {"strided_slice": _strided_slice, "arange": _arange, "eye": _eye}


class Namespace:
    """Operators under a prefix as attributes: `Namespace("nn.").relu`."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        full = self._prefix + name
        if full in OPS:
            return resolve(full)
        if any(other.startswith(full + ".") for other in OPS):
            return Namespace(full + ".")
        raise AttributeError(f"no operator is named {full!r}")

    def __dir__(self) -> list[str]:
        skip = len(self._prefix)
        return sorted({other[skip:].partition(".")[0] for other in OPS if other.startswith(self._prefix)})


ROOT = Namespace()
"""All operators: `ROOT.add`, `ROOT.nn.relu`."""
