"""Functions that differ by target: one default, others for the keys of targets; the target in scope chooses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.target import Target

__all__ = ["GenericFunc", "generic_func", "get_native_generic_func", "override_native_generic_func"]

_NAMED: dict[str, GenericFunc] = {}


class GenericFunc:
    """A function by target. `register(f, key_list)` adds one; the first key of the target in scope that is known chooses."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._default: Callable[..., Any] | None = None
        self._by_key: dict[str, Callable[..., Any]] = {}

    def set_default(self, func: Callable[..., Any], allow_override: bool = False) -> None:
        """Set what runs where no key fits. Raises ValueError where it is set already."""
        if self._default is not None and not allow_override:
            raise ValueError(f"the default of {self.name!r} is set already; allow_override=True replaces it")
        self._default = func

    def register(self, func: Any, key_list: str | Sequence[str] | None = None, allow_override: bool = False) -> Any:
        """Add a function for keys: `register(f, ["cuda", "gpu"])`, or as a decorator, `@g.register("cuda")`."""
        if not callable(func):
            return lambda f: self.register(f, func, bool(key_list) or allow_override)
        keys = [key_list] if isinstance(key_list, str) else list(key_list or ())
        for key in keys:
            if key in self._by_key and not allow_override:
                raise ValueError(f"{self.name!r} has a function for {key!r} already; override=True replaces it")
            self._by_key[key] = func
        return func

    def __call__(self, *args: Any) -> Any:
        target = Target.current()
        for key in target.keys if target is not None else ():
            if key in self._by_key:
                return self._by_key[key](*args)
        if self._default is None:
            raise ValueError(f"{self.name!r} has no default, and no function for {target}")
        return self._default(*args)

    def get_packed_func(self) -> Callable[..., Any]:
        """What is called for the target in scope."""
        target = Target.current()
        for key in target.keys if target is not None else ():
            if key in self._by_key:
                return self._by_key[key]
        if self._default is None:
            raise ValueError(f"{self.name!r} has no default, and no function for {target}")
        return self._default


def get_native_generic_func(name: str) -> GenericFunc:
    """The generic function of a name; a new one where there is none."""
    return _NAMED.setdefault(name, GenericFunc(name))


def generic_func(default: Callable[..., Any]) -> Any:
    """Make the decorated function the default of a generic one; `f.register("cuda")` decorates others."""
    inner = GenericFunc(default.__name__)
    inner.set_default(default)

    @functools.wraps(default)
    def dispatch(*args: Any, **named: Any) -> Any:
        return inner.get_packed_func()(*args, **named)

    def register(key: str | Sequence[str], func: Callable[..., Any] | None = None, override: bool = False) -> Any:
        if func is not None:
            return inner.register(func, key, override)
        return lambda f: inner.register(f, key, override)

    dispatch.register = register  # type: ignore[attr-defined]
    dispatch.fdefault = default  # type: ignore[attr-defined]
    dispatch.dispatch_dict = inner._by_key  # type: ignore[attr-defined]
    dispatch.get_packed_func = inner.get_packed_func  # type: ignore[attr-defined]
    return dispatch


def override_native_generic_func(name: str) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: like `generic_func`, under a name that `get_native_generic_func` finds."""

    def decorate(default: Callable[..., Any]) -> Any:
        made = get_native_generic_func(name)
        made.set_default(default, allow_override=True)
        return made

    return decorate
