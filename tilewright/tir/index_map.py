"""Index maps: how the indices of one layout become those of another.

    m = IndexMap.from_func(lambda i, j: (i // 4, j, i % 4))
    m.map_shape((16, 8))            # (4, 8, 4)
    m.inverse((16, 8))              # lambda a, b, c: (a*4 + c, b)

A map that does not come out even (14 rows in blocks of 4) has a `non_surjective_inverse`: the inverse over the padded
shape, and the condition that says which of its points are padding.

The types of indices follow what a map is applied to: a map written for int64 that is given int32 indices gives int32 ones.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Var, convert
from tilewright.arith.int_set import eval_range
from tilewright.arith.iter_divide import inverse_affine_iter_map
from tilewright.arith.iter_expr import normalize_iter_map_to_expr
from tilewright.arith.iter_map import detect_iter_map, iter_map_simplify, normalize_to_iter_sum
from tilewright.ir.node import DEF, INFO, Node, children, map_children, node
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.support.diagnostics import CompileError, Diagnostic
from tilewright.tir.ir import Range

__all__ = ["IndexMap", "NoInverse"]


class NoInverse(CompileError, ValueError):
    """A map has no inverse over a shape, or is given the wrong number of indices; the message says why (TW0480)."""

    def __init__(self, message: str) -> None:
        super().__init__(Diagnostic("TW0480", message))
        self.reason = message


@node
class IndexMap(Node):
    """A function from indices to indices: `final_indices` are expressions of the variables `initial_indices`."""

    AXIS_SEPARATOR = "axis_separator"

    initial_indices: Annotated[tuple[Var, ...], DEF]
    final_indices: tuple[PrimExpr, ...]
    inverse_index_map: Annotated[Any, INFO] = None
    separators: tuple[int, ...] = ()

    def __init__(
        self,
        initial_indices: Sequence[Var],
        final_indices: Sequence[PrimExpr],
        inverse_index_map: Any = None,
        separators: Sequence[int] = (),
    ) -> None:
        this: Any = self
        this.initial_indices, this.final_indices = tuple(initial_indices), tuple(final_indices)
        this.inverse_index_map, this.separators, this.span = inverse_index_map, tuple(separators), None

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Callable[..., Any] | IndexMap | None = None,
        *,
        index_dtype: str = "int64",
    ) -> IndexMap:
        """The map of a Python function of the indices. `ndim` is needed only where it takes `*indices`.

        Raises ValueError where the number of indices cannot be told, or the function returns AXIS_SEPARATOR.
        """
        result, separators = IndexMap.from_func_with_separators(
            mapping_function, ndim, inverse_index_map, index_dtype=index_dtype
        )
        if separators:
            raise NoInverse("an axis separator is of no use here: take from_func_with_separators to get it")
        return result

    @staticmethod
    def from_func_with_separators(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Callable[..., Any] | IndexMap | None = None,
        *,
        index_dtype: str = "int64",
    ) -> tuple[IndexMap, list[int]]:
        """(the map, the axes before which `IndexMap.AXIS_SEPARATOR` stood in what the function returned)."""
        variables, positional, named = _arguments(mapping_function, ndim, index_dtype)
        result = mapping_function(*positional, **named)
        final: list[PrimExpr] = []
        separators: list[int] = []
        for x in [result] if isinstance(result, (PrimExpr, int)) else list(result):
            if isinstance(x, str) and x == IndexMap.AXIS_SEPARATOR:
                separators.append(len(final))
            else:
                final.append(convert(x, index_dtype))
        if callable(inverse_index_map):
            inverse_index_map = IndexMap.from_func(inverse_index_map, len(final), index_dtype=index_dtype)
        return IndexMap(variables, final, inverse_index_map), separators

    def with_separators(self, separators: Sequence[int]) -> IndexMap:
        """The same map with separators before these final indices: for schedules and what they print."""
        return IndexMap(self.initial_indices, self.final_indices, self.inverse_index_map, separators)

    def to_python(self) -> str:
        """The map as the text of a lambda."""
        names = _distinct([v.name for v in self.initial_indices])
        table = {v: Var(n, v.dtype) for v, n in zip(self.initial_indices, names)}
        parts = [_text(substitute(e, table)) for e in self.final_indices]
        for n in sorted(self.separators, reverse=True):
            parts.insert(n, "tir.IndexMap.AXIS_SEPARATOR")
        return f"lambda {', '.join(names)}: ({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def __repr__(self) -> str:
        return f"T.index_map({self.to_python()})"

    # ---- applying it ----

    def map_indices(self, indices: Sequence[ExprLike], analyzer: Analyzer | None = None) -> list[PrimExpr]:
        """Where the element at the indices goes, simplified."""
        ana = analyzer or Analyzer()
        return [ana.simplify(e) for e in self.apply(indices)]

    def apply(self, indices: Sequence[ExprLike]) -> list[PrimExpr]:
        """Where the element at the indices goes, as it comes out of the substitution."""
        self._count(indices)
        wanted = [i.dtype for i in indices if isinstance(i, PrimExpr)]
        m = self.with_dtype(max(wanted, key=_bits)) if wanted else self
        table = {v: ex.cast(convert(i, v.dtype), v.dtype) for i, v in zip(indices, m.initial_indices)}
        return [substitute(e, table) for e in m.final_indices]

    def with_dtype(self, dtype: str) -> IndexMap:
        """The same map on indices of another integer type."""
        if all(x.dtype == dtype for x in (*self.initial_indices, *self.final_indices)):
            return self
        table = {v: v if v.dtype == dtype else Var(v.name, dtype) for v in self.initial_indices}
        inverse = self.inverse_index_map
        return IndexMap(
            tuple(table.values()),
            [ex.cast(_retyped(e, table, dtype), dtype) for e in self.final_indices],
            inverse.with_dtype(dtype)
            if isinstance(inverse, IndexMap) and inverse.inverse_index_map is None
            else inverse,
        )

    def map_ranges(self, ranges: Sequence[Range]) -> list[Range]:
        """The box of indices that the box of `ranges` goes to. Raises ValueError where its bounds are not known."""
        self._count(ranges)
        m = self.with_dtype(max((r.extent.dtype for r in ranges), key=_bits)) if ranges else self
        domains = {v: _cast_range(r, v.dtype) for v, r in zip(m.initial_indices, ranges)}
        found = _ranges_by_iterators(m, domains)
        if found is not None:
            return found
        ana = Analyzer()
        out: list[Range] = []
        for e in m.final_indices:
            ends = eval_range(e, domains, ana)
            if ends is None:
                raise NoInverse(f"the range of {e} is not known")
            out.append(Range(ends[0], ana.simplify(ends[1] - ends[0] + 1)))
        return out

    def map_shape(self, shape: Sequence[ExprLike]) -> list[PrimExpr]:
        """The shape that holds everything that a buffer of `shape` becomes."""
        self._count(shape)
        dims = [convert(n, v.dtype) for n, v in zip(shape, self.initial_indices)]
        ana = Analyzer()
        return [ana.simplify(r.min + r.extent) for r in self.map_ranges([Range(IntImm(n.dtype, 0), n) for n in dims])]

    def map_ndarray(self, arr_src: Any) -> Any:
        """An NDArray with the elements of `arr_src` where this map puts them; what nothing maps to is zero."""
        import numpy as np

        from tilewright.runtime.ndarray import array

        source = arr_src.numpy() if hasattr(arr_src, "numpy") else np.asarray(arr_src)
        shape = [int(n) for n in self.map_shape(source.shape)]  # pyright: ignore[reportArgumentType]
        grid = np.indices(source.shape)
        values = {v: grid[i] for i, v in enumerate(self.initial_indices)}
        out = np.zeros(shape, source.dtype)
        out[tuple(np.broadcast_to(_evaluate(e, values), source.shape) for e in self.final_indices)] = source
        return array(out)

    map_tensor = map_ndarray

    # ---- inverting it ----

    def inverse(self, shape: Sequence[ExprLike | Range]) -> IndexMap:
        """The map back, for a buffer of `shape` (or Ranges). Raises TVMError (a ValueError) that says why there is none."""
        if self.inverse_index_map is not None:
            return self.inverse_index_map
        ranges = self._ranges(shape)
        m = self.with_dtype(max((v.dtype for v in ranges), key=_bits)) if ranges else self
        return _inverse(m, dict(zip(m.initial_indices, ranges.values())), self)

    def non_surjective_inverse(self, shape: Sequence[ExprLike | Range]) -> tuple[IndexMap, PrimExpr]:
        """(the inverse over the padded shape, the condition on its indices that says: this is padding)."""
        ranges = self._ranges(shape)
        m = self.with_dtype(max((v.dtype for v in ranges), key=_bits)) if ranges else self
        domains = dict(zip(m.initial_indices, ranges.values()))
        if self.inverse_index_map is not None:
            return self.inverse_index_map, IntImm("bool", 0)
        return _padded_inverse(m, domains, self)

    def _count(self, given: Sequence[Any]) -> None:
        if len(given) != len(self.initial_indices):
            raise NoInverse(f"the map takes {len(self.initial_indices)} indices, got {len(given)}")

    def _ranges(self, shape: Sequence[Any]) -> dict[Var, Range]:
        self._count(shape)
        dims = [n if isinstance(n, Range) else convert(n, v.dtype) for n, v in zip(shape, self.initial_indices)]
        dtypes = [n.extent.dtype if isinstance(n, Range) else n.dtype for n in dims]
        dtype = max(dtypes, key=_bits) if dtypes else "int64"
        out: dict[Var, Range] = {}
        for v, n in zip(self.initial_indices, dims):
            r = n if isinstance(n, Range) else Range(IntImm(dtype, 0), n)
            out[v if v.dtype == dtype else Var(v.name, dtype)] = _cast_range(r, dtype)
        return out

    def is_equivalent_to(self, other: IndexMap) -> bool:
        """Do the two map every index alike?"""
        if len(self.initial_indices) != len(other.initial_indices) or len(self.final_indices) != len(
            other.final_indices
        ):
            return False
        mine = self.map_indices(other.initial_indices)
        ana = Analyzer()
        return all(ana.can_prove_equal(ex.cast(a, b.dtype), b) for a, b in zip(mine, other.final_indices))


# ---- inverses --------------------------------------------------------------------------------------------------------


def _inverse(m: IndexMap, ranges: Mapping[Var, Range], forward: IndexMap) -> IndexMap:
    ana = Analyzer()
    found = detect_iter_map(m.final_indices, ranges, require_bijective=True, analyzer=ana)
    if not found.indices:
        shape = [r.extent for r in ranges.values()]
        raise NoInverse(
            f"{m.to_python()} has no inverse over {shape}: {found.errors[0] if found.errors else 'it has no indices'}"
        )
    outputs = [Var(f"axis{i}", e.dtype) for i, e in enumerate(m.final_indices)]
    table = inverse_affine_iter_map(found.indices, outputs)
    known = dict(zip(outputs, m.map_ranges(list(ranges.values())), strict=True))
    for v, n in known.items():
        if not (isinstance(n.extent, IntImm) and n.extent.value == 1):
            ana.bind(v, n)
    for out, e in zip(outputs, m.final_indices, strict=True):
        if isinstance(e, Var) and e not in table and e in ranges and _is_zero(ranges[e].min):
            table[e] = out
    back: list[PrimExpr] = []
    for v, r in ranges.items():
        value = ex.cast(table[v], v.dtype) if v in table else IntImm(v.dtype, 0)
        back.append(_sorted(ana.simplify(value + r.min), known))
    return IndexMap(outputs, back, forward)


def _sorted(e: PrimExpr, ranges: Mapping[Var, Range]) -> PrimExpr:
    """An index in the form of its iterators (`v % 9 // 3`), a sum with its terms by falling scale."""
    if isinstance(e, (Var, IntImm)):
        return e
    if not isinstance(e, (ex.Add, ex.Sub)):
        return iter_map_simplify([e], ranges, check_level="nocheck")[0]
    found = normalize_to_iter_sum(e, ranges)
    out: PrimExpr = IntImm(e.dtype, 0)
    for s in found.args:
        out = ex.add(out, normalize_iter_map_to_expr(s))
    if isinstance(found.base, IntImm) and found.base.value < 0:
        return ex.sub(out, IntImm(e.dtype, -found.base.value))
    return ex.add(out, found.base)


def _ascending(e: Any) -> Any:
    """A condition with its comparisons written by < and <=."""
    if isinstance(e, ex.GE):
        return ex.LE(e.b, e.a)
    if isinstance(e, ex.GT):
        return ex.LT(e.b, e.a)
    return map_children(e, _ascending) if isinstance(e, (ex.And, ex.Or, ex.Not)) else e


class _Dividend:
    """What quotients and remainders are taken of: a sum without its constant, the constant, and all the divisors."""

    def __init__(self, base: PrimExpr, offset: PrimExpr, extent: PrimExpr, var: Var) -> None:
        self.base, self.offset, self.extent, self.var = base, offset, extent, var
        self.divisors: list[PrimExpr] = []

    @property
    def divisor(self) -> PrimExpr:
        """The least common multiple of the divisors."""
        numbers = [d.value for d in self.divisors if isinstance(d, IntImm)]
        if len(numbers) == len(self.divisors):
            return IntImm(self.base.dtype, math.lcm(*numbers))
        return self.divisors[-1]


def _padded_inverse(m: IndexMap, ranges: Mapping[Var, Range], forward: IndexMap) -> tuple[IndexMap, PrimExpr]:
    """Pad each dividend to a multiple of what it is divided by, on both sides, and invert that."""
    dividends = _dividends(m, ranges)
    ana = Analyzer()
    table: dict[Any, PrimExpr] = {}
    domains: dict[Var, Range] = dict(ranges)
    padding: list[tuple[_Dividend, PrimExpr, PrimExpr, PrimExpr]] = []
    counts: dict[Any, PrimExpr] = {}
    for d in dividends:
        divisor = d.divisor
        left, edge, right, blocks = _pads(d, ana)
        padded = Var(d.var.name, d.var.dtype)  # counts from the start of the padding on the left
        for v in free_vars(d.base):
            domains.pop(v, None)
        domains[padded] = Range(IntImm(padded.dtype, 0), _symbol(blocks, counts) * divisor)
        table[d.var] = padded - left
        padding.append((d, left, edge, right))
        d.var = padded
    if not dividends or all(_is_zero(left) and _is_zero(right) for _, left, _, right in padding):
        return _inverse(m, ranges, forward), IntImm("bool", 0)
    names = {id(d): v for d, v in zip(dividends, table)}
    finals = [ana.simplify(substitute(_named(e, dividends, names), table)) for e in m.final_indices]
    inner = _inverse(IndexMap(list(domains), finals), domains, forward)
    bounds = Analyzer()
    for v, r in zip(inner.initial_indices, IndexMap(list(domains), finals).map_ranges(list(domains.values()))):
        bounds.bind(v, r)
    values = dict(zip(domains, inner.final_indices))
    back: dict[Var, PrimExpr] = {v: values[v] for v in ranges if v in values}
    conditions: list[PrimExpr] = []
    for d, left, edge, right in padding:
        at = values[d.var]
        back.update(_take_apart(d, at - left, ranges))
        conditions.append(_is_padding(at, d.divisor, left, edge, right))
    known = dict(zip(inner.initial_indices, IndexMap(list(domains), finals).map_ranges(list(domains.values()))))
    inverse = IndexMap(inner.initial_indices, [_sorted(bounds.simplify(back[v]), known) for v in ranges], forward)
    return substitute(inverse, counts), substitute(_ascending(bounds.simplify(ex.any_of(*conditions))), counts)


def _pads(d: _Dividend, ana: Analyzer) -> tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]:
    """(the padding before a dividend, where its elements end then, the padding after them, how many divisors that makes)."""
    divisor = d.divisor
    whole = isinstance(d.offset, IntImm) and d.offset.value >= 0  # what lies before the first element, from index 0 on
    left = d.offset if whole else ana.simplify(ex.floormod(d.offset, divisor))
    edge = ana.simplify(left + d.extent)
    if isinstance(divisor, IntImm) and not isinstance(edge, IntImm):
        rest = ex.floormod(edge, IntImm(divisor.dtype, -divisor.value))
        return left, edge, rest, ex.floordiv(ex.sub(edge, rest), divisor)
    right = ex.floormod(ana.simplify(-edge), divisor)
    return left, edge, right, ex.floordiv(ex.add(right, edge), divisor)


def _symbol(e: PrimExpr, counts: dict[Any, PrimExpr]) -> PrimExpr:
    """A variable for a number that is not constant, so that nothing needs to be known of it."""
    if isinstance(e, IntImm):
        return e
    counts[(v := Var("count", e.dtype))] = e
    return v


def _is_padding(at: PrimExpr, divisor: PrimExpr, left: PrimExpr, edge: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Is a point of a padded dividend before its first element, or behind its last?"""
    block, inside = ex.floordiv(at, divisor), ex.floormod(at, divisor)
    out: list[PrimExpr] = []
    if isinstance(left, IntImm) and isinstance(divisor, IntImm) and left.value >= divisor.value:
        out.append(ex.cmp(ex.LT, at, left))
    elif not _is_zero(left):
        out.append(ex.logical_and(ex.cmp(ex.EQ, block, IntImm(at.dtype, 0)), ex.cmp(ex.LT, inside, left)))
    if not _is_zero(right):
        last = ex.cmp(ex.EQ, block, ex.floordiv(edge, divisor))
        if not isinstance(right, IntImm):
            last = ex.logical_and(ex.cmp(ex.NE, right, IntImm(right.dtype, 0)), last)
        out.append(ex.logical_and(last, ex.cmp(ex.LE, ex.floormod(edge, divisor), inside)))
    return ex.any_of(*out)


def _take_apart(d: _Dividend, value: PrimExpr, ranges: Mapping[Var, Range]) -> dict[Var, PrimExpr]:
    """The variables of a dividend from its value."""
    if isinstance(d.base, Var):
        return {d.base: value}
    own = {v: ranges[v] for v in free_vars(d.base) if v in ranges}
    one = IndexMap(list(own), [d.base])
    return dict(zip(own, [substitute(e, {v: value}) for m in [_inverse(one, own, one)]
                          for v in m.initial_indices for e in m.final_indices]))  # fmt: skip


def _dividends(m: IndexMap, ranges: Mapping[Var, Range]) -> list[_Dividend]:
    """What the map divides, with all that it is divided by. Raises NoInverse where two of them share a variable."""
    found: list[_Dividend] = []
    ana = Analyzer()

    def visit(e: Any, divisor: PrimExpr | None) -> None:
        if isinstance(e, (ex.FloorDiv, ex.FloorMod)) and not any(v in ranges for v in free_vars(e.b)):
            inner = e.b if divisor is None or isinstance(e, ex.FloorMod) else ana.simplify(e.b * divisor)
            if isinstance(e, ex.FloorMod) and divisor is not None:
                note(e.a, e.b)
            if isinstance(e.a, (ex.FloorDiv, ex.FloorMod)):
                visit(e.a, inner)
            else:
                note(e.a, inner)
            return
        for c in children(e):
            if isinstance(c, PrimExpr):
                visit(c, None)

    def note(e: PrimExpr, divisor: PrimExpr) -> None:
        zero = {v: IntImm(v.dtype, 0) for v in ranges}
        offset = ana.simplify(substitute(e, zero))
        base = ana.simplify(e - offset)
        for d in found:
            if ana.can_prove_equal(d.base, base):
                if not ana.can_prove_equal(d.offset, offset):
                    raise NoInverse(f"{m.to_python()} divides {base} shifted by {d.offset} and by {offset}")
                d.divisors.append(divisor)
                return
        used = [v for v in free_vars(base) if v in ranges]
        if any(v in free_vars(d.base) for d in found for v in used):
            raise NoInverse(f"{m.to_python()} divides several sums of {used[0].name}")
        ends = eval_range(base, ranges, Analyzer())
        if ends is None or not used:
            raise NoInverse(f"the range of {base} is not known")
        extent = ana.simplify(ends[1] + 1)
        var = base if isinstance(base, Var) else Var("fused", base.dtype)
        found.append(_Dividend(base, offset, extent, Var(var.name, var.dtype)))
        found[-1].divisors.append(divisor)

    for e in m.final_indices:
        visit(e, None)
    return found


def _named(e: PrimExpr, dividends: Sequence[_Dividend], names: Mapping[int, Any]) -> PrimExpr:
    """The expression with each dividend's sum replaced by its variable."""
    ana = Analyzer()
    singles = {d.base: names[id(d)] for d in dividends if isinstance(d.base, Var)}

    def visit(x: Any) -> Any:
        if isinstance(x, Var):
            return singles.get(x, x)
        if isinstance(x, PrimExpr):
            for d in dividends:
                if not isinstance(d.base, Var) and not isinstance(x, IntImm):
                    if ana.can_prove_equal(x, d.base):
                        return names[id(d)]
                    if ana.can_prove_equal(x, d.base + d.offset):
                        return names[id(d)] + d.offset
        return x if getattr(x, "identity", False) else map_children(x, visit)

    return visit(e)


def _ranges_by_iterators(m: IndexMap, domains: Mapping[Var, Range]) -> list[Range] | None:
    """Ranges of symbolic extent from the iterators that the indices are made of, each dividend padded."""
    ana = Analyzer()
    try:
        dividends = _dividends(m, domains)
    except NoInverse:
        return None
    names = {id(d): d.var for d in dividends}
    inner: dict[Var, Range] = {v: r for v, r in domains.items() if not any(v in free_vars(d.base) for d in dividends)}
    table: dict[Any, PrimExpr] = {}
    counts: dict[Any, PrimExpr] = {}
    for d in dividends:
        left, _, _, blocks = _pads(d, ana)
        padded = Var(d.var.name, d.var.dtype)
        inner[padded] = Range(IntImm(padded.dtype, 0), _symbol(blocks, counts) * d.divisor)
        table[d.var] = padded - left
    finals = [ana.simplify(substitute(_named(e, dividends, names), table)) for e in m.final_indices]
    found = detect_iter_map(finals, inner, check_level="nocheck", analyzer=ana)
    if not found.indices:
        return None
    out: list[Range] = []
    for x, e in zip(found.indices, finals, strict=True):
        extent: PrimExpr = IntImm(e.dtype, 1)
        if len(x.args) == 1 and isinstance(x.args[0].scale, IntImm) and x.args[0].scale.value == 1:
            extent = ex.cast(x.args[0].extent, e.dtype)
        else:
            for a in x.args:
                extent = extent + ex.cast(a.scale, e.dtype) * (ex.cast(a.extent, e.dtype) - 1)
        out.append(Range(ana.simplify(x.base), substitute(ana.simplify(extent), counts)))
    return out


# ---- small things ----------------------------------------------------------------------------------------------------


def _is_zero(e: PrimExpr) -> bool:
    return isinstance(e, IntImm) and e.value == 0


def _bits(dtype: str) -> int:
    return 64 if dtype == "int64" else 32


def _cast_range(r: Range, dtype: str) -> Range:
    return Range(ex.cast(r.min, dtype), ex.cast(r.extent, dtype))


def _retyped(e: Any, table: Mapping[Var, Var], dtype: str) -> Any:
    """An integer expression computed in another type."""
    if isinstance(e, Var):
        return table.get(e, e)
    if isinstance(e, IntImm):
        return IntImm(dtype, e.value) if e.dtype in ("int32", "int64") else e
    if isinstance(e, ex.Cast) and e.dtype in ("int32", "int64"):
        return ex.cast(_retyped(e.value, table, dtype), dtype)
    if isinstance(e, (ex.BinaryOp, ex.CmpOp)):
        a, b = _retyped(e.a, table, dtype), _retyped(e.b, table, dtype)
        if a.dtype != b.dtype:
            a, b = (ex.cast(a, b.dtype), b) if _bits(b.dtype) > _bits(a.dtype) else (a, ex.cast(b, a.dtype))
        return type(e)(a, b)
    return e if e.identity else map_children(e, lambda c: _retyped(c, table, dtype))


_NUMPY: dict[str, str] = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "FloorDiv": "floor_divide", "FloorMod": "mod", "Min": "minimum",
    "Max": "maximum", "EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater",
    "GE": "greater_equal", "And": "logical_and", "Or": "logical_or",
}  # fmt: skip


def _evaluate(e: Any, values: Mapping[Var, Any]) -> Any:
    """An index expression on arrays of indices."""
    import numpy as np

    if isinstance(e, Var):
        return values[e]
    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, ex.Cast):
        return _evaluate(e.value, values)
    if isinstance(e, ex.Select):
        return np.where(*(_evaluate(x, values) for x in (e.condition, e.true_value, e.false_value)))
    name = _NUMPY.get(type(e).__name__)
    if name is None:
        raise NoInverse(f"{e} cannot be computed on numbers")
    return getattr(np, name)(_evaluate(e.a, values), _evaluate(e.b, values))


def _text(e: PrimExpr) -> str:
    return str(e)


def _distinct(names: Sequence[str]) -> list[str]:
    out: list[str] = []
    for n in names:
        k, name = 0, n
        while name in out:
            k += 1
            name = f"{n}_{k}"
        out.append(name)
    return out


def _arguments(f: Callable[..., Any], ndim: int | None, dtype: str) -> tuple[list[Var], list[Var], dict[str, Var]]:
    """(all variables in order, those to pass by position, those to pass by name)."""
    parameters = list(inspect.signature(f).parameters.values())
    fixed = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    before: list[Var] = []
    rest: list[Var] = []
    named: dict[str, Var] = {}
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:
            raise NoInverse(f"an index has a position: **{p.name} is not possible")
        if p.kind is p.VAR_POSITIONAL:
            if ndim is None:
                raise NoInverse("give ndim: the function takes any number of indices")
            rest = [Var(f"{p.name}_{i}", dtype) for i in range(ndim - len(fixed))]
        elif p.kind is p.KEYWORD_ONLY:
            named[p.name] = Var(p.name, dtype)
        else:
            before.append(Var(p.name, dtype))
    variables = [*before, *rest, *named.values()]
    if ndim is not None and len(variables) != ndim:
        raise NoInverse(f"the function takes {len(variables)} indices, not {ndim}")
    return variables, [*before, *rest], named
