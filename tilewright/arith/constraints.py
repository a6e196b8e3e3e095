"""What an analyzer was told, kept in the form that each of its engines asks for; and scopes in which more holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.arith import expr as ex
from tilewright.arith.const_bound import INF, dtype_range
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.arith.linear import expr_key, linear
from tilewright.arith.modular import intersect, normal
from tilewright.arith.rewrite.engine import INDEX, Rewriter
from tilewright.ir.op import Op

if TYPE_CHECKING:
    from tilewright.arith.simplify.core import Simplifier

__all__ = ["Constraints"]

_NEGATED: dict[type, type] = {
    ex.LT: ex.GE, ex.GE: ex.LT, ex.LE: ex.GT, ex.GT: ex.LE, ex.EQ: ex.NE, ex.NE: ex.EQ,
}  # fmt: skip


class Constraints:
    """The knowledge of an analyzer. `told` lists it in order, for the prover that is only made when needed."""

    def __init__(self) -> None:
        self.rewriter = Rewriter()
        self.rewriter.assume, self.rewriter.retract = self.enter, self.leave
        self.listeners: list[Any] = []
        self.told: list[tuple[str, Any]] = []
        self.heard = 0  # how much of `told` the prover has heard
        self.marks: list[Any] = []  # the prover's states before each hearing, and which part of `told` that was
        self.domains: dict[Var, Any] = {}

    def forget(self) -> None:
        """Drop what was computed, because the knowledge changed."""
        self.rewriter.forget()
        for x in self.listeners:
            x.forget()

    # ---- facts about variables -------------------------------------------------------------------------------------------

    def set_value(self, var: Var, value: PrimExpr) -> None:
        """var = value"""
        r = self.rewriter
        r.values[var] = value
        r.bounds.table[var] = r.bounds(value)
        r.modular.table[var] = r.modular(value)
        self.told.append(("value", (var, value)))
        self.forget()

    def set_range(self, var: Var, low: PrimExpr, extent: PrimExpr, override: bool) -> None:
        """low <= var < low + extent"""
        r = self.rewriter
        (a, b), (_, n) = r.bounds(low), r.bounds(extent)
        self.set_bound(var, (a, INF if INF in (b, n) else b + n - 1), override)
        zero = IntImm(var.dtype, 0)
        if not isinstance(low, IntImm):
            r.transitive.learn(low, var, 0)
        if not isinstance(extent, IntImm) or not isinstance(low, IntImm):
            r.transitive.learn(var, r.visit(ex.add(low, extent)), -1)
        elif r.transitive.edges:
            r.transitive.learn(var, zero, low.value + extent.value - 1)
            r.transitive.learn(zero, var, -low.value)
        self.told.append(("range", (var, low, extent)))
        self.forget()

    def set_bound(self, var: Var, bound: Any, override: bool) -> None:
        """bound[0] <= var <= bound[1]"""
        table = self.rewriter.bounds.table
        old = table.get(var)
        fits = (0, INF) if isinstance(var, ex.SizeVar) else dtype_range(var.dtype)
        new = max(bound[0], fits[0]), min(bound[1], fits[1])
        if old is not None and not override and old != new:
            from tilewright.arith.analyzer import conflict

            raise conflict(var, old, new)
        table[var] = new
        self.told.append(("bound", (var, new, override)))
        self.forget()

    def set_spacing(self, var: Var, coefficient: int, base: int, override: bool) -> None:
        """var = coefficient * k + base"""
        table = self.rewriter.modular.table
        new = normal(coefficient, base)
        table[var] = new if override else intersect(table.get(var, (1, 0)), new)
        self.told.append(("spacing", (var, table[var])))
        self.forget()

    def set_domain(self, var: Var, domain: Any) -> None:
        """var is in a set"""
        self.domains[var] = domain
        self.forget()

    # ---- conditions ------------------------------------------------------------------------------------------------------

    def enter(self, condition: PrimExpr) -> Any:
        """Assume a condition; gives what `leave` needs."""
        r = self.rewriter
        saved = (
            r.bounds.table, r.bounds.extra, r.bounds.memo, r.modular.table, r.modular.memo, r.transitive, r.literals,
            r.memo, r.values, len(self.told), [(x, x.memo, x.forms) for x in self.listeners],
        )  # fmt: skip
        r.bounds.table, r.bounds.extra = dict(r.bounds.table), dict(r.bounds.extra)
        r.modular.table, r.transitive, r.literals = dict(r.modular.table), r.transitive.copy(), dict(r.literals)
        r.values = dict(r.values)
        self.share()
        self.forget()
        self.note_fact(condition)
        return saved

    def leave(self, saved: Any) -> None:
        """Go back to before `enter`."""
        r = self.rewriter
        (r.bounds.table, r.bounds.extra, r.bounds.memo, r.modular.table, r.modular.memo, r.transitive, r.literals, r.memo,
         r.values, count, memos) = saved  # fmt: skip
        self.share()
        del self.told[count:]
        while self.marks and self.marks[-1][2] > count:
            state, self.heard, _, prover = self.marks.pop()
            prover.leave(state)
        known = {id(x): (a, b) for x, a, b in memos}
        for x in self.listeners:
            x.memo, x.forms = known.get(id(x), ({}, {}))

    def under(self, condition: PrimExpr, work: Callable[[], Any]) -> Any:
        """What `work` gives while the condition holds."""
        saved = self.enter(condition)
        try:
            return work()
        finally:
            self.leave(saved)

    def share(self) -> None:
        """Show the listeners the tables that are replaced in a scope."""
        r = self.rewriter
        for x in self.listeners:
            x.transitive, x.literals, x.values = r.transitive, r.literals, r.values

    def note_fact(self, condition: PrimExpr) -> None:
        """A condition holds from here on."""
        e = self.rewriter.visit(condition)
        self.note(e)
        if e is not condition and expr_key(e) != expr_key(condition):
            self.note(condition)
        self.told.append(("fact", condition))
        self.forget()

    def note(self, e: Any) -> None:
        """Learn from a condition as it is written."""
        if isinstance(e, ex.And):
            self.note(e.a)
            self.note(e.b)
            return
        if isinstance(e, ex.Call) and isinstance(e.op, Op) and e.op.name == "tir.likely":
            self.note(e.args[0])
            return
        if isinstance(e, IntImm):
            return
        if isinstance(e, ex.Not) and type(e.a) in _NEGATED:
            inner: Any = e.a
            e = _NEGATED[type(inner)](inner.a, inner.b)
        if isinstance(e, (ex.GT, ex.GE)):
            e = (ex.LT if isinstance(e, ex.GT) else ex.LE)(e.b, e.a)
        self.literal(e)
        if isinstance(e, ex.CmpOp) and e.a.dtype in INDEX:
            self.comparison(e)

    def literal(self, e: Any) -> None:
        """The condition itself is true, its opposite false."""
        known = self.rewriter.literals
        known[expr_key(e)] = True
        if isinstance(e, ex.Not):
            known[expr_key(e.a)] = False
        elif isinstance(e, ex.LT):
            known[expr_key(ex.LE(e.b, e.a))] = False
        elif isinstance(e, ex.LE):
            known[expr_key(ex.LT(e.b, e.a))] = False
        elif isinstance(e, (ex.EQ, ex.NE)):
            known[expr_key(_NEGATED[type(e)](e.a, e.b))] = False
        else:
            known[expr_key(ex.Not(e))] = False

    def comparison(self, e: Any) -> None:
        """Bounds, spacings and chains from a comparison of integers."""
        r = self.rewriter
        a, b, kind = e.a, e.b, type(e)
        if kind in (ex.LT, ex.LE):
            strict = 1 if kind is ex.LT else 0
            self.at_most(a, b, -strict)
        elif kind is ex.EQ:
            self.at_most(a, b, 0)
            self.at_most(b, a, 0)
            self.remainder(a, b)
            self.remainder(b, a)
        elif kind is ex.NE:
            for x, y in ((a, b), (b, a)):
                if isinstance(y, IntImm):
                    low, high = r.bounds(x)
                    if low == y.value:
                        self.narrow(x, low + 1, INF)
                    elif high == y.value:
                        self.narrow(x, -INF, high - 1)

    def at_most(self, a: PrimExpr, b: PrimExpr, k: int) -> None:
        """a <= b + k"""
        if isinstance(b, IntImm):
            self.narrow(a, -INF, b.value + k)
        elif isinstance(a, IntImm):
            self.narrow(b, a.value - k, INF)
        self.rewriter.transitive.learn(a, b, k)

    def narrow(self, e: PrimExpr, low: Any, high: Any) -> None:
        """low <= e <= high"""
        r = self.rewriter
        parts = linear(e)
        if len(parts.terms) == 1:
            ((atom, c),) = parts.terms.values()
            p = -INF if low == -INF else low - parts.constant
            q = INF if high == INF else high - parts.constant
            if c < 0:
                p, q, c = -q, -p, -c
            p = p if p in (INF, -INF) else -(-p // c)
            q = q if q in (INF, -INF) else q // c
            self.narrow_atom(atom, p, q)
        if not isinstance(e, Var):
            self.narrow_atom(e, low, high)
        r.bounds.forget()

    def narrow_atom(self, e: PrimExpr, low: Any, high: Any) -> None:
        r = self.rewriter
        if isinstance(e, Var):
            old = r.bounds(e)
            r.bounds.table[e] = max(old[0], low), min(old[1], high)
            return
        key = expr_key(e)
        old = r.bounds.extra.get(key, (-INF, INF))
        r.bounds.extra[key] = max(old[0], low), min(old[1], high)
        r.bounds.forget()

    def remainder(self, a: Any, b: Any) -> None:
        """x % c == b says how x is spaced."""
        if isinstance(a, (ex.FloorMod, ex.Mod)) and isinstance(a.b, IntImm) and isinstance(b, IntImm) and a.b.value > 0:
            x, d = a.a, a.b.value
            parts = linear(x)
            if len(parts.terms) == 1:
                ((atom, c),) = parts.terms.values()
                if isinstance(atom, Var) and abs(c) == 1:
                    table = self.rewriter.modular.table
                    table[atom] = intersect(table.get(atom, (1, 0)), normal(d, (b.value - parts.constant) * c))
                    self.rewriter.modular.forget()

    # ---- the prover ------------------------------------------------------------------------------------------------------

    def tell(self, prover: Simplifier) -> None:
        """Let the prover hear what was told since it last listened."""
        if self.heard >= len(self.told):
            return
        state = prover.enter(IntImm("bool", 1))
        for what, data in self.told[self.heard :]:
            _TELL[what](prover, data)
        prover.forget()
        self.marks.append((state, self.heard, len(self.told), prover))
        self.heard = len(self.told)


def _tell_value(s: Simplifier, data: Any) -> None:
    var, value = data
    s.values[var] = value


def _tell_bound(s: Simplifier, data: Any) -> None:
    var, (low, high), override = data
    n = s.atoms.intern(var)
    old = (-INF, INF) if override else s.facts.bounds.get(n, (-INF, INF))
    s.facts.bounds[n] = max(low, old[0]), min(high, old[1])
    s.facts.symbolic.pop(n, None)


def _tell_range(s: Simplifier, data: Any) -> None:
    from tilewright.arith.poly import combine, constant_of

    var, low, extent = data
    a, n = s.poly(low), s.poly(extent)
    last = combine(combine(a, n), {(): -1})
    number = s.atoms.intern(var)
    if constant_of(last) is None or constant_of(a) is None:
        s.facts.symbolic[number] = ([a], [last])


def _tell_spacing(s: Simplifier, data: Any) -> None:
    var, spacing = data
    s.facts.remainders[s.atoms.intern(var)] = spacing


_TELL: dict[str, Any] = {
    "value": _tell_value, "bound": _tell_bound, "range": _tell_range, "spacing": _tell_spacing,
    "fact": lambda s, e: s.assume(e),
}  # fmt: skip
