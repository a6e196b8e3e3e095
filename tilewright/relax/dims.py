"""Reasoning about dimensions: is `2*((n + 1)//2)` the same as `m`?

A dimension is brought to a polynomial: a sum of integer multiples of products of atoms. An atom is a variable or an
operation that does not distribute (`//`, `%`, `min`, `max`, ...) over polynomials. Two dimensions with one polynomial are
equal for all values; a constant, nonzero difference proves them different; else nothing is known.

What is not known but has to hold (two branches of a network that are added) becomes an *assumption*: `require_equal` hands
it to the collector of the BlockBuilder at work, which emits a check at run time. So inference goes on with one formula, and
a wrong size ends in an error and not in a wrong answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Union

from tilewright.arith import expr as E
from tilewright.arith.expr import IntImm, PrimExpr
from tilewright.support.diagnostics import CompileError

__all__ = [
    "Assumptions", "as_int", "as_ints", "collect_assumptions", "difference", "dim_key", "is_static", "prove_equal", "require_equal",
    "same_shape", "shape_product", "show_dim", "show_shape", "simplify_dim",
]  # fmt: skip

Atom = Any  # a Var or another leaf node, or a tuple ("//", key, key)
Monomial = tuple[Atom, ...]
Poly = dict[Monomial, int]
Key = tuple[tuple[Monomial, int], ...]

_LIMIT = 64
"""Products of polynomials with more terms stay atoms."""


def as_int(d: Any) -> int | None:
    """The number a dimension is, or None."""
    if isinstance(d, IntImm):
        return d.value
    return d if isinstance(d, int) else None


def as_ints(shape: Iterable[Any] | None) -> tuple[int, ...] | None:
    """A shape of numbers only, as a tuple of ints; else None."""
    if shape is None:
        return None
    out: list[int] = []
    for d in shape:
        if isinstance(d, IntImm):
            out.append(d.value)
        elif isinstance(d, int):
            out.append(d)
        else:
            return None
    return tuple(out)


def is_static(shape: Iterable[Any] | None) -> bool:
    """Are all dimensions numbers?"""
    return as_ints(shape) is not None


# ---- polynomials -------------------------------------------------------------------------------------------------------


def _order(atom: Atom) -> str:
    if isinstance(atom, tuple):
        return f"~{atom[0]}({','.join(_order_key(k) for k in atom[1:])})"
    name = getattr(atom, "name", "")
    return f"{name}@{id(atom)}"


def _order_key(key: Any) -> str:
    if isinstance(key, tuple):
        return "+".join(f"{c}*{'*'.join(_order(a) for a in m)}" for m, c in key)  # pyright: ignore
    return str(key)


def _key(p: Poly) -> Key:
    return tuple(sorted(p.items(), key=lambda item: (tuple(_order(a) for a in item[0]), item[1])))


def _add_into(p: Poly, q: Poly, scale: int = 1) -> Poly:
    for m, c in q.items():
        total = p.get(m, 0) + c * scale
        if total:
            p[m] = total
        else:
            p.pop(m, None)
    return p


def _mul(p: Poly, q: Poly) -> Poly:
    out: Poly = {}
    for m, c in p.items():
        for n, d in q.items():
            product = tuple(sorted(m + n, key=_order)) if m and n else m + n
            _add_into(out, {product: c * d})
    return out


def _constant(p: Poly) -> int | None:
    if not p:
        return 0
    return p[()] if len(p) == 1 and () in p else None


def _floordiv(p: Poly, q: Poly) -> Poly:
    c = _constant(q)
    if c is None:
        exact = _divide_exactly(p, q)
        return exact if exact is not None else {(("//", _key(p), _key(q)),): 1}
    if c == 0:
        return {(("//", _key(p), _key(q)),): 1}
    if c < 0:
        p, c = {m: -v for m, v in p.items()}, -c
    quotient, rest = _split(p, c)
    if _constant(rest) is None:
        for m, v in rest.items():
            if v == 1 and len(m) == 1 and isinstance(m[0], tuple) and m[0][0] == "//":
                divisor = _constant(dict(m[0][2]))
                if divisor is not None and divisor > 0:  # (x // a + t) // b = (x + a*t) // (a*b)
                    other = {k: w * divisor for k, w in rest.items() if k != m}
                    return _add_into(_floordiv(_add_into(dict(m[0][1]), other), {(): divisor * c}), quotient)
        _add_into(quotient, {(("//", _key(rest), _key({(): c})),): 1})
    return quotient


def _split(p: Poly, c: int) -> tuple[Poly, Poly]:
    """p = c * quotient + rest, where the rest has only what `c` does not divide, and its constant lies in [0, c)."""
    quotient: Poly = {}
    rest: Poly = {}
    for m, v in p.items():
        if m and v % c:
            rest[m] = v
        else:
            _add_into(quotient, {m: v // c})
            if v % c:
                rest[m] = v % c
    return {m: v for m, v in quotient.items() if v}, rest


def _divide_exactly(p: Poly, q: Poly) -> Poly | None:
    """p / q where q is one product that divides every term of p."""
    if len(q) != 1:
        return {(): 1} if _key(p) == _key(q) else None
    (factors, c), *_ = q.items()
    out: Poly = {}
    for m, v in p.items():
        left = list(m)
        for f in factors:
            if f not in left:
                return None
            left.remove(f)
        if v % c:
            return None
        out[tuple(left)] = v // c
    return out


def _floormod(p: Poly, q: Poly) -> Poly:
    c = _constant(q)
    if c is None or c <= 0:
        if _divide_exactly(p, q) is not None:
            return {}
        return {(("%", _key(p), _key(q)),): 1}
    _, rest = _split(p, c)
    value = _constant(rest)
    if value is not None:
        return {(): value} if value else {}
    return {(("%", _key({m: v % c for m, v in rest.items()}), _key(q)),): 1}


def _truncdiv(p: Poly, q: Poly) -> Poly:
    c = _constant(q)
    if c and all(v % c == 0 for v in p.values()):
        return {m: v // c for m, v in p.items()}
    return {(("div", _key(p), _key(q)),): 1}


def _minmax(p: Poly, q: Poly, name: str) -> Poly:
    gap = _constant(_add_into(dict(p), q, -1))
    if gap is not None:
        return (p if gap <= 0 else q) if name == "min" else (p if gap >= 0 else q)
    first, second = sorted((_key(p), _key(q)), key=_order_key)
    return {((name, first, second),): 1}


def polynomial(e: PrimExpr) -> Poly:
    """The polynomial of an integer expression: {product of atoms: factor}."""
    if isinstance(e, IntImm):
        return {(): e.value} if e.value else {}
    if isinstance(e, E.Var):
        return {(e,): 1}
    if isinstance(e, E.Add):
        return _add_into(polynomial(e.a), polynomial(e.b))
    if isinstance(e, E.Sub):
        return _add_into(polynomial(e.a), polynomial(e.b), -1)
    if isinstance(e, E.Mul):
        a, b = polynomial(e.a), polynomial(e.b)
        if len(a) * len(b) <= _LIMIT:
            return _mul(a, b)
        return {(("*", _key(a), _key(b)),): 1}
    if isinstance(e, E.FloorDiv):
        return _floordiv(polynomial(e.a), polynomial(e.b))
    if isinstance(e, E.FloorMod):
        return _floormod(polynomial(e.a), polynomial(e.b))
    if isinstance(e, E.Div):
        return _truncdiv(polynomial(e.a), polynomial(e.b))
    if isinstance(e, E.Min):
        return _minmax(polynomial(e.a), polynomial(e.b), "min")
    if isinstance(e, E.Max):
        return _minmax(polynomial(e.a), polynomial(e.b), "max")
    if isinstance(e, E.Cast) and e.dtype in ("int32", "int64") and e.value.dtype in ("int32", "int64"):
        return polynomial(e.value)
    return {(e,): 1}


_BACK = {
    "//": E.floordiv,
    "%": E.floormod,
    "div": E.div,
    "min": E.minimum,
    "max": E.maximum,
    "*": E.mul,
}


def _rebuild(p: Poly) -> PrimExpr:
    """The expression of a polynomial: positive terms first, the constant last."""
    total: PrimExpr | None = None
    terms = sorted(_key(p), key=lambda item: (not item[0], item[1] < 0))
    if terms and terms[0][1] < 0 and terms[-1][1] > 0:
        terms = [terms[-1], *terms[:-1]]
    for m, c in terms:
        product: PrimExpr | None = None
        for a in m:
            factor = (
                _BACK[a[0]](_rebuild(dict(a[1])), _rebuild(dict(a[2]))) if isinstance(a, tuple) else E.cast(a, "int64")
            )
            product = factor if product is None else product * factor
        if product is None:
            term: PrimExpr = IntImm("int64", abs(c))
        else:
            term = product * abs(c) if abs(c) != 1 else product
        if total is None:
            total = term if c > 0 else IntImm("int64", -abs(c)) if not m else E.neg(term)
        else:
            total = total + term if c > 0 else total - term
    return total if total is not None else IntImm("int64", 0)


def dim_key(e: Any) -> Any:
    """Something hashable that provably equal dimensions share."""
    if isinstance(e, int):
        return e
    return e.value if isinstance(e, IntImm) else _key(polynomial(e))


def simplify_dim(e: Any) -> PrimExpr:
    """The same dimension, written shortly; int64. A number and a variable are themselves."""
    if isinstance(e, int):
        return IntImm("int64", e)
    if isinstance(e, IntImm):
        return e if e.dtype == "int64" else IntImm("int64", e.value)
    if isinstance(e, E.Var) and e.dtype == "int64":
        return e
    return _rebuild(polynomial(e))


def difference(a: Any, b: Any) -> int | None:
    """a - b where that is one number for all values of the variables; else None."""
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return x - y
    if a is b:
        return 0
    return _constant(_add_into(polynomial(E.convert(a)), polynomial(E.convert(b)), -1))


def prove_equal(a: Any, b: Any) -> bool:
    """Are two dimensions equal for all values of their variables, or assumed to be by the builder at work?"""
    if difference(a, b) == 0:
        return True
    current = _CURRENT[-1] if _CURRENT else None
    return current is not None and current.holds(a, b)


def same_shape(a: Sequence[Any] | None, b: Sequence[Any] | None) -> bool:
    """Are two shapes known and provably equal?"""
    return a is not None and b is not None and len(a) == len(b) and all(prove_equal(x, y) for x, y in zip(a, b))


def shape_product(shape: Sequence[Any]) -> PrimExpr:
    """The number of elements, simplified."""
    total: PrimExpr = IntImm("int64", 1)
    for d in shape:
        total = total * E.cast(d, "int64")
    return simplify_dim(total)


# ---- assumptions -------------------------------------------------------------------------------------------------------


class Assumptions:
    """Equalities that inference relied on and nothing proves; the BlockBuilder checks them at run time."""

    def __init__(self) -> None:
        self.known: set[Key] = set()
        self.pending: list[tuple[PrimExpr, PrimExpr]] = []

    @staticmethod
    def _difference(a: Any, b: Any) -> Key:
        p = _key(_add_into(polynomial(E.convert(a)), polynomial(E.convert(b)), -1))
        q = _key(_add_into(polynomial(E.convert(b)), polynomial(E.convert(a)), -1))
        return min(p, q, key=_order_key)

    def holds(self, a: Any, b: Any) -> bool:
        """Is the equality assumed already?"""
        return bool(self.known) and self._difference(a, b) in self.known

    def add(self, a: PrimExpr, b: PrimExpr) -> None:
        """Assume a == b, to be checked."""
        key = self._difference(a, b)
        if key not in self.known:
            self.known.add(key)
            self.pending.append((a, b))


_CURRENT: list[Assumptions | None] = []


@contextmanager
def collect_assumptions(assumptions: Assumptions | None) -> Generator[None]:
    """Within, `require_equal` hands what it cannot prove to `assumptions` (None: raises instead)."""
    _CURRENT.append(assumptions)
    try:
        yield
    finally:
        _CURRENT.pop()


def require_equal(a: Any, b: Any, what: str) -> PrimExpr:
    """The better of two dimensions that have to be equal: a number before a formula, the shorter formula.

    Raises CompileError TW0203, which names `what`, if they are different, or if nothing proves them equal and no builder
    is there to check it at run time.
    """
    if a is b:
        return simplify_dim(a)
    gap = difference(a, b)
    if gap == 0:
        return _better(a, b)
    if gap is None:
        current = _CURRENT[-1] if _CURRENT else None
        if current is not None:
            current.add(E.convert(a), E.convert(b))
            return _better(a, b)
        why = "cannot be proved equal to"
    else:
        why = "differs from"
    raise CompileError.at("TW0203", f"{what}: {show_dim(a)} {why} {show_dim(b)}", hint="use one size for both")


def _size(p: Poly) -> int:
    return sum(1 + sum(len(_order(a)) for a in m) for m in p)


def _better(a: Any, b: Any) -> PrimExpr:
    a, b = simplify_dim(a), simplify_dim(b)
    if isinstance(a, IntImm) or isinstance(b, IntImm):
        return a if isinstance(a, IntImm) else b
    return a if _size(polynomial(a)) <= _size(polynomial(b)) else b


# ---- text --------------------------------------------------------------------------------------------------------------

_SIGN = {E.Add: "+", E.Sub: "-", E.Mul: "*", E.FloorDiv: "//", E.FloorMod: "%", E.Div: "/", E.Mod: "%"}
Showable = Union[PrimExpr, int]


def show_dim(e: Any) -> str:
    """A dimension as text for messages."""
    if isinstance(e, (int, str)):
        return str(e)
    if isinstance(e, IntImm):
        return str(e.value)
    if isinstance(e, E.Var):
        return e.name
    if isinstance(e, E.Cast):
        return show_dim(e.value)
    if isinstance(e, (E.Min, E.Max)):
        return f"{type(e).__name__.lower()}({show_dim(e.a)}, {show_dim(e.b)})"
    sign = _SIGN.get(type(e))
    if sign is not None:
        a, b = (f"({show_dim(x)})" if isinstance(x, E.BinaryOp) else show_dim(x) for x in (e.a, e.b))
        return f"{a} {sign} {b}" if sign in "+-" else f"{a}{sign}{b}"
    return f"<{type(e).__name__}>"


def show_shape(shape: Sequence[Any] | None) -> str:
    """A shape as text for messages."""
    return (
        "(unknown)" if shape is None else f"({', '.join(show_dim(d) for d in shape)}{',' if len(shape) == 1 else ''})"
    )
