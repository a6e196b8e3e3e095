"""`tilewright bench MODEL`"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.cli.models import compile_model, make_inputs, onnxruntime_session
from tilewright.cli.output import Output, format_bytes, format_time

WARM_UP = 2


PAUSE = 0.02


def interleave(runs: dict[str, Callable[[], Any]], seconds: float, least: int = 5) -> dict[str, list[float]]:
    """Times of each run, taken in turn so that whatever else the machine does hits all alike.

    With several runs there is a pause before each: the threads of the one before go on spinning for a while in case there is
    more to do, and would take a core from the next.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for f in runs.values():
        for _ in range(WARM_UP):
            f()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < least:
        for name, f in runs.items():
            if len(runs) > 1:
                time.sleep(PAUSE)
            start = time.perf_counter()
            f()
            times[name].append(time.perf_counter() - start)
    return times


def peak_memory() -> int:
    """The most memory this process has held, in bytes; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    import sys

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run(args: Any, output: Output) -> int:
    """Measure, interleaved with a peer if asked for."""
    exe = compile_model(args, output)
    memory = peak_memory()
    inputs = make_inputs(exe.signature, (), dict(args.shape), args.seed)
    runs: dict[str, Callable[[], Any]] = {"tilewright": lambda: exe(**inputs)}
    if args.against:
        from tilewright.runtime.threads import get_num_threads

        session = onnxruntime_session(args.model, args.threads or get_num_threads())
        runs[args.against] = lambda: session.run(None, inputs)
    times = interleave(runs, args.seconds)
    summary = {name: _summary(t) for name, t in times.items()}
    rows = [
        [n, *(format_time(s[k]) for k in ("median", "p10", "p90", "best")), str(s["runs"])] for n, s in summary.items()
    ]
    output.table(["", "median", "p10", "p90", "best", "runs"], rows)
    ratio = None
    if args.against:
        ratio = summary["tilewright"]["best"] / summary[args.against]["best"]
        output.say(f"time relative to {args.against} (best): {ratio:.2f}")
    stats = exe.stats
    output.say(
        f"compile {format_time(stats['compile_seconds'])}, {stats['kernels']} kernels ({stats['kernels_cached']} from the cache); "
        f"peak memory {format_bytes(memory)} after compiling, {format_bytes(peak_memory())} in all"
    )
    output.result({"times": summary, "ratio": ratio, "peak_memory": peak_memory(), **stats})
    return 0


def _summary(times: list[float]) -> dict[str, Any]:
    t = np.asarray(times)
    p10, median, p90 = np.percentile(t, [10, 50, 90])
    return {"median": float(median), "p10": float(p10), "p90": float(p90), "best": float(t.min()), "runs": len(times)}
