"""`tilewright inspect MODEL`"""

from __future__ import annotations

from typing import Any

from tilewright.cli.models import compile_model
from tilewright.cli.output import Output, format_bytes
from tilewright.support.diagnostics import CompileError


def run(args: Any, output: Output) -> int:
    """What the model is made of; then, if it can be compiled, the memory its activations take."""
    from tilewright.frontend.onnx import inspect_model

    report = inspect_model(args.model, shape_dict=dict(args.shape))
    for kind in ("inputs", "outputs"):
        output.table(
            [kind[:-1], "dtype", "shape"],
            [[p["name"], p["dtype"], "x".join(map(str, p["shape"]))] for p in report[kind]],
        )
        output.say()
    rows = [[op["op"], op["count"], "yes" if op["supported"] else "NO"] for op in report["operators"]]
    output.table(["operator", "count", "supported"], rows)
    output.say()
    output.say(
        f"opset {report['opset']}, {report['parameters']:,} parameters ({format_bytes(report['parameter_bytes'])})"
    )
    if report.get("flops") is not None:
        output.say(
            f"{report['flops'] / 1e9:.3f} GFLOP"
            + (" (unknown dimensions counted as 1)" if report.get("flops_partial") else "")
        )
    unsupported = [op["op"] for op in report["operators"] if not op["supported"]]
    if unsupported:
        output.result(report)
        output.error(f"not supported: {', '.join(unsupported)}")
        return 1
    memory = _memory(args, output)
    output.result({**report, "memory": memory})
    return 0


def _memory(args: Any, output: Output) -> dict[str, Any] | None:
    try:
        stats = compile_model(args, output).stats
    except CompileError as error:
        output.note(f"the memory plan needs a compilation, which failed:\n{error}")
        return None
    memory = {k: stats.get(k) for k in ("arena_bytes", "arena_lower_bound", "arena_without_reuse")}
    if memory["arena_lower_bound"] is None:
        output.say("activation memory: depends on the dimensions of the inputs; --shape NAME=1,3,224,224 fixes them")
    else:
        planned, bound, total = (
            int(memory[k] or 0) for k in ("arena_bytes", "arena_lower_bound", "arena_without_reuse")
        )
        output.say(
            f"activation memory: {format_bytes(planned)} planned; {format_bytes(bound)} lower bound from liveness; "
            f"{format_bytes(total)} without reuse"
        )
    return memory
