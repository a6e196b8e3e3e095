"""IRModule: functions by name, of both IRs, with attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from tilewright.ir.node import Node, node, replace
from tilewright.ir.op import BaseExpr, GlobalVar

__all__ = ["BaseFunc", "IRModule"]

F = TypeVar("F", bound="BaseFunc")


@node
class BaseFunc(BaseExpr):
    """The root of functions. Subclasses have a field `attrs: dict[str, Any]`."""

    def with_attr(self: F, key: str | Mapping[str, Any], value: Any = None) -> F:
        """The same function with an attribute set (or several, of a mapping)."""
        new = dict(key) if isinstance(key, Mapping) else {key: value}
        return replace(self, attrs={**attrs_of(self), **new})

    def without_attr(self: F, key: str) -> F:
        """The same function without an attribute."""
        return replace(self, attrs={k: v for k, v in attrs_of(self).items() if k != key})


def attrs_of(f: Any) -> dict[str, Any]:
    """The attributes of a function as a plain dictionary."""
    return getattr(f, "attrs", None) or {}


@node
class IRModule(Node):
    """Functions by name. `functions` maps GlobalVar to function in order; a new module is made by `with_`/`without`,
    while `mod["name"] = f` and `update_func` change this one in place, as users of this field expect of a module."""

    functions: dict[GlobalVar, BaseFunc] = {}
    attrs: dict[str, Any] = {}

    def __init__(
        self,
        functions: Mapping[GlobalVar, BaseFunc] | Mapping[str, BaseFunc] | None = None,
        attrs: Mapping[str, Any] | None = None,
        *,
        span: Any = None,
    ) -> None:
        """`functions` by GlobalVar or by name."""
        self.functions = {self._new_var(name): f for name, f in (functions or {}).items()}  # pyright: ignore
        self.attrs = dict(attrs or {})  # pyright: ignore
        self.span = span

    def __getitem__(self, name: str | GlobalVar) -> Any:
        """The function of that name. Raises ValueError that lists the names there are."""
        return self.functions[self.get_global_var(name)]

    def __setitem__(self, name: str | GlobalVar, func: BaseFunc) -> None:
        self.update_func(self.find_global_var(name) or self._new_var(name), func)

    def __contains__(self, name: object) -> bool:
        return self.find_global_var(name) is not None  # pyright: ignore[reportArgumentType]

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    @staticmethod
    def _new_var(name: str | GlobalVar) -> GlobalVar:
        return name if isinstance(name, GlobalVar) else GlobalVar(name)

    def find_global_var(self, name: str | GlobalVar) -> GlobalVar | None:
        """The GlobalVar of that name, if the module has it."""
        if isinstance(name, GlobalVar):
            if name in self.functions:
                return name
            name = name.name_hint
        return next((v for v in self.functions if v.name_hint == name), None)

    def get_global_var(self, name: str | GlobalVar) -> GlobalVar:
        """The GlobalVar of that name. Raises ValueError that lists the names there are."""
        found = self.find_global_var(name)
        if found is None:
            names = ", ".join(v.name_hint for v in self.functions) or "none"
            raise ValueError(f"the module has no function {name!r}; it has: {names}")
        return found

    def get_global_vars(self) -> list[GlobalVar]:
        """All of them, in order."""
        return list(self.functions)

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """Pairs of variable and function, in order."""
        return list(self.functions.items())

    def update_func(self, var: GlobalVar, func: BaseFunc) -> None:
        """Set the function of `var`, in place."""
        self.functions[var] = func

    def update(self, other: IRModule | Mapping[GlobalVar, BaseFunc]) -> None:
        """Take over every function of `other`, in place."""
        for var, func in (other.functions if isinstance(other, IRModule) else other).items():
            self[var.name_hint] = func

    def with_(self, functions: Mapping[GlobalVar, BaseFunc]) -> IRModule:
        """A new module with these functions added or replaced."""
        return IRModule({**self.functions, **functions}, self.attrs)

    def without(self, *variables: GlobalVar) -> IRModule:
        """A new module without these functions."""
        return IRModule({v: f for v, f in self.functions.items() if v not in variables}, self.attrs)

    def with_attr(self, key: str, value: Any) -> IRModule:
        """A new module with an attribute set."""
        return IRModule(dict(self.functions), {**self.attrs, key: value})

    def get_attr(self, key: str) -> Any:
        """An attribute, or None."""
        return self.attrs.get(key)

    def clone(self) -> IRModule:
        """A new module with the same functions."""
        return IRModule(dict(self.functions), dict(self.attrs))

    @staticmethod
    def from_expr(func: BaseFunc, name: str | None = None) -> IRModule:
        """A module of one function, named by `name`, by its `global_symbol`, or `main`."""
        chosen = name or attrs_of(func).get("global_symbol") or "main"
        return IRModule({GlobalVar(chosen): func.with_attr("global_symbol", chosen)})
