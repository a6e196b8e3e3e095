"""The analyzer: what people use to reason about integer expressions.

    ana = Analyzer()
    ana.bind(i, Range(0, 16))
    ana.simplify((x * 16 + i) // 16)          # x
    ana.const_int_bound(i * 2 + 1)            # [1, 31]
    ana.modular_set(x * 4 + 3)                # 4*k + 3
    with ana.constraint_scope(x < 8):
        ana.can_prove(x * 16 + i < 128)       # True

Integers of 32 and 64 bits are taken not to overflow. `simplify` is rewriting by rules (`rewrite/`), then the canonical form
(`canonical.py`). What these cannot decide, `can_prove` with `ProofStrength.SYMBOLIC_BOUND` and `can_prove_equal` ask of the
prover on polynomials (`simplify/core.py`), which also knows symbolic bounds.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tilewright.arith import expr as ex
from tilewright.arith.build import match_dtypes
from tilewright.arith.canonical import Canonical
from tilewright.arith.constraints import Constraints
from tilewright.arith.expr import ExprLike, FloatImm, IntImm, PrimExpr, StringImm, Var, convert
from tilewright.arith.linear import expr_key
from tilewright.arith.poly import combine, scale
from tilewright.support.diagnostics import CompileError, Diagnostic

if TYPE_CHECKING:
    from tilewright.arith.int_set import IntSet
    from tilewright.arith.simplify.core import Simplifier

__all__ = ["Analyzer", "ConstIntBound", "Extension", "ModularSet", "ProofStrength", "simplify"]

POS_INF, NEG_INF = (1 << 63) - 1, -(1 << 63) + 1


class ProofStrength(enum.IntEnum):
    """How hard `can_prove` tries."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class Extension(enum.Flag):
    """Simplifications that are off unless asked for (`Analyzer.enabled_extensions`)."""

    NoExtensions = 0
    TransitivelyProveInequalities = 1
    ConvertBooleanToAndOfOrs = 2
    ApplyConstraintsToBooleanBranches = 4
    ComparisonOfProductAndSum = 8


class _BoundFields(NamedTuple):
    min_value: int
    max_value: int


class ConstIntBound(_BoundFields):
    """The integers from `min_value` to `max_value`; where there is no bound, `NEG_INF` or `POS_INF`."""

    POS_INF: ClassVar[int] = POS_INF
    NEG_INF: ClassVar[int] = NEG_INF


class ModularSet(NamedTuple):
    """The integers `coeff * k + base`; coeff 0: `base` alone; coeff 1: any."""

    coeff: int
    base: int


class Analyzer(Constraints):
    """Reasons about integer expressions under what it was told: ranges, values, conditions."""

    def __init__(self) -> None:
        super().__init__()
        self._canonical: Canonical | None = None
        self._prover: Simplifier | None = None

    # ---- telling it ------------------------------------------------------------------------------------------------------

    def bind(self, var: Var, value: Any, allow_override: bool = False) -> None:
        """Say what a variable is: of a Range (anything with `min` and `extent`), or equal to an expression.

        Raises CompileError (TW0952) where it is already known to be something else, unless `allow_override`.
        """
        if not isinstance(value, (PrimExpr, int)) and hasattr(value, "extent"):
            low, extent = ex.cast(convert(value.min), var.dtype), ex.cast(convert(value.extent), var.dtype)
            if isinstance(extent, IntImm) and extent.value == 1:
                self.set_value(var, self.simplify(low))
            else:
                self.set_range(var, low, extent, allow_override)
        else:
            self.set_value(var, self.simplify(ex.cast(convert(value), var.dtype)))

    def update(self, var: Var, info: ConstIntBound | ModularSet | IntSet, override: bool = False) -> None:
        """Say that a variable lies in a bound, in a modular set, or in an IntSet.

        Raises TypeError for other information.
        """
        if isinstance(info, ConstIntBound):
            low = ex_inf(info.min_value)
            high = ex_inf(info.max_value)
            self.set_bound(var, (low, high), override)
        elif isinstance(info, ModularSet):
            self.set_spacing(var, info.coeff, info.base, override)
        elif hasattr(info, "min_value"):
            self.set_domain(var, info)
        else:
            raise TypeError(f"no information about a variable: {info!r}; give a ConstIntBound, ModularSet or IntSet")

    def mark_global_non_neg_value(self, value: PrimExpr) -> None:
        """Say that a value is never negative."""
        self.note_fact(ex.GE(value, IntImm(value.dtype, 0)))

    @contextmanager
    def constraint_scope(self, constraint: ExprLike) -> Generator[None]:
        """In the body of the `with`, the condition holds."""
        saved = self.enter(convert(constraint))
        try:
            yield
        finally:
            self.leave(saved)

    @property
    def enabled_extensions(self) -> Extension:
        """The simplifications that are on beyond the usual ones."""
        return Extension(self.rewriter.extensions)

    @enabled_extensions.setter
    def enabled_extensions(self, flags: Extension | int) -> None:
        self.rewriter.extensions = Extension(flags).value
        self.canonical.extensions = self.rewriter.extensions
        self.forget()

    # ---- asking it -------------------------------------------------------------------------------------------------------

    @property
    def canonical(self) -> Canonical:
        """The canonical simplifier."""
        if self._canonical is None:
            self._canonical = Canonical(self.rewriter)
            self._canonical.assume, self._canonical.retract = self.enter, self.leave
            self._canonical.extensions = self.rewriter.extensions
            self.listeners.append(self._canonical)
        return self._canonical

    @property
    def _s(self) -> Simplifier:
        """The prover on polynomials, told all that is known."""
        if self._prover is None:
            from tilewright.arith.simplify.core import Simplifier

            self._prover = Simplifier()
        self.tell(self._prover)
        return self._prover

    def simplify(self, expr: ExprLike, steps: int = 2) -> PrimExpr:
        """Rewritten by rules and brought to the canonical form, alternately, `steps` times in all (an odd number ends with
        rules). After an even number of steps it goes on until nothing changes."""
        e = convert(expr)
        if isinstance(e, (IntImm, FloatImm, StringImm)):
            return e
        out = e
        for i in range(steps):
            out = self.canonical.visit(out) if i % 2 else self.rewriter.visit(out)
            if isinstance(out, (IntImm, FloatImm)):
                return out
        if steps % 2 == 0:
            out = self.settled(out)
        return e if out is e or expr_key(out) == expr_key(e) else out

    def settled(self, e: PrimExpr) -> PrimExpr:
        """Simplified until nothing changes; of a cycle, the form that is first by its size."""
        seen = {expr_key(e): e}
        out = e
        for _ in range(8):
            out = self.canonical.visit(self.rewriter.visit(out))
            key = expr_key(out)
            if key in seen:
                break
            seen[key] = out
        else:
            return out
        return seen[key] if len(seen) == 1 or seen[key] is list(seen.values())[-1] else self.least(seen, key)

    def least(self, seen: dict[Any, PrimExpr], start: Any) -> PrimExpr:
        """Of the forms that follow each other in a circle, always the same one."""
        keys = list(seen)
        cycle = keys[keys.index(start) :]
        return seen[min(cycle, key=lambda k: (len(repr(seen[k])), repr(seen[k])))]

    def rewrite_simplify(self, expr: ExprLike) -> PrimExpr:
        """Simplified by rules."""
        return self.rewriter.visit(convert(expr))

    def canonical_simplify(self, expr: ExprLike) -> PrimExpr:
        """Brought to the canonical form: sums of digits, multiplied out."""
        return self.canonical.visit(convert(expr))

    @property
    def rewrite_simplify_stats(self) -> dict[str, int]:
        """How many times rules were looked for."""
        return {"rewrites_attempted": self.rewriter.steps}

    def reset_rewrite_simplify_stats(self) -> None:
        """Count from zero again."""
        self.rewriter.steps = 0

    def const_int_bound(self, expr: ExprLike) -> ConstIntBound:
        """Bounds of an integer expression."""
        low, high = self.rewriter.bounds(convert(expr))
        return ConstIntBound(NEG_INF if low <= NEG_INF else int(low), POS_INF if high >= POS_INF else int(high))

    def const_int_bound_is_bound(self, var: Var) -> bool:
        """Was this variable given bounds?"""
        return var in self.rewriter.bounds.table

    def modular_set(self, expr: ExprLike) -> ModularSet:
        """How the values of an integer expression are spaced."""
        return ModularSet(*self.rewriter.modular(convert(expr)))

    def int_set(self, expr: ExprLike, dom_map: Mapping[Any, Any] | None = None) -> IntSet:
        """The interval of an expression while the variables of `dom_map` run over their sets."""
        from tilewright.arith.int_set import eval_set

        return eval_set(convert(expr), self.domains if dom_map is None else dom_map, self)

    def can_prove(self, expr: ExprLike, strength: int = 0) -> bool:
        """Does the condition follow from what is known? False means that it could not be shown."""
        e = convert(expr)
        if isinstance(e, IntImm):
            return e.value != 0
        out = self.rewriter.visit(e)
        if not isinstance(out, IntImm):
            out = self.canonical.visit(out)
        if isinstance(out, IntImm):
            return out.value != 0
        return strength >= ProofStrength.SYMBOLIC_BOUND and self._s.proves(e)

    def can_prove_equal(self, lhs: ExprLike, rhs: ExprLike) -> bool:
        """Are two expressions equal, by what is known?"""
        a, b = convert(lhs), convert(rhs)
        if a is b or expr_key(a) == expr_key(b):
            return True
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value == b.value
        if a.dtype != b.dtype:
            a, b = match_dtypes(a, b)
        if a.dtype in ("int32", "int64"):
            out = self.simplify(ex.Sub(a, b))
            if isinstance(out, IntImm):
                return out.value == 0
            if expr_key(self.simplify(a)) == expr_key(self.simplify(b)):
                return True
            s = self._s
            gap = s.atoms.expand(combine(s.poly(a), s.poly(b), -1))
            return not gap or (s.facts.not_negative(gap) and s.facts.not_negative(scale(gap, -1)))
        return self.can_prove(ex.EQ(a, b)) or expr_key(self.simplify(a)) == expr_key(self.simplify(b))

    def can_prove_greater_equal(self, expr: ExprLike, lower: int) -> bool:
        """Is the expression at least `lower`?"""
        e = convert(expr)
        return self.rewriter.bounds(e)[0] >= lower or self.can_prove(ex.GE(e, IntImm(e.dtype, lower)))

    def can_prove_less(self, expr: ExprLike, upper: int) -> bool:
        """Is the expression less than `upper`?"""
        e = convert(expr)
        return self.rewriter.bounds(e)[1] < upper or self.can_prove(ex.LT(e, IntImm(e.dtype, upper)))


def ex_inf(value: int) -> Any:
    """A bound of the public kind as the analyses have it: infinite beyond 63 bits."""
    return float("-inf") if value <= NEG_INF else float("inf") if value >= POS_INF else value


def conflict(var: Var, old: Any, new: Any) -> CompileError:
    """The error of a variable that is bound to something else than it was."""
    return CompileError(
        Diagnostic("TW0952", f"Trying to update var '{var.name}' with a different const bound: {old} is known, {new} given",
                   hint="bind it once, or pass allow_override=True")
    )  # fmt: skip


def simplify(expr: ExprLike, ranges: Mapping[Var, Any] | None = None) -> PrimExpr:
    """The simplest form known of an expression, its variables in `ranges`."""
    ana = Analyzer()
    for v, r in (ranges or {}).items():
        ana.bind(v, r)
    return ana.simplify(expr)
