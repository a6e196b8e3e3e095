"""The model pool beside onnxruntime: latency at one and more threads, cold and cached compilation.

    python -m benchmarks.models [--threads 1,2] [--models resnet50,...] [--seconds 2] [--no-write]

Both run in this process by turns, so that a busy machine disturbs both alike, with a pause before each run, since the
threads of the other go on spinning for a while; the ratio is of the medians, with that of
the minima beside it. Models with dynamic shapes are compiled once for all shapes and timed on one (`SIZES`). The table goes to
 docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.page import provenance, write
from tests.models.zoo import BY_NAME, POOL, Inputs, Model, difference, page, session
from tilewright.cli.bench_command import interleave


def tokens(length: int, masked: bool = True) -> Inputs:
    """A batch of one sequence."""
    ids = np.random.default_rng(0).integers(0, 30522, (1, length))
    ones = np.ones((1, length), np.int64)
    return {"input_ids": ids, "attention_mask": ones, "token_type_ids": 0 * ones} if masked else {"input_ids": ids}


def decode_step(cached: int) -> Inputs:
    """One token after `cached` others."""
    past = np.random.default_rng(0).standard_normal((12, 2, 1, 12, cached, 64), dtype=np.float32)
    return {**tokens(1, masked=False), "past": past}


SIZES: dict[str, Callable[[], Inputs]] = {
    "ppocr-v4-det": lambda: {"x": page(1, 3, 480, 480)},
    "ppocr-v6-det": lambda: {"x": page(1, 3, 480, 480)},
    "ppocr-v4-rec": lambda: {"x": page(1, 3, 48, 320)},
    "ppocr-v6-rec": lambda: {"x": page(1, 3, 48, 320)},
    "minilm": lambda: tokens(128),
    "bert": lambda: tokens(128),
    "gpt2-prefill": lambda: tokens(64, masked=False),
    "gpt2-decode": lambda: decode_step(64),
}
"""What dynamic models are timed on; the others on their first case."""


def measure(model: Model, threads: list[int], seconds: float) -> dict[str, Any]:
    """One model's row."""
    import tilewright as tw

    path = model.load()
    row: dict[str, Any] = {"model": model.name, "threads": {}}
    for kind in ("cold", "cached"):
        exe: Any = None  # the one before it need not live any longer
        begin = time.perf_counter()
        exe = tw.compile(path, shapes=model.shapes or None)
        row[kind] = time.perf_counter() - begin
    case = SIZES[model.name]() if model.name in SIZES else model.cases()[0]
    want = session(path).run(None, case)
    got = exe(**case)
    outputs = list(got) if isinstance(got, (tuple, list)) else [got]
    row["difference"] = max(difference(np.asarray(g), w) for g, w in zip(outputs, want))
    for count in threads:
        tw.set_num_threads(count)
        other = session(path, count)
        runs = {"ours": lambda: exe(**case), "theirs": lambda other=other: other.run(None, case)}
        ours, theirs = interleave(runs, seconds).values()
        row["threads"][count] = (statistics.median(ours), min(ours), statistics.median(theirs), min(theirs))
    return row


def cells(row: dict[str, Any], threads: list[int]) -> list[str]:
    """A row of the table as text."""
    out = [row["model"], f"{row['cold']:.1f} / {row['cached']:.1f}", f"{row['difference']:.0e}"]
    for count in threads:
        ours, ours_min, theirs, theirs_min = row["threads"][count]
        out += [f"{ours * 1e3:.2f} ({ours_min * 1e3:.2f})", f"{theirs * 1e3:.2f} ({theirs_min * 1e3:.2f})",
                f"**{ours / theirs:.2f}** ({ours_min / theirs_min:.2f})"]  # fmt: skip
    return out


def table(rows: list[dict[str, Any]], threads: list[int], command: str) -> str:
    """The markdown table with how it was made."""
    import onnxruntime

    head = ["model", "compile s, cold / cached", "difference"]
    for n in threads:
        head += [f"tilewright ms, {n} thread{'s' * (n > 1)}", "onnxruntime ms", "ratio"]
    lines = [
        f"{provenance(command)}, onnxruntime {onnxruntime.__version__}. Medians, in brackets minima; a ratio "
        "above 1 means slower than onnxruntime. Cold: with an empty kernel cache. `difference` is the largest, relative to the output's scale.",
        "",
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
        *("| " + " | ".join(cells(r, threads)) + " |" for r in rows),
    ]
    return "\n".join(lines)


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
    cache = tempfile.TemporaryDirectory()
    os.environ["TILEWRIGHT_CACHE_DIR"] = cache.name  # empty: the first compilation is a cold one
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
        write("models", "Models beside onnxruntime", text)
    cache.cleanup()


if __name__ == "__main__":
    main()
