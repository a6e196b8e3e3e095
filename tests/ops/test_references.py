"""The numpy references against onnxruntime: do our operators mean what ONNX's mean?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.ops  # noqa: F401
from tilewright.relax.op import OPS

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
G = np.random.default_rng(7)


def f(*shape: int, low: float = -1, high: float = 1) -> np.ndarray:
    return G.uniform(low, high, shape).astype(np.float32)


def run(kind: str, inputs: list[Any], outputs: int = 1, opset: int = 18, **attrs: Any) -> list[np.ndarray]:
    """One ONNX node by onnxruntime; None among the inputs is an input left out."""
    from onnx import TensorProto, helper

    names = ["" if x is None else f"i{k}" for k, x in enumerate(inputs)]
    outs = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(kind, names, outs, **attrs)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs)
        if x is not None
    ]
    results = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in outs]
    for r in results:
        r.type.Clear()
    graph = helper.make_graph([node], "g", infos, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {n: x for n, x in zip(names, inputs) if x is not None})


def same(want: list[np.ndarray], got: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    results = list(got) if isinstance(got, (tuple, list)) else [got]
    for w, g in zip(want, results):
        assert w.shape == g.shape
        np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 2, 1)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_conv(groups, pads, dilation):
    x, w = f(2, 4, 9, 8), f(6, 4 // groups, 3, 2)
    op = OPS["nn.conv2d"]((2, 1), pads, dilation, groups)
    same(run("Conv", [x, w], strides=[2, 1], pads=pads, dilations=[dilation] * 2, group=groups), op.reference(x, w))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("extra", [(0, 0), (1, 0)])
def test_conv_transpose(groups, dilation, extra):
    x, w = f(1, 4, 4, 3), f(4, 3, 3, 2)
    op = OPS["nn.conv2d_transpose"]((2, 3), (1, 0, 0, 1), extra, dilation, groups)
    want = run(
        "ConvTranspose",
        [x, w],
        strides=[2, 3],
        pads=[1, 0, 0, 1],
        output_padding=extra,
        dilations=[dilation] * 2,
        group=groups,
    )
    same(want, op.reference(x, w))


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("include", [0, 1])
def test_average_pool(ceil, include):
    x = f(1, 2, 8, 7)
    op = OPS["nn.avg_pool2d"](3, 2, (1, 0, 1, 1), 1, bool(ceil), bool(include))
    want = run(
        "AveragePool",
        [x],
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 0, 1, 1],
        ceil_mode=ceil,
        count_include_pad=include,
    )
    same(want, op.reference(x))


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
def test_max_pool(ceil, dilation):
    x = f(1, 2, 8, 7)
    op = OPS["nn.max_pool2d"](3, 2, (1, 0, 1, 1), dilation, bool(ceil))
    want = run(
        "MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 1], ceil_mode=ceil, dilations=[dilation] * 2
    )
    same(want, op.reference(x))


def test_normalisations():
    x, g, b = f(2, 6, 4, 3), f(6), f(6)
    same(
        run("InstanceNormalization", [x, g, b], epsilon=1e-3),
        OPS["nn.instance_norm"](1, (2, 3), 1e-3).reference(x, g, b),
    )
    same(
        run("GroupNormalization", [x, g, b], opset=21, num_groups=3, epsilon=1e-3),
        OPS["nn.group_norm"](3, 1, (2, 3), 1e-3).reference(x, g, b),
    )
    want = run("LayerNormalization", [x, f(4, 3) * 0 + 1, f(4, 3) * 0], axis=2, epsilon=1e-3)
    ones = np.ones((4, 3), np.float32)
    same(want, OPS["nn.layer_norm"]((2, 3), 1e-3).reference(x, ones, 0 * ones))
    same(run("LRN", [x], size=3, alpha=0.3, beta=0.6, bias=1.5), OPS["nn.lrn"](3, 1, 0.3, 0.6, 1.5).reference(x))
    m, v = f(6), f(6, low=0.2)
    same(run("BatchNormalization", [x, g, b, m, v]), OPS["nn.batch_norm"]().reference(x, g, b, m, v)[0])


def test_activations():
    x = f(3, 5, low=-4, high=4)
    for kind, name, attrs in [
        ("Elu", "nn.elu", {"alpha": 0.7}),
        ("Selu", "nn.selu", {"alpha": 1.2, "gamma": 0.9}),
        ("Celu", "nn.celu", {"alpha": 0.6}),
        ("LeakyRelu", "nn.leakyrelu", {"alpha": 0.2}),
        ("HardSigmoid", "nn.hardsigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("ThresholdedRelu", "nn.thresholded_relu", {"alpha": 0.5}),
        ("HardSwish", "nn.hardswish", {}),
        ("Softplus", "nn.softplus", {}),
        ("Softsign", "nn.softsign", {}),
        ("Mish", "nn.mish", {}),
        ("Erf", "erf", {}),
    ]:
        same(run(kind, [x], **attrs), OPS[name](**attrs).reference(x))
    for approximate, name in (("none", "nn.gelu"), ("tanh", "nn.gelu_tanh")):
        same(run("Gelu", [x], opset=20, approximate=approximate), OPS[name]().reference(x))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent(direction):
    d = 2 if direction == "bidirectional" else 1
    t, b, i, h = 4, 2, 3, 5
    x, h0, c0 = f(t, b, i), f(d, b, h), f(d, b, h)
    w, r, bias, p = f(d, 4 * h, i), f(d, 4 * h, h), f(d, 8 * h), f(d, 3 * h)
    common = {"hidden_size": h, "direction": direction}
    want = run("LSTM", [x, w, r, bias, None, h0, c0, p], 3, clip=0.9, **common)
    same(want, OPS["nn.lstm"](h, direction, clip=0.9).reference(x, w, r, bias, h0, c0, p))
    w, r, bias = f(d, 3 * h, i), f(d, 3 * h, h), f(d, 6 * h)
    for linear in (0, 1):
        want = run("GRU", [x, w, r, bias, None, h0], 2, linear_before_reset=linear, **common)
        op = OPS["nn.gru"](h, direction, linear_before_reset=bool(linear))
        same(want, op.reference(x, w, r, bias, h0))
    w, r, bias = f(d, h, i), f(d, h, h), f(d, 2 * h)
    same(run("RNN", [x, w, r, bias, None, h0], 2, **common), OPS["nn.rnn"](h, direction).reference(x, w, r, bias, h0))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric"]
)
def test_resize(mode, coordinates):
    x = f(1, 2, 4, 5)
    method = "nearest_neighbor" if mode == "nearest" else mode
    for size in ((8, 10), (3, 7)):
        roundings = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil") if mode == "nearest" else ("floor",)
        for r in roundings:
            op = OPS["image.resize2d"](method=method, coordinate_transformation_method=coordinates, rounding_method=r)
            want = run(
                "Resize", [x, None, None, np.array([1, 2, *size], np.int64)], opset=19, mode=mode,
                coordinate_transformation_mode=coordinates, nearest_mode=r,
            )  # fmt: skip
            same(want, op.reference(x, size))
    if (mode, coordinates) == ("nearest", "half_pixel_symmetric"):
        return  # the positions lie on halves here: rounding decides
    scales = (1.7, 0.65)
    size = tuple(int(n * s) for n, s in zip((4, 5), scales))
    want = run(
        "Resize", [x, None, np.array([1, 1, *scales], np.float32)], opset=19, mode=mode,
        coordinate_transformation_mode=coordinates, nearest_mode="floor",
    )  # fmt: skip
    op = OPS["image.resize2d"](
        method=method, coordinate_transformation_method=coordinates, rounding_method="floor", scales=scales
    )
    same(want, op.reference(x, size))


def test_resize_cubic_excluding_the_outside():
    x = f(1, 1, 5, 6)
    op = OPS["image.resize2d"](method="cubic", cubic_alpha=-0.5, cubic_exclude=1)
    want = run(
        "Resize", [x, None, None, np.array([1, 1, 9, 4], np.int64)], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1
    )
    same(want, op.reference(x, (9, 4)))


@pytest.mark.parametrize(
    ("mode", "name"), [("constant", "constant"), ("reflect", "reflect"), ("edge", "edge"), ("wrap", "circular")]
)
def test_pad(mode, name):
    x = f(3, 4)
    pads = np.array([1, 2, 0, 3], np.int64)  # ONNX: all befores, then all afters
    want = run("Pad", [x, pads], opset=19, mode=mode)
    same(want, OPS["nn.pad"]((1, 0, 2, 3), name).reference(x))


def test_gathering_and_scattering():
    x = f(3, 4)
    i = np.array([[0, 2], [1, -1], [2, 0]], np.int64)
    same(run("Gather", [x, i], axis=1), OPS["take"](1).reference(x, i))
    same(run("GatherElements", [x, i], axis=1), OPS["gather_elements"](1).reference(x, i))
    same(run("GatherND", [x, i], batch_dims=0), OPS["gather_nd"]().reference(x, i))
    u = f(3, 2)
    for mode, name in (("none", "update"), ("add", "add"), ("mul", "mul"), ("max", "max"), ("min", "min")):
        want = run("ScatterElements", [x, i, u], axis=1, reduction=mode)
        same(want, OPS["scatter_elements"](1, name).reference(x, i, u))
        rows = np.array([[2], [0]], np.int64)
        v = f(2, 4)
        same(run("ScatterND", [x, rows, v], reduction=mode), OPS["scatter_nd"](name).reference(x, rows, v))


def test_searching():
    x = f(3, 6, 2)
    k = np.array([3], np.int64)
    for largest in (0, 1):
        want = run("TopK", [x, k], 2, axis=1, largest=largest)
        same(want, OPS["topk"](3, 1, largest=bool(largest)).reference(x))
    for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
        want = run("CumSum", [x, np.array(1, np.int64)], exclusive=exclusive, reverse=reverse)
        same(want, OPS["cumsum"](1, "", bool(exclusive), bool(reverse)).reference(x))
    y = G.integers(0, 3, (4, 5)).astype(np.float32)
    for last in (0, 1):
        want = run("ArgMax", [y], axis=1, keepdims=0, select_last_index=last)
        same(want, OPS["argmax"](1, False, bool(last)).reference(y))


def test_rearranging():
    x = f(1, 8, 4, 6)
    for mode in ("DCR", "CRD"):
        same(run("DepthToSpace", [x], blocksize=2, mode=mode), OPS["nn.depth_to_space"](2, mode).reference(x))
    same(run("SpaceToDepth", [x], blocksize=2), OPS["nn.space_to_depth"](2).reference(x))
    a, b = f(2, 3, 4), f(2, 4, 5)
    same(run("Einsum", [a, b], equation="bij,bjk->bik"), OPS["einsum"]("bij,bjk->bik").reference([a, b]))
    for upper, name in ((1, "triu"), (0, "tril")):
        same(run("Trilu", [a, np.array(1, np.int64)], upper=upper), OPS[name]().reference(a, 1))
    n = np.array([-1, 0], np.int64)
    big = np.array([-(2**62), 2**62], np.int64)
    want = run("Slice", [a, n, big, np.array([1, 2], np.int64), np.array([-2, 3], np.int64)])
    same(want, OPS["strided_slice"]((1, 2), (-2, 3)).reference(a, (-1, 0), tuple(int(v) for v in big)))


def test_arithmetic_on_integers():
    a = np.array([7, -7, 7, -7], np.int64)
    b = np.array([2, 2, -2, -2], np.int64)
    same(run("Div", [a, b]), OPS["divide"]().reference(a, b))
    same(run("Mod", [a, b]), OPS["floor_mod"]().reference(a, b))
    same(run("Mod", [a, b], fmod=1), OPS["mod"]().reference(a, b))
    same(run("Pow", [a, np.array(3.0, np.float32)]), OPS["power"]().reference(a, np.array(3.0, np.float32)))
    x = f(6, low=-3, high=3)
    same(
        run("Round", [np.array([0.5, 1.5, 2.5, -0.5], np.float32)]),
        OPS["round"]().reference(np.array([0.5, 1.5, 2.5, -0.5], np.float32)),
    )
    same(run("Mod", [x, x[::-1].copy()], fmod=1), OPS["mod"]().reference(x, x[::-1].copy()))


def test_quantisation():
    x = f(3, 4, low=-50, high=50)
    s, z = np.array([0.5, 0.1, 2.0], np.float32), np.array([10, 128, 0], np.uint8)
    q = OPS["quantize"](0, "uint8").reference(x, s, z)
    same(run("QuantizeLinear", [x, s, z], axis=0), q)
    same(run("DequantizeLinear", [q, s, z], axis=0), OPS["dequantize"](0).reference(q, s, z))
