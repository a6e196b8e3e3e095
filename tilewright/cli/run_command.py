"""`tilewright run MODEL_OR_ARTIFACT`"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.cli.models import load, make_inputs, onnxruntime_session, relative_difference
from tilewright.cli.output import Output, fail, format_time

TOLERANCE = 1e-4


def run(args: Any, output: Output) -> int:
    """Run once, show the outputs, perhaps write and compare them."""
    is_model = Path(args.model).suffix not in (".tw", ".so", ".dylib", ".dll")
    if args.check and not is_model:
        fail("--check needs the model itself, not a compiled artifact")
    if args.output and Path(args.output).suffix != ".npz":
        fail(f"-o {args.output}: outputs are written as .npz")
    exe = load(args, output)
    inputs = make_inputs(exe.signature, args.input, dict(args.shape), args.seed)
    start = time.perf_counter()
    results = exe(**inputs)
    seconds = time.perf_counter() - start
    arrays = [np.asarray(r) for r in (results if isinstance(results, (tuple, list)) else [results])]
    names = [p.name for p in exe.signature.outputs]
    differences = _check(args, inputs, arrays) if args.check else None
    headers = ["output", "dtype", "shape", "min", "mean", "max"] + (["difference"] if differences else [])
    rows = [
        _row(name, a) + ([f"{differences[i]:.2e}"] if differences else [])
        for i, (name, a) in enumerate(zip(names, arrays, strict=True))
    ]
    output.table(headers, rows)
    output.say(f"ran in {format_time(seconds)}")
    if args.output:
        _save(args.output, dict(zip(names, arrays, strict=True)))
    output.result(
        {
            "seconds": seconds,
            "outputs": {n: list(a.shape) for n, a in zip(names, arrays, strict=True)},
            "differences": differences,
        }
    )
    if differences and max(differences) > TOLERANCE:
        output.error(f"the largest difference to {args.check}, {max(differences):.2e}, is above {TOLERANCE:.0e}")
        return 1
    return 0


def _row(name: str, a: Any) -> list[str]:
    shape = "x".join(map(str, a.shape)) or "scalar"
    if a.size == 0:
        return [name, str(a.dtype), shape, "-", "-", "-"]
    x = a.astype(np.float64)
    return [name, str(a.dtype), shape, f"{x.min():.6g}", f"{x.mean():.6g}", f"{x.max():.6g}"]


def _check(args: Any, inputs: dict[str, Any], arrays: list[Any]) -> list[float]:
    theirs = onnxruntime_session(args.model).run(None, inputs)
    return [relative_difference(a, b) for a, b in zip(arrays, theirs, strict=True)]


def _save(path: str, arrays: dict[str, Any]) -> None:
    """Write all outputs or nothing: a temporary file, then a rename."""
    folder = Path(path).resolve().parent
    handle, temporary = tempfile.mkstemp(suffix=".npz", dir=folder)
    os.close(handle)
    try:
        np.savez(temporary, **arrays)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
