"""Every analytic schedule against the interpreter, on awkward sizes: primes, ones, tails, strides, symbols."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tilewright import te
from tilewright.arith.expr import const, if_then_else, maximum
from tilewright.tir import build as T

_spec = importlib.util.spec_from_file_location("schedule_test_kernels", Path(__file__).parent / "kernels.py")
assert _spec is not None
assert _spec.loader is not None
k: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(k)

M, N, K = k.sym("m"), k.sym("n"), k.sym("k")


@pytest.mark.parametrize(
    "case",
    [
        (1, 9, 7, 5, 24, 3),
        (2, 9, 11, 3, 20, 3, 2),
        (1, 12, 13, 8, 16, 3, 1, 2),
        (1, 7, 7, 16, 40, 1),
        (1, 9, 9, 16, 32, 1, 2, 1, 16, 0),
        (1, 9, 9, 4, 12, 3, 1, 1, 8),
        (1, 30, 1, 4, 16, 3),
        (1, 1, 1, 64, 17, 1),
        (1, 50, 3, 7, 16, 3),
    ],
)
def test_conv(case: tuple[int, ...]) -> None:
    k.check(k.conv(*case))


@pytest.mark.parametrize(("h", "w"), [(9, 11), (4, 4), (20, 3), (1, 1)])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (1, 1), (3, 2)])
def test_conv_with_symbolic_size(h: int, w: int, kernel: int, stride: int) -> None:
    k.check(k.conv(1, M, N, 8, 24, kernel, stride), {"m": h, "n": w})


@pytest.mark.parametrize("case", [(9, 9, 24, 3), (9, 9, 21, 3, 2), (5, 8, 3, 3), (7, 7, 16, 5), (12, 1, 33, 3)])
def test_depthwise(case: tuple[int, ...]) -> None:
    k.check(k.depthwise(*case))


def test_depthwise_with_symbolic_size() -> None:
    k.check(k.depthwise(M, N, 20, 3), {"m": 9, "n": 14})
    k.check(k.depthwise(M, N, 20, 3, 2), {"m": 3, "n": 2})


@pytest.mark.parametrize("kind", ["kn", "nk", "packed"])
@pytest.mark.parametrize("mnk", [(13, 40, 17), (1, 100, 33), (2, 7, 9), (6, 16, 4), (5, 1, 20), (3, 3, 3), (50, 5, 8)])
def test_matmul(kind: str, mnk: tuple[int, int, int]) -> None:
    k.check(k.matmul((), *mnk, kind))


@pytest.mark.parametrize("kind", ["kn", "nk"])
@pytest.mark.parametrize("mnk", [(13, 19, 11), (1, 20, 24), (7, 2, 9)])
def test_batched_matmul(kind: str, mnk: tuple[int, int, int]) -> None:
    k.check(k.matmul((2, 3), *mnk, kind))


@pytest.mark.parametrize("kind", ["kn", "nk"])
@pytest.mark.parametrize("mnk", [(13, 40, 17), (3, 40, 17), (2, 5, 3), (6, 16, 4), (1, 1, 1), (30, 17, 65)])
def test_matmul_with_symbolic_sizes(kind: str, mnk: tuple[int, int, int]) -> None:
    k.check(k.matmul((), M, N, K, kind), dict(zip("mnk", mnk)))


def test_matmul_of_integers() -> None:
    k.check(k.matmul((), 13, 20, 17, dtype="int32"))


@pytest.mark.parametrize("case", [((16,), 37), ((3,), 37), ((9,), 5), ((2, 3, 7), 64), ((1,), 100), ((40,), 1)])
def test_softmax(case: tuple[Any, int]) -> None:
    k.check(k.softmax(*case))


@pytest.mark.parametrize("sizes", [(9, 37), (1, 5), (20, 128)])
def test_softmax_with_symbolic_sizes(sizes: tuple[int, int]) -> None:
    k.check(k.softmax((M,), N), dict(zip("mn", sizes)))


@pytest.mark.parametrize("sizes", [(17, 70), (3, 33), (1, 1), (64, 8)])
def test_layer_norm(sizes: tuple[int, int]) -> None:
    k.check(k.layer_norm(*sizes), tol=1e-4)


@pytest.mark.parametrize(
    "case",
    [((5, 37), [1]), ((5, 37), [0]), ((3, 4, 5), [0, 2]), ((3, 9, 40), [1]), ((4, 30), [0, 1]), ((2, 3, 4, 5), [2, 3]),
     ((7, 3), [1]), ((1, 7, 7, 33), [1, 2])],
)  # fmt: skip
@pytest.mark.parametrize("f", [te.sum, te.max, te.min])
def test_reductions(case: tuple[Any, Any], f: Any) -> None:
    k.check(k.reduction(*case, f))


def test_reductions_of_integers() -> None:
    k.check(k.reduction((5, 37), [1], te.sum, "int64"))
    k.check(k.reduction((5, 37), [0], te.max, "int32"))


@pytest.mark.parametrize("case", [(9, 9, 20, 3, 2), (8, 8, 3, 2, 2), (13, 7, 16, 3, 1)])
def test_pool(case: tuple[int, ...]) -> None:
    k.check(k.pool(*case))
    k.check(k.pool(*case, te.sum))


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 33), (4, 3), (1,), (16,), (1000, 41), (2, 1, 3, 1)])
def test_elementwise_with_broadcast(shape: tuple[int, ...]) -> None:
    a, b = k.ph("a", *shape), k.ph("b", shape[-1])
    f = te.create_prim_func([a, b, k.compute(shape, lambda *i: maximum(a(*i) * 0.5 + b[i[-1]], const(0.0, "float32")))])
    k.check(f)


@pytest.mark.parametrize("sizes", [(9, 37), (9, 3), (1, 1), (0, 7), (1001, 97)])
def test_elementwise_with_symbolic_sizes(sizes: tuple[int, int]) -> None:
    a, b = k.ph("a", M, N), k.ph("b", N)
    k.check(te.create_prim_func([a, b, k.compute((M, N), lambda i, j: a[i, j] * b[j])]), dict(zip("mn", sizes)))
    k.check(te.create_prim_func([a, k.compute((M, N), lambda i, j: a[i, j] * a[i, j])]), dict(zip("mn", sizes)))


@pytest.mark.parametrize("shape", [(3, 17, 23), (2, 3, 40), (1, 32, 32), (1, 1, 9), (2, 64, 5)])
def test_transpose(shape: tuple[int, int, int]) -> None:
    x = k.ph("x", *shape)
    a, b, c = shape
    k.check(te.create_prim_func([x, k.compute((a, c, b), lambda i, j, q: x[i, q, j])]))
    k.check(te.create_prim_func([x, k.compute((c, b, a), lambda i, j, q: x[q, j, i])]))


@pytest.mark.parametrize("sizes", [(19, 37), (1, 2), (16, 64)])
def test_transpose_with_symbolic_sizes(sizes: tuple[int, int]) -> None:
    x = k.ph("x", M, N)
    k.check(te.create_prim_func([x, k.compute((N, M), lambda i, j: x[j, i])]), dict(zip("mn", sizes)))


@pytest.mark.parametrize(("a", "b"), [(7, 30), (1, 1), (16, 16), (40, 3)])
@pytest.mark.parametrize("last", [True, False])
def test_concat(a: int, b: int, last: bool) -> None:
    x, y = (k.ph("x", 5, a), k.ph("y", 5, b)) if last else (k.ph("x", a, 5), k.ph("y", b, 5))
    if last:
        z = k.compute((5, a + b), lambda i, j: if_then_else(j < a, x[i, j], y[i, j - a]))
    else:
        z = k.compute((a + b, 5), lambda i, j: if_then_else(i < a, x[i, j], y[i - a, j]))
    k.check(te.create_prim_func([x, y, z]))


def test_reshape_and_transpose_move_data_without_division() -> None:
    x = k.ph("x", M, 24)
    r = k.compute((M, 3, 8), lambda s, h, d: x[(s * 24 + h * 8 + d) // 24, (s * 24 + h * 8 + d) % 24], "r")
    k.check(te.create_prim_func([x, k.compute((3, M, 8), lambda h, s, d: r[s, h, d])]), {"m": 7})


def test_gather() -> None:
    table, index = k.ph("t", 11, 19), k.ph("i", 6, dtype="int64")
    picked = k.compute((6, 19), lambda i, j: table[T.abs(index[i]), j])
    k.check(te.create_prim_func([table, index, picked]))


def test_argmax_keeps_its_loops() -> None:
    x = k.ph("x", 9, 30)
    r = k.axis(30, "r")
    argmax = T.comm_reducer(
        lambda a, b: (if_then_else(a[1] >= b[1], a[0], b[0]), if_then_else(a[1] >= b[1], a[1], b[1])),
        lambda t0, t1: (const(-1, t0), const(-1e30, t1)),
        name="argmax",
    )
    index, value = te.compute(k.dims(9), lambda i: argmax((r.var, x[i, r]), axis=r), name="argmax")
    k.check(te.create_prim_func([x, index, value]))


def test_epilogue_with_residual_and_second_use() -> None:
    """Bias, a sigmoid gate that uses the value twice, a residual: all on the accumulators."""
    a, w, res = k.ph("a", 13, 9), k.ph("w", 9, 21), k.ph("res", 13, 21)
    r = k.axis(9, "r")
    y = k.compute((13, 21), lambda i, j: te.sum(a[i, r] * w[r, j], axis=r), "mm")
    g = k.compute((13, 21), lambda i, j: y[i, j] * (1.0 / (1.0 + y[i, j] * y[i, j])), "gate")
    z = k.compute((13, 21), lambda i, j: g[i, j] + res[i, j], "sum")
    f = te.create_prim_func([a, w, res, z])
    k.check(f)


def test_epilogue_that_transposes() -> None:
    a, w = k.ph("a", 13, 9), k.ph("w", 9, 21)
    r = k.axis(9, "r")
    y = k.compute((13, 21), lambda i, j: te.sum(a[i, r] * w[r, j], axis=r), "mm")
    k.check(te.create_prim_func([a, w, k.compute((21, 13), lambda i, j: y[j, i] + 1.0)]))


def test_producer_before_a_reduction() -> None:
    x = k.ph("x", 6, 40)
    r = k.axis(40, "r")
    sq = k.compute((6, 40), lambda i, j: T.exp(x[i, j]) * x[i, j], "sq")
    k.check(te.create_prim_func([x, k.compute((6,), lambda i: te.sum(sq[i, r], axis=r))]))


def test_epilogue_of_several_broadcast_stages_over_mixed_index_dtypes() -> None:
    """As the graph passes make it: unit axes read at 0, int32 and int64 sizes side by side; all in one nest."""
    a, w, bias, res = k.ph("a", 1, 13, 9), k.ph("w", 2, 9, 16), k.ph("b", 1, 1, 21), k.ph("r", 1, 13, 21)
    r = k.axis(9, "r")
    y = te.compute((*k.dims(1, 13), 21), lambda n, i, j: te.sum(a[n, i, r] * w[j // 16, r, j % 16], axis=r), name="mm")
    z = k.compute((1, 13, 21), lambda n, i, j: y[0, i, j] + bias[0, 0, j], "z")
    u = k.compute((1, 13, 21), lambda n, i, j: z[0, i, j] + res[0, i, j], "u")
    v = k.compute((1, 13, 21), lambda n, i, j: maximum(u[n, i, j], const(0.0, "float32")), "v")
    f = te.create_prim_func([a, w, bias, res, v])
    k.check(f)
    assert "alloc_buffer" not in k.schedule_kernel(f, k.Target("llvm")).script().replace(
        'scope="local"', "local"
    ).replace("acc = T.alloc_buffer", "")


@pytest.mark.parametrize(
    "case", [(1, 40, 40, 32, 32, 3), (1, 44, 40, 24, 20, 3, 2), (2, 36, 64, 16, 24, 5), (1, 42, 60, 16, 16, 3, 1, 2)]
)
def test_padding_in_strips(case: tuple[int, ...]) -> None:
    f = k.conv(*case)
    k.check(f)
    assert "_block" in k.schedule_kernel(f, k.Target("llvm")).script()


def test_padding_in_strips_for_depthwise_and_pooling() -> None:
    f = k.depthwise(48, 50, 24, 3, 2)
    k.check(f)
    assert "_block" in k.schedule_kernel(f, k.Target("llvm")).script()
    x = k.ph("x", 1, 48, 48, 24)
    p, kh, kw = k.pad(x, 1), k.axis(3, "kh"), k.axis(3, "kw")
    y = k.compute((1, 24, 24, 24), lambda n, i, j, q: te.max(p[n, i * 2 + kh, j * 2 + kw, q], axis=[kh, kw]))
    k.check(te.create_prim_func([x, y]))


def test_concat_along_the_inner_axis_has_no_branches() -> None:
    parts = [k.ph(f"x{i}", 6, 7, n) for i, n in enumerate((34, 5, 16, 1))]
    starts = [0, 34, 39, 55, 56]

    def at(i: Any, j: Any, c: Any) -> Any:
        value = parts[3][i, j, c - starts[3]]
        for n in (2, 1, 0):
            value = if_then_else(c < starts[n + 1], parts[n][i, j, c - starts[n]], value)
        return maximum(value, const(0.0, "float32"))

    f = te.create_prim_func([*parts, k.compute((6, 7, 56), at)])
    k.check(f)
    assert "if_then_else" not in k.schedule_kernel(f, k.Target("llvm")).script()
    x = k.ph("x", 4, 30)
    padded = k.compute((4, 37), lambda i, j: if_then_else(T.all(j >= 3, j < 33), x[i, j - 3], 0.0))
    f = te.create_prim_func([x, padded])
    k.check(f)
    assert "if_then_else" not in k.schedule_kernel(f, k.Target("llvm")).script()
