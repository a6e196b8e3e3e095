"""The rewriting simplifier: rules of `rules` and `rules_logic` applied bottom-up, under what is known.

`visit` rewrites an expression; `make_X(a, b)` builds an X of simplified parts and applies the rules to it. What is known
comes from the analyzer: constant bounds, spacings, conditions that hold, comparisons that follow from others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.const_bound import INF, ConstBounds
from tilewright.arith.expr import FloatImm, IntImm, PrimExpr, Var
from tilewright.arith.linear import expr_key, linear
from tilewright.arith.modular import Modular
from tilewright.arith.rewrite import nodes
from tilewright.arith.rewrite.compile import RuleTable, node_scope
from tilewright.arith.rewrite.known import Known
from tilewright.arith.rewrite.nodes import FALSE, RAW, TRUE, Overflow, same, zero
from tilewright.arith.rewrite.rules import INDEX_RULES, VECTOR_RULES
from tilewright.arith.rewrite.rules_logic import LOGIC_RULES
from tilewright.arith.transitive import Transitive
from tilewright.ir import dtype as dt
from tilewright.ir.node import Node, map_children
from tilewright.ir.op import Op

__all__ = ["EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "UNEQUAL", "UNKNOWN", "Rewriter"]

INDEX = frozenset(("int32", "int64"))
UNKNOWN, EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, UNEQUAL = range(7)
DEPTH = 160

_SCOPE = {
    **node_scope(),
    **RAW,
    "TRUE": TRUE,
    "FALSE": FALSE,
    "imm": nodes.imm,
    "same": same,
    "same_lanes": nodes.same_lanes,
}
_VECTOR = RuleTable(VECTOR_RULES, _SCOPE)
_INDEX = RuleTable({**INDEX_RULES, "LT": LOGIC_RULES["LT"], "EQ": LOGIC_RULES["EQ"]}, _SCOPE)
_LOGIC = RuleTable({k: LOGIC_RULES[k] for k in ("And", "Or", "Not", "Select")}, _SCOPE)
_OPPOSITE: dict[str, type] = {"EQ": ex.NE, "NE": ex.EQ}


class Rewriter(Known):
    """Rewrites expressions. `literals` are conditions known to hold or not, by key; `values` replace variables."""

    def __init__(self) -> None:
        self.modular = Modular(lambda e: self.bounds(e)[0] >= 0)
        self.bounds = ConstBounds(self.modular)
        self.transitive = Transitive()
        self.literals: dict[Any, bool] = {}
        self.values: dict[Var, PrimExpr] = {}
        self.memo: dict[int, tuple[Any, Any]] = {}
        self.depth = 0
        self.steps = 0
        self.extensions = 0
        self.assume: Callable[[PrimExpr], Any] = lambda e: None
        self.retract: Callable[[Any], None] = lambda saved: None
        self.visitors: dict[type, Callable[[Any], PrimExpr]] = {}
        for kind in (ex.Add, ex.Sub, ex.Mul, ex.Div, ex.Mod, ex.FloorDiv, ex.FloorMod, ex.Min, ex.Max):
            self.visitors[kind] = self.binary_visitor(getattr(self, f"make_{kind.__name__}"), kind)
        for kind in (ex.EQ, ex.NE, ex.LT, ex.LE):
            self.visitors[kind] = self.binary_visitor(getattr(self, f"make_{kind.__name__}"), kind)
        self.visitors[ex.GT] = lambda e: self.visit_swapped(e, self.make_LT, ex.LT)
        self.visitors[ex.GE] = lambda e: self.visit_swapped(e, self.make_LE, ex.LE)
        self.visitors.update({
            ex.And: self.visit_and, ex.Or: self.visit_or, ex.Not: self.visit_not, ex.Select: self.visit_select,
            ex.Cast: self.visit_cast, ex.Call: self.visit_call, ex.Let: self.visit_let, IntImm: lambda e: e,
            FloatImm: lambda e: e,
        })  # fmt: skip

    def forget(self) -> None:
        """Drop what was computed, because the knowledge changed."""
        self.memo = {}
        self.bounds.forget()
        self.modular.forget()

    # ---- walking -----------------------------------------------------------------------------------------------------

    def visit(self, e: Any) -> Any:
        """The expression rewritten; the same object where nothing changes."""
        if isinstance(e, Var):
            value = self.values.get(e)
            if value is not None:
                return value
            return self.recall(e) if self.literals and e.dtype == "bool" else e
        found = self.memo.get(id(e))
        if found is not None:
            return found[1]
        visit = self.visitors.get(type(e))
        out = visit(e) if visit is not None else map_children(e, self.part)
        if len(self.memo) > 20000:
            self.memo.clear()
        self.memo[id(e)] = e, out
        return out

    def part(self, c: Node) -> Any:
        """A child: rewritten where it is an expression."""
        return self.visit(c) if isinstance(c, PrimExpr) else c

    def binary_visitor(self, make: Callable[[Any, Any], PrimExpr], kind: type) -> Callable[[Any], PrimExpr]:
        """The visitor of an operation on two sides."""

        def visit(e: Any) -> PrimExpr:
            a, b = self.visit(e.a), self.visit(e.b)
            out = make(a, b)
            if a is e.a and b is e.b and out.__class__ is kind and out.a is a and out.b is b:  # pyright: ignore
                return e
            return out

        return visit

    def visit_swapped(self, e: Any, make: Callable[[Any, Any], PrimExpr], kind: type) -> PrimExpr:
        del kind
        return make(self.visit(e.b), self.visit(e.a))

    def under(self, condition: PrimExpr, e: PrimExpr) -> PrimExpr:
        """The expression rewritten while the condition holds."""
        saved = self.assume(condition)
        try:
            return self.visit(e)
        finally:
            self.retract(saved)

    def recall(self, e: PrimExpr) -> PrimExpr:
        """The constant, where the condition is known to hold or not."""
        if self.literals and e.__class__ is not IntImm:
            known = self.literals.get(expr_key(e))
            if known is not None:
                return TRUE if known else FALSE
        return e

    def visit_and(self, e: Any) -> PrimExpr:
        a, b = self.sides(e, e.a, ex.Not)
        out = self.make_And(a, b)
        return e if a is e.a and b is e.b and isinstance(out, ex.And) and out.a is a and out.b is b else out

    def visit_or(self, e: Any) -> PrimExpr:
        a, b = self.sides(e, ex.Not(e.a), None)
        out = self.make_Or(a, b)
        return e if a is e.a and b is e.b and isinstance(out, ex.Or) and out.a is a and out.b is b else out

    def sides(self, e: Any, condition: PrimExpr, negate: Any) -> tuple[PrimExpr, PrimExpr]:
        """Both sides of `And` or `Or`; each under what the other says, where that extension is on."""
        a = self.visit(e.a)
        if not self.extensions & 4 or e.dtype != "bool":
            return a, self.visit(e.b)
        b = self.under(a if negate else self.make_Not(a), e.b)
        return self.under(b if negate else self.make_Not(b), a), b

    def visit_not(self, e: Any) -> PrimExpr:
        a = self.visit(e.a)
        out = self.make_Not(a)
        return e if a is e.a and isinstance(out, ex.Not) and out.a is a else out

    def visit_select(self, e: Any) -> PrimExpr:
        c = self.visit(e.condition)
        if isinstance(c, IntImm):
            return self.visit(e.true_value if c.value else e.false_value)
        a = self.under(c, e.true_value)
        b = self.under(self.make_Not(c), e.false_value)
        if same(a, b):
            return a
        return e if c is e.condition and a is e.true_value and b is e.false_value else ex.Select(c, a, b)

    def visit_let(self, e: Any) -> PrimExpr:
        value = self.visit(e.value)
        if isinstance(value, (IntImm, FloatImm, Var)):
            old = self.values.get(e.var)
            self.values[e.var] = value
            self.forget()
            out = self.visit(e.body)
            if old is None:
                del self.values[e.var]
            else:
                self.values[e.var] = old
            self.forget()
            return out
        body = self.visit(e.body)
        return e if value is e.value and body is e.body else ex.Let(e.var, value, body)

    def visit_cast(self, e: Any) -> PrimExpr:
        value = self.visit(e.value)
        if isinstance(value, FloatImm) and e.dtype == "bool":
            return TRUE if value.value != 0 else FALSE
        if isinstance(value, (IntImm, FloatImm)):
            return ex.cast(value, e.dtype)
        if value.dtype == e.dtype:
            return value
        return e if value is e.value else ex.Cast(e.dtype, value)

    def visit_call(self, e: Any) -> PrimExpr:
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.if_then_else":
            return self.visit_if(e)
        out = map_children(e, self.part)
        args = out.args
        if name == "tir.likely" and isinstance(args[0], IntImm):
            return args[0]
        if args and all(isinstance(a, IntImm) for a in args):
            return self.folded(out, name)
        return self.recall(out) if out.dtype == "bool" else out

    def folded(self, e: Any, name: str) -> PrimExpr:
        """A call of constants, computed."""
        if len(e.args) == 2 and name in (
            "tir.shift_left", "tir.shift_right", "tir.bitwise_and", "tir.bitwise_or", "tir.bitwise_xor"
        ):  # fmt: skip
            return ex.bitwise(name, *e.args)
        if name == "tir.clz":
            bits = dt.bits(e.args[0].dtype)
            value = e.args[0].value & ((1 << bits) - 1)
            return IntImm(e.dtype, bits - value.bit_length())
        if name == "tir.bitwise_not":
            return IntImm(e.dtype, ex.wrap(~e.args[0].value, e.dtype))
        return e

    def visit_if(self, e: Any) -> PrimExpr:
        c = self.visit(e.args[0])
        if isinstance(c, IntImm):
            return self.visit(e.args[1] if c.value else e.args[2])
        a = self.under(c, e.args[1])
        b = self.under(self.make_Not(c), e.args[2])
        inner: Any = a
        if isinstance(a, ex.Call) and a.op is e.op and same(inner.args[2], b):
            return ex.Call(e.dtype, e.op, (self.make_And(c, inner.args[0]), inner.args[1], b))
        if c is e.args[0] and a is e.args[1] and b is e.args[2]:
            return e
        return ex.Call(e.dtype, e.op, (c, a, b))

    # ---- building under rules ----------------------------------------------------------------------------------------

    def apply(self, table: RuleTable, op: str, *sides: PrimExpr) -> PrimExpr | None:
        """The result of the first rule that matches an operation on the sides."""
        key = (op, *[s.__class__ for s in sides])
        try:
            f = table.functions[key]
        except KeyError:
            f = table.function(op, *key[1:])
        if f is None or self.depth > DEPTH:
            return None
        self.depth += 1
        self.steps += 1
        try:
            dtype = self.number_dtype(sides[0]) if table is _LOGIC else sides[-1].dtype
            return f(*sides, self, dt.element(dtype) if table is _VECTOR else dtype)
        except Overflow:
            return None
        finally:
            self.depth -= 1

    def number_dtype(self, e: Any) -> str:
        """The dtype of the integers in a condition."""
        while isinstance(e, (ex.And, ex.Or, ex.Not)):
            e = e.a
        return e.a.dtype if isinstance(e, ex.CmpOp) else e.dtype

    def arithmetic(self, op: str, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """An arithmetic operation on simplified sides, simplified."""
        dtype = a.dtype
        out: Any = RAW["raw_" + op](a, b)
        if out.__class__.__name__ != op or out.a is not a or out.b is not b:
            return out
        if dtype in INDEX:
            found = self.apply(_INDEX, op, a, b)
            return out if found is None else found
        if "x" in dtype:
            found = self.vector(op, a, b)
            if found is not None:
                return found
        if op == "Sub" and same(a, b) and not dt.is_float(dtype):
            return zero(dtype)
        return out

    def vector(self, op: str, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        """What the rules of vectors make of an operation."""
        if op in ("Add", "Sub", "Mul") and dt.is_float(a.dtype):
            if isinstance(b, ex.Broadcast) and _zero(b.value) and (op == "Sub" or (op == "Add" and _finite(a))):
                return a
            if op == "Add" and isinstance(a, ex.Broadcast) and _zero(a.value) and _finite(b):
                return b
            for x, y in ((a, b), (b, a)):
                if op == "Mul" and isinstance(x, ex.Broadcast) and _zero(x.value) and _finite(y):
                    return x
        return self.apply(_VECTOR, op, a, b)

    def make_Add(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a + b"""
        return self.arithmetic("Add", a, b)

    def make_Sub(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a - b"""
        return self.arithmetic("Sub", a, b)

    def make_Mul(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a * b"""
        return self.arithmetic("Mul", a, b)

    def make_Div(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a / b; integers truncate"""
        return self.arithmetic("Div", a, b)

    def make_Mod(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The truncating remainder"""
        return self.arithmetic("Mod", a, b)

    def make_FloorDiv(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a // b"""
        return self.arithmetic("FloorDiv", a, b)

    def make_FloorMod(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a % b"""
        return self.arithmetic("FloorMod", a, b)

    def make_Min(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The smaller"""
        if a.dtype in INDEX:
            result = self.compare(a, b)
            if result in (EQUAL, LESS, LESS_EQUAL):
                return a
            if result in (GREATER, GREATER_EQUAL):
                return b
        return self.arithmetic("Min", a, b)

    def make_Max(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The greater"""
        if a.dtype in INDEX:
            result = self.compare(a, b)
            if result in (EQUAL, GREATER, GREATER_EQUAL):
                return a
            if result in (LESS, LESS_EQUAL):
                return b
        return self.arithmetic("Max", a, b)

    def make_Select(self, c: PrimExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """A selection"""
        return a if same(a, b) else RAW["raw_Select"](c, a, b)

    def make_Ramp(self, base: PrimExpr, stride: PrimExpr, lanes: Any) -> PrimExpr:
        """A vector of equal steps"""
        return RAW["raw_Ramp"](base, stride, lanes)

    def make_Broadcast(self, value: PrimExpr, lanes: Any) -> PrimExpr:
        """A vector of one value"""
        return ex.Broadcast(value, lanes)

    # ---- comparisons -------------------------------------------------------------------------------------------------

    def compare(self, a: PrimExpr, b: PrimExpr) -> int:
        """What is known of two index expressions."""
        x, y = linear(a), linear(b)
        low: Any = x.constant - y.constant
        high: Any = low
        left = dict(x.terms)
        for key, (atom, c) in y.terms.items():
            old = left.get(key)
            k = -c if old is None else old[1] - c
            if k:
                left[key] = (atom, k)
            else:
                left.pop(key, None)
        for atom, c in left.values():
            p, q = self.bounds(atom)
            low += (p if c > 0 else q) * c
            high += (q if c > 0 else p) * c
        if low > 0:
            return GREATER
        if high < 0:
            return LESS
        if low == 0 or high == 0:
            return EQUAL if low == high else GREATER_EQUAL if low == 0 else LESS_EQUAL
        tight = self.tighter(a, b)
        if tight:
            return tight
        return self.by_spacing(left, x.constant - y.constant)

    def tighter(self, a: PrimExpr, b: PrimExpr) -> int:
        """What bounds of the whole sides, and known comparisons, say."""
        (p, q), (r, s) = self.bounds(a), self.bounds(b)
        if q < r:
            return LESS
        if p > s:
            return GREATER
        if q == r:
            return LESS_EQUAL
        if p == s:
            return GREATER_EQUAL
        if self.bounds.extra:
            low, high = self.bounds(ex.Sub(a, b))
            if low >= 0 or high <= 0:
                return (GREATER if low > 0 else GREATER_EQUAL) if low >= 0 else LESS if high < 0 else LESS_EQUAL
        return self.from_known(a, b)

    def from_known(self, a: PrimExpr, b: PrimExpr) -> int:
        """What known comparisons say."""
        if not self.transitive.edges:
            return UNKNOWN
        most, least = self.transitive.most(a, b), self.transitive.most(b, a)
        if most is not None and most < 0:
            return LESS
        if least is not None and least < 0:
            return GREATER
        if most == 0:
            return EQUAL if least == 0 else LESS_EQUAL
        return GREATER_EQUAL if least == 0 else UNKNOWN

    def by_spacing(self, terms: dict[Any, Any], constant: int) -> int:
        """Unequal, where the spacing of the difference leaves zero out."""
        from math import gcd

        step, base = 0, constant
        for atom, c in terms.values():
            m, r = self.modular(atom)
            step = gcd(step, m * c)
            base += r * c
        return UNEQUAL if step and base % step else UNKNOWN

    def make_LT(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a < b"""
        out = self.less_than(a, b)
        return self.recall(ex.LT(a, b)) if out is None else out

    def less_than(self, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        """What `a < b` becomes; None where it stays."""
        out: Any = RAW["raw_LT"](a, b)
        if isinstance(out, IntImm):
            return out
        if a.dtype in INDEX:
            result = self.compare(a, b)
            if result == LESS:
                return TRUE
            if result in (GREATER, GREATER_EQUAL, EQUAL):
                return FALSE
            found = self.apply(_INDEX, "LT", a, b)
            return self.scaled_down(a, b) if found is None else found
        if "x" in a.dtype:
            return self.apply(_VECTOR, "LT", a, b)
        return FALSE if same(a, b) and not dt.is_float(a.dtype) else None

    def scaled_down(self, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        """Both sides divided by the greatest divisor that all their terms share."""
        from math import gcd

        x, y = linear(a), linear(b)
        g = gcd(*[c for _, c in x.terms.values()], *[c for _, c in y.terms.values()])
        if g < 2 or not x.terms or not y.terms:
            return self.sum_against_product(a, b) if self.extensions & 8 else None
        gap = y.constant - x.constant  # terms(a) < terms(b) + gap
        rest = -(-gap // g)
        left, right = self.over(a, x, g), self.over(b, y, g)
        if rest > 0:
            right = self.make_Add(right, nodes.imm(rest, b.dtype))
        elif rest < 0:
            left = self.make_Add(left, nodes.imm(-rest, a.dtype))
        return self.make_LT(left, right)

    def over(self, e: PrimExpr, parts: Any, g: int) -> PrimExpr:
        """The terms of a sum divided by g."""
        out: PrimExpr = zero(e.dtype)
        for atom, c in parts.terms.values():
            out = self.make_Add(out, self.make_Mul(atom, nodes.imm(c // g, e.dtype)))
        return out

    def sum_against_product(self, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        """x*y*c < (x + y)*d holds where 1/x + 1/y > c/d for the greatest x and y (both positive)."""
        x, y = linear(a), linear(b)
        if len(x.terms) != 1 or x.constant or y.constant or len(y.terms) not in (1, 2):
            return None
        ((product, c),) = x.terms.values()
        if not isinstance(product, ex.Mul):
            return None
        terms = list(y.terms.values())
        if len(terms) == 1 and isinstance(terms[0][0], ex.Add):
            total: Any = terms[0][0]
            terms = [(total.a, terms[0][1]), (total.b, terms[0][1])]
        if len(terms) != 2 or terms[0][1] != terms[1][1]:
            return None
        p, q = terms[0][0], terms[1][0]
        d = terms[0][1]
        if not ((same(p, product.a) and same(q, product.b)) or (same(p, product.b) and same(q, product.a))):
            return None
        (l1, h1), (l2, h2) = self.bounds(p), self.bounds(q)
        if l1 <= 0 or l2 <= 0 or c <= 0 or d <= 0:
            return None
        left = (0 if h1 == INF else h2 if h2 != INF else 0) if INF in (h1, h2) else h1 + h2
        if INF in (h1, h2):
            least = min(h1, h2)
            return TRUE if least != INF and d >= c * least else None
        return TRUE if left * d > c * h1 * h2 else None

    def make_LE(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a <= b"""
        out: Any = RAW["raw_LE"](a, b)
        if isinstance(out, IntImm):
            return out
        if a.dtype in INDEX:
            result = self.compare(a, b)
            if result in (LESS, LESS_EQUAL, EQUAL):
                return TRUE
            if result == GREATER:
                return FALSE
            if result == GREATER_EQUAL:
                return self.make_EQ(a, b)
            found = self.less_than(b, a)
            return self.recall(out) if found is None else self.make_Not(found)
        if "x" in a.dtype:
            found = self.apply(_VECTOR, "LE", a, b)
            return out if found is None else found
        return TRUE if same(a, b) and not dt.is_float(a.dtype) else self.recall(out)

    def make_EQ(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a == b"""
        out: Any = RAW["raw_EQ"](a, b)
        if isinstance(out, IntImm):
            return out
        if a.dtype in INDEX:
            result = self.compare(a, b)
            if result == EQUAL:
                return TRUE
            if result in (LESS, GREATER, UNEQUAL):
                return FALSE
            found = self.apply(_INDEX, "EQ", a, b)
            return self.recall(out) if found is None else found
        if "x" in a.dtype:
            found = self.apply(_VECTOR, "EQ", a, b)
            return out if found is None else found
        return TRUE if same(a, b) and not dt.is_float(a.dtype) else self.recall(out)

    def make_NE(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a != b"""
        equal = self.make_EQ(a, b)
        if isinstance(equal, ex.Broadcast):
            return ex.Broadcast(self.make_Not(equal.value), equal.lanes)
        return self.make_Not(equal)

    def make_Not(self, a: PrimExpr) -> PrimExpr:
        """The opposite"""
        out: Any = RAW["raw_Not"](a)
        if isinstance(out, IntImm):
            return out
        if a.dtype != "bool":
            return ex.Broadcast(self.make_Not(a.value), a.lanes) if isinstance(a, ex.Broadcast) else out
        found = self.apply(_LOGIC, "Not", a)
        return self.recall(out if found is None else found)

    def make_And(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """Both"""
        return self.logic("And", a, b)

    def make_Or(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """Either"""
        return self.logic("Or", a, b)

    def logic(self, op: str, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        out: Any = RAW["raw_" + op](a, b)
        if out.__class__.__name__ != op or out.a is not a or out.b is not b:
            return out
        found = self.apply(_LOGIC if a.dtype == "bool" else _VECTOR, op, a, b)
        return self.recall(out) if found is None else found


def _zero(e: PrimExpr) -> bool:
    return isinstance(e, FloatImm) and e.value == 0


def _finite(e: PrimExpr) -> bool:
    """Can the float be no infinity or NaN: is it a converted integer?"""
    if isinstance(e, ex.Broadcast):
        return _finite(e.value)
    return isinstance(e, ex.Cast) and not dt.is_float(e.value.dtype)
