"""`tilewright compile MODEL -o OUT`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.cli.models import compile_model
from tilewright.cli.output import Output, fail, format_bytes, format_time

SUFFIXES = (".tw", ".so", ".o", ".ll", ".dylib", ".dll")


def run(args: Any, output: Output) -> int:
    """Compile and write; the suffix of the output says what is written."""
    target = Path(args.output)
    if target.suffix not in SUFFIXES:
        fail(f"-o {args.output}: the suffix must be one of {', '.join(SUFFIXES)}")
    exe = compile_model(args, output)
    exe.export_library(str(target))
    size = target.stat().st_size
    stats = exe.stats
    output.say(
        f"{target}: {format_bytes(size)}, {stats['kernels']} kernels ({stats['kernels_cached']} from the cache), "
        f"compiled in {format_time(stats['compile_seconds'])}"
    )
    output.result({"output": str(target), "bytes": size, **stats})
    return 0
