"""Tensor expressions under their known names, as `bb.emit_te(topi...)` and hand-written code call them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.tir.interp import interpret

G = np.random.default_rng(3)


def run(build: Any, *arrays: np.ndarray) -> np.ndarray:
    inputs = [te.placeholder(a.shape, str(a.dtype), name=f"x{k}") for k, a in enumerate(arrays)]
    out = build(*inputs)
    result = np.zeros([int(d) for d in out.shape], out.dtype)
    interpret(te.create_prim_func([*inputs, out]), *(np.array(a) for a in arrays), result)
    return result


def f(*shape: int) -> np.ndarray:
    return G.uniform(-1, 1, shape).astype(np.float32)


X, Y = f(3, 4), f(4, 5)


@pytest.mark.parametrize(
    ("build", "arrays", "want"),
    [
        (topi.matmul, (X, Y), X @ Y),
        (topi.nn.dense, (X, f(2, 4)), None),
        (topi.nn.bias_add, (X, f(4)), None),
        (lambda x: topi.nn.flatten(x), (f(2, 3, 4),), None),
        (lambda x: topi.strided_slice(x, [1, 0], [3, 4], [1, 2]), (X,), X[1:3, 0:4:2]),
        (lambda x: topi.strided_slice(x, [-1], [-9], [-1], [0]), (X,), X[::-1]),
        (lambda x: topi.reshape(x, (2, 6)), (X,), X.reshape(2, 6)),
        (lambda x: topi.transpose(x), (X,), X.T),
        (lambda x: topi.sum(x, axis=1, keepdims=True), (X,), X.sum(1, keepdims=True)),
        (lambda x: topi.broadcast_to(x, (2, 3, 4)), (X,), np.broadcast_to(X, (2, 3, 4))),
        (lambda x: topi.concatenate((x, x), axis=1), (X,), np.concatenate([X, X], 1)),
        (lambda x: topi.add(x, 2.0), (X,), X + 2),
        (lambda x: topi.nn.relu(x), (X,), np.maximum(X, 0)),
        (lambda x: topi.nn.softmax(x, axis=0), (X,), np.exp(X) / np.exp(X).sum(0)),
        (lambda x: topi.nn.global_pool(x, "avg"), (f(1, 2, 3, 3),), None),
        (lambda x: topi.split(x, [1, 3], 1)[1], (X,), X[:, 1:3]),
    ],
)
def test_meaning(build, arrays, want):
    got = run(build, *arrays)
    if want is None:
        names = {
            "dense": lambda x, w: x @ w.T,
            "bias_add": lambda x, b: x + b,
        }
        first = arrays[0]
        want = names[build.__name__](*arrays) if build.__name__ in names else (
            first.reshape(2, 12) if first.shape == (2, 3, 4) else first.mean((2, 3), keepdims=True)
        )  # fmt: skip
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_arange_and_pool():
    assert run(lambda: topi.arange(1, 7, 2)).tolist() == [1, 3, 5]
    x = f(1, 1, 4, 4)
    got = run(lambda t: topi.nn.pool2d(t, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"), x)
    np.testing.assert_array_equal(got, x.reshape(1, 1, 2, 2, 2, 2).max((3, 5)))
    with pytest.raises(ValueError, match="use max or avg"):
        run(lambda t: topi.nn.pool2d(t, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "sum"), x)


def test_indices_stay_int32_for_sizes_given_as_numbers():
    a, b = te.placeholder((4, 8), name="a"), te.placeholder((8, 6), name="b")
    c = topi.matmul(a, b)
    assert c.shape[0].dtype == "int32"
    te.create_prim_func([a, b, topi.nn.relu(c)])
