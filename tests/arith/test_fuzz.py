"""Random expressions: simplifying keeps their meaning, comes to rest, and bounds, spacings and sets hold."""

import pytest

from tests.fuzz.arith import run


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions(seed):
    assert run(250, seed) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_random_expressions(seed):
    assert run(5000, seed) == []
