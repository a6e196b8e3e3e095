"""Specialise a function: fix sizes, bind buffers, replace scalar parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arith import build
from tilewright.arith.expr import (
    Add,
    BinaryOp,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    PrimExpr,
    Sub,
    Var,
    convert,
)
from tilewright.ir.node import replace
from tilewright.ir.rewrite import collect, substitute, transform
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import Buffer, LetStmt, PrimFunc

__all__ = ["specialize"]

_BUILD: dict[type, Any] = {
    Add: build.add, Sub: build.sub, Mul: build.mul, Div: build.div, Mod: build.truncmod, FloorDiv: build.floordiv,
    FloorMod: build.floormod, Min: build.minimum, Max: build.maximum,
}  # fmt: skip


def specialize(f: PrimFunc, param_map: Mapping[Var, Any]) -> PrimFunc:
    """The function with parameters fixed: a scalar by a value or an expression, a handle by a buffer.

    A buffer fixes the sizes, strides and offset of the parameter's own (its symbolic dimensions become the buffer's). Scalar
    parameters that have got a value are no parameters any more. Raises CompileError TW0541 where a value contradicts the
    function, or where the key is no parameter.
    """
    if not param_map:
        return f
    mapping: dict[Any, Any] = {}
    for param, value in param_map.items():
        if param not in f.params:
            raise _error(f"{param} is no parameter", ", ".join(p.name for p in f.params))
        if isinstance(value, Buffer):
            _bind_buffer(f, param, value, mapping)
        elif param in f.buffer_map:
            raise _error(f"the parameter {param.name} is a buffer and was given {value!r}", "give it a buffer")
        else:
            _bind(mapping, param, convert(value), param.name)
    pointers = {v: e for v, e in mapping.items() if v.dtype == "handle" and not isinstance(e, Var)}
    plain = {v: e for v, e in mapping.items() if v not in pointers}
    buffers = {p: _refined(b, plain) for p, b in f.buffer_map.items()}
    replaced = {old: buffers[p] for p, old in f.buffer_map.items() if buffers[p] is not old}
    body = transform(substitute(f.body, {**plain, **replaced}), _fold)
    for var, value in pointers.items():
        body = LetStmt(var, substitute(value, plain), body)
    return replace(f, params=tuple(p for p in f.params if p not in mapping), body=body, buffer_map=buffers)


def _error(message: str, hint: str) -> CompileError:
    return CompileError.at("TW0541", f"cannot specialise the function: {message}", hint=hint)


def _bind(mapping: dict[Any, Any], var: Var, value: PrimExpr, what: str) -> None:
    known = mapping.get(var)
    if known is not None and known is not value and not _equal(known, value):
        raise _error(f"{what} would be {known} and {value} at once", "give values that agree")
    mapping[var] = value


def _equal(a: PrimExpr, b: PrimExpr) -> bool:
    return isinstance(a, IntImm) and isinstance(b, IntImm) and a.value == b.value


def _bind_buffer(f: PrimFunc, param: Var, given: Buffer, mapping: dict[Any, Any]) -> None:
    own = f.buffer_map.get(param)
    if own is None:
        raise _error(f"the parameter {param.name} is no buffer", "give it a number or an expression")
    if own.dtype != given.dtype or len(own.shape) != len(given.shape):
        raise _error(
            f"{own.name} is a {len(own.shape)}-dimensional buffer of {own.dtype}",
            f"the buffer given has {len(given.shape)} dimensions of {given.dtype}",
        )
    pairs = [*zip(own.shape, given.shape, strict=True), *zip(own.strides, given.strides)]
    if own.elem_offset is not None and given.elem_offset is not None:
        pairs.append((own.elem_offset, given.elem_offset))
    for mine, theirs in pairs:
        if isinstance(mine, Var):
            if mine is not theirs:
                _bind(mapping, mine, theirs, f"the size {mine.name} of {own.name}")
        elif isinstance(mine, IntImm) and isinstance(theirs, IntImm) and mine.value != theirs.value:
            raise _error(f"a dimension of {own.name} is {mine}, not {theirs}", "give a buffer of the same shape")
    if own.data is not given.data:
        mapping[own.data] = given.data


def _refined(b: Buffer, mapping: Mapping[Any, Any]) -> Buffer:
    """The buffer with what is known put in."""
    inside = {v: e for v, e in mapping.items() if v is not b.data}
    parts = [*b.shape, *b.strides, *(() if b.elem_offset is None else (b.elem_offset,))]
    used = {v for part in parts for v in collect(part, Var)}
    if not used & set(inside) and b.data not in mapping:
        return b

    def put(e: PrimExpr) -> PrimExpr:
        return transform(substitute(e, inside), _fold)

    return replace(
        b,
        data=mapping.get(b.data, b.data),
        shape=tuple(put(n) for n in b.shape),
        strides=tuple(put(n) for n in b.strides),
        elem_offset=None if b.elem_offset is None else put(b.elem_offset),
    )


def _fold(n: Any) -> Any:
    """Operations on constants done."""
    if isinstance(n, BinaryOp) and isinstance(n.a, IntImm) and isinstance(n.b, IntImm) and type(n) in _BUILD:
        return _BUILD[type(n)](n.a, n.b)
    return None
