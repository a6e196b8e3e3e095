"""Every operator, every sample: inference and the tensor expression agree with the numpy reference."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright.ops  # noqa: F401  (fills OPS)
from tilewright.relax.op import OPS, Op

_path = Path(__file__).with_name("harness.py")
_spec = importlib.util.spec_from_file_location("ops_harness", _path)
assert _spec is not None
assert _spec.loader is not None
harness = importlib.util.module_from_spec(_spec)
sys.modules["ops_harness"] = harness
_spec.loader.exec_module(harness)


def _graph_only(cls: type[Op]) -> bool:
    """Calls of functions (call_tir and its kin) have no meaning of their own."""
    return not cls.__module__.startswith("tilewright.ops")


OPERATORS = sorted(name for name, cls in OPS.items() if not _graph_only(cls))


def _cases(name: str) -> list[Any]:
    return OPS[name].samples()


@pytest.mark.parametrize("name", OPERATORS)
def test_has_samples(name: str) -> None:
    assert _cases(name), f"{name} has no samples"
    assert OPS[name].__doc__, f"{name} does not say what it is"


@pytest.mark.parametrize("name", OPERATORS)
def test_infer(name: str) -> None:
    for sample in _cases(name):
        harness.check_info(harness.infer(sample), harness.expected(sample))


@pytest.mark.parametrize("name", OPERATORS)
def test_compute(name: str) -> None:
    for sample in _cases(name):
        harness.assert_close(harness.compute(sample), harness.expected(sample), sample)


@pytest.mark.parametrize("name", OPERATORS)
def test_loops(name: str) -> None:
    for sample in _cases(name):
        harness.assert_close(harness.compute(sample, "interp"), harness.expected(sample), sample)
