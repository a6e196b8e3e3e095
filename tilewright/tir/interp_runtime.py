"""What interpreted functions call: memory, checked accesses, conversions, errors."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.support.diagnostics import CompileError
from tilewright.tir.intrin import INTRINSICS

__all__ = ["RUNTIME", "Return", "bind_buffer", "poison", "unsupported", "view"]

Array = np.ndarray[Any, Any]


class Return(Exception):
    """Carries the value of `tir.ret` out of nested functions."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def unsupported(what: str, why: str) -> CompileError:
    """The error for something that the interpreter cannot run."""
    return CompileError.at(
        "TW0950",
        f"the interpreter cannot run {what}: {why}",
        hint="interpret the function as it is before that lowering",
    )


def poison(dtype: str, size: int) -> Array:
    """New memory of `size` values that look uninitialised: nan for floats, an odd pattern for integers."""
    n = size * dt.lanes(dtype)
    kind = dt.to_numpy(dtype)
    if dt.is_float(dtype):
        out: Array = np.empty(n, kind)
        out.fill(float("nan"))
        return out
    if dt.is_bool(dtype):
        return (np.arange(n) % 3 == 1).astype(bool)
    if dt.parse(dtype).code == "handle":
        raise unsupported(f"an allocation of {dtype}", "it has no pointers in memory")
    bits = dt.bits(dtype)
    if bits < 8:
        return np.full(n, dt.min_value(dtype) + 1).astype(kind)
    return np.full(n * (bits // 8), 0xA5, np.uint8).view(kind)


def alloc(dtype: str, shape: tuple[int, ...], name: str) -> Array:
    """Poisoned memory, flat."""
    size = 1
    for s in shape:
        if s < 0:
            raise ValueError(f"buffer {name} has a negative extent: shape {list(shape)}")
        size *= int(s)
    return poison(dtype, size)


def view(memory: Any, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, name: str) -> Array:
    """The array of `shape` that a buffer is of flat memory."""
    if not isinstance(memory, np.ndarray):
        raise unsupported(f"buffer {name}", "its memory is a raw pointer")
    kind = dt.to_numpy(dtype)
    lanes = dt.lanes(dtype)
    flat: Array = memory
    if flat.ndim != 1:
        if not flat.flags.c_contiguous:
            raise ValueError(f"buffer {name} needs compact memory")
        flat = flat.reshape(-1)
    if flat.dtype != kind:
        flat = flat.view(np.uint8)
        flat = flat[: len(flat) // kind.itemsize * kind.itemsize].view(kind)
    dims = (*shape, lanes) if lanes > 1 else shape
    if not strides:
        size = int(np.prod(dims, dtype=np.int64))
        start = offset * lanes
        if start < 0 or start + size > len(flat):
            raise IndexError(
                f"buffer {name} of shape {list(shape)} at offset {offset} does not fit into its memory of {len(flat) // lanes} elements"
            )
        return flat[start : start + size].reshape(dims)
    steps = [s * lanes for s in strides] + ([1] if lanes > 1 else [])
    if all(d > 0 for d in dims):
        low = offset * lanes + sum(min(0, (d - 1) * s) for d, s in zip(dims, steps))
        high = offset * lanes + sum(max(0, (d - 1) * s) for d, s in zip(dims, steps))
        if low < 0 or high >= len(flat):
            raise IndexError(
                f"buffer {name} of shape {list(shape)}, strides {list(strides)} at offset {offset} does not fit into its "
                f"memory of {len(flat) // lanes} elements"
            )
    return np.lib.stride_tricks.as_strided(flat[offset * lanes :], dims, [s * kind.itemsize for s in steps])


def bind_buffer(value: Any, dtype: str, rank: int, name: str, where: str) -> Array:
    """An argument as the array for a buffer parameter of that rank. Raises TypeError or ValueError that names it."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{where}: parameter {name} needs a numpy array, got {type(value).__name__}")
    kind = dt.to_numpy(dtype)
    array: Array = value
    if array.dtype != kind:
        raise TypeError(f"{where}: parameter {name} needs {dtype}, got an array of {array.dtype}")
    if array.ndim != rank + (dt.lanes(dtype) > 1):
        raise ValueError(f"{where}: parameter {name} needs rank {rank}, got shape {list(array.shape)}")
    return array


def bind_dim(got: int, need: int, name: str, axis: int, shape: tuple[int, ...], where: str) -> None:
    """Check one dimension of an argument."""
    if got != need:
        raise ValueError(
            f"{where}: dimension {axis} of parameter {name} must be {need}, got {got} (shape {list(shape)})"
        )


def bind_stride(array: Array, axis: int, need: int, name: str, where: str) -> None:
    """Check one stride of an argument, in elements; that of a unit dimension does not matter."""
    got = array.strides[axis] // array.itemsize
    if got != need and array.shape[axis] > 1:
        raise ValueError(f"{where}: stride {axis} of parameter {name} must be {need} elements, got {got}")


def out_of_bounds(array: Array, name: str, index: tuple[Any, ...]) -> IndexError:
    """The error for an access outside of a buffer."""
    shown = [i.tolist() if isinstance(i, np.ndarray) else int(i) for i in index]
    return IndexError(f"access out of bounds: {name}{shown} of shape {list(array.shape)}")


def checked(array: Array, name: str, index: tuple[int, ...]) -> tuple[int, ...]:
    """The index, if it lies inside of the array."""
    for i, n in zip(index, array.shape):
        if not 0 <= i < n:
            raise out_of_bounds(array, name, index)
    return index


def checked_vector(array: Array, name: str, index: tuple[Any, ...], mask: Any = None) -> tuple[Any, ...]:
    """The index with vectors in it, if every lane (that `mask` picks) lies inside; lanes not picked become 0."""
    out: list[Any] = []
    for i, n in zip(index, array.shape):
        ok: Any = (i >= 0) & (i < n)
        if mask is not None:
            ok = ok | ~mask
        if not np.all(ok):
            raise out_of_bounds(array, name, index)
        out.append(i if mask is None else np.where(mask, i, 0))
    return tuple(out)


def check_domain(value: int, low: int, extent: int, name: str, block: str) -> None:
    """Check that a block's iterator lies in its domain."""
    if not low <= value < low + extent:
        raise IndexError(f"block {block}: {name} = {value} lies outside of its domain [{low}, {low + extent})")


def trunc_div(a: int, b: int) -> int:
    """The quotient of integers, towards zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def trunc_mod(a: int, b: int) -> int:
    """The remainder of `trunc_div`."""
    return a - b * trunc_div(a, b)


def vector_div(a: Array, b: Array) -> Array:
    """`trunc_div` by lanes."""
    q = np.abs(a) // np.abs(b)
    return np.where((a < 0) == (b < 0), q, -q).astype(a.dtype)


def vector_mod(a: Array, b: Array) -> Array:
    """`trunc_mod` by lanes."""
    return (a - b * vector_div(a, b)).astype(a.dtype)


def to_int(value: Any, low: int, high: int) -> int:
    """A float as an integer, towards zero; nan becomes 0, what does not fit the nearest end."""
    x = float(value)
    if x != x:
        return 0
    if x in (float("inf"), float("-inf")):
        return high if x > 0 else low
    return max(low, min(high, int(x)))


def vector_to_int(value: Array, kind: Any, low: int, high: int) -> Array:
    """`to_int` by lanes."""
    return np.array([to_int(v, low, high) for v in value.tolist()], dtype=kind)


def meaning(name: str, dtype: str) -> Callable[..., Any]:
    """The intrinsic as a function on our values: scalars are Python integers or numpy floats, vectors arrays."""
    row = INTRINSICS[name]
    f = row.numpy
    assert f is not None
    kind = dt.to_numpy(dtype)
    if dt.lanes(dtype) > 1:
        return lambda *args: np.asarray(f(*args)).astype(kind)
    if dt.is_float(dtype):
        return lambda *args: kind.type(f(*args))
    if dt.is_bool(dtype):
        return lambda *args: bool(f(*args))
    # the width of an integer matters to bit operations
    return lambda *args: int(f(*(kind.type(a) if isinstance(a, int) else a for a in args)))


def reinterpret(value: Any, source: str, target: str) -> Any:
    """The same bits as another dtype."""
    if "handle" in (source, target):
        if isinstance(value, np.ndarray):
            raise unsupported("tir.reinterpret of a handle", "it has no addresses")
        raise unsupported("tir.reinterpret to a handle", "it has no raw memory")
    raw = np.atleast_1d(np.asarray(value, dt.to_numpy(source)))
    out = raw.view(dt.to_numpy(target))
    if dt.lanes(target) > 1:
        return out
    return out[0] if dt.is_float(target) else int(out[0])


def if_lanes(condition: Any, mask: Any, a: Callable[[Any], Any], b: Callable[[Any], Any]) -> Any:
    """`if_then_else` by lanes: each side sees the lanes that choose it."""
    if mask is None:
        mask = np.ones(len(condition), bool)
    yes, no = mask & condition, mask & ~condition
    if not yes.any():
        return b(no)
    if not no.any():
        return a(yes)
    return np.where(condition, a(yes), b(no))


def shuffle(vectors: list[Any], indices: list[int]) -> Any:
    """The chosen lanes of all vectors."""
    lanes = np.concatenate([np.atleast_1d(v) for v in vectors])
    return lanes[indices] if len(indices) > 1 else lanes[indices[0]]


def address(array: Array, index: tuple[int, ...], name: str) -> Array:
    """The memory of a buffer from an element on."""
    if not array.flags.c_contiguous:
        raise unsupported(f"address_of {name}", "the buffer is not compact")
    offset = 0
    for i, n in zip(index, array.shape):
        offset = offset * n + int(i)
    return array.reshape(-1)[offset:]


def match_region(source: Array, starts: tuple[int, ...], extents: tuple[int, ...], rank: int, name: str) -> Array:
    """The view of a region, leading unit dimensions dropped down to `rank`."""
    for s, e, n in zip(starts, extents, source.shape):
        if s < 0 or e < 0 or s + e > n:
            raise IndexError(
                f"match_buffer {name}: region from {list(starts)} of extents {list(extents)} leaves shape {list(source.shape)}"
            )
    part = source[tuple(slice(s, s + e) for s, e in zip(starts, extents))]
    while part.ndim > rank:
        if part.shape[0] != 1:
            raise ValueError(f"match_buffer {name}: a region of shape {list(part.shape)} has too many dimensions")
        part = part[0, ...]  # a view, also where no dimension is left
    return part


def over_rows(array: Array, name: str, index: tuple[int, ...], lanes: int) -> Array:
    """As many elements from an index on, over the ends of rows."""
    flat = address(array, index, name)
    if any(not 0 <= i < n for i, n in zip(index, array.shape)) or flat.size < lanes:
        raise out_of_bounds(array, name, index)
    return flat[:lanes]


def pointer(memory: Any, offset: int, name: str) -> Array:
    """Flat memory from an element on."""
    if not isinstance(memory, np.ndarray) or not memory.flags.c_contiguous:
        raise unsupported(f"a pointer into {name}", "its memory is no compact array")
    flat: Array = memory.reshape(-1)
    if not 0 <= offset <= flat.size:
        raise IndexError(f"a pointer into {name} at element {offset} of {flat.size}")
    return flat[offset:]


def element_strides(array: Array) -> tuple[int, ...]:
    """The strides in elements."""
    return tuple(s // array.itemsize for s in array.strides)


def element_offset(part: Array, memory: Array) -> int:
    """How many elements `part` starts after `memory`."""
    begin: int = part.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    return begin // part.itemsize


def fail(message: str) -> None:
    """Raise what an AssertStmt says: `Kind: text` gives that exception."""
    kind, sep, text = message.partition(": ")
    raise error(kind, text) if sep and kind.isidentifier() else AssertionError(message)


def error(kind: str, text: str) -> Exception:
    """The builtin exception of that name, or RuntimeError."""
    cls = getattr(builtins, kind, None)
    if isinstance(cls, type) and issubclass(cls, Exception):
        return cls(text)
    return RuntimeError(f"{kind}: {text}")


def raise_format(kind: str, text: str, *args: int) -> int:
    """What `tw_raise` does."""
    raise error(kind, text.replace("%lld", "%d").replace("%ld", "%d") % args)


RUNTIME: dict[str, Any] = {
    "_address": address, "_alloc": alloc, "_bind": bind_buffer, "_bind_dim": bind_dim, "_bind_stride": bind_stride, "_ck": checked, "_ckv": checked_vector,
    "_dom": check_domain, "_eoffset": element_offset, "_estrides": element_strides, "_fail": fail, "_ifl": if_lanes,
    "_match": match_region, "_np": np, "_pointer": pointer, "_product": itertools.product, "_raise": raise_format, "_reinterpret": reinterpret,
    "_Return": Return, "_rows": over_rows, "_shuffle": shuffle, "_tdiv": trunc_div, "_tmod": trunc_mod, "_toint": to_int, "_vdiv": vector_div,
    "_vmod": vector_mod, "_vtoint": vector_to_int, "_view": view,
}  # fmt: skip
"""The names that generated source uses."""
