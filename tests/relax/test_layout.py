"""Folding into weights, channels-last layout, packed weights, views, norms: structure and meaning."""

from __future__ import annotations

import numpy as np
import pytest

from tests.relax.graphs import array, function, names, op, same, symbol, tensor, weights
from tilewright.ir.target import Target
from tilewright.relax import ir as R
from tilewright.relax.rewrite import all_bindings
from tilewright.relax.transform.canonicalise_bindings import canonicalise_bindings
from tilewright.relax.transform.cse import cse
from tilewright.relax.transform.dead_code import dead_code
from tilewright.relax.transform.fold_constant import fold_constant
from tilewright.relax.transform.fold_scale import decompose_batch_norm, fold_scale
from tilewright.relax.transform.layout import layout_pass, pack_conv_weight, vector_block
from tilewright.relax.transform.pack_weights import pack_matmul_weight, pack_weights_pass
from tilewright.relax.transform.raise_norms import raise_norms
from tilewright.relax.transform.simplify_views import simplify_views
from tilewright.relax.transform.split_columns import sink_into_concat, split_columns
from tilewright.relax.values import const


def run(mod, *passes):
    for p in (*passes, simplify_views, canonicalise_bindings, dead_code):
        mod = p(mod)
    return mod


def layout(mod):
    return run(mod, canonicalise_bindings, layout_pass())


def test_packing():
    w = array(0, 5, 3, 2, 2)
    p = pack_conv_weight(w, 4)
    assert p.shape == (2, 2, 2, 3, 4)
    assert p[1, 1, 0, 2, 0] == w[4, 2, 1, 0]
    assert not p[1, ..., 1:].any()
    b = array(1, 3, 6)
    q = pack_matmul_weight(b, 4)
    assert q.shape == (2, 3, 4)
    assert q[1, 2, 1] == b[2, 5]
    assert not q[1, :, 2:].any()
    assert vector_block(Target("llvm -mcpu=x86-64 -mattr=+avx2,+fma")) == 16


def test_batch_norm_folds_into_convolution():
    x = tensor("x", 1, 4, 5, 5)
    params = [const(np.abs(array(i, 8)) + 0.5) for i in range(4)]

    def build(bb):
        y = bb.emit(op("nn.conv2d", x, weights(0, 8, 4, 3, 3)))
        y = bb.emit(op("add", y, weights(1, 1, 8, 1, 1)))
        y = bb.emit(R.TupleGetItem(bb.emit(op("nn.batch_norm", y, *params)), 0))
        return op("nn.relu", y)

    mod = function([x], build)
    new = run(mod, decompose_batch_norm, dead_code, fold_scale)
    assert names(new) == ["nn.conv2d", "add", "nn.relu"]
    same(mod, new, array(7, 1, 4, 5, 5))


def test_scale_of_a_value_used_twice_stays():
    x = tensor("x", 2, 4)

    def build(bb):
        y = bb.emit(op("matmul", x, weights(0, 4, 3)))
        return bb.emit(op("multiply", y, weights(1, 3))), bb.emit(op("exp", y))

    mod = function([x], build)
    new = run(mod, fold_scale)
    assert names(new) == ["matmul", "multiply", "exp"]
    same(mod, new, array(3, 2, 4))


@pytest.mark.parametrize("divisor", [2.0, 3.0])
def test_division(divisor):
    x = tensor("x", 2, 4)
    mod = function([x], lambda bb: op("divide", op("exp", x), const(divisor)))
    new = run(mod, fold_scale)
    assert names(new) == ["exp", "multiply" if divisor == 2.0 else "divide"]
    same(mod, new, array(3, 2, 4))
    into = run(function([x], lambda bb: op("divide", op("matmul", x, weights(0, 4, 3)), const(divisor))), fold_scale)
    assert names(into) == ["matmul"]


def test_region_has_transpositions_at_its_borders_only():
    h, w = symbol("h"), symbol("w")
    x = tensor("x", 1, 8, h, w)

    def build(bb):
        y = bb.emit(
            op("nn.relu", op("add", op("nn.conv2d", x, weights(0, 8, 8, 3, 3), padding=1), weights(1, 8, 1, 1)))
        )
        z = bb.emit(op("nn.conv2d", y, weights(2, 8, 1, 3, 3), padding=1, groups=8))
        s = bb.emit(op("sigmoid", op("mean", z, axis=(2, 3), keepdims=True)))
        z = bb.emit(op("nn.max_pool2d", op("multiply", op("add", y, z), s), pool_size=2, strides=2))
        return op("nn.softmax", op("concat", R.Tuple((z, z)), axis=1), axis=1)

    mod = function([x], build)
    new = layout(mod)
    assert names(new).count("permute_dims") == 2
    assert names(new)[0] == names(new)[-1] == "permute_dims"
    same(mod, new, array(0, 1, 8, 6, 4))
    ops = {b.value.op.name: b.value.op for b in all_bindings(new["main"])}
    assert ops["nn.max_pool2d"].layout == "NHWC"
    assert ops["concat"].axis == ops["nn.softmax"].axis == 3
    assert ops["mean"].axis == (1, 2)


def test_pooled_end_needs_no_transposition():
    x = tensor("x", 1, 1, 8, 6)

    def build(bb):
        y = bb.emit(op("nn.conv2d", x, weights(0, 8, 1, 3, 3), padding=1))
        y = bb.emit(op("mean", y, axis=(2, 3), keepdims=True))
        y = bb.emit(op("squeeze", y, axis=(2, 3)))
        return op("matmul", y, weights(1, 8, 3))

    mod = function([x], build)
    new = layout(mod)
    assert "permute_dims" not in names(new)
    same(mod, new, array(0, 1, 1, 8, 6))


def test_transposition_in_the_graph_is_absorbed():
    x = tensor("x", 1, 4, 6, 5)

    def build(bb):
        y = bb.emit(op("nn.conv2d", x, weights(0, 8, 4, 1, 1)))
        return op("exp", op("permute_dims", y, axes=(0, 2, 3, 1)))

    mod = function([x], build)
    new = layout(mod)
    assert names(new) == ["permute_dims", "nn.conv2d", "exp"]
    same(mod, new, array(0, 1, 4, 6, 5))


def test_sequence_end_of_a_recogniser():
    w = symbol("w")
    x = tensor("x", 1, 4, 1, w)

    def build(bb):
        y = bb.emit(op("nn.conv2d", x, weights(0, 8, 4, 1, 1)))
        y = bb.emit(op("permute_dims", op("squeeze", y, axis=(2,)), axes=(0, 2, 1)))
        return op("matmul", y, weights(1, 8, 3))

    mod = function([x], build)
    new = layout(mod)
    assert names(new).count("permute_dims") == 1
    same(mod, new, array(0, 1, 4, 1, 7))


def test_channel_shuffle_stays_last():
    x = tensor("x", 1, 8, 4, 4)

    def build(bb):
        y = bb.emit(op("nn.conv2d", x, weights(0, 8, 8, 1, 1)))
        y = bb.emit(op("permute_dims", op("reshape", y, (1, 2, 4, 4, 4)), axes=(0, 2, 1, 3, 4)))
        y = bb.emit(op("reshape", y, (1, 8, 4, 4)))
        return op("mean", op("nn.conv2d", y, weights(1, 8, 8, 1, 1)), axis=(2, 3))

    mod = function([x], build)
    new = layout(mod)
    assert names(new).count("permute_dims") == 2  # the input, and the shuffle itself
    same(mod, new, array(0, 1, 8, 4, 4))


def test_operand_of_lower_rank():
    x, b, s = tensor("x", 1, 4, 3, 3), tensor("b", 3), tensor("s", 4, 1, 1)

    def build(bb):
        y = bb.emit(op("nn.conv2d", x, weights(0, 4, 4, 1, 1)))
        return op("multiply", op("add", op("add", y, b), weights(1, 3)), s)

    mod = function([x, b, s], build)
    same(mod, layout(mod), array(0, 1, 4, 3, 3), array(1, 3), array(2, 4, 1, 1))


def test_value_that_leaves_and_is_used_inside():
    x = tensor("x", 1, 4, 3, 3)

    def build(bb):
        y = bb.emit(op("nn.conv2d", x, weights(0, 4, 4, 1, 1)))
        z = bb.emit(op("nn.relu", y))
        return y, bb.emit(op("add", z, x)), z

    mod = function([x], build)
    same(mod, layout(mod), array(0, 1, 4, 3, 3))


def test_versions_made_in_a_branch_stay_there():
    c, x = tensor("c", dtype="bool"), tensor("x", 1, 4, 3, 3)

    def build(bb):
        y = bb.emit(op("nn.conv2d", x, weights(0, 4, 4, 1, 1)))
        z = bb.emit_if(
            c, lambda: op("add", y, x), lambda: op("nn.conv2d", op("nn.relu", y), weights(1, 4, 4, 3, 3), padding=1)
        )
        return bb.emit(op("subtract", z, y))

    mod = function([c, x], build, dataflow=False)
    for flag in (True, False):
        same(mod, layout(mod), np.array(flag), array(0, 1, 4, 3, 3))


def test_matmul_weights_are_packed():
    x = tensor("x", 2, 3, 8)
    w = weights(0, 8, 20)

    def build(bb):
        a = bb.emit(op("matmul", x, w))
        b = bb.emit(op("linear", x, weights(1, 20, 8), weights(2, 20)))
        return op("add", op("add", a, b), op("matmul", x, weights(3, 20, 8), transpose_b=True))

    mod = function([x], build)
    new = run(mod, pack_weights_pass())
    matmuls = [b.value.op for b in all_bindings(new["main"]) if b.value.op.name == "matmul"]
    assert [m.packed_b for m in matmuls] == [16, 16, 16]
    same(mod, new, array(0, 2, 3, 8))


def test_views():
    x = tensor("x", 2, 3, 1, 4)

    def build(bb):
        y = bb.emit(op("permute_dims", op("permute_dims", x, axes=(0, 2, 1, 3)), axes=(0, 2, 1, 3)))
        y = bb.emit(op("reshape", op("expand_dims", op("squeeze", y, axis=(2,)), axis=(0,)), (6, 4)))
        return op("exp", op("astype", op("permute_dims", op("reshape", y, (6, 1, 4)), axes=(1, 0, 2)), dtype="float32"))

    mod = function([x], build)
    new = run(mod, simplify_views)
    assert names(new) == ["reshape", "exp"]
    same(mod, new, array(0, 2, 3, 1, 4))


@pytest.mark.parametrize("square", ["multiply", "power"])
def test_layer_norm_is_recognised(square):
    n = symbol("n")
    x = tensor("x", n, 5, 8)

    def build(bb):
        d = bb.emit(op("subtract", x, op("mean", x, axis=(-1,), keepdims=True)))
        sq = op("multiply", d, d) if square == "multiply" else op("power", d, const(2.0))
        v = bb.emit(op("mean", sq, axis=(2,), keepdims=True))
        y = bb.emit(op("divide", d, op("sqrt", op("add", v, const(1e-5)))))
        return op("add", op("multiply", y, weights(1, 8)), weights(2, 1, 1, 8))

    mod = function([x], build)
    new = run(mod, raise_norms)
    assert names(new) == ["nn.layer_norm"]
    same(mod, new, array(0, 3, 5, 8))


@pytest.mark.parametrize("cut", ["strided_slice", "split"])
def test_products_that_are_cut(cut):
    n = symbol("n")
    x = tensor("x", n, 8)

    def build(bb):
        y = bb.emit(op("add", op("matmul", x, weights(0, 8, 48)), weights(1, 48)))
        if cut == "split":
            t = bb.emit(op("split", y, indices_or_sections=3, axis=1))
            a, b, c = (R.TupleGetItem(t, i) for i in range(3))
        else:
            a, b, c = (op("strided_slice", y, (16 * i,), (16 * i + 16,), axes=(-1,)) for i in range(3))
        return op("add", op("multiply", a, b), c)

    mod = function([x], build)
    new = run(mod, split_columns)
    assert cut not in names(new)
    assert names(new).count("matmul") == 3
    same(mod, new, array(0, 3, 8))


def test_grouped_convolution():
    x = tensor("x", 1, 16, 5, 4)

    def build(bb):
        y = bb.emit(op("nn.conv2d", x, weights(0, 36, 8, 1, 1), groups=2))
        y = bb.emit(op("nn.relu", op("add", y, weights(1, 36, 1, 1))))
        return op("mean", y, axis=(2, 3))

    mod = function([x], build)
    new = run(mod, canonicalise_bindings, layout_pass(), sink_into_concat)
    assert names(new)[1:] == ["strided_slice", "nn.conv2d", "strided_slice", "nn.conv2d"] + 2 * ["add"] + 2 * ["nn.relu"] + [
        "concat", "mean",
    ]  # fmt: skip
    same(mod, new, array(0, 1, 16, 5, 4))


def test_constants_of_shapes():
    """shape_of, take, concat on dimensions give the shape of a reshape."""
    n = symbol("n")
    x = tensor("x", n, 4, 6)

    def build(bb):
        shape = bb.emit(op("shape_of", x))
        return op("reshape", x, shape)

    mod = function([x], build)
    new = run(mod, fold_constant, cse)
    assert names(new) in ([], ["reshape"])
    same(mod, new, array(0, 3, 4, 6))
