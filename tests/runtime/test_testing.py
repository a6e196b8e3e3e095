"""The helpers of tests: comparison, parameters."""

import numpy as np
import pytest

import tilewright as tvm
import tilewright.testing as tt
from tilewright.script import tir as T

n = tt.parameter(1, 2)
low, high = tt.parameters((1, 2), (3, 4))


def test_parameter(n):
    assert n in (1, 2)


def test_parameters_go_together(low, high):
    assert high == low + 1


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


class TestComparesPrograms(tt.CompareBeforeAfter):
    transform = tvm.tir.transform.Simplify()

    def before(A: T.Buffer((8,), "int32")):
        for i in range(8):
            A[i] = i * 1 + 0

    def expected(A: T.Buffer((8,), "int32")):
        for i in range(8):
            A[i] = i


class TestComparesWithFixtures(tt.CompareBeforeAfter):
    count = tt.parameter(3, 5)

    def transform(self):
        return tvm.tir.transform.Simplify()

    def before(self, count):
        @T.prim_func
        def func(A: T.Buffer((8,), "int32")):
            A[0] = count + 1

        return func

    def expected(self, count):
        @T.prim_func
        def func(A: T.Buffer((8,), "int32")):
            A[0] = T.int32(count + 1)

        return func


def test_a_difference_is_an_error():
    class Different(tt.CompareBeforeAfter):
        pass

    @T.prim_func
    def one(A: T.Buffer((8,), "int32")):
        A[0] = 1

    @T.prim_func
    def two(A: T.Buffer((8,), "int32")):
        A[0] = 2

    with pytest.raises(ValueError, match="differ"):
        Different().test_compare(tvm.tir.transform.Simplify(), one, two)
    with pytest.raises(AssertionError, match="did not raise"):
        Different().test_compare(tvm.tir.transform.Simplify(), one, ValueError)


def test_expressions_that_hold():
    x = tvm.tir.Var("x", "int32")
    domain = {x: tvm.ir.Range.from_min_extent(0, 9)}
    tt.check_bool_expr_is_true(x * x >= x, domain)
    tt.assert_prim_expr_equal(x + x, x * 2)
    with pytest.raises(AssertionError, match="x=0"):
        tt.check_bool_expr_is_true(x > 0, domain)
    with pytest.raises(AssertionError, match="not equal"):
        tt.assert_prim_expr_equal(x + 1, x)


def test_gradients_against_differences():
    x = np.array([0.5, -1.0, 2.0])
    tt.check_numerical_grads(lambda x: x**3, [x], [3 * x**2])
    with pytest.raises(AssertionError, match="gradient of 0 is wrong"):
        tt.check_numerical_grads(lambda x: x**3, [x], [2 * x**2])
    with pytest.raises(AssertionError, match="shape"):
        tt.check_numerical_grads(lambda x: x, {"x": x}, {"x": x[:2]})
