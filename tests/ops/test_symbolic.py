"""Every operator with symbolic dimensions: the lowered graph, evaluated, gives what the reference gives.

"data" makes the dimensions of the first tensor variables, one each; "all" those of every tensor, equal sizes one variable.
Where nothing proves that two have to be equal, the graph checks it when it runs.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright.ops  # noqa: F401  (fills OPS)
from tilewright.arith.expr import SizeVar
from tilewright.relax import ir as R
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.evaluate import evaluate
from tilewright.relax.op import OPS, Sample
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.transform.legalise import legalise
from tilewright.relax.values import convert, make_tuple
from tilewright.support.diagnostics import CompileError

_path = Path(__file__).with_name("harness.py")
_spec = importlib.util.spec_from_file_location("ops_harness_symbolic", _path)
assert _spec is not None
assert _spec.loader is not None
harness = importlib.util.module_from_spec(_spec)
sys.modules["ops_harness_symbolic"] = harness
_spec.loader.exec_module(harness)

OPERATORS = sorted(
    name for name, cls in OPS.items() if cls.__module__.startswith("tilewright.ops") and name != "shape_of"
)


class _Params:
    """Graph parameters for the tensors of a sample, with symbolic dimensions."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.symbols: dict[int, SizeVar] = {}
        self.count = 0
        self.params: list[R.Var] = []
        self.arrays: list[Any] = []

    def dim(self, n: int, first: bool) -> Any:
        if n <= 1 or (self.mode == "data" and not first):
            return n
        if self.mode == "data":
            self.count += 1
            return SizeVar(f"d{self.count}", "int64")
        return self.symbols.setdefault(n, SizeVar(f"n{n}", "int64"))

    def operand(self, x: Any) -> Any:
        if isinstance(x, list) and x and harness.is_array(x[0]):
            return make_tuple([self.operand(v) for v in x])
        if not harness.is_array(x):
            return convert(x)
        first = not self.params
        shape = tuple(self.dim(int(n), first) for n in x.shape)
        self.params.append(R.Var(f"x{len(self.params)}", struct_info=TensorStructInfo(shape, str(x.dtype))))
        self.arrays.append(np.array(x))
        return self.params[-1]


def run(sample: Sample, mode: str) -> list[np.ndarray]:
    p = _Params(mode)
    args = [p.operand(a) for a in sample.args]
    bb = BlockBuilder()
    with bb.function("main", p.params):
        with bb.dataflow():
            out = bb.emit_output(R.Call(sample.op, tuple(args)))
        bb.emit_func_output(out)
    out = evaluate(legalise(bb.get()), *p.arrays)
    return [np.asarray(o) for o in (out if isinstance(out, (tuple, list)) else [out])]


@pytest.mark.parametrize("mode", ["data", "all"])
@pytest.mark.parametrize("name", OPERATORS)
def test_symbolic(name: str, mode: str) -> None:
    limit = 1 if "3d" in name else 3 if mode == "all" else 6
    tensors = [s for s in OPS[name].samples() if any(harness.is_array(a) or isinstance(a, list) for a in s.args)]
    for sample in tensors[:limit]:
        try:
            got = run(sample, mode)
        except CompileError as e:
            # a size that has to be known, such as a kernel's; anything else is a fault
            if e.diagnostics[0].code == "TW0206" or (name == "split" and e.diagnostics[0].code == "TW0211"):
                continue
            raise
        harness.assert_close(got, harness.expected(sample), sample)
