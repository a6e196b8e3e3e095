"""Operators, unscheduled, on a GPU target: the default schedule gives what the interpreter gives."""

import numpy as np
import pytest

import tilewright.ops  # noqa: F401  (fills OPS)
from tilewright.arith.expr import Var
from tilewright.ir import dtype as dt
from tilewright.relax import ir as R
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.op import OPS
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.transform.legalise import legalise_ops
from tilewright.relax.values import convert, make_tuple
from tilewright.tir.interp import interpret
from tilewright.tir.ir import PrimFunc
from tilewright.tir.lower.device import lower_device
from tilewright.tir.lower.device.interpret import run_program

FEW = [
    "add", "matmul", "nn.adaptive_avg_pool2d", "nn.adaptive_max_pool2d", "nn.avg_pool2d", "nn.batch_norm", "nn.conv1d", "nn.conv2d",
    "nn.conv2d_transpose", "nn.conv3d", "nn.layer_norm", "nn.log_softmax", "nn.max_pool2d", "nn.softmax", "argmax", "concat",
    "cumsum", "gather_elements", "max", "mean", "strided_slice", "take", "topk", "where",
]  # fmt: skip
OPERATORS = sorted(n for n, c in OPS.items() if c.__module__.startswith("tilewright.ops") and n != "shape_of")


def is_array(x):
    return hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, R.Expr)


def kernels(name):
    """The loop programs of an operator's first samples."""
    for sample in OPS[name].samples()[:2]:
        params = []

        def operand(x):
            if isinstance(x, list) and x and is_array(x[0]):
                return make_tuple([operand(v) for v in x])
            if not is_array(x):
                return convert(x)
            params.append(R.Var(f"x{len(params)}", struct_info=TensorStructInfo(x.shape, str(x.dtype))))
            return params[-1]

        call = R.Call(sample.op, tuple(operand(a) for a in sample.args))
        bb = BlockBuilder()
        with bb.function("main", params):
            with bb.dataflow():
                out = bb.emit_output(bb.emit(call))
            bb.emit_func_output(out)
        mod = legalise_ops()(bb.get())
        for var, f in mod.functions.items():
            constant = isinstance(f, PrimFunc) and all(p in f.buffer_map for p in f.params)
            if constant and not any(isinstance(n, Var) for b in f.param_buffers for n in b.shape):
                yield f.with_attr("global_symbol", var.name_hint)


def arrays(f):
    rng = np.random.default_rng(0)
    for b in f.param_buffers:
        shape = tuple(n.value for n in b.shape)
        if dt.is_float(b.dtype):
            yield rng.random(shape).astype(dt.to_numpy(b.dtype))
        else:
            yield rng.integers(0, 2, shape).astype(dt.to_numpy(b.dtype))


def check(name, target):
    for f in kernels(name):
        given = list(arrays(f))
        if sum(a.size for a in given) > 6000:
            continue
        want, got = [a.copy() for a in given], [a.copy() for a in given]
        try:
            interpret(f, *want)
        except (ZeroDivisionError, IndexError):  # not for such numbers
            continue
        run_program(lower_device(f, target), *got)
        for g, w in zip(got, want, strict=True):
            rough = "16" in str(g.dtype)
            np.testing.assert_allclose(
                g.astype("float64"), w.astype("float64"), rtol=2e-3 if rough else 1e-4, atol=1e-5, err_msg=name
            )  # fmt: skip


@pytest.mark.parametrize("name", [n for n in FEW if n in OPS])
def test_operator(name):
    check(name, "opencl")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["opencl", "cuda"])
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator(name, target):
    check(name, target)
