"""Primitives that choose at random: the decisions are recorded in the trace, so that a replay makes them again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tilewright.arith.expr import IntImm, Var
from tilewright.tir.ir import IterVar
from tilewright.tir.schedule.errors import ScheduleError, fail
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.scope import loops_in_scope, scope_of
from tilewright.tir.schedule.state import BlockRV, LoopRV, State, iter_kinds

__all__ = ["sample_categorical", "sample_compute_location", "sample_partitioned_tile", "sample_perfect_tile"]


def _numbers(values: Any) -> list[int]:
    return [int(getattr(v, "value", v)) for v in values]


def _sampled(s: State, values: Sequence[int]) -> list[Var]:
    out = [Var("v", "int32") for _ in values]
    s.values.update(zip(out, values, strict=True))
    s.decision = list(values)
    return out


def _check_tile(s: State, loop: LoopRV, n: int, decision: Any) -> None:
    if n < 1:
        raise fail("TW0441", f"a loop is tiled into at least 1 part, not {n}", s.func(loop.func), s.loop(loop))
    if decision is not None and len(decision) != n:
        raise fail("TW0441", f"{list(decision)} are not {n} factors", s.func(loop.func), s.loop(loop))


@primitive(changes=False)
def sample_perfect_tile(
    s: State,
    loop: LoopRV,
    n: int,
    max_innermost_factor: int = 16,
    decision: Sequence[int] | None = None,
    *,
    rng: random.Random | None = None,
) -> list[Var]:
    """`n` factors whose product is the extent of the loop, the last one at most `max_innermost_factor` (-1: any).

    Every such list is as likely as any other. `decision` gives the factors; where one does not divide what is left of the
    loop (the loop may have changed since), it takes all of that. A loop whose extent is no constant gets -1 (to be
    inferred) and ones. Raises ScheduleError TW0441 for a decision of another length.
    """
    _check_tile(s, loop, n, decision)
    extent = s.loop(loop).extent
    if not isinstance(extent, IntImm):
        return _sampled(s, [-1, *[1] * (n - 1)])
    if decision is not None:
        return _sampled(s, _fitted(_numbers(decision), extent.value))
    return _sampled(s, _tile(extent.value, n, max_innermost_factor, rng or random.Random()))


def _fitted(factors: list[int], extent: int) -> list[int]:
    rest = extent
    for i in range(len(factors) - 1, 0, -1):
        if factors[i] < 1 or rest % factors[i]:
            factors[i] = rest
        rest //= factors[i]
    factors[0] = rest
    return factors


def _primes(n: int) -> list[int]:
    out: list[int] = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return [*out, n] if n > 1 else out


def _count(powers: Sequence[int], n: int) -> int:
    """How many ways there are to share out primes of these powers among `n` factors."""
    from math import comb

    total = 1
    for e in powers:
        total *= comb(e + n - 1, n - 1)
    return total


def _tile(extent: int, n: int, last: int, rng: random.Random) -> list[int]:
    """Factors drawn evenly: the innermost with the number of ways that the others then have, and so on."""
    out: list[int] = []
    rest = extent
    for left in range(n, 1, -1):
        primes = _primes(rest)
        table = {p: primes.count(p) for p in primes}
        divisors = [1]
        for p, e in table.items():
            divisors = [d * p**k for d in divisors for k in range(e + 1)]
        if left == n and last > 0:
            divisors = [d for d in divisors if d <= last]
        weights: list[int] = []
        for d in divisors:
            inner = _primes(d)
            weights.append(_count([e - inner.count(p) for p, e in table.items()], left - 1))
        out.append(rng.choices(divisors, weights)[0])
        rest //= out[-1]
    return [rest, *out[::-1]]


@primitive(changes=False)
def sample_partitioned_tile(
    s: State,
    loop: LoopRV,
    n: int,
    partition_pos: int = 0,
    innerpart_factor: int = 1,
    decision: Sequence[int] | None = None,
    *,
    rng: random.Random | None = None,
) -> list[Var]:
    """`n` factors whose product is the extent of the loop; those from `partition_pos` on multiply to a multiple of
    `innerpart_factor`.

    Where the extent is no multiple of it, the innermost part takes all of the loop. Raises ScheduleError TW0441 where
    `partition_pos` is no place among the factors, or for a decision of another length.
    """
    _check_tile(s, loop, n, decision)
    if not 0 <= partition_pos < n:
        raise fail(
            "TW0441",
            f"partition_pos must be in [0, {n - 1}], got {partition_pos}",
            s.func(loop.func),
            s.loop(loop),
        )
    extent = s.loop(loop).extent
    if not isinstance(extent, IntImm):
        return _sampled(s, [-1, *[1] * (n - 1)])
    size = extent.value
    if decision is not None:
        factors = _fitted(_numbers(decision), size)
        inner = 1
        for f in factors[partition_pos:]:
            inner *= f
        if size % innerpart_factor == 0 and inner % innerpart_factor == 0:
            return _sampled(s, factors)
    if size % innerpart_factor:
        return _sampled(s, [*[1] * (n - 1), size])
    factors = _tile(size // innerpart_factor, n, -1, rng or random.Random())
    shares = _tile(innerpart_factor, n - partition_pos, -1, rng or random.Random())
    for i, f in enumerate(shares):
        factors[partition_pos + i] *= f
    return _sampled(s, factors)


@primitive(changes=False)
def sample_categorical(
    s: State,
    candidates: Sequence[int],
    probs: Sequence[float],
    decision: int | None = None,
    *,
    rng: random.Random | None = None,
) -> Var:
    """One of the candidates, with the given probabilities. `decision` is the index of the one to take.

    Raises ScheduleError TW0441 where the lists differ in length, or the decision is no index of them.
    """
    if len(candidates) != len(probs) or not candidates:
        raise fail("TW0441", f"{len(candidates)} candidates but {len(probs)} probabilities")
    if decision is None:
        index = (rng or random.Random()).choices(range(len(candidates)), [float(p) for p in probs])[0]
    else:
        index = int(decision)
        if not 0 <= index < len(candidates):
            raise fail("TW0441", f"the decision {index} is none of the {len(candidates)} candidates")
    out = Var("v", "int32")
    s.values[out] = _numbers([candidates[index]])[0]
    s.decision = index
    return out


# ---- where to compute ------------------------------------------------------------------------------------------------


@primitive(changes=False)
def sample_compute_location(
    s: State, block: BlockRV, decision: int | None = None, *, rng: random.Random | None = None
) -> LoopRV:
    """A place to compute a producer: a loop of its first consumer at which `compute_at` is legal, or outside of all loops
    (decision -1), or inline where it is used (-2, where that is legal).

    Compute_at and the like take the result as any loop; with -1 and -2 they do what the decision says. A decision that is
    legal no more becomes the nearest legal one outside it.
    """
    places = _places(s, block)
    if decision is None:
        index = (rng or random.Random()).choice([i for i, _ in places])
    else:
        wanted = int(getattr(decision, "value", decision))
        legal = [i for i, _ in places]
        index = wanted if wanted in legal else max(i for i in legal if i < wanted or i == -1)
    s.decision = index
    return next(rv for i, rv in places if i == index)


def _places(s: State, block: BlockRV) -> list[tuple[int, LoopRV]]:
    """The legal places with the numbers that decisions have: of the loops around the first consumer, or -1, -2."""
    from tilewright.tir.schedule.primitives.compute_at import compute_at
    from tilewright.tir.schedule.primitives.inline import compute_inline

    key = (s.func(block.func).body, s.block(block))
    if s.places is not None and s.places[0] is key[0] and s.places[1] is key[1]:
        return s.places[2]

    def legal(step: Any, *args: Any) -> bool:
        try:
            step(s.copy(), *args)
        except ScheduleError:
            return False
        return True

    out = [(-2, LoopRV(INLINE, block.func))] if legal(compute_inline, block) else []
    out.append((-1, LoopRV(ROOT, block.func)))
    users = scope_of(s, block).consumers(s.block(block))
    if users:
        paths = [s.path_to(block.func, u) for u in users]
        around = loops_in_scope(paths[0])
        common = [p for p in around if all(any(p is x for x in other) for other in paths)]
        reduced = False
        for i, p in enumerate(common):
            kinds: set[int] = set()
            for u in users:
                kinds |= iter_kinds(u, p.loop_var)
            if isinstance(p.extent, IntImm) and p.extent.value == 1:
                continue
            if IterVar.CommReduce in kinds:
                reduced = True
            elif reduced:
                break
            rv = LoopRV(p.loop_var, block.func)
            if legal(compute_at, block, rv, True):
                out.append((i, rv))
    s.places = (*key, out)
    return out


INLINE, ROOT = Var("inline_mark", "int32"), Var("root_mark", "int32")
"""The variables of the loops that stand for "inline" and "outside of all loops"."""
