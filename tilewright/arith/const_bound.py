"""Constant bounds of integer expressions, by their structure.

Bounds are pairs (low, high) of Python integers, with -inf / +inf of float where there is none. Divisors are taken as not
zero, and 32- and 64-bit arithmetic as not overflowing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.expr import IntImm, PrimExpr, SizeVar, Var
from tilewright.arith.linear import expr_key
from tilewright.ir import dtype as dt
from tilewright.ir.op import Op

__all__ = ["ANY", "Bound", "ConstBounds", "dtype_range"]

INF = math.inf
Bound = tuple[Any, Any]
ANY: Bound = (-INF, INF)
_LARGE = (1 << 63) - 1
_RANGES: dict[str, Bound] = {}


def dtype_range(dtype: str) -> Bound:
    """The values of a scalar integer dtype; of 64-bit signed ones and of others, anything."""
    found = _RANGES.get(dtype)
    if found is None:
        base = dt.element(dtype) if dtype not in ("handle", "void") else dtype
        if base == "bool":
            found = (0, 1)
        elif dt.is_float(base) or base in ("handle", "void", "int64"):
            found = ANY
        elif dt.is_uint(base) and dt.bits(base) >= 63:
            found = (0, INF)
        else:
            found = (dt.min_value(base), dt.max_value(base))
        _RANGES[dtype] = found
    return found


def _clip(low: Any, high: Any) -> Bound:
    return (-INF if low <= -_LARGE else low), (INF if high >= _LARGE else high)


def _times(a: Any, b: Any) -> Any:
    return 0 if a == 0 or b == 0 else a * b


def product(a: Bound, b: Bound) -> Bound:
    """The bounds of a product."""
    corners = [_times(x, y) for x in a for y in b]
    return _clip(min(corners), max(corners))


def _quotient(x: Any, y: Any, floor: bool) -> Any:
    if x in (INF, -INF):
        return x if y > 0 else -x
    if y in (INF, -INF):
        return 0 if not floor or x == 0 or (x > 0) == (y > 0) else -1
    if floor:
        return x // y
    q = abs(x) // abs(y)
    return q if (x >= 0) == (y > 0) else -q


def _divided(a: Bound, b: Bound, floor: bool) -> Bound:
    """The bounds of a quotient by a divisor that is not zero."""
    parts: list[Bound] = []
    if b[1] > 0:
        parts.append((max(b[0], 1), b[1]))
    if b[0] < 0:
        parts.append((b[0], min(b[1], -1)))
    if not parts:
        return ANY
    if len(parts) == 2:
        if a[0] == -INF or a[1] == INF:
            return ANY
        parts = [(-1, -1), (1, 1)]
        parts = [(p[0], p[1]) for p in parts]
    corners = [_quotient(x, y, floor) for p in parts for x in a for y in p]
    return _clip(min(corners), max(corners))


class ConstBounds:
    """Bounds of expressions, given those of variables (`table`) and of other expressions (`extra`, by key)."""

    def __init__(self, remainder: Callable[[PrimExpr], tuple[int, int]]) -> None:
        self.remainder = remainder
        self.table: dict[Var, Bound] = {}
        self.extra: dict[Any, Bound] = {}
        self.memo: dict[int, tuple[PrimExpr, Bound]] = {}
        self.visitors: dict[type, Callable[[Any], Bound]] = {
            ex.Add: self.add, ex.Sub: self.sub, ex.Mul: self.mul, ex.Div: self.div, ex.FloorDiv: self.floordiv,
            ex.Mod: self.mod, ex.FloorMod: self.floormod, ex.Min: self.minimum, ex.Max: self.maximum,
            ex.Select: self.select, ex.Cast: self.cast, ex.Let: self.let, ex.Call: self.call,
            ex.Broadcast: lambda e: self(e.value), ex.Ramp: self.ramp,
        }  # fmt: skip

    def forget(self) -> None:
        """Drop what was computed, because the knowledge changed."""
        self.memo = {}

    def __call__(self, e: PrimExpr) -> Bound:
        """The bounds of an expression."""
        kind = type(e)
        if kind is IntImm:
            return e.value, e.value  # pyright: ignore[reportAttributeAccessIssue]
        found = self.memo.get(id(e))
        if found is not None:
            return found[1]
        if isinstance(e, Var):
            out = self.table.get(e)
            if out is None:
                out = (0, INF) if kind is SizeVar else dtype_range(e.dtype)
        else:
            visit = self.visitors.get(kind)
            out = visit(e) if visit is not None else dtype_range(e.dtype)
        if self.extra:
            more = self.extra.get(expr_key(e))
            if more is not None:
                out = max(out[0], more[0]), min(out[1], more[1])
        if len(self.memo) > 20000:
            self.memo.clear()
        self.memo[id(e)] = e, out
        return out

    def add(self, e: Any) -> Bound:
        (a, b), (c, d) = self(e.a), self(e.b)
        return _clip(a + c, b + d)

    def sub(self, e: Any) -> Bound:
        (a, b), (c, d) = self(e.a), self(e.b)
        return _clip(a - d, b - c)

    def mul(self, e: Any) -> Bound:
        return product(self(e.a), self(e.b))

    def div(self, e: Any) -> Bound:
        return ANY if dt.is_float(e.dtype) else _divided(self(e.a), self(e.b), False)

    def floordiv(self, e: Any) -> Bound:
        return ANY if dt.is_float(e.dtype) else _divided(self(e.a), self(e.b), True)

    def mod(self, e: Any) -> Bound:
        if dt.is_float(e.dtype):
            return ANY
        a, b = self(e.a), self(e.b)
        most = max(abs(b[0]), abs(b[1])) - 1
        low = 0 if a[0] >= 0 else max(a[0], -most)
        return low, (0 if a[1] <= 0 else min(a[1], most))

    def floormod(self, e: Any) -> Bound:
        if dt.is_float(e.dtype):
            return ANY
        a, b = self(e.a), self(e.b)
        if b[0] >= 0:
            if type(e.b) is IntImm:
                return self.by_constant(e, a, e.b.value)
            if a[0] >= 0:
                return 0, min(a[1], b[1] - 1)
            return 0, b[1] - 1
        high = max(b[1] - 1, 0)
        if a[0] >= 0:
            high = min(high, a[1])
        return min(b[0] + 1, 0), high

    def by_constant(self, e: Any, a: Bound, d: int) -> Bound:
        """The bounds of a remainder by a positive constant: within one period, or spaced by the greatest common divisor."""
        if d <= 0:
            return ANY
        if a[0] >= 0 and a[1] < d:
            return a
        if a[0] != -INF and a[1] != INF and a[0] // d == a[1] // d:
            return a[0] % d, a[1] % d
        coefficient, base = self.remainder(e.a)
        step = math.gcd(coefficient, d)
        return base % step, d - step + base % step

    def minimum(self, e: Any) -> Bound:
        (a, b), (c, d) = self(e.a), self(e.b)
        return min(a, c), min(b, d)

    def maximum(self, e: Any) -> Bound:
        (a, b), (c, d) = self(e.a), self(e.b)
        return max(a, c), max(b, d)

    def select(self, e: Any) -> Bound:
        (a, b), (c, d) = self(e.true_value), self(e.false_value)
        return min(a, c), max(b, d)

    def cast(self, e: Any) -> Bound:
        inner, fits = self(e.value), dtype_range(e.dtype)
        if dt.is_float(e.dtype):
            return inner
        return inner if fits[0] <= inner[0] and inner[1] <= fits[1] else fits

    def let(self, e: Any) -> Bound:
        old = self.table.get(e.var)
        self.table[e.var] = self(e.value)
        self.forget()
        out = self(e.body)
        if old is None:
            del self.table[e.var]
        else:
            self.table[e.var] = old
        self.forget()
        return out

    def ramp(self, e: Any) -> Bound:
        if not isinstance(e.lanes, int):
            return ANY
        (a, b), (c, d) = self(e.base), self(e.stride)
        n = e.lanes - 1
        return _clip(min(a, a + c * n), max(b, b + d * n))

    def call(self, e: Any) -> Bound:
        name = e.op.name if isinstance(e.op, Op) else ""
        if name == "tir.if_then_else":
            (a, b), (c, d) = self(e.args[1]), self(e.args[2])
            return min(a, c), max(b, d)
        if name == "tir.likely":
            return self(e.args[0])
        if name == "tir.shift_right":
            return self.shift_right(e)
        if name == "tir.shift_left":
            a, b = self(e.args[0]), self(e.args[1])
            fits = dtype_range(e.dtype)
            if a[0] >= 0 and b[0] >= 0 and b[1] < 63 and a[1] != INF and a[1] << b[1] <= fits[1]:
                return a[0] << b[0], a[1] << b[1]
            return fits
        if name == "tir.bitwise_and":
            a, b = self(e.args[0]), self(e.args[1])
            if a[0] >= 0 or b[0] >= 0:
                return 0, min(x[1] for x in (a, b) if x[0] >= 0)
            return dtype_range(e.dtype)
        if name in ("tir.popcount", "tir.clz"):
            return 0, dt.bits(e.args[0].dtype)
        return dtype_range(e.dtype)

    def shift_right(self, e: Any) -> Bound:
        a, b = self(e.args[0]), self(e.args[1])
        if b[0] < 0 or a[0] == -INF or a[1] == INF or b[1] == INF:
            return dtype_range(e.dtype)
        corners = [x >> y for x in a for y in b]
        return min(corners), max(corners)
