"""Simplification rules as data: (pattern, result, condition).

A pattern is an expression over the pattern variables below; `x y z w` match anything, `c1 c2 c3` integer constants, `p q`
bools. `when` is a Python expression over the constants, `given` a comparison that must be provable. A test proves every
rule for all integers (z3, and by enumeration): what is not proved does not go in here.

Sums, products and quotients by constants are not here: they have a normal form (`poly`, `divide`) instead of rules.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.arith.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    Div,
    FloorDiv,
    IntImm,
    Max,
    Min,
    Mod,
    Not,
    Or,
    PrimExpr,
    Select,
    Var,
)  # fmt: skip

__all__ = ["CONSTANTS", "RULES", "Rule"]

x, y, z, w = (Var(n, "int32") for n in "xyzw")
c1, c2, c3 = (Var(n, "int32") for n in ("c1", "c2", "c3"))
p, q = (Var(n, "bool") for n in "pq")
CONSTANTS = frozenset((c1, c2, c3))
TRUE, FALSE, ZERO = IntImm("bool", 1), IntImm("bool", 0), IntImm("int32", 0)


class Rule(NamedTuple):
    """`pattern` -> `result` where `when` holds of the constants and `given` can be proved."""

    pattern: PrimExpr
    result: PrimExpr
    when: str = ""
    given: PrimExpr | None = None


RULES: tuple[Rule, ...] = (
    # minimum and maximum
    Rule(Min(x, x), x),
    Rule(Max(x, x), x),
    Rule(Min(Min(x, y), x), Min(x, y)),
    Rule(Max(Max(x, y), x), Max(x, y)),
    Rule(Min(Max(x, y), x), x),
    Rule(Max(Min(x, y), x), x),
    Rule(Min(Max(x, y), Min(x, y)), Min(x, y)),
    Rule(Max(Max(x, y), Min(x, y)), Max(x, y)),
    Rule(Min(Min(x, y), Min(x, z)), Min(Min(y, z), x)),
    Rule(Max(Max(x, y), Max(x, z)), Max(Max(y, z), x)),
    Rule(Min(Max(x, y), Max(x, z)), Max(Min(y, z), x)),
    Rule(Max(Min(x, y), Min(x, z)), Min(Max(y, z), x)),
    Rule(Min(Min(x, c1), c2), Min(x, c1), "c1 <= c2"),
    Rule(Min(Min(x, c1), c2), Min(x, c2), "c2 < c1"),
    Rule(Max(Max(x, c1), c2), Max(x, c1), "c1 >= c2"),
    Rule(Max(Max(x, c1), c2), Max(x, c2), "c2 > c1"),
    Rule(Min(Max(x, c1), c2), c2, "c2 <= c1"),
    Rule(Max(Min(x, c1), c2), c2, "c2 >= c1"),
    Rule(Min(Min(x, c1), y), Min(Min(x, y), c1)),
    Rule(Max(Max(x, c1), y), Max(Max(x, y), c1)),
    Rule(Min(x * c1, y * c1), Min(x, y) * c1, "c1 > 0"),
    Rule(Min(x * c1, y * c1), Max(x, y) * c1, "c1 < 0"),
    Rule(Max(x * c1, y * c1), Max(x, y) * c1, "c1 > 0"),
    Rule(Max(x * c1, y * c1), Min(x, y) * c1, "c1 < 0"),
    Rule(Min(x * c1, c2), Min(x, c3) * c1, "c1 > 1 and c2 % c1 == 0 and c3 == c2 // c1"),
    Rule(Max(x * c1, c2), Max(x, c3) * c1, "c1 > 1 and c2 % c1 == 0 and c3 == c2 // c1"),
    Rule(Min(x // c1, y // c1), Min(x, y) // c1, "c1 > 0"),
    Rule(Max(x // c1, y // c1), Max(x, y) // c1, "c1 > 0"),
    Rule(Min(x // c1 * c1, x), x // c1 * c1, "c1 > 0"),
    Rule(Max(x // c1 * c1, x), x, "c1 > 0"),
    Rule(Min(Select(p, x, y), Select(p, z, w)), Select(p, Min(x, z), Min(y, w))),
    Rule(Max(Select(p, x, y), Select(p, z, w)), Select(p, Max(x, z), Max(y, w))),
    # quotients of minimum and maximum
    Rule(FloorDiv(Min(x, y * c1), c1), Min(x // c1, y), "c1 > 0"),
    Rule(FloorDiv(Max(x, y * c1), c1), Max(x // c1, y), "c1 > 0"),
    Rule(FloorDiv(Min(x * c1, y * c1), c1), Min(x, y), "c1 > 0"),
    Rule(FloorDiv(Min(x, c2), c1), Min(x // c1, c3), "c1 > 0 and c3 == c2 // c1"),
    Rule(FloorDiv(Max(x, c2), c1), Max(x // c1, c3), "c1 > 0 and c3 == c2 // c1"),
    # truncating division
    Rule(Div(x, c1), x // c1, "c1 > 0", x >= 0),
    Rule(Mod(x, c1), x % c1, "c1 > 0", x >= 0),
    Rule(Div(x, c1), ZERO - (ZERO - x) // c1, "c1 > 0", x <= 0),
    Rule(Mod(x, c1), ZERO - (ZERO - x) % c1, "c1 > 0", x <= 0),
    Rule(Div(x, c1), ZERO - Div(x, c2), "c1 < 0 and c2 == -c1"),
    Rule(Mod(x, c1), Mod(x, c2), "c1 < 0 and c2 == -c1"),
    Rule(Div(x, x), IntImm("int32", 1), "", NE(x, ZERO)),
    Rule(Div(x * c1, c2), x * c3, "c2 > 0 and c1 % c2 == 0 and c3 == c1 // c2"),
    Rule(Mod(x * c1, c2), ZERO, "c2 > 0 and c1 % c2 == 0"),
    Rule(Div(Div(x, c1), c2), Div(x, c3), "c1 > 0 and c2 > 0 and c3 == c1 * c2"),
    Rule(Mod(Mod(x, c1), c2), Mod(x, c2), "c1 > 0 and c2 > 0 and c1 % c2 == 0"),
    # selections
    Rule(Select(p, x, x), x),
    Rule(Select(TRUE, x, y), x),
    Rule(Select(FALSE, x, y), y),
    Rule(Select(Not(p), x, y), Select(p, y, x)),
    Rule(Select(p, Select(p, x, y), z), Select(p, x, z)),
    Rule(Select(p, x, Select(p, y, z)), Select(p, x, z)),
    Rule(Select(p, x, Select(q, x, y)), Select(Or(p, q), x, y)),
    Rule(Select(p, Select(q, x, y), y), Select(And(p, q), x, y)),
    Rule(Select(p, TRUE, FALSE), p),
    Rule(Select(p, FALSE, TRUE), Not(p)),
    # logic
    Rule(And(p, p), p),
    Rule(Or(p, p), p),
    Rule(And(p, Not(p)), FALSE),
    Rule(Or(p, Not(p)), TRUE),
    Rule(And(p, TRUE), p),
    Rule(And(p, FALSE), FALSE),
    Rule(Or(p, TRUE), TRUE),
    Rule(Or(p, FALSE), p),
    Rule(And(Or(p, q), p), p),
    Rule(Or(And(p, q), p), p),
    Rule(Not(Not(p)), p),
    Rule(Not(LT(x, y)), GE(x, y)),
    Rule(Not(LE(x, y)), GT(x, y)),
    Rule(Not(GT(x, y)), LE(x, y)),
    Rule(Not(GE(x, y)), LT(x, y)),
    Rule(Not(EQ(x, y)), NE(x, y)),
    Rule(Not(NE(x, y)), EQ(x, y)),
    # comparisons of minimum and maximum with constants (both decided sides go by bounds)
    Rule(LT(Min(x, c1), c2), LT(x, c2), "c2 <= c1"),
    Rule(LT(Max(x, c1), c2), LT(x, c2), "c1 < c2"),
    Rule(LE(Min(x, c1), c2), LE(x, c2), "c2 < c1"),
    Rule(LE(Max(x, c1), c2), LE(x, c2), "c1 <= c2"),
    Rule(GE(Min(x, c1), c2), GE(x, c2), "c2 <= c1"),
    Rule(GE(Max(x, c1), c2), GE(x, c2), "c1 < c2"),
    Rule(GT(Min(x, c1), c2), GT(x, c2), "c2 < c1"),
    Rule(GT(Max(x, c1), c2), GT(x, c2), "c1 <= c2"),
    Rule(EQ(Max(x, c1), c2), EQ(x, c2), "c1 < c2"),
    Rule(EQ(Min(x, c1), c2), EQ(x, c2), "c2 < c1"),
)
