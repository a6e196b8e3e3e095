"""The model pool beside onnxruntime: latency at one and more threads, cold and cached compilation.

    python -m benchmarks.models [--threads 1,2] [--models resnet50,...] [--seconds 2] [--no-write]

Both run in this process by turns, so that a busy machine disturbs both alike; the ratio is of the medians, with that of
the minima beside it. Models with dynamic shapes are compiled once for all shapes and timed on their first case. The table
goes to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.models.zoo import BY_NAME, POOL, Model, difference, session

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- models: begin -->", "<!-- models: end -->"


def interleave(functions: list[Callable[[], Any]], seconds: float) -> list[list[float]]:
    """Run times of each function, called in turns for about this long in all (at least 5 calls of each)."""
    times: list[list[float]] = [[] for _ in functions]
    for f in functions:
        f()
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times[0]) < 5:
        for f, t in zip(functions, times):
            begin = time.perf_counter()
            f()
            t.append(time.perf_counter() - begin)
    return times


def measure(model: Model, threads: list[int], seconds: float) -> dict[str, Any]:
    """One model's row."""
    import numpy as np

    import tilewright as tw

    path = model.load()
    begin = time.perf_counter()
    exe = tw.compile(path, shapes=model.shapes or None)
    row: dict[str, Any] = {"model": model.name, "compile": time.perf_counter() - begin, "threads": {}}
    case = model.cases()[0]
    want = session(path).run(None, case)
    got = exe(**case)
    outputs = list(got) if isinstance(got, (tuple, list)) else [got]
    row["difference"] = max(difference(np.asarray(g), w) for g, w in zip(outputs, want))
    for count in threads:
        tw.set_num_threads(count)
        other = session(path, count)
        ours, theirs = interleave([lambda: exe(**case), lambda other=other: other.run(None, case)], seconds)
        row["threads"][count] = (statistics.median(ours), min(ours), statistics.median(theirs), min(theirs))
    return row


def cells(row: dict[str, Any], threads: list[int]) -> list[str]:
    """A row of the table as text."""
    out = [row["model"], f"{row['compile']:.1f}", f"{row['difference']:.0e}"]
    for count in threads:
        ours, ours_min, theirs, theirs_min = row["threads"][count]
        out += [f"{ours * 1e3:.2f} ({ours_min * 1e3:.2f})", f"{theirs * 1e3:.2f} ({theirs_min * 1e3:.2f})",
                f"**{ours / theirs:.2f}** ({ours_min / theirs_min:.2f})"]  # fmt: skip
    return out


def table(rows: list[dict[str, Any]], threads: list[int], command: str) -> str:
    """The markdown table with how it was made."""
    import onnxruntime

    head = ["model", "compile s", "difference"]
    for n in threads:
        head += [f"tilewright ms, {n} thread{'s' * (n > 1)}", "onnxruntime ms", "ratio"]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()
    lines = [
        f"`{command}`, {datetime.date.today()}, commit {commit}, {processor()}, {os.cpu_count()} CPUs, "
        f"onnxruntime {onnxruntime.__version__}, Python {platform.python_version()}. Medians, in brackets minima; a ratio "
        "above 1 means slower than onnxruntime. `difference` is the largest, relative to the output's scale.",
        "",
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
        *("| " + " | ".join(cells(r, threads)) + " |" for r in rows),
    ]
    return "\n".join(lines)


def processor() -> str:
    """The name of the CPU."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def write(text: str) -> None:
    """Put the table between its marks in docs/benchmarks.md."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# Benchmarks\n"
    if BEGIN not in page:
        page = page.rstrip() + f"\n\n## Models beside onnxruntime\n\n{BEGIN}\n{END}\n"
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2", help="numbers of threads (1,2)")
    parser.add_argument("--models", default="", help="names, separated by commas (all)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a model is timed (2)")
    parser.add_argument("--no-write", action="store_true", help="only print the table")
    args = parser.parse_args()
    threads = [int(t) for t in args.threads.split(",")]
    chosen = [BY_NAME[n] for n in args.models.split(",")] if args.models else POOL
    rows: list[dict[str, Any]] = []
    for model in chosen:
        if model.missing():
            print(f"{model.name}: {model.missing()}", file=sys.stderr)
            continue
        try:
            rows.append(measure(model, threads, args.seconds))
            print(" | ".join(cells(rows[-1], threads)), file=sys.stderr, flush=True)
        except Exception as error:
            print(f"{model.name}: {str(error)[:500]}", file=sys.stderr, flush=True)
    text = table(rows, threads, "python -m benchmarks.models " + " ".join(sys.argv[1:]))
    print(text)
    if not args.no_write:
        write(text)


if __name__ == "__main__":
    main()
