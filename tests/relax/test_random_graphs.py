"""Random graphs through the whole pipeline and through each pass, against the reference evaluator."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.relax.graphs import array, function, op, same, symbol, tensor, weights
from tilewright.relax import ir as R
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.struct_info import as_int
from tilewright.relax.transform import graph_pipeline
from tilewright.relax.values import const

UNARY = ["nn.relu", "tanh", "negative", "sigmoid", "abs"]
BINARY = ["add", "subtract", "multiply", "maximum"]


class Images:
    """Builds a random network on N, C, H, W values."""

    def __init__(self, seed, bb, x):
        self.rng, self.bb, self.seed = random.Random(seed), bb, seed
        self.values = [x]

    def constant(self, *shape):
        self.seed += 1
        return weights(self.seed, *shape)

    def like(self, v):
        """Another value of the same shape, or None."""
        same_shape = [u for u in self.values if all(a is b or as_int(a) == as_int(b) for a, b in zip(dims(u), dims(v)))]
        return self.rng.choice(same_shape)

    def step(self):
        r, v = self.rng, self.rng.choice(self.values[-4:])
        c = as_int(dims(v)[1])
        kind = r.randrange(15)
        if kind <= 2:
            k = r.choice([1, 3])
            n = r.choice([4, 8, 18])
            return op("nn.conv2d", v, self.constant(n, c, k, k), padding=k // 2, strides=r.choice([1, 1, 2]))
        if kind == 3:
            return op("nn.conv2d", v, self.constant(c, 1, 3, 3), padding=1, groups=c)
        if kind == 4:
            return op(r.choice(UNARY), v)
        if kind == 5:
            return op(r.choice(BINARY), v, self.like(v))
        if kind == 6:
            return op(r.choice(BINARY), v, r.choice([self.constant(1, c, 1, 1), self.constant(c, 1, 1), const(0.5)]))
        if kind == 7:
            return op("nn.max_pool2d", v, pool_size=3, strides=r.choice([1, 2]), padding=1)
        if kind == 8:
            return op("concat", R.Tuple((v, self.like(v))), axis=1)
        if kind == 9:
            scale = self.bb.emit(op("mean", v, axis=(2, 3), keepdims=True))
            return op("multiply", v, op("sigmoid", op("nn.conv2d", scale, self.constant(c, c, 1, 1))))
        if kind == 10:
            params = [const(np.abs(array(self.seed + i, c)) + 0.5) for i in range(4)]
            return R.TupleGetItem(self.bb.emit(op("nn.batch_norm", v, *params)), 0)
        if kind == 11:
            return op("nn.softmax", v, axis=r.choice([1, 3]))
        if kind == 12:
            return op("permute_dims", op("tanh", op("permute_dims", v, axes=(0, 2, 3, 1))), axes=(0, 3, 1, 2))
        if kind == 13:
            return op("nn.pad", v, pad_width=(0, 0, 0, 0, 1, 0, 0, 1))
        if c % 2:
            return op("exp", op("negative", op("abs", v)))
        n, _, h, w = dims(v)  # a channel shuffle
        y = self.bb.emit(op("reshape", v, R.ShapeExpr((n, 2, c // 2, h, w))))
        y = self.bb.emit(op("permute_dims", y, axes=(0, 2, 1, 3, 4)))
        return op("reshape", y, R.ShapeExpr((n, c, h, w)))

    def grow(self, steps):
        for _ in range(steps):
            self.values.append(self.bb.emit(self.step()))
        last = self.values[-1]
        pooled = op("mean", last, axis=(2, 3))
        return last, self.bb.emit(op("matmul", pooled, self.constant(as_int(dims(last)[1]), 20)))


def dims(v):
    return v.struct_info.shape


def check_pipeline(mod, *inputs):
    for p in graph_pipeline():
        new = p(mod)
        if new is not mod:
            same(mod, new, *inputs, rtol=2e-3, atol=1e-4)
        mod = new
    return mod


@pytest.mark.parametrize("seed", range(12))
def test_images(seed):
    x = tensor("x", 1, 4, 6, 5)
    mod = function([x], lambda bb: Images(seed, bb, x).grow(7))
    check_pipeline(mod, array(seed, 1, 4, 6, 5))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cond", [True, False])
def test_blocks_and_branches(seed, cond):
    """Several dataflow blocks with a branch between: what ends with its block, or its branch, stays there."""
    x, c = tensor("x", 1, 4, 6, 5), tensor("c", dtype="bool")
    bb = BlockBuilder()
    with bb.function("main", [x, c]):
        values = [x]
        for part in range(3):
            if part == 1:
                last = values[-1]
                values.append(
                    bb.emit_if(
                        c,
                        lambda last=last: Images(seed, bb, last).grow(2)[1],
                        lambda last=last: Images(seed + 50, bb, last).grow(3)[1],
                    )
                )
                continue
            with bb.dataflow():
                made = Images(seed + part, bb, values[0])
                outs = made.grow(4)
                values += [bb.emit_output(outs[0]), bb.emit_output(op("reshape", outs[1], (1, 4, 5, 1)))]
                values.insert(0, values[1] if part == 0 else values[0])
        bb.emit_func_output(tuple(values[1:]))
    check_pipeline(bb.get(), array(seed, 1, 4, 6, 5), np.array(cond))


@pytest.mark.parametrize("seed", range(4))
def test_images_of_any_size(seed):
    n, h, w = symbol("n"), symbol("h"), symbol("w")
    x = tensor("x", n, 4, h, w)
    mod = function([x], lambda bb: Images(seed, bb, x).grow(6))
    final = check_pipeline(mod, array(seed, 1, 4, 6, 5))
    same(mod, final, array(seed, 2, 4, 5, 7), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_matrices(seed):
    r = random.Random(seed)
    x = tensor("x", 3, 4)

    def build(bb):
        values = [x]
        for i in range(12):
            v, u = r.choice(values[-4:]), r.choice(values)
            kind = r.randrange(7)
            if kind == 0:
                e = op("matmul", v, weights(seed + i, 4, 4))
            elif kind == 1:
                e = op(r.choice(BINARY), v, u)
            elif kind == 2:
                e = op(r.choice(BINARY), v, r.choice([weights(i, 4), const(1.5), weights(i, 1, 4)]))
            elif kind == 3:
                e = op("subtract", v, op("mean", v, axis=(1,), keepdims=True))
            elif kind == 4:
                e = op(
                    "permute_dims",
                    op("exp", op("negative", op("abs", op("permute_dims", v, axes=(1, 0))))),
                    axes=(1, 0),
                )
            else:
                e = op(r.choice(UNARY), v)
            values.append(bb.emit(e))
        return values[-1], r.choice(values[1:])

    check_pipeline(function([x], build), array(seed, 3, 4))
