"""Walking and rewriting IR: one generic traversal, with handlers by class or rules by annotation.

Nodes whose identity matters (`identity = True`: variables, buffers, operators, global names) are leaves to a rewrite: they
are never rebuilt behind the back of those who refer to them. `substitute` replaces them, consistently, on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar, get_type_hints

from tilewright.ir.node import DEF, Node, children, map_children

__all__ = ["Mutator", "Rules", "Visitor", "bound_vars", "collect", "free_vars", "rewrite", "substitute", "transform"]

N = TypeVar("N", bound=Node)


def transform(n: N, f: Callable[[Node], Node | None]) -> N:
    """`n` with `f` applied to every node, children first; where `f` gives None, the node stays."""

    def visit(x: Node) -> Node:
        if not x.identity:
            x = map_children(x, visit)
        new = f(x)
        return x if new is None else new

    return visit(n)  # pyright: ignore[reportReturnType]


class _Dispatch:
    """Finds the method `visit_<ClassName>` for a node's class or the nearest base that has one."""

    _handlers: ClassVar[dict[type, str | None]] = {}

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        cls._handlers = {}

    def handler(self, kind: type) -> Any:
        """The bound method for nodes of `kind`, or None."""
        cache = type(self)._handlers
        if kind in cache:
            name = cache[kind]
        else:
            names = (f"visit_{base.__name__}" for base in kind.__mro__ if base is not Node)
            name = cache[kind] = next((m for m in names if hasattr(self, m)), None)
        return getattr(self, name) if name else None


class Mutator(_Dispatch):
    """Rewrites top down by methods `visit_<ClassName>(self, n) -> node`; others rebuild their children (`generic`)."""

    def __call__(self, n: N) -> N:
        return self.visit(n)

    def visit(self, n: Any) -> Any:
        """The rewritten node; the same object when nothing changed."""
        method = self.handler(type(n))
        return method(n) if method is not None else self.generic(n)

    def generic(self, n: Any) -> Any:
        """`n` with its children visited."""
        return n if n.identity else map_children(n, self.visit)


class Visitor(_Dispatch):
    """Walks top down by methods `visit_<ClassName>(self, n) -> None`; others walk on (`generic`)."""

    def __call__(self, n: Node) -> None:
        self.visit(n)

    def visit(self, n: Any) -> None:
        """Visit one node."""
        method = self.handler(type(n))
        if method is not None:
            method(n)
        else:
            self.generic(n)

    def generic(self, n: Any) -> None:
        """Visit the children; identity nodes are leaves."""
        if not n.identity:
            for child in children(n):
                self.visit(child)


class Rules:
    """A table of rewrite rules, keyed by the class that a rule's first parameter is annotated with.

    A rule is `def rule(n: Add, ctx) -> Node | None`; None means no change. Tables add up: `A + B` tries A's rules first.
    """

    def __init__(self, name: str, rules: Iterable[tuple[tuple[type, ...], Callable[..., Any]]] = ()) -> None:
        self.name = name
        self.rules = list(rules)
        self._by_type: dict[type, list[Callable[..., Any]]] = {}

    def __call__(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: add a rule."""
        hints = get_type_hints(rule)
        first = next(iter(hints.values()))
        kinds: tuple[type, ...] = getattr(first, "__args__", None) or (first,)
        self.rules.append((kinds, rule))
        self._by_type.clear()
        return rule

    def __add__(self, other: Rules) -> Rules:
        return Rules(f"{self.name}+{other.name}", [*self.rules, *other.rules])

    def of(self, kind: type) -> list[Callable[..., Any]]:
        """The rules that apply to nodes of `kind`."""
        found = self._by_type.get(kind)
        if found is None:
            found = self._by_type[kind] = [r for kinds, r in self.rules if issubclass(kind, kinds)]
        return found


def rewrite(n: N, rules: Rules, ctx: Any = None, limit: int = 100) -> N:
    """`n` with `rules` applied bottom up, at each node until none changes it. Raises RuntimeError after `limit` rounds."""

    def step(x: Node) -> Node | None:
        start = x
        for _ in range(limit):
            for rule in rules.of(type(x)):
                new = rule(x, ctx)
                if new is not None and new is not x:
                    x = new
                    break
            else:
                return x if x is not start else None
        raise RuntimeError(f"rules {rules.name!r} do not come to an end on {type(start).__name__}")

    return transform(n, step)


def substitute(n: N, mapping: Mapping[Any, Any]) -> N:
    """`n` with variables (or buffers, graph variables) replaced. A buffer or graph variable whose type mentions a replaced
    variable is replaced by a new one, the same everywhere."""
    if not mapping:
        return n
    memo: dict[Any, Any] = dict(mapping)

    def visit(x: Node) -> Any:
        if x.identity:
            found = memo.get(x)
            if found is None:
                found = memo[x] = map_children(x, visit)
            return found
        if x.__class__.__name__ == "PrimFunc":
            return _substitute_func(x, memo, visit)
        return map_children(x, visit)

    return visit(n)


def _substitute_func(f: Any, memo: dict[Any, Any], visit: Callable[[Node], Any]) -> Any:
    new = map_children(f, visit)
    keys = {visit(p): visit(b) for p, b in f.buffer_map.items()}
    same = all(k is p for k, p in zip(keys, f.buffer_map, strict=True))
    if same:
        return new
    from tilewright.ir.node import replace

    return replace(new, buffer_map=keys)


def collect(n: Node, kind: type[N] | tuple[type[N], ...]) -> list[N]:
    """Every node of `kind` in `n`, each object once, in order of first appearance. Looks inside buffers' types too."""
    seen: set[int] = set()
    out: list[N] = []

    def visit(x: Node) -> None:
        if x.identity:
            if id(x) in seen:
                return
            seen.add(id(x))
        if isinstance(x, kind):
            out.append(x)
        for child in children(x):
            visit(child)

    visit(n)
    return out


def _is_var(x: Node) -> bool:
    return x.variable


def bound_vars(n: Node) -> set[Any]:
    """The variables that something inside `n` binds (loop variables, lets, parameters, ...)."""
    out: set[Any] = set()

    def visit(x: Node, binding: bool) -> None:
        if x.identity:
            if binding:
                if _is_var(x):
                    out.add(x)
                for child in children(x):
                    visit(child, True)
            return
        for field in x.node_fields:
            value = getattr(x, field.name)
            for child in _nodes(value):
                visit(child, binding or field.role == DEF)

    visit(n, False)
    return out


def _nodes(value: Any) -> Iterable[Node]:
    if isinstance(value, Node):
        return (value,)
    if isinstance(value, tuple):
        return [c for item in value for c in _nodes(item)]
    if isinstance(value, dict):
        return [c for item in value.items() for part in item for c in _nodes(part)]
    return ()


def free_vars(n: Node) -> list[Any]:
    """The variables that `n` uses and does not bind, in order of first appearance (those in buffers' types included)."""
    bound = bound_vars(n)
    seen: set[Any] = set()
    out: list[Any] = []

    def visit(x: Node) -> None:
        if x.identity:
            if x in seen:
                return
            seen.add(x)
            if _is_var(x) and x not in bound:
                out.append(x)
        for child in children(x):
            visit(child)

    visit(n)
    return out
