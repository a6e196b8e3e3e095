"""Rewriting rules as data: (pattern, result, condition), for sums, products, quotients, minima.

A rule is text: a Python expression over `x y z w s t` (anything), `c1..c6` (integer constants), `p q r` (conditions), and
`//`, `%` (rounding down), `tdiv`, `tmod` (truncating), `min`, `max`, `sel(p, a, b)`, `ramp(base, stride, l1)`,
`bcast(x, l1)`, `&`, `|`, `~`. Sums and products in a pattern match in either order, except where the pattern begins
with `!`. Integer arithmetic of constants in a result is done at once.

A condition is a Python expression over the constants and, for what is known of the matched parts: `nonneg(x)`,
`pos(x)`, `less(x, c)` (0 <= x < c known), and the like (`known.py`). A result that begins with `>` is simplified again.

The tests prove each rule for all integers by z3, or by enumeration.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["INDEX_RULES", "VECTOR_RULES", "Rule"]


class Rule(NamedTuple):
    """`pattern` -> `result` where `when` holds."""

    pattern: str
    result: str
    when: str = ""


def _rules(text: str) -> list[Rule]:
    out: list[Rule] = []
    for raw in text.strip().splitlines():
        line = raw.split("#")[0].strip()
        if line:
            left, _, right = line.partition("->")
            result, _, when = right.partition(" if ")
            out.append(Rule(left.strip(), result.strip(), when.strip()))
    return out


VECTOR_RULES: dict[str, list[Rule]] = {
    "Add": _rules("""
        !ramp(x, z, l1) + ramp(y, w, l1)  -> ramp(x + y, z + w, l1)
        !ramp(x, z, l1) + bcast(y, l1)    -> ramp(x + y, z, l1)
        !bcast(y, l1) + ramp(x, z, l1)    -> ramp(y + x, z, l1)
        !bcast(x, l1) + bcast(y, l1)      -> bcast(x + y, l1)
    """),
    "Sub": _rules("""
        ramp(x, z, l1) - ramp(y, w, l1)  -> ramp(x - y, z - w, l1)
        ramp(x, z, l1) - bcast(y, l1)    -> ramp(x - y, z, l1)
        bcast(y, l1) - ramp(x, z, l1)    -> ramp(y - x, 0 - z, l1)
        bcast(x, l1) - bcast(y, l1)      -> bcast(x - y, l1)
    """),
    "Mul": _rules("""
        !bcast(x, l1) * bcast(y, l1)    -> bcast(x * y, l1)
        !ramp(x, z, l1) * bcast(y, l1)  -> ramp(x * y, z * y, l1)
        !bcast(y, l1) * ramp(x, z, l1)  -> ramp(x * y, z * y, l1)
    """),
    "Div": _rules("""
        tdiv(bcast(x, l1), bcast(y, l1))         -> bcast(tdiv(x, y), l1)
        tdiv(ramp(x, c1, l1), bcast(c2, l1))     -> > ramp(tdiv(x, c2), c1 // c2, l1)  if c2 > 0 and c1 >= 0 and c1 % c2 == 0 and nonneg(x)
        tdiv(ramp(x, c1, l1), bcast(c2, l1))     -> > bcast(tdiv(x, c2), l1)  if c2 > 0 and nonneg(x) and c1 >= 0 and one_block(x, c1, l1, c2)
    """),
    "Mod": _rules("""
        tmod(bcast(x, l1), bcast(y, l1))         -> bcast(tmod(x, y), l1)
        tmod(ramp(x, c1, l1), bcast(c2, l1))     -> > bcast(tmod(x, c2), l1)  if c2 > 0 and c1 >= 0 and c1 % c2 == 0 and nonneg(x)
        tmod(ramp(x, c1, l1), bcast(c2, l1))     -> > ramp(base(x, c2), c1, l1)  if c2 > 0 and nonneg(x) and c1 >= 0 and known(x, c2) and in_block(x, c1, l1, c2)
        tmod(ramp(x, c1, l1), bcast(c2, l1))     -> > tmod(ramp(base(x, c2), c1, l1), bcast(c2, l1))  if c2 > 0 and nonneg(x) and c1 >= 0 and known(x, c2) and not reduced(x, c2)
    """),
    "FloorDiv": _rules("""
        bcast(x, l1) // bcast(y, l1)             -> bcast(x // y, l1)
        ramp(x, c1, l1) // bcast(c2, l1)         -> > ramp(x // c2, c1 // c2, l1)  if c2 > 0 and c1 % c2 == 0
        ramp(x, c1, l1) // bcast(c2, l1)         -> > bcast(x // c2, l1)  if c2 > 0 and c1 >= 0 and one_block(x, c1, l1, c2)
    """),
    "FloorMod": _rules("""
        bcast(x, l1) % bcast(y, l1)              -> bcast(x % y, l1)
        ramp(x, c1, l1) % bcast(c2, l1)          -> > bcast(x % c2, l1)  if c2 > 0 and c1 % c2 == 0
        ramp(x, c1, l1) % bcast(c2, l1)          -> > ramp(base(x, c2), c1, l1)  if c2 > 0 and c1 >= 0 and known(x, c2) and in_block(x, c1, l1, c2)
        ramp(x, c1, l1) % bcast(c2, l1)          -> > ramp(x % c2, c1, l1)  if c2 > 0 and c1 >= 0 and not known(x, c2) and one_block(x, c1, l1, c2)
        ramp(x, c1, l1) % bcast(c2, l1)          -> > ramp(base(x, c2), c1, l1) % bcast(c2, l1)  if c2 > 0 and known(x, c2) and not reduced(x, c2)
    """),
    "Min": _rules("""
        min(bcast(x, l1), bcast(y, l1))          -> bcast(min(x, y), l1)
        min(min(x, bcast(y, l1)), bcast(z, l1))  -> min(x, bcast(min(y, z), l1))
    """),
    "Max": _rules("""
        max(bcast(x, l1), bcast(y, l1))          -> bcast(max(x, y), l1)
        max(max(x, bcast(y, l1)), bcast(z, l1))  -> max(x, bcast(max(y, z), l1))
    """),
    "EQ": _rules("bcast(x, l1) == bcast(y, l1) -> bcast(x == y, l1)"),
    "LT": _rules("bcast(x, l1) < bcast(y, l1) -> bcast(x < y, l1)"),
    "LE": _rules("bcast(x, l1) <= bcast(y, l1) -> bcast(x <= y, l1)"),
    "And": _rules("bcast(x, l1) & bcast(y, l1) -> bcast(x & y, l1)"),
    "Or": _rules("bcast(x, l1) | bcast(y, l1) -> bcast(x | y, l1)"),
}

INDEX_RULES: dict[str, list[Rule]] = {
    "Add": _rules("""
        # what cancels
        (x - y) + y                       -> x
        (x - y) + (y - z)                 -> x - z
        (x - y) + (z - x)                 -> z - y
        !min(x, y - z) + z                -> min(x + z, y)
        !z + min(x, y - z)                -> min(x + z, y)
        !min(x - z, y) + z                -> min(x, y + z)
        !z + min(x - z, y)                -> min(x, y + z)
        !max(x, y - z) + z                -> max(x + z, y)
        !z + max(x, y - z)                -> max(x + z, y)
        !max(x - z, y) + z                -> max(x, y + z)
        !z + max(x - z, y)                -> max(x, y + z)
        min(x, y + z * c1) + z * c2      -> min(x + z * c2, y)  if c1 == -c2
        min(y + z * c1, x) + z * c2       -> min(x + z * c2, y)  if c1 == -c2
        max(x, y + z * c1) + z * c2      -> max(x + z * c2, y)  if c1 == -c2
        max(y + z * c1, x) + z * c2       -> max(x + z * c2, y)  if c1 == -c2
        min(x, y + c1) + c2               -> > min(x + c2, y + (c1 + c2))  if c1 == -c2
        min(x + c1, y) + c2               -> > min(x + (c1 + c2), y + c2)  if c1 == -c2
        max(x, y + c1) + c2               -> > max(x + c2, y + (c1 + c2))  if c1 == -c2
        max(x + c1, y) + c2               -> > max(x + (c1 + c2), y + c2)  if c1 == -c2
        max(x, y) + min(x, y)             -> x + y
        max(x, y) + min(y, x)             -> x + y
        !min(x, y) + max(x, y)            -> x + y
        !min(x, y) + max(y, x)            -> x + y
        # common factors
        x + x                             -> x * 2
        x * y + x                         -> > x * (y + 1)
        x * y + x * z                     -> > x * (y + z)
        # quotients and remainders
        tdiv(x, c1) * c1 + tmod(x, c1)    -> x
        (x // y) * y + x % y              -> x
        x // c1 * c3 + x % c1 * c2        -> x * c2  if c1 != 0 and c3 == c1 * c2
        (y + x % c1) + x // c1 * c1       -> x + y
        (y + x // c1 * c1) + x % c1       -> x + y
        (x % 2 + c1) // 2 + x // 2        -> (x + c1) // 2
        x // 2 + x % 2                    -> (x + 1) // 2
        x % 2 + (x + c1) % 2              -> 1  if c1 % 2 == 1
        # constants outwards
        !c1 + x                           -> x + c1
        (x + c1) + c2                     -> x + (c1 + c2)
        !(x + c1) + y                     -> > (x + y) + c1
        !x + (c1 - y)                     -> > (x - y) + c1
        !(c1 - y) + x                     -> > (x - y) + c1
        !(c1 - x) + c2                    -> (c1 + c2) - x
        !x + (y + c1)                     -> > (x + y) + c1
        !x + (0 - y)                      -> > x - y
        sel(p, x, y) + sel(p, z, w)       -> > sel(p, x + z, y + w)
        !x * c1 + y * c1                  -> (x + y) * c1
    """),
    "Sub": _rules("""
        (x + y) - y                       -> x
        x - (y + x)                       -> 0 - y
        x - (x + y)                       -> 0 - y
        min(x, y) - x                     -> min(0, y - x)
        min(x, y) - y                     -> min(x - y, 0)
        max(x, y) - x                     -> max(0, y - x)
        max(x, y) - y                     -> max(x - y, 0)
        x - max(x, y)                     -> min(0, x - y)
        y - max(x, y)                     -> min(y - x, 0)
        x - min(x, y)                     -> max(0, x - y)
        y - min(x, y)                     -> max(y - x, 0)
        # common factors
        x - x                             -> 0
        x * y - x                         -> > x * (y + -1)
        x - y * x                         -> > x * (1 - y)
        x * y - x * z                     -> > x * (y - z)
        # four parts
        (x + y) - (x + z)                 -> y - z
        min(x + y, z) - x                 -> min(y, z - x)
        min(z, x + y) - x                 -> min(z - x, y)
        max(x + y, z) - x                 -> max(y, z - x)
        max(z, x + y) - x                 -> max(z - x, y)
        x - min(x + y, z)                 -> max(0 - y, x - z)
        x - min(z, x + y)                 -> max(x - z, 0 - y)
        x - max(x + y, z)                 -> min(0 - y, x - z)
        x - max(z, x + y)                 -> min(x - z, 0 - y)
        min(x, y) - min(y, x)             -> 0
        max(x, y) - max(y, x)             -> 0
        min(x, y) - min(z, w)             -> gap(x, z)  if has_gap(x, z) and same_gap(x, z, y, w)
        min(x, y) - min(z, w)             -> gap(x, w)  if has_gap(x, w) and same_gap(x, w, y, z)
        max(x, y) - max(z, w)             -> gap(x, z)  if has_gap(x, z) and same_gap(x, z, y, w)
        max(x, y) - max(z, w)             -> gap(x, w)  if has_gap(x, w) and same_gap(x, w, y, z)
        # truncating quotients
        x - tdiv(x, c1) * c1              -> tmod(x, c1)  if c1 > 0
        x - tdiv(x, c1) * c1              -> tmod(x, -c1)  if c1 < 0
        tdiv(x, c1) * c1 - x              -> 0 - tmod(x, c1)  if c1 > 0
        x - tdiv(x + y, c1) * c1          -> > tmod(x + y, c1) - y  if c1 > 0
        tdiv(x + y, c1) * c1 - x          -> > y - tmod(x + y, c1)  if c1 > 0
        x - tdiv(x - y, c1) * c1          -> tmod(x - y, c1) + y  if c1 > 0
        tdiv(x - y, c1) * c1 - x          -> 0 - tmod(x - y, c1) - y  if c1 > 0
        x * c2 - tdiv(x, c1) * c3         -> tmod(x, c1) * c2  if c1 > 0 and c3 == c1 * c2
        tdiv(x, c1) * c3 - x * c2         -> tmod(x, c1) * (0 - c2)  if c1 > 0 and c3 == c1 * c2
        x * c2 - tdiv(x + y, c1) * c3     -> (tmod(x + y, c1) - y) * c2  if c1 > 0 and c3 == c1 * c2
        tdiv(x + y, c1) * c3 - x * c2     -> (y - tmod(x + y, c1)) * c2  if c1 > 0 and c3 == c1 * c2
        x * c2 - tdiv(x - y, c1) * c3     -> (tmod(x - y, c1) + y) * c2  if c1 > 0 and c3 == c1 * c2
        tdiv(x - y, c1) * c3 - x * c2     -> (0 - tmod(x - y, c1) - y) * c2  if c1 > 0 and c3 == c1 * c2
        tdiv(x + c1, c3) - tdiv(x + c2, c3)  -> tdiv(tmod(x + c2, c3) + (c1 - c2), c3)  if c3 > 0 and c1 >= c2 and nonneg(x + c2)
        tdiv(x + c1, c3) - tdiv(x, c3)    -> tdiv(tmod(x, c3) + c1, c3)  if c3 > 0 and c1 >= 0 and nonneg(x)
        # quotients rounded down
        (x + c1) // 2 - x % 2             -> > (x + (c1 - 1)) // 2  if c1 % 2 == 1
        (x + c1) // 2 - (x + c2) // 2     -> > x % 2 * (c1 % 2 - c2 % 2) + (c1 // 2 - c2 // 2)
        x // 2 - (x + c2) // 2            -> > x % 2 * (0 - c2 % 2) + (0 - c2 // 2)
        (x + c1) // 2 - x // 2            -> > x % 2 * (c1 % 2) + c1 // 2
        x - x // y * y                    -> x % y
        x // y * y - x                    -> 0 - x % y
        x - (x + y) // c1 * c1            -> > (x + y) % c1 - y  if c1 > 0
        (x + y) // c1 * c1 - x            -> > y - (x + y) % c1  if c1 > 0
        x - (x - y) // c1 * c1            -> (x - y) % c1 + y  if c1 > 0
        (x - y) // c1 * c1 - x            -> 0 - (x - y) % c1 - y  if c1 > 0
        x * c2 - x // c1 * c3             -> x % c1 * c2  if c1 != 0 and c3 == c1 * c2
        x // c1 * c3 - x * c2             -> x % c1 * (0 - c2)  if c1 != 0 and c3 == c1 * c2
        x * c2 - (x + y) // c1 * c3       -> ((x + y) % c1 - y) * c2  if c1 != 0 and c3 == c1 * c2
        (x + y) // c1 * c3 - x * c2       -> (y - (x + y) % c1) * c2  if c1 != 0 and c3 == c1 * c2
        x * c2 - (x - y) // c1 * c3       -> ((x - y) % c1 + y) * c2  if c1 != 0 and c3 == c1 * c2
        (x - y) // c1 * c3 - x * c2       -> (0 - (x - y) % c1 - y) * c2  if c1 != 0 and c3 == c1 * c2
        (x + c1) // c3 - (x + c2) // c3   -> block(x, c1, c2, c3)  if c3 > 0
        (x + c1) // c3 - x // c3          -> (x % c3 + c1) // c3  if c3 > 0
        # constants outwards
        x - c1                            -> > x + (0 - c1)
        (x + c1) - y                      -> > (x - y) + c1
        x - (y + c1)                      -> > (x - y) + (0 - c1)
        x - (c1 - y)                      -> > (x + y) + (0 - c1)
        (c1 - x) - (c2 - y)               -> > (y - x) + (c1 - c2)
        x - (y - z)                       -> > (x + z) - y
        x - y * c1                        -> > x + y * (0 - c1)
        sel(p, x, y) - sel(p, z, w)       -> > sel(p, x - z, y - w)
        sel(p, x, y) - z                  -> > sel(p, x - z, y - z)  if cancels(x, z) or cancels(y, z)
    """),
    "Mul": _rules("""
        !(x + c1) * c2                    -> x * c2 + c1 * c2
        !(x * c1) * c2                    -> x * (c1 * c2)
        min(x, y) * max(x, y)             -> x * y
        min(x, y) * max(y, x)             -> x * y
        x // c1 * c1                      -> x  if c1 != 0 and whole(x, c1)
        !c1 * x                           -> x * c1
        !x * (c1 * y)                     -> > (x * y) * c1
        !(x - y) * c1                     -> > (y - x) * (0 - c1)  if c1 < 0
    """),
    "Div": _rules("""
        tdiv(x, x)                        -> 1
        tdiv(tdiv(x, c1), c2)             -> tdiv(x, c1 * c2)  if c1 > 0 and c2 > 0
        tdiv(tdiv(x, c1) + c2, c3)        -> tdiv(x + c1 * c2, c1 * c3)  if c1 > 0 and c2 >= 0 and c3 > 0 and nonneg(x)
        tdiv(x * c1, c2)                  -> x * (c1 // c2)  if c2 > 0 and c1 % c2 == 0
        tdiv(x * c1, c2)                  -> tdiv(x, c2 // c1)  if c1 > 0 and c2 > 0 and c2 % c1 == 0
        tdiv(x * y, y)                    -> x
        tdiv(x * c1, x)                   -> c1
        tdiv(x, c1)                       -> 0  if c1 > 0 and less(x, c1)
        !tdiv(x * c1 + y, c2)             -> x * (c1 // c2) + tdiv(y, c2)  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y)
        !tdiv(y + x * c1, c2)             -> tdiv(y, c2) + x * (c1 // c2)  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y)
        tdiv(min(x * c1, y), c2)          -> min(x * (c1 // c2), tdiv(y, c2))  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y)
        tdiv(max(x * c1, y), c2)          -> max(x * (c1 // c2), tdiv(y, c2))  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y)
        tdiv(min(y, x * c1), c2)          -> min(tdiv(y, c2), x * (c1 // c2))  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y)
        tdiv(max(y, x * c1), c2)          -> max(tdiv(y, c2), x * (c1 // c2))  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y)
        !tdiv(x * c1 + y + z, c2)         -> x * (c1 // c2) + tdiv(y + z, c2)  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y + z)
        !tdiv(x * c1 - y + z, c2)         -> x * (c1 // c2) + tdiv(z - y, c2)  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(z - y)
        !tdiv(x * c1 + y - z, c2)         -> x * (c1 // c2) + tdiv(y - z, c2)  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y - z)
        !tdiv(y + x * c1 + z, c2)         -> x * (c1 // c2) + tdiv(y + z, c2)  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x) and nonneg(y + z)
        tdiv(x + c1, c2)                  -> tdiv(x, c2) + c1 // c2  if c2 > 0 and c1 > 0 and c1 % c2 == 0 and nonneg(x)
        tdiv(x + y, x)                    -> tdiv(y, x) + 1  if nonneg(x) and nonneg(y)
        !tdiv((x + y) + z, x)             -> tdiv(y + z, x) + 1  if nonneg(x) and nonneg(y + z)
        !tdiv((y + x) + z, x)             -> tdiv(y + z, x) + 1  if nonneg(x) and nonneg(y + z)
        !tdiv(y + (x + z), x)             -> tdiv(y + z, x) + 1  if nonneg(x) and nonneg(y + z)
        !tdiv(y + (z + x), x)             -> tdiv(y + z, x) + 1  if nonneg(x) and nonneg(y + z)
        !tdiv(x * z + y, z)               -> x + tdiv(y, z)  if nonneg(x) and nonneg(y) and nonneg(z)
        !tdiv(z * x + y, z)               -> x + tdiv(y, z)  if nonneg(x) and nonneg(y) and nonneg(z)
        !tdiv(y + x * z, z)               -> tdiv(y, z) + x  if nonneg(x) and nonneg(y) and nonneg(z)
        !tdiv(y + z * x, z)               -> tdiv(y, z) + x  if nonneg(x) and nonneg(y) and nonneg(z)
    """),
    "Mod": _rules("""
        tmod(x * c1, c2)                  -> 0  if c2 != 0 and c1 % c2 == 0
        tmod(x, c1)                       -> > tmod(x, 0 - c1)  if c1 < 0
        tmod(x * c1 + y, c2)              -> tmod(y, c2)  if c2 > 0 and c1 % c2 == 0 and nonneg(x * c1) and nonneg(y)
        tmod(x + c1, c2)                  -> tmod(x, c2)  if c2 > 0 and c1 >= 0 and c1 % c2 == 0 and nonneg(x)
        tmod(x, c1)                       -> rest(x, c1)  if c1 > 0 and nonneg(x) and known(x, c1)
        tmod(x, c1)                       -> x  if c1 > 0 and less(x, c1)
    """),
    "FloorDiv": _rules("""
        x // c1                           -> 0  if c1 > 0 and less(x, c1)
        (x // c1) // c2                   -> x // (c1 * c2)  if c1 > 0 and c2 > 0
        (x // c1 + c2) // c3              -> (x + c1 * c2) // (c1 * c3)  if c1 > 0 and c3 > 0
        (x - x % c1) // c1                -> x // c1  if c1 != 0
        (x % 2 + 1) // 2                  -> x % 2
        (x * c1) // c2                    -> x * (c1 // c2)  if c2 > 0 and c1 % c2 == 0
        (x * c1) // c2                    -> x // (c2 // c1)  if c1 > 0 and c2 % c1 == 0
        (x * c1 + c2) // c3               -> x * (c1 // c3) + c2 // c3  if c3 > 0 and c1 % c3 == 0
        (x * c1 + c2) // c3               -> x // (c3 // c1) + c2 // c3  if c1 > 0 and c3 > 0 and c3 % c1 == 0 and c2 % c3 < c1
        x // y                            -> 0  if between(x, y)
        (x * z + y) // z                  -> x  if between(y, z)
        (x * y) // y                      -> x  if nonneg(y)
        x // x                            -> 1
        !(x * c1 + y) // c2               -> x * (c1 // c2) + y // c2  if c2 > 0 and c1 % c2 == 0
        !(y + x * c1) // c2               -> x * (c1 // c2) + y // c2  if c2 > 0 and c1 % c2 == 0
        !(x * c1 + y) // c2               -> x // (c2 // c1)  if c2 > 0 and c1 > 0 and c2 % c1 == 0 and less(y, c1)
        !(x * c1 + y + z) // c2           -> x // (c2 // c1)  if c2 > 0 and c1 > 0 and c2 % c1 == 0 and less(y + z, c1)
        !(x * c1 + y) // c2               -> x * (c1 // c2)  if c2 > 0 and c1 > 0 and less(x * (c1 % c2) + y, c2)
        min(x * c1, y) // c2              -> min(x * (c1 // c2), y // c2)  if c2 > 0 and c1 % c2 == 0
        max(x * c1, y) // c2              -> max(x * (c1 // c2), y // c2)  if c2 > 0 and c1 % c2 == 0
        min(y, x * c1) // c2              -> min(y // c2, x * (c1 // c2))  if c2 > 0 and c1 % c2 == 0
        max(y, x * c1) // c2              -> max(y // c2, x * (c1 // c2))  if c2 > 0 and c1 % c2 == 0
        !(x * c1 + y + z) // c2           -> x * (c1 // c2) + (y + z) // c2  if c2 > 0 and c1 % c2 == 0
        !(x * c1 - y + z) // c2           -> x * (c1 // c2) + (z - y) // c2  if c2 > 0 and c1 % c2 == 0
        !(x * c1 + y - z) // c2           -> x * (c1 // c2) + (y - z) // c2  if c2 > 0 and c1 % c2 == 0
        !(y + x * c1 + z) // c2           -> x * (c1 // c2) + (y + z) // c2  if c2 > 0 and c1 % c2 == 0
        (x + c1) // c2                    -> x // c2 + c1 // c2  if c2 > 0 and c1 % c2 == 0
        !(x + y) // x                     -> y // x + 1  if nonneg(x)
        !(y + x) // x                     -> y // x + 1  if nonneg(x)
        !((x + y) + z) // x               -> (y + z) // x + 1  if nonneg(x)
        !((y + x) + z) // x               -> (y + z) // x + 1  if nonneg(x)
        !(y + (x + z)) // x               -> (y + z) // x + 1  if nonneg(x)
        !(y + (z + x)) // x               -> (y + z) // x + 1  if nonneg(x)
        !(x * z + y) // z                 -> x + y // z  if nonneg(z)
        !(z * x + y) // z                 -> x + y // z  if nonneg(z)
        !(y + x * z) // z                 -> y // z + x  if nonneg(z)
        !(y + z * x) // z                 -> y // z + x  if nonneg(z)
        !(x * z * c1 + y) // (z * c1)     -> x + y // (z * c1)  if nonneg(z * c1)
    """),
    "FloorMod": _rules("""
        (x * c1) % c2                     -> x * (c1 % c2) % c2  if c2 > 0 and c1 % c2 != c1 and c1 % c2 != 0
        (x * c1) % c2                     -> 0  if c2 != 0 and c1 % c2 == 0
        !(x * c1 + y) % c2                -> y % c2  if c2 != 0 and c1 % c2 == 0
        !(x * c1 + y) % c2                -> x % (c2 // c1) * c1 + y  if c2 > 0 and c1 > 0 and c2 % c1 == 0 and less(y, c1)
        !(x * c1 + y) % c2                -> (x * (c1 % c2) + y) % c2  if c2 > 0 and c1 >= c2
        (x + c1) % c2                     -> (x + c1 % c2) % c2  if c2 > 0 and not 0 <= c1 < c2
        !(x + y * c1) % c2                -> x % c2  if c2 != 0 and c1 % c2 == 0
        !(x + y * c1) % c2                -> (x + y * (c1 % c2)) % c2  if c2 > 0 and c1 >= c2
        x % y                             -> x  if between(x, y)
        (x * z + y) % z                   -> y  if between(y, z)
        (x * y) % y                       -> 0
        !(x * z * c1 + y) % (z * c1)      -> y % (z * c1)  if nonneg(z * c1)
        (x + y % z) % w                   -> 0  if padded(x, y, z, w)
        (x - y % z) % w                   -> 0  if unpadded(x, y, z, w)
        (x % 2) % c1                      -> x % 2  if c1 > 1
        x % x                             -> 0
        x % c1                            -> rest(x, c1)  if c1 > 0 and known(x, c1)
        x % c1                            -> x  if c1 > 0 and less(x, c1)
    """),
    "Min": _rules("""
        min(x, x)                         -> x
        min(max(x, y), min(x, y))         -> min(x, y)
        min(max(x, y), min(y, x))         -> min(x, y)
        min(min(x, y), max(x, y))         -> min(x, y)
        min(min(x, y), max(y, x))         -> min(x, y)
        min(max(x, y), x)                 -> x
        min(max(x, y), y)                 -> y
        min(x, max(x, y))                 -> x
        min(y, max(x, y))                 -> y
        min(min(x, y), x)                 -> min(x, y)
        min(min(x, y), y)                 -> min(x, y)
        min(x, min(x, y))                 -> min(x, y)
        min(y, min(x, y))                 -> min(x, y)
        min(min(min(x, y), z), y)         -> min(min(x, y), z)
        min(min(min(min(x, y), z), w), y) -> min(min(min(x, y), z), w)
        min(min(min(min(min(x, y), z), w), s), y) -> min(min(min(min(x, y), z), w), s)
        min(max(x, y), max(x, z))         -> max(min(y, z), x)
        min(max(x, y), max(z, x))         -> max(min(y, z), x)
        min(max(y, x), max(x, z))         -> max(min(y, z), x)
        min(max(y, x), max(z, x))         -> max(min(y, z), x)
        min(x, min(y, x))                 -> min(y, x)
        min(y + x, z + x)                 -> min(y, z) + x
        min(x - y, x - z)                 -> x - max(y, z)
        min(y - x, z - x)                 -> min(y, z) - x
        min((x + c1) // c2 * c2, x)       -> x  if c2 > 0 and c1 + 1 == c2
        min(x, (x + c1) // c2 * c2)       -> x  if c2 > 0 and c1 + 1 == c2
        min((x + c1) // c2 * c3, x * c4)  -> x * c4  if c2 > 0 and c1 + 1 == c2 and c4 > 0 and c3 == c2 * c4
        min(x * c4, (x + c1) // c2 * c3)  -> x * c4  if c2 > 0 and c1 + 1 == c2 and c4 > 0 and c3 == c2 * c4
        min(x // c1 * c1, x)              -> x // c1 * c1  if c1 > 0
        min(x, x // c1 * c1)              -> x // c1 * c1  if c1 > 0
        min((x + c1) // c2 * c2, max(x, c2))  -> max(x, c2)  if c2 > 0 and c1 + 1 == c2 and pos(x)
        min(max(x, c2), (x + c1) // c2 * c2)  -> max(x, c2)  if c2 > 0 and c1 + 1 == c2 and pos(x)
        min(tdiv(x + c1, c2) * c2, x)     -> x  if c2 > 0 and c1 + 1 == c2
        min(x, tdiv(x + c1, c2) * c2)     -> x  if c2 > 0 and c1 + 1 == c2
        min(tdiv(x + c1, c2) * c2, max(x, c2))  -> max(x, c2)  if c2 > 0 and c1 + 1 == c2 and pos(x)
        min(max(x, c2), tdiv(x + c1, c2) * c2)  -> max(x, c2)  if c2 > 0 and c1 + 1 == c2 and pos(x)
        min(x // c1, y // c1)             -> min(x, y) // c1  if c1 > 0
        min(x // c1, y // c1)             -> max(x, y) // c1  if c1 < 0
        min(tdiv(x, c1), tdiv(y, c1))     -> tdiv(min(x, y), c1)  if c1 > 0
        min(tdiv(x, c1), tdiv(y, c1))     -> tdiv(max(x, y), c1)  if c1 < 0
        min(x * c1, y * c1)               -> min(x, y) * c1  if c1 > 0
        min(x * c1, y * c1)               -> max(x, y) * c1  if c1 < 0
        min(x * c1, c2)                   -> min(x, c2 // c1) * c1  if c1 > 0 and c2 % c1 == 0
        min(x * c1, c2)                   -> max(x, c2 // c1) * c1  if c1 < 0 and c2 % c1 == 0
        min(c1 - x, c2)                   -> c1 - max(x, c1 - c2)
        min(min(x, c1), c2)               -> min(x, c1)  if c1 <= c2
        min(min(x, c1), c2)               -> min(x, c2)  if c2 < c1
        min(min(x, c1), y)                -> min(min(x, y), c1)
        min(sel(p, x, y), sel(p, z, w))   -> sel(p, min(x, z), min(y, w))
    """),
}


def _mirror(text: str) -> str:
    return text.replace("min(", "M@(").replace("max(", "min(").replace("M@(", "max(")


def _max_rules() -> list[Rule]:
    """The rules of `max`: those of `min` with the two exchanged; the ones that are about rounding stand for themselves."""
    out: list[Rule] = []
    for r in INDEX_RULES["Min"]:
        if "// c2 * c" in r.pattern or ", c2) * c2" in r.pattern or "x // c1 * c1" in r.pattern:
            continue
        when = r.when
        if r.pattern.startswith("min(min(x, c1), c2)"):
            when = "c1 >= c2" if when == "c1 <= c2" else "c2 > c1"
        out.append(Rule(_mirror(r.pattern), _mirror(r.result), when))
    return out + _rules("""
        max((x + c1) // c2 * c2, x)       -> (x + c1) // c2 * c2  if c2 > 0 and c1 + 1 == c2
        max(x, (x + c1) // c2 * c2)       -> (x + c1) // c2 * c2  if c2 > 0 and c1 + 1 == c2
        max((x + c1) // c2 * c3, x * c4)  -> (x + c1) // c2 * c3  if c2 > 0 and c1 + 1 == c2 and c4 > 0 and c3 == c2 * c4
        max(x * c4, (x + c1) // c2 * c3)  -> (x + c1) // c2 * c3  if c2 > 0 and c1 + 1 == c2 and c4 > 0 and c3 == c2 * c4
        max(tdiv(x + c1, c2) * c2, x)     -> tdiv(x + c1, c2) * c2  if c2 > 0 and c1 + 1 == c2
        max(x, tdiv(x + c1, c2) * c2)     -> tdiv(x + c1, c2) * c2  if c2 > 0 and c1 + 1 == c2
        max(x // c1 * c1, x)              -> x  if c1 > 0
        max(x, x // c1 * c1)              -> x  if c1 > 0
    """)


INDEX_RULES["Max"] = _max_rules()
