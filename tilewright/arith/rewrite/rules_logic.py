"""Rewriting rules of comparisons and logic, in the language of `rules`. `>` and `>=` are written as `<` and `<=`.

A rule of `<` serves `<=` too, for `a <= b` is `not b < a`. What holds only of integers is under "LT"; `logic` holds of any
conditions.
"""

from __future__ import annotations

from tilewright.arith.rewrite.rules import Rule, _rules

__all__ = ["LOGIC_RULES"]

LOGIC_RULES: dict[str, list[Rule]] = {
    "LT": _rules("""
        # what both sides have in common
        x + y < x + z                     -> > y < z
        y - x < z - x                     -> > y < z
        x - y < x - z                     -> > z < y
        x < x + z                         -> > 0 < z
        x < x - z                         -> > z < 0
        x + y < x                         -> > y < 0
        x - y < x                         -> > 0 < y
        x % y < y                         -> True  if pos(y)
        # constants to one side
        c1 < x + c2                       -> c1 - c2 < x
        c1 < c2 - x                       -> x < c2 - c1
        x + c1 < c2                       -> x < c2 - c1
        c2 - x < c1                       -> c2 - c1 < x
        x * c1 < y * c1                   -> > x < y  if c1 > 0
        x * c1 < y * c1                   -> > y < x  if c1 < 0
        x < c1 - y                        -> > x + y < c1
        c1 - y < x                        -> > c1 < x + y
        # quotients
        tdiv(x, c1) < c2                  -> > x < c1 * c2  if c1 > 0 and c2 > 0
        tdiv(x, c1) < c2                  -> > x < c1 * (c2 - 1) + 1  if c1 > 0 and c2 <= 0
        c1 < tdiv(x, c2)                  -> > (c1 + 1) * c2 - 1 < x  if c1 >= 0 and c2 > 0
        c1 < tdiv(x, c2)                  -> > c1 * c2 < x  if c1 < 0 and c2 > 0
        x * c1 < c2                       -> > x < (c2 - 1) // c1 + 1  if c1 > 0
        x * c1 < c2                       -> > c2 // c1 < x  if c1 < 0
        c1 < x * c2                       -> > c1 // c2 < x  if c2 > 0
        c1 < x * c2                       -> > x < 0 - c1 // (0 - c2)  if c2 < 0
        x // c1 < c2                      -> > x < c1 * c2  if c1 > 0
        c1 < x // c2                      -> > (c1 + 1) * c2 - 1 < x  if c2 > 0
        tdiv(x, c1) * c1 < x              -> > 0 < tmod(x, c1)  if c1 > 0
        tdiv(x, c1) * c1 < x + y          -> > 0 < tmod(x, c1) + y  if c1 > 0
        tdiv(x, c1) * c1 < x - y          -> > y < tmod(x, c1)  if c1 > 0
        tdiv(x + c2, c1) * c1 < x         -> > c2 < tmod(x + c2, c1)  if c1 > 0
        tdiv(x + c2, c1) * c1 < x + y     -> > c2 < tmod(x + c2, c1) + y  if c1 > 0
        tdiv(x + c2, c1) * c1 < x - y     -> > y + c2 < tmod(x + c2, c1)  if c1 > 0
        x // c1 * c1 < x                  -> > 0 < x % c1  if c1 > 0
        x // c1 * c1 < x + y              -> > 0 < x % c1 + y  if c1 > 0
        x // c1 * c1 < x - y              -> > y < x % c1  if c1 > 0
        (x + c2) // c1 * c1 < x           -> > c2 < (x + c2) % c1  if c1 > 0
        (x + c2) // c1 * c1 < x + y       -> > c2 < (x + c2) % c1 + y  if c1 > 0
        (x + c2) // c1 * c1 < x - y       -> > y + c2 < (x + c2) % c1  if c1 > 0
        # minima and maxima
        min(x, c1) < c2                   -> > x < c2  if c2 <= c1
        min(c1, x) < c2                   -> > x < c2  if c2 <= c1
        min(x, c1) < c2                   -> True  if c1 < c2
        min(c1, x) < c2                   -> True  if c1 < c2
        max(x, c1) < c2                   -> > x < c2  if c1 < c2
        max(c1, x) < c2                   -> > x < c2  if c1 < c2
        max(x, c1) < c2                   -> False  if c1 >= c2
        max(c1, x) < c2                   -> False  if c1 >= c2
        c1 < min(x, c2)                   -> > c1 < x  if c1 < c2
        c1 < min(c2, x)                   -> > c1 < x  if c1 < c2
        c1 < max(x, c2)                   -> > c1 < x  if c2 <= c1
        c1 < max(c2, x)                   -> > c1 < x  if c2 <= c1
        x < min(x, y)                     -> False
        x < min(y, x)                     -> False
        max(x, y) < x                     -> False
        max(y, x) < x                     -> False
        x < max(x, y)                     -> > x < y
        x < max(y, x)                     -> > x < y
        min(x, y) < x                     -> > y < x
        min(y, x) < x                     -> > y < x
        min(x, y) < min(x, z)             -> > y < min(x, z)
        min(x, y) < min(z, x)             -> > y < min(z, x)
        min(y, x) < min(x, z)             -> > y < min(x, z)
        min(y, x) < min(z, x)             -> > y < min(z, x)
        max(x, y) < max(x, z)             -> > max(x, y) < z
        max(x, y) < max(z, x)             -> > max(x, y) < z
        max(y, x) < max(x, z)             -> > max(y, x) < z
        max(y, x) < max(z, x)             -> > max(y, x) < z
        x + c1 < max(x, y)                -> > x + c1 < y  if c1 >= 0
        x + c1 < max(y, x)                -> > x + c1 < y  if c1 >= 0
        min(x, y) < x + c1                -> True  if c1 > 0
        min(y, x) < x + c1                -> True  if c1 > 0
        min(x, y) < x + c1                -> > y < x + c1  if c1 <= 0
        min(y, x) < x + c1                -> > y < x + c1  if c1 <= 0
        min(x, y) < z                     -> > (x < z) | (y < z)
        max(x, y) < z                     -> > (x < z) & (y < z)
        z < min(x, y)                     -> > (z < x) & (z < y)
        z < max(x, y)                     -> > (z < x) | (z < y)
        # constants on both sides
        x + c1 < y + c2                   -> > x < y + (c2 - c1)  if c1 < c2
        x + c1 < y + c2                   -> > x + (c1 - c2) < y  if c1 > c2
        x < y + 1                         -> > x <= y
        x + -1 < y                        -> > x <= y
        x + c1 < y                        -> x < y + (0 - c1)  if c1 < 0
        x < y + c1                        -> x + (0 - c1) < y  if c1 < 0
    """),
    "EQ": _rules("""
        x + c1 == c2                      -> x == c2 - c1
        c1 - x == c2                      -> x == c1 - c2
        c1 == x                           -> > x == c1
        x * y == 0                        -> (x == 0) | (y == 0)  if not isconst(y)
    """),
    "And": _rules("""
        (x == y) & (x != y)               -> False
        (x != y) & (x == y)               -> False
        p & ~p                            -> False
        ~p & p                            -> False
        (x <= y) & (y < x)                -> False
        (y < x) & (x <= y)                -> False
        (x < c1) & (c2 < x)               -> False  if c2 + 1 >= c1
        (c2 < x) & (x < c1)               -> False  if c2 + 1 >= c1
        (x < c1) & (c2 <= x)              -> False  if c2 >= c1
        (c2 <= x) & (x < c1)              -> False  if c2 >= c1
        (x <= c1) & (c2 < x)              -> False  if c2 >= c1
        (c2 < x) & (x <= c1)              -> False  if c2 >= c1
        (x <= c1) & (c2 <= x)             -> False  if c2 > c1
        (c2 <= x) & (x <= c1)             -> False  if c2 > c1
        (x == c1) & (x != c2)             -> x == c1  if c1 != c2
        (x != c2) & (x == c1)             -> x == c1  if c1 != c2
        (x == c1) & (x == c2)             -> False  if c1 != c2
        (x // c1 == c2) & (x % c1 == c3)  -> x == c1 * c2 + c3  if c1 > 0 and 0 <= c3 < c1
        (x % c1 == c3) & (x // c1 == c2)  -> x == c1 * c2 + c3  if c1 > 0 and 0 <= c3 < c1
        (0 <= x - y * c1) & (x - y * c1 < c1)  -> y == x // c1  if c1 > 0
        (x - y * c1 < c1) & (0 <= x - y * c1)  -> y == x // c1  if c1 > 0
        (0 <= x + y * c2) & (x + y * c2 < c1)  -> y == x // c1  if c1 > 0 and c2 == -c1
        (x + y * c2 < c1) & (0 <= x + y * c2)  -> y == x // c1  if c1 > 0 and c2 == -c1
        (x < c1) & (x % c2 < c3)          -> (x < c1 // c2 * c2 - c2 + c3) & (x % c2 < c3)  if c2 > 0 and 0 < c3 < c2 and c1 % c2 == 0
        (x < c1) & (x % c2 < c3)          -> (x < c1 - c1 % c2 + c3) & (x % c2 < c3)  if c2 > 0 and 0 < c3 < c1 % c2
        (x <= c1) & (x % c2 < c3)         -> (x < c1 - c1 % c2 + c3) & (x % c2 < c3)  if c2 > 0 and 0 < c3 < c1 % c2 + 1
        (x % c2 < c3) & (x < c1)          -> (x % c2 < c3) & (x < c1 // c2 * c2 - c2 + c3)  if c2 > 0 and 0 < c3 < c2 and c1 % c2 == 0
        (x % c2 < c3) & (x < c1)          -> (x % c2 < c3) & (x < c1 - c1 % c2 + c3)  if c2 > 0 and 0 < c3 < c1 % c2
        (x % c2 < c3) & (x <= c1)         -> (x % c2 < c3) & (x < c1 - c1 % c2 + c3)  if c2 > 0 and 0 < c3 < c1 % c2 + 1
        (x // c1 == c2) & (x % c1 < c3)   -> > (c1 * c2 <= x) & (x < c1 * c2 + c3)  if c1 > 0 and 0 < c3 <= c1
        (x // c1 == c2) & (x % c1 <= c3)  -> > (c1 * c2 <= x) & (x <= c1 * c2 + c3)  if c1 > 0 and 0 <= c3 < c1
        (x // c1 == c2) & (c3 < x % c1)   -> > (c1 * c2 + c3 < x) & (x < c1 * c2 + c1)  if c1 > 0 and 0 <= c3 < c1
        (x // c1 == c2) & (c3 <= x % c1)  -> > (c1 * c2 + c3 <= x) & (x < c1 * c2 + c1)  if c1 > 0 and 0 <= c3 < c1
        p & (q & r)                       -> > (p & q) & r
    """),
    "Or": _rules("""
        (x == y) | (x != y)               -> True
        (x != y) | (x == y)               -> True
        p | ~p                            -> True
        ~p | p                            -> True
        (x <= y) | (y < x)                -> True
        (y < x) | (x <= y)                -> True
        (x < c1) | (c2 < x)               -> True  if c2 < c1
        (c2 < x) | (x < c1)               -> True  if c2 < c1
        (x < c1) | (c2 <= x)              -> True  if c2 <= c1
        (c2 <= x) | (x < c1)              -> True  if c2 <= c1
        (x <= c1) | (c2 < x)              -> True  if c2 <= c1
        (c2 < x) | (x <= c1)              -> True  if c2 <= c1
        (x <= c1) | (c2 <= x)             -> True  if c2 <= c1 + 1
        (c2 <= x) | (x <= c1)             -> True  if c2 <= c1 + 1
        (x != c1) | (x == c2)             -> x != c1  if c1 != c2
        (x == c2) | (x != c1)             -> x != c1  if c1 != c2
        (x != c1) | (x != c2)             -> True  if c1 != c2
        p | (q | r)                       -> > (p | q) | r
    """),
    "Not": _rules("""
        ~(~p)                             -> p
        ~(x < y)                          -> > y <= x
        ~(x <= y)                         -> > y < x
        ~(x == y)                         -> x != y
        ~(x != y)                         -> x == y
        ~(p & q)                          -> > ~p | ~q
        ~(p | q)                          -> > ~p & ~q
    """),
    "Select": _rules("""
        sel(p, x, x)                      -> x
    """),
}
