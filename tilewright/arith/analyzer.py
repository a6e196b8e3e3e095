"""The analyzer: what people use to reason about integer expressions.

    ana = Analyzer()
    ana.bind(i, Range(0, 16))
    ana.simplify((x * 16 + i) // 16)          # x
    ana.const_int_bound(i * 2 + 1)            # [1, 31]
    ana.modular_set(x * 4 + 3)                # 4*k + 3
    with ana.constraint_scope(x < 8):
        ana.can_prove(x * 16 + i < 128)       # True

Integers of 32 and 64 bits are taken not to overflow. How it works stands in `simplify/core.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Var, convert
from tilewright.arith.facts import INF
from tilewright.arith.linear import expr_key
from tilewright.arith.poly import combine, constant_of, scale
from tilewright.arith.simplify.core import Simplifier

__all__ = ["Analyzer", "ConstIntBound", "ModularSet", "simplify"]


class ConstIntBound(NamedTuple):
    """The integers from `min_value` to `max_value`; where there is no bound, `NEG_INF` or `POS_INF`."""

    min_value: int
    max_value: int


ConstIntBound.POS_INF = (1 << 63) - 1  # pyright: ignore[reportAttributeAccessIssue]
ConstIntBound.NEG_INF = -(1 << 63) + 1  # pyright: ignore[reportAttributeAccessIssue]
POS_INF, NEG_INF = (1 << 63) - 1, -(1 << 63) + 1


class ModularSet(NamedTuple):
    """The integers `coeff * k + base`; coeff 0: `base` alone; coeff 1: any."""

    coeff: int
    base: int


class Analyzer:
    """Reasons about integer expressions under what it was told: ranges, values, conditions."""

    def __init__(self) -> None:
        self._s = Simplifier()

    # ---- telling it ------------------------------------------------------------------------------------------------------

    def bind(self, var: Var, value: Any, allow_override: bool = False) -> None:
        """Say what a variable is: of a Range (anything with `min` and `extent`), or equal to an expression."""
        del allow_override
        s = self._s
        if not isinstance(value, (PrimExpr, int)) and hasattr(value, "extent"):
            s.values.pop(var, None)
            low, extent = convert(value.min), convert(value.extent)
            if isinstance(extent, IntImm) and extent.value == 1:
                s.values[var] = low
                s.forget()
                return
            a, n = s.poly(ex.cast(low, var.dtype)), s.poly(ex.cast(extent, var.dtype))
            last = combine(combine(a, n), {(): -1})
            number = s.atoms.intern(var)
            s.facts.bounds[number] = (s.facts.bound(a)[0], s.facts.bound(last)[1])
            s.facts.symbolic.pop(number, None)
            if constant_of(last) is None or constant_of(a) is None:
                s.facts.symbolic[number] = ([a], [last])
        else:
            s.values[var] = self.simplify(ex.cast(convert(value), var.dtype))
        s.forget()

    def mark_global_non_neg_value(self, var: PrimExpr) -> None:
        """Say that a value is never negative."""
        self._s.not_negative(self._s.poly(var))
        self._s.forget()

    def update(self, var: Var, bound: ConstIntBound | ModularSet, override: bool = False) -> None:
        """Say that a variable lies in a bound, or in a modular set."""
        s = self._s
        number = s.atoms.intern(var)
        if isinstance(bound, ConstIntBound):
            low = -INF if bound.min_value <= NEG_INF else bound.min_value
            high = INF if bound.max_value >= POS_INF else bound.max_value
            old = (-INF, INF) if override else s.facts.bounds.get(number, (-INF, INF))
            s.facts.bounds[number] = (max(low, old[0]), min(high, old[1]))
        else:
            s.facts.remainders[number] = (bound.coeff, bound.base % bound.coeff if bound.coeff else bound.base)
        s.forget()

    @contextmanager
    def constraint_scope(self, condition: ExprLike) -> Generator[None]:
        """In the body of the `with`, the condition holds."""
        saved = self._s.enter(convert(condition))
        try:
            yield
        finally:
            self._s.leave(saved)

    # ---- asking it -------------------------------------------------------------------------------------------------------

    def simplify(self, expr: ExprLike, steps: int = 2) -> PrimExpr:
        """The simplest form known; the same object where nothing changes."""
        e = convert(expr)
        if isinstance(e, (IntImm, ex.FloatImm, ex.StringImm)):
            return e
        out = self._s.simplify(e)
        for _ in range(steps - 1):
            again = self._s.simplify(out)
            if again is out or expr_key(again) == expr_key(out):
                break
            out = again
        return e if out is e or expr_key(out) == expr_key(e) else out

    def rewrite_simplify(self, expr: ExprLike) -> PrimExpr:
        """As `simplify`: rules and normal forms are one here."""
        return self.simplify(expr)

    def canonical_simplify(self, expr: ExprLike) -> PrimExpr:
        """As `simplify`, with products of sums multiplied out."""
        e = convert(expr)
        if e.dtype in ("int32", "int64"):
            s = self._s
            p = s.atoms.expand(s.poly(e))
            return self.simplify(s.atoms.expr(p, e.dtype))
        return self.simplify(e)

    def const_int_bound(self, expr: ExprLike) -> ConstIntBound:
        """Bounds of an integer expression."""
        low, high = self._bound(convert(expr))
        return ConstIntBound(NEG_INF if low == -INF else int(low), POS_INF if high == INF else int(high))

    def _bound(self, e: PrimExpr) -> tuple[Any, Any]:
        s = self._s
        if e.dtype in ("int32", "int64"):
            return s.facts.bound(s.poly(e))
        if e.dtype == "bool":
            c = s.condition(e)
            return (c.value, c.value) if isinstance(c, IntImm) else (0, 1)
        return s.facts.expr_bound(s.simplify(e))

    def const_int_bound_is_bound(self, var: Var) -> bool:
        """Was this variable given bounds?"""
        return self._s.atoms.numbers.get(var) in self._s.facts.bounds

    def modular_set(self, expr: ExprLike) -> ModularSet:
        """How the values of an integer expression are spaced."""
        e = convert(expr)
        if e.dtype not in ("int32", "int64"):
            return ModularSet(0, e.value) if isinstance(e, IntImm) else ModularSet(1, 0)
        return ModularSet(*self._s.facts.remainder(self._s.poly(e)))

    def int_set(self, expr: ExprLike, dom_map: Mapping[Any, Any] | None = None) -> tuple[PrimExpr, PrimExpr] | None:
        """(least, greatest) of an expression while the variables of `dom_map` run over their ranges; see `int_set.py`."""
        from tilewright.arith.int_set import eval_range

        return eval_range(convert(expr), dom_map or {}, self)

    def can_prove(self, condition: ExprLike, strength: int = 0) -> bool:
        """Does the condition follow from what is known? False means that it could not be shown."""
        del strength
        e = convert(condition)
        return self._s.proves(e)

    def can_prove_equal(self, lhs: ExprLike, rhs: ExprLike) -> bool:
        """Are two integer expressions equal, by what is known?"""
        a, b = convert(lhs), convert(rhs)
        s = self._s
        if a.dtype in ("int32", "int64") and b.dtype in ("int32", "int64"):
            gap = combine(s.poly(a), s.poly(b), -1)
            if not gap or not s.atoms.expand(gap):
                return True
            gap = s.atoms.expand(gap)
            return s.facts.not_negative(gap) and s.facts.not_negative(scale(gap, -1))
        return expr_key(self.simplify(a)) == expr_key(self.simplify(b))

    def can_prove_greater_equal(self, expr: ExprLike, lower: int) -> bool:
        """Is the expression at least `lower`?"""
        return self._s.facts.not_negative(combine(self._s.poly(convert(expr)), {(): -lower} if lower else {}))

    def can_prove_less(self, expr: ExprLike, upper: int) -> bool:
        """Is the expression less than `upper`?"""
        return self._s.facts.not_negative(combine({(): upper - 1}, self._s.poly(convert(expr)), -1))


def simplify(expr: ExprLike, ranges: Mapping[Var, Any] | None = None) -> PrimExpr:
    """The simplest form known of an expression, its variables in `ranges`."""
    ana = Analyzer()
    for v, r in (ranges or {}).items():
        ana.bind(v, r)
    return ana.simplify(expr)
