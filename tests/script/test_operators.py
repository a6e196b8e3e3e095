"""Every operator prints and parses back, with its attributes; and so do the kernels it is lowered to."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.script.test_round_trip import check
from tilewright.relax import ir as rx
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.op import OPS
from tilewright.relax.values import convert, var
from tilewright.script import from_source
from tilewright.support.diagnostics import CompileError

import_module("tilewright.ops")


def operand(i: int, a: Any) -> Any:
    """What stands for a sample's operand in a function: a parameter for an array."""
    if isinstance(a, (np.ndarray, np.generic)):
        return var(f"x{i}", np.shape(a), str(np.asarray(a).dtype))
    if isinstance(a, (tuple, list)) and any(isinstance(v, np.ndarray) for v in a):
        return rx.Tuple(tuple(operand(f"{i}_{j}", v) for j, v in enumerate(a)))
    return convert(a)


@pytest.mark.parametrize("name", sorted(OPS))
def test_operator(name: str) -> None:
    for sample in OPS[name].samples()[:2]:
        args = [operand(i, a) for i, a in enumerate(sample.args)]
        params = [v for a in args for v in (a.fields if isinstance(a, rx.Tuple) else [a]) if isinstance(v, rx.Var)]
        bb = BlockBuilder()
        with bb.function("main", params):
            with bb.dataflow():
                bb.emit(rx.Call(sample.op, tuple(args)))
                out = bb.emit_output(sample.op.lower(bb, *args))
            bb.emit_func_output(out)
        check(bb.get())


def parse(*lines: str) -> Any:
    text = '@R.function\ndef f(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):\n'
    f = from_source(text + "".join(f"    {line}\n" for line in lines) + "    return z\n")
    return f.body.blocks[0].bindings[-1].value


def test_operands_and_attributes() -> None:
    assert parse("z = R.sum(x, 1, True)").op == OPS["sum"](axis=1, keepdims=True)
    assert parse("z = R.sum(x, keepdims=True, axis=[0, 1])").op == OPS["sum"](axis=(0, 1), keepdims=True)
    assert parse('z = R.astype(x, "float16")').op.dtype == "float16"
    assert parse("z = R.permute_dims(x, axes=[1, 0])").struct_info.shape[0].value == 3
    assert parse("z = R.reshape(x, (3, 2))").args[1].values[0].value == 3
    assert len(parse("z = R.concat((x, y), axis=0)").args[0].fields) == 2
    assert parse("z = R.concat([x, y], axis=-1)").struct_info.shape[1].value == 6
    nested = parse("z = R.multiply(R.add(x, y), R.nn.relu(x))")
    assert all(isinstance(a, rx.Var) for a in nested.args)


@pytest.mark.parametrize("line", ["z = R.sum(x, 1, axis=1)", "z = R.add(x, y, x)", "z = R.sum(x, axes=1)"])
def test_wrong_arguments(line: str) -> None:
    with pytest.raises(CompileError, match="TW0104"):
        parse(line)
