"""The memory planner: nothing alive overlaps, and reuse comes near the lower bound."""

import random

import pytest

from tilewright.arith.expr import IntImm, SizeVar, const
from tilewright.ir.rewrite import substitute
from tilewright.relax.transform.plan_memory import ALIGN, Request, plan


def number(e):
    from tilewright.arith.analyzer import simplify

    e = simplify(e)
    assert isinstance(e, IntImm)
    return e.value


def check_disjoint(requests, values=()):
    placed = []
    for r in requests:
        offset, size = (number(substitute(x, dict(values))) for x in (r.offset, r.size))
        assert offset % ALIGN == 0
        placed.append((offset, offset + size, r))
    for i, (a0, a1, a) in enumerate(placed):
        for b0, b1, b in placed[:i]:
            if a.first <= b.last and b.first <= a.last and a.size is not b.size:
                assert a1 <= b0 or b1 <= a0, "two tensors that live at the same time overlap"
    return max((end for _, end, _ in placed), default=0)


@pytest.mark.parametrize("seed", range(20))
def test_constant_sizes(seed):
    rng = random.Random(seed)
    requests = []
    for step in range(40):
        requests.append(Request(const(rng.randrange(1, 5000), "int64"), step, step + rng.randrange(1, 6)))
    out = plan(requests)
    end = check_disjoint(requests)
    assert end <= out.size.value
    assert out.lower_bound <= out.size.value <= out.without_reuse
    assert out.size.value <= 1.5 * out.lower_bound


def test_a_chain_needs_two_buffers():
    requests = [Request(const(1024, "int64"), i, i + 1) for i in range(10)]
    assert plan(requests).size.value == 2048


@pytest.mark.parametrize("n", [1, 7, 100, 5000])
def test_symbolic_sizes(n):
    dim = SizeVar("n", "int64")
    requests = [Request(dim * (4 * (1 + i % 3)), i, i + 2) for i in range(12)] + [Request(const(100, "int64"), 0, 12)]
    out = plan(requests)
    value = {dim: const(n, "int64")}
    assert check_disjoint(requests, value.items()) <= number(substitute(out.size, value))
    assert out.lower_bound is None
