"""Systems of linear equations over the integers, solved by Smith's normal form.

x + y == 20, x - y == 10     ->   x = 15, y = 5
x + y + z == 15, x + y == 10 ->   x = n0 + 10, y = -n0, z = 5   with n0 free
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.constraint_system import IntConstraints, IntConstraintsTransform, make_range, unsolvable
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.int_set import eval_set, neg_inf, pos_inf
from tilewright.arith.linear import detect_linear_equation
from tilewright.ir.rewrite import substitute

__all__ = ["solve_linear_equations"]

Matrix = list[list[int]]


class Diagonal(NamedTuple):
    """`matrix` made diagonal by row steps (done to `right` too) and column steps: old = to_old * new, new = to_new."""

    matrix: Matrix
    right: list[PrimExpr]
    to_old: Matrix
    to_new: list[PrimExpr]


def _gcd(a: int, b: int) -> tuple[int, int, int]:
    """(g, x, y) with g = a*x + b*y > 0"""
    x, y, u, v = 1, 0, 0, 1
    while b:
        q = a // b
        a, b = b, a - q * b
        x, y, u, v = u, v, x - q * u, y - q * v
    return (a, x, y) if a > 0 else (-a, -x, -y)


def diagonal(matrix: Matrix, right: Sequence[PrimExpr], variables: Sequence[PrimExpr], ana: Analyzer) -> Diagonal:
    """Smith's form of `matrix * variables == right`, without the divisibility of neighbours, which is not needed."""
    s, u = [list(row) for row in matrix], list(right)
    rows, columns = len(s), len(variables)
    v = [[int(i == j) for j in range(columns)] for i in range(columns)]
    inverse = list(variables)
    dtype = variables[0].dtype if variables else "int32"

    def combine(a: int, x: PrimExpr, b: int, y: PrimExpr) -> PrimExpr:
        return ana.simplify(ex.add(ex.mul(IntImm(dtype, a), x), ex.mul(IntImm(dtype, b), y)))

    for k in range(min(rows, columns)):
        pivot = next(((i, j) for i in range(k, rows) for j in range(k, columns) if s[i][j]), None)
        if pivot is None:
            break
        i, j = pivot
        s[k], s[i], u[k], u[i] = s[i], s[k], u[i], u[k]
        for row in (*s, *v):
            row[k], row[j] = row[j], row[k]
        inverse[k], inverse[j] = inverse[j], inverse[k]
        while True:
            for i in range(k + 1, rows):
                if s[i][k]:
                    a, b = s[k][k], s[i][k]
                    g, x, y = (abs(a), 1 if a > 0 else -1, 0) if b % a == 0 else _gcd(a, b)
                    p, q = a // g, b // g
                    s[k], s[i] = (
                        [x * m + y * n for m, n in zip(s[k], s[i])], [q * m - p * n for m, n in zip(s[k], s[i])]
                    )  # fmt: skip
                    u[k], u[i] = combine(x, u[k], y, u[i]), combine(q, u[k], -p, u[i])
            if not any(s[k][k + 1 :]):
                break
            for j in range(k + 1, columns):
                if s[k][j]:
                    a, b = s[k][k], s[k][j]
                    g, x, y = (abs(a), 1 if a > 0 else -1, 0) if b % a == 0 else _gcd(a, b)
                    p, q = a // g, b // g
                    for row in (*s, *v):
                        row[k], row[j] = row[k] * x + row[j] * y, row[k] * q - row[j] * p
                    inverse[k], inverse[j] = (
                        combine(p, inverse[k], q, inverse[j]),
                        combine(y, inverse[k], -x, inverse[j]),
                    )
    return Diagonal(s, u, v, inverse)


def solve_linear_equations(
    equations: Sequence[PrimExpr] | IntConstraints,
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Any] | None = None,
) -> IntConstraintsTransform:
    """Solve the linear equations among the relations for the variables.

    The result's `dst` has fewer variables: the free ones `n0`, `n1`, ..., with ranges inferred from those given, and as
    relations what else must hold (the inequalities given, bounds that the ranges do not imply). An unsolvable system gives
    the relation False and empty maps. Without variables nothing is solved.
    """
    system = equations if isinstance(equations, IntConstraints) else IntConstraints(variables, ranges, equations)
    if not system.variables:
        return IntConstraintsTransform(system, system, {}, {})
    ana = Analyzer()
    rows: Matrix = []
    right: list[PrimExpr] = []
    rest: list[PrimExpr] = []
    for r in system.relations:
        found = _row(r, system.variables, ana)
        if found is None:
            rest.append(r)
        else:
            rows.append(found[0])
            right.append(found[1])
    d = diagonal(rows, right, system.variables, ana)
    return _Solution(system, d, rest, ana).transform()


def _row(r: Any, variables: Sequence[Var], ana: Analyzer) -> tuple[list[int], PrimExpr] | None:
    """A linear equation as (coefficients, right side); None for another relation."""
    if not isinstance(r, ex.EQ):
        return None
    found = detect_linear_equation(ex.sub(r.a, r.b), variables)
    if not found or not all(isinstance(c, IntImm) for c in found[:-1]):
        return None
    right = ana.simplify(ex.sub(IntImm(found[-1].dtype, 0), found[-1]))
    return [c.value for c in found[:-1] if isinstance(c, IntImm)], right


class _Solution:
    def __init__(self, system: IntConstraints, d: Diagonal, rest: list[PrimExpr], ana: Analyzer) -> None:
        self.system, self.d, self.rest, self.ana = system, d, rest, ana

    def transform(self) -> IntConstraintsTransform:
        system, d, ana = self.system, self.d, self.ana
        dtype = system.variables[0].dtype
        nothing = IntConstraintsTransform(system, unsolvable(), {}, {})
        relations: list[PrimExpr] = []
        values: list[PrimExpr] = []
        count = len(system.variables)
        free: list[Var] = []
        back: dict[Var, PrimExpr] = {}
        rank = min(len(d.matrix), count)
        for k, right in enumerate(d.right):
            k_value = d.matrix[k][k] if k < rank else 0
            divisible = ex.cmp(
                ex.EQ, right if not k_value else ex.floormod(right, IntImm(dtype, abs(k_value))), IntImm(dtype, 0)
            )
            held = ana.simplify(divisible)
            if isinstance(held, IntImm):
                if not held.value:
                    return nothing
            else:
                relations.append(held)
        for j in range(count):
            k_value = d.matrix[j][j] if j < rank else 0
            if k_value:
                value = d.right[j] if k_value > 0 else ex.sub(IntImm(dtype, 0), d.right[j])
                values.append(ana.simplify(ex.floordiv(value, IntImm(dtype, abs(k_value)))))
            else:
                n = Var(f"n{len(free)}", dtype)
                free.append(n)
                values.append(n)
                back[n] = d.to_new[j]
        there: dict[Var, PrimExpr] = {}
        for v, row in zip(system.variables, d.to_old, strict=True):
            total: PrimExpr = IntImm(dtype, 0)
            for c, value in zip(row, values, strict=True):
                total = ex.add(total, ex.mul(value, IntImm(dtype, c)))
            there[v] = ana.simplify(total)
        ranges = self.ranges(back)
        for e in self.bounds(there, ranges):
            if isinstance(e, IntImm):
                if not e.value:
                    return nothing
            else:
                relations.append(e)
        return IntConstraintsTransform(system, IntConstraints(free, ranges, relations), there, back)

    def ranges(self, back: Mapping[Var, PrimExpr]) -> dict[Var, Any]:
        """The ranges of the new variables that follow from those of the old ones."""
        out: dict[Var, Any] = {}
        for n, e in back.items():
            s = eval_set(e, self.system.ranges, self.ana)
            if s.min_value is neg_inf() or s.max_value is pos_inf() or _mentions(s, self.system.variables):
                continue
            extent = ex.add(ex.sub(s.max_value, s.min_value), IntImm(n.dtype, 1))
            out[n] = make_range(s.min_value, self.ana.simplify(extent))
        return out

    def bounds(self, there: Mapping[Var, PrimExpr], ranges: Mapping[Var, Any]) -> list[PrimExpr]:
        """What must hold of the new variables beyond their ranges."""
        known = Analyzer()
        for n, r in ranges.items():
            known.bind(n, r)
        conditions: list[PrimExpr] = []
        for v, r in self.system.ranges.items():
            e = there.get(v)
            if e is None:
                known.bind(v, r)
                continue
            low, extent = ex.cast(r.min, v.dtype), ex.cast(r.extent, v.dtype)
            conditions += [ex.cmp(ex.LE, low, e), ex.cmp(ex.LT, e, ex.add(low, extent))]
        conditions += [substitute(r, dict(there)) for r in self.rest]
        done = [known.simplify(c) for c in conditions]
        return [c for c in done if not (isinstance(c, IntImm) and c.value)]


def _mentions(s: Any, variables: Sequence[Var]) -> bool:
    from tilewright.ir.rewrite import free_vars

    return any(v in variables for e in s for v in free_vars(e))
