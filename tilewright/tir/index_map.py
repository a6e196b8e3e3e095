"""Index maps: how the indices of one layout become those of another.

    m = IndexMap.from_func(lambda i, j: (i // 4, j, i % 4))
    m.map_shape((16, 8))            # (4, 8, 4)
    m.inverse((16, 8))              # lambda a, b, c: (a*4 + c, b)

A map that does not come out even (14 rows in blocks of 4) has a `non_surjective_inverse`: the inverse over the padded
shape, and the condition that says which of its points are padding.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith import expr as ex
from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import ExprLike, IntImm, PrimExpr, Var, convert
from tilewright.arith.int_set import eval_range
from tilewright.arith.iter_map import detect_iter_map, inverse_affine_iter_map
from tilewright.ir.node import children
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.tir.ir import Range

__all__ = ["IndexMap"]


class IndexMap:
    """A function from indices to indices: `final_indices` are expressions of the variables `initial_indices`."""

    AXIS_SEPARATOR = "axis_separator"

    def __init__(
        self,
        initial_indices: Sequence[Var],
        final_indices: Sequence[PrimExpr],
        inverse_index_map: IndexMap | None = None,
    ) -> None:
        self.initial_indices = tuple(initial_indices)
        self.final_indices = tuple(final_indices)
        self.inverse_index_map = inverse_index_map

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Callable[..., Any] | IndexMap | None = None,
        *,
        index_dtype: str = "int64",
    ) -> IndexMap:
        """The map of a Python function of the indices. `ndim` is needed only where it takes `*indices`.

        Raises ValueError where the number of indices cannot be told.
        """
        variables = _arguments(mapping_function, ndim, index_dtype)
        result = mapping_function(*variables)
        items = [result] if isinstance(result, (PrimExpr, int)) else list(result)
        final = [convert(x, index_dtype) for x in items if x != IndexMap.AXIS_SEPARATOR]
        if callable(inverse_index_map):
            inverse_index_map = IndexMap.from_func(inverse_index_map, len(final), index_dtype=index_dtype)
        return IndexMap(variables, final, inverse_index_map)

    def __repr__(self) -> str:
        names = ", ".join(v.name for v in self.initial_indices)
        return f"IndexMap(lambda {names}: ({', '.join(map(repr, self.final_indices))}))"

    # ---- applying it ----

    def map_indices(self, indices: Sequence[ExprLike], analyzer: Analyzer | None = None) -> list[PrimExpr]:
        """Where the element at the indices goes, simplified."""
        if len(indices) != len(self.initial_indices):
            raise ValueError(f"the map takes {len(self.initial_indices)} indices, got {len(indices)}")
        ana = analyzer or Analyzer()
        values = [ex.cast(convert(i), v.dtype) for i, v in zip(indices, self.initial_indices)]
        table = dict(zip(self.initial_indices, values))
        return [ana.simplify(substitute(e, table)) for e in self.final_indices]

    def map_ranges(self, ranges: Sequence[Range]) -> list[Range]:
        """The box of indices that the box of `ranges` goes to. Raises ValueError where its bounds are not known."""
        ana = Analyzer()
        domains = {v: _cast_range(r, v.dtype) for v, r in zip(self.initial_indices, ranges, strict=True)}
        out: list[Range] = []
        for e in self.final_indices:
            ends = eval_range(e, domains, ana)
            if ends is None:
                raise ValueError(f"the range of {e} is not known")
            out.append(Range(ends[0], ana.simplify(ends[1] - ends[0] + 1)))
        return out

    def map_shape(self, shape: Sequence[ExprLike]) -> list[PrimExpr]:
        """The shape that holds everything that a buffer of `shape` becomes."""
        ranges = [Range(IntImm(_dtype(n), 0), convert(n)) for n in shape]
        ana = Analyzer()
        return [ana.simplify(r.min + r.extent) for r in self.map_ranges(ranges)]

    # ---- inverting it ----

    def inverse(self, shape: Sequence[ExprLike | Range]) -> IndexMap:
        """The map back, for a buffer of `shape` (or Ranges). Raises ValueError that says why there is none."""
        if self.inverse_index_map is not None:
            return self.inverse_index_map
        ana = Analyzer()
        ranges = self._ranges(shape)
        found = detect_iter_map(self.final_indices, ranges, require_bijective=True, analyzer=ana)
        if not found.indices:
            raise ValueError(f"{self} has no inverse over {list(shape)}: {found.errors[0]}")
        outputs = [Var(f"axis{i}", e.dtype) for i, e in enumerate(self.final_indices)]
        table = inverse_affine_iter_map(found.indices, outputs)
        for v, n in zip(outputs, self.map_ranges([ranges[v] for v in self.initial_indices]), strict=True):
            ana.bind(v, n)
        back: list[PrimExpr] = []
        for v in self.initial_indices:
            value = ex.cast(table[v], v.dtype) if v in table else IntImm(v.dtype, 0)
            back.append(ana.simplify(value + ranges[v].min))
        return IndexMap(outputs, back, self)

    def non_surjective_inverse(self, shape: Sequence[ExprLike | Range]) -> tuple[IndexMap, PrimExpr]:
        """(the inverse over the padded shape, the condition on its indices that says: this is padding)."""
        try:
            return self.inverse(shape), IntImm("bool", 0)
        except ValueError:
            ranges = self._ranges(shape)
        padded: list[Range] = []
        for v in self.initial_indices:
            factor = math.lcm(*self._divisors(v))
            n = ranges[v].extent
            padded.append(Range(ranges[v].min, ex.ceildiv(n, factor) * factor if factor > 1 else n))
        inverse = self.inverse(padded)
        ana = Analyzer()
        for v, r in zip(inverse.initial_indices, self.map_ranges(padded), strict=True):
            ana.bind(v, r)
        beyond = [e >= ranges[v].min + ranges[v].extent for v, e in zip(self.initial_indices, inverse.final_indices)]
        return inverse, ana.simplify(ex.any_of(*beyond))

    def _ranges(self, shape: Sequence[Any]) -> dict[Var, Range]:
        if len(shape) != len(self.initial_indices):
            raise ValueError(f"the map takes {len(self.initial_indices)} indices, the shape has {len(shape)}")
        out: dict[Var, Range] = {}
        for v, n in zip(self.initial_indices, shape):
            r = n if isinstance(n, Range) else Range(IntImm(v.dtype, 0), convert(n))
            out[v] = _cast_range(r, v.dtype)
        return out

    def _divisors(self, v: Var) -> list[int]:
        """The constants that expressions of `v` are divided by, those of nested quotients multiplied."""
        out = [1]

        def visit(e: Any, factor: int) -> None:
            if isinstance(e, (ex.FloorDiv, ex.FloorMod)) and isinstance(e.b, IntImm) and v in free_vars(e.a):
                out.append(factor * e.b.value)
                visit(e.a, factor * e.b.value if isinstance(e, ex.FloorDiv) else factor)
                return
            for c in children(e):
                if isinstance(c, PrimExpr):
                    visit(c, factor)

        for e in self.final_indices:
            visit(e, 1)
        return out

    def is_equivalent_to(self, other: IndexMap) -> bool:
        """Do the two map every index alike?"""
        if len(self.initial_indices) != len(other.initial_indices) or len(self.final_indices) != len(
            other.final_indices
        ):
            return False
        mine = self.map_indices(other.initial_indices)
        ana = Analyzer()
        return all(ana.can_prove_equal(a, b) for a, b in zip(mine, other.final_indices))


def _dtype(n: Any) -> str:
    return n.dtype if isinstance(n, PrimExpr) else "int32"


def _cast_range(r: Range, dtype: str) -> Range:
    return Range(ex.cast(r.min, dtype), ex.cast(r.extent, dtype))


def _arguments(f: Callable[..., Any], ndim: int | None, dtype: str) -> list[Var]:
    names: list[str] = []
    for p in inspect.signature(f).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            if ndim is None:
                raise ValueError("give ndim: the function takes any number of indices")
            names += [f"{p.name}_{i}" for i in range(ndim - len(names))]
        else:
            names.append(p.name)
    if ndim is not None and len(names) != ndim:
        raise ValueError(f"the function takes {len(names)} indices, not {ndim}")
    return [Var(n, dtype) for n in names]
