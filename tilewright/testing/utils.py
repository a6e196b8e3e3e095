"""Helpers of tests, under their known names: comparisons, parameters, requirements."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

__all__ = [
    "assert_allclose", "fixture", "main", "parameter", "parameters", "requires_package", "skip_if_32bit", "skip_if_wheel_test", "slow",
]  # fmt: skip


def _array(x: Any) -> np.ndarray[Any, Any]:
    if hasattr(x, "numpy") and not isinstance(x, np.ndarray):
        x = x.detach().numpy() if hasattr(x, "detach") else x.numpy()
    out = np.asarray(x)
    return out.astype(np.float32) if out.dtype.name.startswith(("bfloat", "float8", "float4")) else out


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, equal_nan: bool = True) -> None:
    """Raise AssertionError unless both have one shape and |actual - desired| <= atol + rtol * |desired| everywhere.

    Takes numpy arrays, NDArrays, torch tensors, lists and numbers. The message says how many elements differ, where the
    greatest difference is, and the values there.
    """
    a, d = _array(actual), _array(desired)
    if a.shape != d.shape:
        raise AssertionError(f"shapes differ: {a.shape} and {d.shape} (actual, desired)")
    np.testing.assert_allclose(a, d, rtol=rtol, atol=atol, equal_nan=equal_nan, verbose=True)


def _pytest() -> Any:
    return import_module("pytest")


def main() -> None:
    """Run the tests of the file that calls this, with the command line's further arguments; then exit with pytest's code."""
    file = sys._getframe(1).f_globals.get("__file__", "")
    sys.exit(_pytest().main([file, *sys.argv[1:]]))


def parameter(*values: Any, ids: Sequence[str] | None = None, by_dict: dict[str, Any] | None = None) -> Any:
    """A fixture that takes each of the values in turn: `n = tilewright.testing.parameter(1, 2)` beside the tests."""
    if by_dict is not None:
        ids, values = list(by_dict), tuple(by_dict.values())

    @_pytest().fixture(params=list(values), ids=ids)
    def as_fixture(*_self: Any, request: Any) -> Any:
        return request.param

    return as_fixture


def parameters(*value_sets: Sequence[Any], ids: Sequence[str] | None = None) -> list[Any]:
    """Fixtures that go through tuples of values together: `a, b = parameters((1, 2), (3, 4))` runs a test that uses one or
    both of them twice. A fixture that drives them is put into the calling module."""
    sets = [tuple(v) for v in value_sets]
    scope = sys._getframe(1).f_globals
    driver = f"_parameters_{sum(n.startswith('_parameters_') for n in scope)}"

    def index(request: Any) -> int:
        return request.param

    scope[driver] = _pytest().fixture(params=range(len(sets)), ids=ids, name=driver)(index)

    def make(k: int) -> Any:
        # pytest finds what a fixture needs by the names of its arguments
        made: dict[str, Any] = {"sets": sets}
        exec(f"def value({driver}):\n    return sets[{driver}][{k}]", made)
        return _pytest().fixture(made["value"])

    return [make(k) for k in range(len(sets[0]) if sets else 0)]


def fixture(func: Callable[..., Any] | None = None, *, cache_return_value: bool = False) -> Any:
    """A fixture of tests; `cache_return_value` makes its value once a session."""
    scope = "session" if cache_return_value else "function"
    return _pytest().fixture(func) if func is not None else _pytest().fixture(scope=scope)


def requires_package(*packages: str) -> Any:
    """Skip the test unless all these packages are installed."""
    missing = [p for p in packages if find_spec(p) is None]
    return _pytest().mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def skip_if_32bit(reason: str = "needs a 64-bit machine") -> Any:
    """Skip the test on a 32-bit machine."""
    return _pytest().mark.skipif(sys.maxsize < 2**32, reason=reason)


def slow(func: Any) -> Any:
    """Mark a test that takes long: it runs with `-m slow`."""
    return _pytest().mark.slow(func)


def skip_if_wheel_test(func: Any) -> Any:
    """Mark a test that an installed wheel cannot run elsewhere; here every test can."""
    return func
