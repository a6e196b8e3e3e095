"""Every operator compiled to native code gives what its reference gives."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright.ops  # noqa: F401  (fills OPS)
from tilewright.relax import ir as R
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.op import OPS, Sample
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.values import convert, make_tuple

_path = Path(__file__).with_name("harness.py")
_spec = importlib.util.spec_from_file_location("ops_harness_native", _path)
assert _spec is not None
assert _spec.loader is not None
harness = importlib.util.module_from_spec(_spec)
sys.modules["ops_harness_native"] = harness
_spec.loader.exec_module(harness)

OPERATORS = sorted(
    name for name, cls in OPS.items() if cls.__module__.startswith("tilewright.ops") and name != "shape_of"
)


def module(samples: list[Sample]) -> tuple[Any, list[Any], list[int]]:
    """A module whose `main` has every sample as a result, the arrays it takes, how many results each sample has."""
    params: list[R.Var] = []
    arrays: list[Any] = []

    def operand(x: Any) -> Any:
        if isinstance(x, list) and x and harness.is_array(x[0]):
            return make_tuple([operand(v) for v in x])
        if not harness.is_array(x):
            return convert(x)
        params.append(R.Var(f"x{len(params)}", struct_info=TensorStructInfo(x.shape, str(x.dtype))))
        arrays.append(np.array(x))
        return params[-1]

    calls = [R.Call(s.op, tuple(operand(a) for a in s.args)) for s in samples]
    bb = BlockBuilder()
    counts: list[int] = []
    with bb.function("main", params):
        with bb.dataflow():
            outs: list[Any] = []
            for c in calls:
                v = bb.emit(c)
                fields = getattr(v.struct_info, "fields", None)
                parts = [v] if fields is None else [bb.emit(R.TupleGetItem(v, i)) for i in range(len(fields))]
                counts.append(len(parts))
                outs += [bb.emit_output(p) for p in parts]
        bb.emit_func_output(tuple(outs))
    return bb.get(), arrays, counts


@pytest.mark.parametrize("name", OPERATORS)
def test_native(name: str) -> None:
    check(OPS[name].samples()[:3])


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in OPERATORS if len(OPS[n].samples()) > 3])
def test_native_rest(name: str) -> None:
    check(OPS[name].samples()[3:])


def check(samples: list[Sample]) -> None:
    """One module of all samples, compiled and called once."""
    import tilewright as tw

    mod, arrays, counts = module(samples)
    exe = tw.compile(mod, cache=False)
    out = exe(*arrays)
    got = [np.asarray(o) for o in (out if isinstance(out, (tuple, list)) else [out])]
    at = 0
    for sample, n in zip(samples, counts):
        harness.assert_close(got[at : at + n], harness.expected(sample), sample)
        at += n
