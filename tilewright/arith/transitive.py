"""Comparisons that follow from known ones: a <= b + k and b <= c + m give a <= c + k + m.

Each known comparison is an edge between two expressions without their constants; a question is a shortest path.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import PrimExpr
from tilewright.arith.linear import linear

__all__ = ["Transitive"]

Key = Any


def _split(e: PrimExpr) -> tuple[Key, int]:
    """(what tells the expression's variable part, its constant part)."""
    parts = linear(e)
    return frozenset((k, c) for k, (_, c) in parts.terms.items()), parts.constant


class Transitive:
    """Known comparisons of expressions."""

    def __init__(self) -> None:
        self.edges: dict[Key, dict[Key, int]] = {}  # a <= b + edges[a][b]

    def copy(self) -> Transitive:
        """The same knowledge, to add to."""
        new = Transitive()
        new.edges = {k: dict(v) for k, v in self.edges.items()}
        return new

    def learn(self, a: PrimExpr, b: PrimExpr, k: int) -> None:
        """a <= b + k"""
        (x, i), (y, j) = _split(a), _split(b)
        k += j - i
        row = self.edges.setdefault(x, {})
        row[y] = min(row.get(y, k), k)

    def most(self, a: PrimExpr, b: PrimExpr) -> int | None:
        """The least known k with a <= b + k."""
        if not self.edges:
            return None
        (x, i), (y, j) = _split(a), _split(b)
        if x not in self.edges:
            return None
        best: dict[Key, int] = {x: 0}
        todo = [x]
        for _ in range(64):
            if not todo:
                break
            n = todo.pop(0)
            for m, k in self.edges.get(n, {}).items():
                if m not in best or best[n] + k < best[m]:
                    best[m] = best[n] + k
                    todo.append(m)
        found = best.get(y)
        return None if found is None else found + i - j
