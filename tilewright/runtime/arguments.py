"""The arguments of a call: their order, what may be repaired, what is wrong with them, and the kind of the results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.runtime.dtypes import numpy_name
from tilewright.runtime.signature import Dim, Param, Signature

__all__ = ["by_name", "converter", "numpy_knows", "repair"]


def by_name(signature: Signature, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """All inputs in order, from positional and named ones; a lone dictionary counts as named.

    Raises TypeError for an unknown, repeated or missing input, with close names.
    """
    if len(args) == 1 and isinstance(args[0], dict):
        named = {**cast("dict[str, Any]", args[0]), **named}
        args = ()
    names = [p.name for p in signature.inputs]
    values: dict[str, Any] = dict(zip(names, args))
    if len(args) > len(names):
        raise TypeError(count_message(signature, len(args)))
    for name, value in named.items():
        if name not in names:
            close = get_close_matches(name, names, 1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise TypeError(f"{signature.name}() has no input {name!r}{hint} Its inputs: {_inputs(signature)}")
        if name in values:
            raise TypeError(f"{signature.name}() got the input {name!r} twice")
        values[name] = value
    missing = [n for n in names if n not in values]
    if missing:
        raise TypeError(
            f"{signature.name}() misses the input{'s' if len(missing) > 1 else ''} "
            f"{', '.join(map(repr, missing))}. Its inputs: {_inputs(signature)}"
        )
    return tuple(values[n] for n in names)


def _inputs(signature: Signature) -> str:
    return ", ".join(map(str, signature.inputs)) or "none"


def count_message(signature: Signature, got: int) -> str:
    """What to say of a wrong number of inputs."""
    n = len(signature.inputs)
    return f"{signature.name}() takes {n} input{'' if n == 1 else 's'} ({_inputs(signature)}), got {got}"


def repair(signature: Signature, args: Sequence[Any], error: BaseException | None = None) -> tuple[Any, ...] | None:
    """The arguments with what may be repaired: layouts copied, read-only and unusual dtypes shared another way.

    None where there is nothing to repair (then `error`, with which the call ended, stands). Raises TypeError or ValueError,
    from `error`, for what is wrong: it names the input, what it got and what it needs.
    """
    if len(args) != len(signature.inputs):
        if len(args) == len(signature.inputs) + len(signature.outputs):
            return None  # the caller gave memory for the results
        raise TypeError(count_message(signature, len(args))) from error
    dims: dict[str, tuple[int, str]] = {}
    out: list[Any] = []
    changed = False
    for p, a in zip(signature.inputs, args):
        try:
            value = _scalar(p, a) if p.shape is None else _tensor(p, a, dims, bool(signature.outputs))
        except (TypeError, ValueError) as wrong:
            raise type(wrong)(f"{signature.name}(): input {p.name!r} {wrong}") from None
        changed |= value is not a
        out.append(value)
    return tuple(out) if changed else None


def _scalar(p: Param, a: Any) -> Any:
    value = a.item() if hasattr(a, "item") and getattr(a, "shape", None) == () else a
    if isinstance(value, (int, float, np.number)) and (
        dt.is_float(p.dtype) or not isinstance(value, (float, np.floating))
    ):
        return value
    raise TypeError(f"must be a number ({p.dtype}), got {_kind(a)}")


def _needs(p: Param) -> str:
    return str(p).partition(": ")[2]


def _kind(a: Any) -> str:
    if hasattr(a, "shape") and hasattr(a, "dtype"):
        return f"{type(a).__name__} {str(a.dtype).removeprefix('torch.')}[{', '.join(map(str, a.shape))}]"
    return f"{type(a).__name__} {a!r}"[:60]


def _tensor(p: Param, a: Any, dims: dict[str, tuple[int, str]], may_copy: bool) -> Any:
    """The array itself, or what shares its memory, or (`may_copy`) a copy in the layout that is needed."""
    from tilewright.runtime.ffi import tensor_from, to_numpy

    if isinstance(a, np.generic):
        a = np.asarray(a)
    if not hasattr(a, "__dlpack__") or not hasattr(a, "shape"):
        hint = f"; np.asarray(..., {p.dtype!r}) makes one" if isinstance(a, (int, float, list, tuple)) else ""
        raise TypeError(f"must be an array ({_needs(p)}), got {type(a).__name__}{hint}")
    got = numpy_name(a.dtype) if isinstance(a, np.ndarray) else str(a.dtype).removeprefix("torch.")

    if got != p.dtype:
        raise TypeError(
            f"must be of dtype {p.dtype}, got {got}; convert it first, for example {_conversion(a, p.dtype)}"
        )
    _check_shape(p, tuple(int(d) for d in a.shape), dims)
    if isinstance(a, np.ndarray):
        usable = a.flags.c_contiguous and a.flags.aligned and a.dtype.isnative
        if usable and a.flags.writeable and numpy_knows(p.dtype):
            return a
        _may_copy(usable or may_copy, p)
        return tensor_from(a if usable else np.array(a, dtype=a.dtype.newbyteorder("="), order="C"))
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.Tensor):
        if a.device.type != "cpu":
            raise ValueError(f"must be in the memory of the CPU, got a tensor on {a.device}; use .cpu()")
        fixed = a.detach() if a.requires_grad else a
        if fixed.is_conj() or fixed.is_neg():
            fixed = fixed.resolve_conj().resolve_neg()
        _may_copy(fixed.is_contiguous() or may_copy, p)
        return fixed if fixed.is_contiguous() else fixed.contiguous()
    tensor = tensor_from(a)
    if not tensor.is_contiguous():
        _may_copy(may_copy, p)
        return tensor_from(np.ascontiguousarray(to_numpy(tensor)))
    return a if type(a) is type(tensor) else tensor


def _may_copy(allowed: bool, p: Param) -> None:
    if not allowed:
        raise ValueError(
            f"must be row-major, compact and aligned ({_needs(p)}): this function may write to it, so it is not copied"
        )


def numpy_knows(dtype: str) -> bool:
    """Can numpy exchange arrays of this dtype by DLPack?"""
    return not dtype.startswith(("bfloat", "float8"))


def _conversion(a: Any, dtype: str) -> str:
    return f"x.to(torch.{dtype})" if type(a).__module__.startswith("torch") else f"x.astype({dtype!r})"


def _check_shape(p: Param, got: tuple[int, ...], dims: dict[str, tuple[int, str]]) -> None:
    shape = p.shape or ()
    if len(got) != len(shape):
        plural = "" if len(shape) == 1 else "s"
        raise ValueError(f"must have {len(shape)} dimension{plural} ({_needs(p)}), got {len(got)}: shape {got}")
    for d, (have, want) in enumerate(zip(got, shape)):
        known = _known(want, dims)
        if known is None:
            if isinstance(want, str) and want.isidentifier():
                dims[want] = (have, f"{p.name!r}, dimension {d}")
        elif have != known[0]:
            raise ValueError(f"has shape {got}, but dimension {d} must be {known[0]}{known[1]} ({_needs(p)})")


def _known(want: Dim, dims: Mapping[str, tuple[int, str]]) -> tuple[int, str] | None:
    if isinstance(want, int):
        return want, ""
    found = dims.get(want)
    return (found[0], f" ({want}, from {found[1]})") if found is not None else None


def converter(args: Sequence[Any]) -> Callable[[Any], Any] | None:
    """What makes the caller's kind of array out of a result: None where the results are it already.

    Torch tensors among the arguments make the results torch tensors (mostly the FFI does that itself). NDArrays among the
    arguments keep results NDArrays; else other libraries' arrays (by the array API's `__array_namespace__`) make theirs; else results become numpy arrays.
    """
    if not args or (type(args[0]) is np.ndarray and all(type(a) is np.ndarray for a in args)):
        return _numpy
    from tilewright.runtime.ffi import ffi

    tensor: Any = ffi.Tensor
    torch: Any = sys.modules.get("torch")
    if torch is not None and any(isinstance(a, torch.Tensor) for a in args):
        return _torch
    if any(isinstance(a, tensor) for a in args):
        return None
    for a in args:
        if (
            hasattr(a, "__dlpack__")
            and not isinstance(a, (np.ndarray, np.generic))
            and hasattr(a, "__array_namespace__")
        ):
            from_dlpack: Callable[[Any], Any] = a.__array_namespace__().from_dlpack
            return from_dlpack
    return _numpy


def _numpy(result: Any) -> np.ndarray[Any, Any]:
    from tilewright.runtime.ffi import to_numpy

    return to_numpy(result)


def _torch(result: Any) -> Any:
    torch: Any = sys.modules["torch"]
    return result if isinstance(result, torch.Tensor) else torch.from_dlpack(result)
