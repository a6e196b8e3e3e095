"""Every operator: documented, with samples, and its meaning in numpy."""

import pytest

import tilewright.ops  # noqa: F401  (fills OPS)
from tilewright.relax.op import OPS

CALLS = {"call_tir", "call_tir_inplace", "call_dps_packed", "call_packed", "call_pure_packed"}


@pytest.mark.parametrize("name", sorted(set(OPS) - CALLS))
def test_operator_is_complete(name):
    cls = OPS[name]
    assert cls.__doc__, f"{name} has no docstring"
    assert cls.samples(), f"{name} has no samples"
