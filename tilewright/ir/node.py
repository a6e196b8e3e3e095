"""IR nodes: bare, immutable records declared by their annotations.

A node class is written once, as a list of annotated fields; `@node` makes of it a `__slots__` class with a generated
constructor, and everything that walks IR (printing, equality, hashing, rewriting, JSON) reads the same list:

    @node
    class For(Stmt):
        loop_var: Annotated[Var, DEF]      # DEF: binds a name; compared up to renaming
        min: PrimExpr                      # a node (or a tuple/dict holding nodes): a child
        kind: ForKind = ForKind.SERIAL     # anything else: an attribute, compared by value

Constructors neither check nor infer: that is the work of verifiers and builders, so that building a node costs a fraction
of a microsecond. A field annotated `tuple[...]` takes any sequence, and where an expression is wanted, a Python number becomes a
constant. `derived("expr")` is a slot computed from the other
arguments at construction (an expression's dtype). `INFO` marks a slot that equality and traversal skip (a cached fact).

Nodes are immutable by convention: build a changed copy with `replace`, and return the same object when nothing changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, overload

from tilewright.support.lazy import resolve
from tilewright.support.span import Span

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Only for type checkers; Python 3.10 has none."""
        return lambda f: f


__all__ = ["DEF", "INFO", "Field", "Node", "children", "derived", "info", "map_children", "node", "replace", "walk"]

N = TypeVar("N", bound="Node")
T = TypeVar("T")

DEF = "DEF"
"""Marks a field that binds variables, in `Annotated[Var, DEF]`."""
INFO = "INFO"
"""Marks a field that is a derived fact: not compared, not traversed."""

_MISSING: Any = object()
_PLAIN = ("str", "int", "float", "bool", "ForKind", "tuple[int, ...]", "Lanes")
"""Annotations of fields that never hold nodes: traversals pass them by."""
_EXPRESSIONS = ("PrimExpr", "PrimExpr | None", "tuple[PrimExpr, ...]", "Lanes")
"""Annotations of fields in which a Python number stands for a constant: people write `For(i, 0, n, ...)`."""
_PYTHON = frozenset({int, float, bool, str})


def _constant(value: Any) -> Any:
    return resolve("tir.convert")(value)


def _lanes(value: Any) -> int:
    found: int = resolve("tir.lane_count")(value)
    return found


def _constants(values: Any) -> tuple[Any, ...]:
    if isinstance(values, Node) or values.__class__ in _PYTHON:
        values = (values,)
    return tuple(_constant(v) if not isinstance(v, Node) else v for v in values)


class Field:
    """One declared field of a node class: its name, its role (`""`, `DEF` or `INFO`), its default, whether it takes any
    sequence, whether it is `plain`: never a node, and whether Python numbers in it become constants."""

    __slots__ = ("converted", "default", "name", "plain", "role", "sequence")

    def __init__(self, name: str, role: str, default: Any, sequence: bool, plain: bool, converted: str) -> None:
        self.name, self.role, self.default, self.sequence, self.plain = name, role, default, sequence, plain
        self.converted = converted

    def __repr__(self) -> str:
        return f"Field({self.name!r}, {self.role!r})"


class _Special:
    """A field's default that carries an option: a derived expression, or keyword-only."""

    def __init__(self, expr: str | None, default: Any) -> None:
        self.expr, self.default = expr, default


def derived(expr: str, *, init: bool = False) -> Any:
    """A slot that the constructor computes from its other arguments; `expr` sees them and the class's module."""
    del init
    return _Special(expr, None)


def info(default: Any = None, *, kw_only: bool = True) -> Any:
    """A keyword-only slot that equality, hashing and traversal ignore (`span`, `struct_info`)."""
    del kw_only
    return _Special(None, default)


class Node:
    """The root of every IR node. `span` says where in the user's source the node comes from; it is never compared."""

    __slots__ = ("span",)
    __match_args__: ClassVar[tuple[str, ...]] = ()
    node_fields: ClassVar[tuple[Field, ...]] = ()
    child_fields: ClassVar[tuple[str, ...]] = ()  # the names of the fields that may hold nodes
    identity: ClassVar[bool] = (
        False  # does the object itself matter, beyond its fields? (variables, buffers, operators)
    )
    variable: ClassVar[bool] = False  # is it a variable?
    _derived: ClassVar[dict[str, str]] = {}
    _kw: ClassVar[dict[str, Any]] = {"span": None}

    span: Span | None

    def script(self, **options: Any) -> str:
        """This node as TVMScript text; `options` as of the printer (`prefix=`, `show_meta=`)."""
        return resolve("script.print")(self, **options)

    def show(self, style: str | None = None, black_format: bool | None = None, **options: Any) -> None:
        """Print the node as script, coloured on a terminal; `options` as of `script`."""
        resolve("script.show")(self, style=style, black_format=black_format, **options)

    def __repr__(self) -> str:
        return resolve("script.repr")(self)

    def same_as(self, other: object) -> bool:
        """Is it the very same object?"""
        return self is other


@overload
def node(cls: type[T], /) -> type[T]: ...
@overload
def node(*, repr: bool = ...) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(derived, info))
def node(cls: Any = None, /, **_: Any) -> Any:
    """Class decorator: make a node class of the annotations (see the module's head)."""
    return _make(cls) if cls is not None else _make


def _make(cls: type[Any]) -> type[Any]:
    base: Any = cls.__mro__[1]
    fields: dict[str, Field] = {f.name: f for f in base.node_fields}
    derived_: dict[str, str] = dict(cls._derived)
    kw: dict[str, Any] = dict(cls._kw)
    slots: list[str] = []
    inherited = {s for base in cls.__mro__[1:] for s in getattr(base, "__slots__", ())}
    namespace = dict(cls.__dict__)
    for name, annotation in cls.__dict__.get("__annotations__", {}).items():
        text = annotation if isinstance(annotation, str) else repr(annotation)
        if text.startswith(("ClassVar", "typing.ClassVar")):
            continue
        default = namespace.pop(name, _MISSING)
        if name not in inherited:
            slots.append(name)
        derived_.pop(name, None)
        if isinstance(default, _Special):
            fields.pop(name, None)
            if default.expr is not None:
                derived_[name] = default.expr
            else:
                kw[name] = default.default
            continue
        kw.pop(name, None)
        role = DEF if "DEF" in text else INFO if "INFO" in text else ""
        sequence = text.removeprefix("Annotated[").startswith("tuple[")
        converted = text if text in _EXPRESSIONS else ""
        plain = text.replace(" | None", "") in _PLAIN
        fields[name] = Field(name, role, default, sequence, plain, converted)
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    namespace.update(
        __slots__=tuple(slots),
        __match_args__=tuple(fields),
        node_fields=tuple(fields.values()),
        child_fields=tuple(f.name for f in fields.values() if f.role != INFO and not f.plain),
        _derived=derived_,
        _kw=kw,
    )
    if "__init__" not in cls.__dict__:
        namespace["__init__"] = _make_init(cls, list(fields.values()), derived_, kw)
    metaclass: Any = type(cls)
    made: Any = metaclass(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    _fix_class_cells(cls, made)
    return made


def _make_init(cls: type[Any], fields: list[Field], derived_: dict[str, str], kw: dict[str, Any]) -> Any:
    scope: dict[str, Any] = {"_python": _PYTHON, "_constant": _constant, "_constants": _constants, "_lanes": _lanes}
    params: list[str] = ["self"]
    body: list[str] = []
    for f in fields:
        if f.default is _MISSING:
            params.append(f.name)
        else:
            scope[f"_default_{f.name}"] = f.default
            params.append(f"{f.name}=_default_{f.name}")
        n = f.name
        if f.converted == "Lanes":
            body.append(f"if {n}.__class__ is not int: {n} = _lanes({n})")
        elif f.converted and not f.sequence:
            body.append(f"if {n}.__class__ in _python: {n} = _constant({n})")
        elif f.sequence:
            made = f"_constants({n})" if f.converted else f"tuple({n})"
            body.append(f"if {n}.__class__ is not tuple and {n} is not None: {n} = {made}")
        body.append(f"self.{n} = {n}")
    if kw:
        params.append("*")
        for name, default in kw.items():
            scope[f"_default_{name}"] = default
            params.append(f"{name}=_default_{name}")
            body.append(f"self.{name} = {name}")
    body += [f"self.{name} = {expr}" for name, expr in derived_.items()]
    source = f"def __init__({', '.join(params)}):\n    " + "\n    ".join(body or ["pass"])
    module_globals = sys.modules[cls.__module__].__dict__
    make = f"def make({', '.join(scope)}):\n    " + source.replace("\n", "\n    ") + "\n    return __init__"
    out: dict[str, Any] = {}
    exec(make, module_globals, out)
    init = out["make"](**scope)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _fix_class_cells(old: type[Any], new: type[Any]) -> None:
    """Point zero-argument `super()` and `__class__` of the methods at the class that replaced theirs."""
    for member in new.__dict__.values():
        func = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        for cell in getattr(func, "__closure__", None) or ():
            if cell.cell_contents is old:
                cell.cell_contents = new


def _append(value: Any, out: list[Node]) -> None:
    """Add the nodes inside a tuple or a dictionary to `out`."""
    for item in cast("dict[Any, Any]", value).values() if type(value) is dict else cast("tuple[Any, ...]", value):
        if isinstance(item, Node):
            out.append(item)
        elif isinstance(item, (tuple, list, dict)):
            _append(item, out)


def children(n: Node) -> list[Node]:
    """The nodes directly inside `n`, in field order, looking through tuples and dict values."""
    out: list[Node] = []
    for name in n.child_fields:
        value = getattr(n, name)
        if isinstance(value, Node):
            out.append(value)
        elif isinstance(value, (tuple, list, dict)):
            _append(value, out)
    return out


def walk(n: Node) -> Iterator[Node]:
    """`n` and every node below it, parents first."""
    todo = [n]
    while todo:
        x = todo.pop()
        yield x
        todo.extend(reversed(children(x)))


def _map_tuple(items: tuple[Any, ...], f: Callable[[Node], Any]) -> tuple[Any, ...]:
    new = [f(item) if isinstance(item, Node) else _map_inside(item, f) for item in items]
    for a, b in zip(new, items):
        if a is not b:
            return tuple(new)
    return items


def _map_inside(value: Any, f: Callable[[Node], Any]) -> Any:
    kind = type(value)
    if kind is tuple:
        return _map_tuple(value, f)
    if kind is dict:
        table = cast("dict[Any, Any]", value)
        changed = {k: f(v) if isinstance(v, Node) else _map_inside(v, f) for k, v in table.items()}
        return changed if any(changed[k] is not table[k] for k in table) else table
    return value


def map_children(n: N, f: Callable[[Node], Any]) -> N:
    """`n` with `f` applied to each direct child; the same object when no child changed."""
    changes: dict[str, Any] | None = None
    for name in n.child_fields:
        old = getattr(n, name)
        if isinstance(old, Node):
            new = f(old)
        elif type(old) is tuple or type(old) is dict:
            new = _map_inside(old, f)
        else:
            continue
        if new is not old:
            if changes is None:
                changes = {}
            changes[name] = new
    return n if changes is None else replace(n, **changes)


def replace(n: N, **changes: Any) -> N:
    """A copy of `n` with some fields changed. Derived slots are computed anew; the span is kept."""
    args = [changes.pop(f.name) if f.name in changes else getattr(n, f.name) for f in n.node_fields]
    kw = {name: changes.pop(name) if name in changes else getattr(n, name) for name in n._kw}
    if changes:
        raise TypeError(f"{type(n).__name__} has no field {', '.join(changes)}")
    return type(n)(*args, **kw)
