"""The global registry of functions: what one language registers, every other can call by name.

Generated code calls registered functions by name too (`call_packed`, `call_dps_packed`). Tensors arrive in a registered
Python function as NDArrays, with `.numpy()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["get_global_func", "list_global_func_names", "register_func", "register_object", "remove_global_func"]


def register_func(func_name: Any, f: Callable[..., Any] | None = None, override: bool = False) -> Any:
    """Register `f` as `func_name`: a call, or a decorator, with the name or bare (then the function's own name).

        @register_func("my.add")
        def add(a, b, out): ...

    The function is returned as it was. Raises ValueError if the name is taken and `override` is not set.
    """
    if callable(func_name):
        f, func_name = func_name, func_name.__name__
    if not isinstance(func_name, str):
        raise TypeError(f"the name of a function is a str, got {type(func_name).__name__}")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        from tilewright.runtime.ffi import ffi

        if not override and ffi.get_global_func(func_name, allow_missing=True) is not None:
            raise ValueError(f"a function {func_name!r} is registered already; override=True replaces it")
        ffi.register_global_func(func_name, function, override=override)
        return function

    return register(f) if f is not None else register


def get_global_func(name: str, allow_missing: bool = False) -> Any:
    """The registered function `name`; None if there is none and `allow_missing` is set, else ValueError with close names."""
    from tilewright.runtime.ffi import ffi

    found = ffi.get_global_func(name, allow_missing=True)
    if found is None and not allow_missing:
        from difflib import get_close_matches

        close = get_close_matches(name, list_global_func_names(), 3)
        hint = f"; close names: {', '.join(close)}" if close else ""
        raise ValueError(f"no function {name!r} is registered{hint}")
    return found


def remove_global_func(name: str) -> None:
    """Remove the registered function `name`; ValueError if there is none."""
    get_global_func(name)
    from tilewright.runtime.ffi import ffi

    ffi.remove_global_func(name)


def list_global_func_names() -> list[str]:
    """The names of all registered functions."""
    from tilewright.runtime.ffi import ffi

    return sorted(str(n) for n in ffi.registry.list_global_func_names())


def register_object(type_key: Any = None) -> Any:
    """Register a Python class as the face of an FFI object type: a decorator, with the type's key or bare."""
    from tilewright.runtime.ffi import ffi

    return ffi.register_object(type_key)
