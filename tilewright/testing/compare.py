"""Comparisons of programs and of expressions, and a check of gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from tilewright.support.lazy import resolve

__all__ = [
    "CompareBeforeAfter", "assert_prim_expr_equal", "check_bool_expr_is_true", "check_int_constraints_trans_consistency",
    "check_numerical_grads",
]  # fmt: skip


class CompareBeforeAfter:
    """A test of a transformation: a subclass gives `transform`, `before` and `expected`; pytest runs its `test_compare`.

    `transform` is a pass, or a method that returns one. The others are programs, functions or classes of script text (no
    decorator needed), or methods that return a program; methods may take fixtures. `expected` may be an exception class: then
    the transformation has to raise it.
    """

    transform: Any = None
    before: Any = None
    expected: Any = None

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        for name in ("transform", "before", "expected"):
            if name in cls.__dict__:
                setattr(cls, name, _fixture(cls.__dict__[name], name))

    def test_compare(self, transform: Any, before: Any, expected: Any) -> None:
        """Apply the transformation and compare."""
        from tilewright.ir.module import IRModule
        from tilewright.ir.structure import assert_structural_equal

        module = before if isinstance(before, IRModule) else IRModule({"main": before})
        if _is_error(expected):
            try:
                transform(module)
            except expected:
                return
            raise AssertionError(f"the transformation did not raise {expected.__name__}")
        after = transform(module)
        if not isinstance(expected, IRModule):
            after = after["main"].without_attr("global_symbol")
            expected = expected.without_attr("global_symbol")
        assert_structural_equal(after, expected)


def _is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseException)


def _fixture(thing: Any, name: str) -> Any:
    """A fixture that gives the program, the exception or the pass."""
    fixture = import_module("pytest").fixture
    if inspect.isfunction(thing) and next(iter(inspect.signature(thing).parameters), "") == "self":
        return fixture(name=name)(thing)
    if inspect.isfunction(thing):
        parsed = resolve("script.prim_func")(thing)
        thing = parsed.parse() if hasattr(parsed, "parse") else parsed  # in a class a function waits for its module
    elif isinstance(thing, type) and not _is_error(thing):
        thing = resolve("script.ir_module")(thing)

    def value(*_: Any) -> Any:
        return thing

    return fixture(name=name)(value)


def assert_prim_expr_equal(lhs: Any, rhs: Any) -> None:
    """Raise AssertionError unless `lhs == rhs` can be proved."""
    from tilewright.arith import Analyzer
    from tilewright.arith.expr import convert

    if not Analyzer().can_prove(convert(lhs) == convert(rhs)):
        raise AssertionError(f"{lhs} and {rhs} are not equal")


def _points(vranges: Mapping[Any, Any]) -> list[dict[Any, int]]:
    points: list[dict[Any, int]] = [{}]
    for var, r in vranges.items():
        low, count = r.min.value, r.extent.value
        points = [{**p, var: low + k} for p in points for k in range(count)]
    return points


def _holds(e: Any) -> bool:
    from tilewright.arith.expr import IntImm

    return isinstance(e, IntImm) and bool(e.value)


def check_bool_expr_is_true(bool_expr: Any, vranges: Mapping[Any, Any], cond: Any = None) -> None:
    """Raise AssertionError unless the expression holds at every point of the (constant) ranges at which `cond` does."""
    from tilewright.arith import Analyzer
    from tilewright.arith.expr import IntImm, convert
    from tilewright.ir.rewrite import substitute

    simplify = Analyzer().simplify
    for point in _points(vranges):
        values = {v: IntImm(v.dtype, k) for v, k in point.items()}
        if cond is not None and not _holds(simplify(substitute(convert(cond), values))):
            continue
        found = simplify(substitute(convert(bool_expr), values))
        if not _holds(found):
            where = ", ".join(f"{v.name}={k}" for v, k in point.items())
            raise AssertionError(f"{bool_expr} does not hold at {where}: it is {found}")


def check_int_constraints_trans_consistency(constraints_trans: Any, vranges: Mapping[Any, Any] | None = None) -> None:
    """Raise AssertionError unless a transformation of integer constraints maps solutions onto solutions, both ways."""
    from tilewright.arith.expr import convert, logical_and
    from tilewright.ir.rewrite import substitute

    ranges = dict(vranges or {})

    def one_way(source: Any, target: Any, forth: Mapping[Any, Any], back: Mapping[Any, Any]) -> None:
        known = {**ranges, **dict(source.ranges)}
        mine = convert(True)
        for r in source.relations:
            mine = logical_and(mine, r)
        for v in source.variables:
            there = substitute(convert(forth[v]), dict(back)) if v in forth else v
            check_bool_expr_is_true(there == v, known, mine)
        for r in target.relations:
            check_bool_expr_is_true(substitute(r, dict(back)), known, mine)

    c = constraints_trans
    one_way(c.src, c.dst, c.src_to_dst, c.dst_to_src)
    one_way(c.dst, c.src, c.dst_to_src, c.src_to_dst)


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Sequence[Any] | Mapping[str, Any],
    grad_values: Sequence[Any] | Mapping[str, Any],
    function_value: Any = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Raise AssertionError unless gradients agree with central differences of `function` (arrays ▸ number)."""
    del function_value
    named = isinstance(input_values, Mapping)
    keys = list(input_values) if isinstance(input_values, Mapping) else list(range(len(input_values)))
    values = {k: np.array(input_values[k], dtype=np.float64) for k in keys}  # pyright: ignore

    def at(key: Any, place: tuple[int, ...], shift: float) -> float:
        shifted = {k: v.copy() for k, v in values.items()}
        shifted[key][place] += shift
        out = function(**shifted) if named else function(*(shifted[k] for k in keys))  # pyright: ignore
        return float(np.sum(np.asarray(out)))

    for key in keys:
        given = np.asarray(grad_values[key], dtype=np.float64)  # pyright: ignore
        if given.shape != values[key].shape:
            raise AssertionError(f"the gradient of {key} has shape {given.shape}, its argument {values[key].shape}")
        found = np.empty_like(given)
        for place in np.ndindex(given.shape):
            found[place] = (at(key, place, delta) - at(key, place, -delta)) / (2 * delta)
        error = np.abs(found - given)
        bad = error > atol + rtol * np.abs(found)
        if bad.any():
            worst = np.unravel_index(int(np.argmax(error)), error.shape) if error.shape else ()
            raise AssertionError(
                f"the gradient of {key} is wrong in {int(bad.sum())} of {bad.size} places; at {worst}: {given[worst]}, "
                f"differences give {found[worst]}"
            )
