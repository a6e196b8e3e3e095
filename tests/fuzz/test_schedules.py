"""The schedule fuzzer: a hundred sequences by default, two thousand in the long run."""

from __future__ import annotations

import pytest

from tests.fuzz.programs import PROGRAMS
from tests.fuzz.schedules import sequence

NAMES = list(PROGRAMS)


@pytest.mark.parametrize("seed", range(100))
def test_random_sequences_keep_the_meaning(seed: int) -> None:
    sequence(NAMES[seed % len(NAMES)], seed, native=seed % 3 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(10_000, 12_000, 100))
def test_more_random_sequences_keep_the_meaning(start: int) -> None:
    for seed in range(start, start + 100):
        sequence(NAMES[seed % len(NAMES)], seed, native=True)
