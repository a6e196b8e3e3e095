"""The helpers of tests: comparison, parameters."""

import numpy as np
import pytest

import tilewright.testing as tt

n = tt.parameter(1, 2)
low, high = tt.parameters((1, 2), (3, 4))
SEEN: list[tuple[int, int]] = []


def test_parameter(n):
    assert n in (1, 2)


def test_parameters_go_together(low, high):
    SEEN.append((low, high))
    assert high == low + 1


def test_parameters_were_no_cross_product():
    assert SEEN == [(1, 2), (3, 4)]


def test_assert_allclose_tolerances():
    tt.assert_allclose([1.0, 2.0], np.array([1.0, 2.0 + 1e-9]))
    with pytest.raises(AssertionError):
        tt.assert_allclose([1.0], [1.1])
    tt.assert_allclose([1.0], [1.1], rtol=0.2)


def test_assert_allclose_refuses_other_shapes():
    with pytest.raises(AssertionError, match=r"shapes differ: \(3,\) and \(1, 3\)"):
        tt.assert_allclose(np.ones(3), np.ones((1, 3)))


@tt.parametrize_targets("llvm", "cuda")
def test_targets(target, dev):
    assert target == "llvm"
    assert dev.device_type == 1


@tt.requires_package("no_such_package_here")
def test_skipped():
    raise AssertionError("must be skipped")
