"""Measuring compiled functions: `time_evaluator` and its result."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["BenchmarkResult", "evaluator"]


@dataclass(frozen=True)
class BenchmarkResult:
    """Times of one call in seconds, one entry a repeat (each the mean of its runs)."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the repeats."""
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        """The median of the repeats."""
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        """The fastest repeat."""
        return min(self.results)

    @property
    def max(self) -> float:
        """The slowest repeat."""
        return max(self.results)

    @property
    def std(self) -> float:
        """The standard deviation of the repeats."""
        return statistics.pstdev(self.results)

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        head = "  ".join(f"{n + ' (ms)':>12}" for n in names)
        row = "  ".join(f"{getattr(self, n) * 1e3:12.4f}" for n in names)
        return f"Execution time summary:\n{head}\n{row}"


def _flush(bytes_: int) -> Callable[[], None]:
    if not bytes_:
        return lambda: None
    import numpy as np

    memory = np.zeros(bytes_, np.uint8)

    def flush() -> None:
        memory[::64] += 1

    return flush


def evaluator(
    function: Callable[..., Any],
    *,
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: float = 0,
    cooldown_interval_ms: float = 0,
    repeats_to_cooldown: int = 1,
    cache_flush_bytes: int = 0,
    sync: Callable[[], Any] | None = None,
) -> Callable[..., BenchmarkResult]:
    """A function that runs `function(*args)` once to warm up and then measures it: `repeat` times the mean of `number`
    runs, where `number` is raised until a repeat lasts `min_repeat_ms`. `sync` waits for a device; it is part of what is measured. Raises ValueError for counts below 1."""
    if number < 1 or repeat < 1:
        raise ValueError(f"number and repeat must be at least 1, got {number} and {repeat}")

    def once(args: Sequence[Any], count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            function(*args)
        if sync is not None:
            sync()
        return time.perf_counter() - begin

    def run(*args: Any) -> BenchmarkResult:
        function(*args)
        if sync is not None:
            sync()
        count = number
        flush = _flush(cache_flush_bytes)
        results: list[float] = []
        for r in range(repeat):
            if cooldown_interval_ms and r and r % repeats_to_cooldown == 0:
                time.sleep(cooldown_interval_ms / 1e3)
            while True:
                flush()
                seconds = once(args, count)
                if seconds * 1e3 >= min_repeat_ms:
                    break
                count = max(count + 1, int(count * min(10.0, 1.2 * min_repeat_ms / max(seconds * 1e3, 1e-6))))
            results.append(seconds / count)
        return BenchmarkResult(tuple(results))

    return run
