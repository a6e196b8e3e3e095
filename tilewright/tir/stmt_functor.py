"""Walking and rewriting statements by plain functions, under the names people know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tilewright.arith.expr import Var
from tilewright.ir.node import Node, children, map_children, replace
from tilewright.ir.rewrite import substitute as _substitute
from tilewright.tir import ir as t

__all__ = ["ir_transform", "post_order_visit", "pre_order_visit", "renew_defs", "substitute"]

N = TypeVar("N", bound=Node)


def post_order_visit(stmt: Node, fvisit: Callable[[Any], Any]) -> None:
    """Call `fvisit` on every node, children first, each object once. Variables and buffers are visited, not entered."""
    seen: set[int] = set()

    def visit(n: Node) -> None:
        if id(n) in seen:
            return
        seen.add(id(n))
        if not n.identity:
            for c in children(n):
                visit(c)
        fvisit(n)

    visit(stmt)


def pre_order_visit(stmt: Node, fvisit: Callable[[Any], Any]) -> None:
    """Call `fvisit` on nodes, parents first; where it gives False, what is inside is skipped."""

    def visit(n: Node) -> None:
        if fvisit(n) is not False and not n.identity:
            for c in children(n):
                visit(c)

    visit(stmt)


def ir_transform(
    stmt: N,
    preorder: Callable[[Any], Node | None] | None,
    postorder: Callable[[Any], Node | None] | None,
    only_enable: Sequence[str] | None = None,
) -> N:
    """Rewrite a statement. `preorder(node)` may give a node that replaces it, inside and all; `postorder(node)` one that
    replaces it once its inside is done; None means no change. `only_enable` lists the classes asked about (`tir.For`)."""
    wanted = None if only_enable is None else {name.rpartition(".")[2] for name in only_enable}

    def visit(n: Node) -> Node:
        asked = wanted is None or type(n).__name__ in wanted
        if asked and preorder is not None:
            new = preorder(n)
            if new is not None:
                return new
        if not n.identity:
            n = map_children(n, visit)
        if asked and postorder is not None:
            new = postorder(n)
            if new is not None:
                return new
        return n

    return visit(stmt)  # pyright: ignore[reportReturnType]


def substitute(node: N, vmap: Mapping[Var, Any] | Callable[[Var], Any]) -> N:
    """The node with variables replaced: by a mapping, or by a function that gives None for those that stay."""
    if not isinstance(vmap, Mapping):
        table: dict[Any, Any] = {}
        choose = vmap

        def note(n: Any) -> None:
            if isinstance(n, Var):
                new = choose(n)
                if new is not None:
                    table[n] = new

        post_order_visit(node, note)
        vmap = table
    return _substitute(node, vmap)


def renew_defs(func: t.PrimFunc) -> t.PrimFunc:
    """A copy of the function in which every variable and buffer that it defines is a new object."""
    table: dict[Any, Any] = {}

    def renew_var(v: Any) -> None:
        if isinstance(v, Var) and v not in table:
            table[v] = replace(v)

    for n in _definitions(func):
        for v in (n.data, *n.shape, *n.strides, n.elem_offset) if isinstance(n, t.Buffer) else (n,):
            renew_var(v)
    for n in _definitions(func):
        if isinstance(n, t.Buffer) and n not in table:
            table[n] = map_children(n, lambda c: _substitute(c, table))
            if table[n] is n:
                table[n] = replace(n)
    body = _substitute(func.body, table)
    params = tuple(table.get(p, p) for p in func.params)
    buffer_map = {table.get(p, p): table.get(b, b) for p, b in func.buffer_map.items()}
    return replace(func, params=params, buffer_map=buffer_map, body=body)


def _definitions(func: t.PrimFunc) -> list[Any]:
    """The variables and buffers that a function defines, in order."""
    out: list[Any] = [*func.params, *func.buffer_map.values()]

    def note(n: Any) -> None:
        for f in type(n).node_fields:
            if f.role != "DEF" or n.identity:
                continue
            value = getattr(n, f.name)
            for x in value if isinstance(value, tuple) else (value,):
                out.append(x.var if isinstance(x, t.IterVar) else x)
        if isinstance(n, t.AttrStmt) and isinstance(n.node, t.IterVar):
            out.append(n.node.var)

    post_order_visit(func.body, note)
    return out
