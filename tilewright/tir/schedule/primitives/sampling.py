"""Primitives that choose at random: the decisions are recorded in the trace, so that a replay makes them again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tilewright.arith.expr import IntImm, Var
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import LoopRV, State

__all__ = ["sample_categorical", "sample_perfect_tile"]


@primitive
def sample_perfect_tile(
    s: State,
    loop: LoopRV,
    n: int,
    max_innermost_factor: int = 16,
    decision: Sequence[int] | None = None,
    *,
    rng: random.Random | None = None,
) -> list[Var]:
    """`n` factors whose product is the extent of the loop, the last one at most `max_innermost_factor`.

    Raises ScheduleError TW0441 for a loop whose extent is not a constant, or a decision that does not fit it.
    """
    node = s.loop(loop)
    if not isinstance(node.extent, IntImm):
        raise fail("TW0441", f"the extent of {loop.var.name!r} is not a constant", s.func(loop.func), node)
    extent = node.extent.value
    factors = list(decision) if decision is not None else _tile(extent, n, max_innermost_factor, rng or random.Random())
    product = 1
    for f in factors:
        product *= f
    if len(factors) != n or product != extent:
        raise fail("TW0441", f"{factors} are not {n} factors of {extent}", s.func(loop.func), node)
    out = [Var("v", "int32") for _ in factors]
    s.values.update(zip(out, factors, strict=True))
    return out


def _tile(extent: int, n: int, last: int, rng: random.Random) -> list[int]:
    out: list[int] = []
    rest = extent
    for i in range(n - 1):
        divisors = [d for d in range(1, rest + 1) if rest % d == 0 and (i or d <= last)]
        out.append(rng.choice(divisors))
        rest //= out[-1]
    return [rest, *out[::-1]]


@primitive
def sample_categorical(
    s: State,
    candidates: Sequence[int],
    probs: Sequence[float],
    decision: Any = None,
    *,
    rng: random.Random | None = None,
) -> Var:
    """One of the candidates, with the given probabilities. `decision` is the index of the one to take."""
    if len(candidates) != len(probs):
        raise fail("TW0441", f"{len(candidates)} candidates but {len(probs)} probabilities")
    if isinstance(decision, (list, tuple)):  # as the trace records it: the value
        index = list(candidates).index(decision[0])  # pyright: ignore[reportUnknownArgumentType]
    elif decision is not None:
        index = int(decision)
    else:
        index = (rng or random.Random()).choices(range(len(candidates)), probs)[0]
    out = Var("v", "int32")
    s.values[out] = int(candidates[index])
    return out
