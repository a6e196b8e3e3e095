"""What is paid beside the kernels: importing, compiling, calling.

    python -m benchmarks.overheads

Prints a markdown table and puts it on docs/benchmarks.md. `call`: a function of three tensors of one element, beside an empty loop around the same call of a Python function.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.page import provenance, write

ROOT = Path(__file__).resolve().parents[1]


def import_seconds(module: str) -> float:
    """The best of ten fresh processes."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        for _ in range(10)
    ]
    return min(float(r.stdout) for r in runs)


def call_seconds() -> tuple[float, float]:
    """(tensors of the FFI, numpy arrays): one call of a compiled function of three one-element tensors; best of many."""
    import tvm_ffi

    import tilewright as tw
    from tilewright import te

    a, b = te.placeholder((1,), name="a"), te.placeholder((1,), name="b")
    c = te.compute((1,), lambda i: a[i] + b[i], name="c")
    function = tw.build(te.create_prim_func([a, b, c]), name="add")["add"]
    arrays = [np.ones(1, np.float32) for _ in range(3)]
    tensors = [tvm_ffi.from_dlpack(x) for x in arrays]
    raw = getattr(function, "raw", function)

    def best(args: list[object]) -> float:
        x, y, z = args
        times: list[float] = []
        for _ in range(200):
            start = time.perf_counter()
            for _ in range(1000):
                raw(x, y, z)
            times.append((time.perf_counter() - start) / 1000)
        return min(times)

    return best(list(tensors)), best(list(arrays))


def compile_seconds(name: str = "resnet50") -> tuple[float, float, float]:
    """(nothing cached, all kernels cached, the same again in that process) for a model of the pool, in fresh processes."""
    code = (
        "import sys, time\n"
        "from tests.models.zoo import BY_NAME\n"
        f"model = BY_NAME[{name!r}].load()\n"
        "import tilewright as tw\n"
        "for _ in range(2):\n"
        "    t = time.perf_counter(); tw.compile(model); print(time.perf_counter() - t)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        # as an installed package is: with bytecode, which pip writes and which a checkout may lack
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env.update(TILEWRIGHT_CACHE_DIR=f"{folder}/kernels", PYTHONPYCACHEPREFIX=f"{folder}/bytecode")
        warm_up = (
            "import tests.models.zoo, tilewright.driver.build, tilewright.frontend.onnx, tilewright.relax.transform"
        )
        subprocess.run([sys.executable, "-c", warm_up], check=True, cwd=ROOT, env=env)
        runs = [
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=env)
            for _ in range(2)
        ]
    for r in runs:
        if r.returncode:
            raise RuntimeError(r.stderr)
    first, again = runs[1].stdout.split()[-2:]
    return float(runs[0].stdout.split()[-2]), float(first), float(again)


def main() -> None:
    tensors, arrays = call_seconds()
    cold, cached, again = compile_seconds()
    rows = [
        ("`import tilewright`", f"{import_seconds('tilewright') * 1e3:.0f} ms"),
        ("calling a function of three tensors, kernel included, FFI tensors", f"{tensors * 1e6:.2f} us"),
        ("the same, numpy arrays", f"{arrays * 1e6:.2f} us"),
        ("compiling resnet50, nothing cached", f"{cold:.2f} s"),
        ("compiling resnet50, all kernels cached, in a new process (imports included)", f"{cached:.2f} s"),
        ("the same in a process that has compiled before", f"{again:.2f} s"),
    ]
    lines = [
        provenance("python -m benchmarks.overheads") + ".",
        "",
        "| what | measured |",
        "|---|---|",
        *(f"| {a} | {b} |" for a, b in rows),
    ]
    print("\n".join(lines))
    write("overheads", "Beside the kernels", "\n".join(lines))


if __name__ == "__main__":
    main()
