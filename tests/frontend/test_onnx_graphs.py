"""Small graphs whose shapes are computed: by formulas of dynamic dimensions, folded branches, branches at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from tests.frontend.onnx_tools import assert_same, compiled, expected, imported
from tilewright.frontend.onnx import from_onnx
from tilewright.support.diagnostics import CompileError

Run = Callable[..., Any]
both = pytest.mark.parametrize("run", [imported, compiled])


def parse(body: str, opset: int = 17) -> onnx.ModelProto:
    """A model of ONNX's text form."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{body}')


def f32(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


def check(run: Run, model: onnx.ModelProto, *cases: dict[str, Any]) -> None:
    for feeds in cases:
        assert_same(run(model, feeds), expected(model, feeds))


GRAPHS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "flatten_by_shape": (
        """agraph (float[b, c, h, w] x) => (float[b, n] y) {
            zero = Constant<value = int64[1] {0}>()
            one = Constant<value = int64[1] {1}>()
            minus = Constant<value = int64[1] {-1}>()
            s = Shape(x)
            b0 = Slice(s, zero, one)
            target = Concat<axis = 0>(b0, minus)
            y = Reshape(x, target)
        }""",
        [{"x": f32(2, 3, 4, 5)}, {"x": f32(1, 2, 6, 6)}],
    ),
    "heads": (
        """agraph (float[b, t, 12] x) => (float[b, 3, t, 4] y) {
            i0 = Constant<value = int64 {0}>()
            i1 = Constant<value = int64 {1}>()
            axis = Constant<value = int64[1] {0}>()
            rest = Constant<value = int64[2] {3, 4}>()
            s = Shape(x)
            b0 = Gather(s, i0)
            t0 = Gather(s, i1)
            b1 = Unsqueeze(b0, axis)
            t1 = Unsqueeze(t0, axis)
            target = Concat<axis = 0>(b1, t1, rest)
            r = Reshape(x, target)
            y = Transpose<perm = [0, 2, 1, 3]>(r)
        }""",
        [{"x": f32(2, 7, 12)}, {"x": f32(1, 3, 12)}],
    ),
    "double_by_sizes": (
        """agraph (float[1, 2, h, w] x) => (float[1, 2, h2, w2] y) {
            s = Shape(x)
            two = Constant<value = int64[1] {2}>()
            four = Constant<value = int64[1] {4}>()
            zero = Constant<value = int64[1] {0}>()
            k = Constant<value = float[2] {2.0, 2.0}>()
            hw = Slice(s, two, four)
            hwf = Cast<to = 1>(hw)
            big = Mul(hwf, k)
            floor = Floor(big)
            hw2 = Cast<to = 7>(floor)
            nc = Slice(s, zero, two)
            sizes = Concat<axis = 0>(nc, hw2)
            y = Resize<mode = "linear">(x, , , sizes)
        }""",
        [{"x": f32(1, 2, 3, 5)}, {"x": f32(1, 2, 4, 4)}],
    ),
    "first_half": (
        """agraph (float[b, n] x) => (float[b, m] y) {
            s = Shape(x)
            one = Constant<value = int64[1] {1}>()
            two = Constant<value = int64[1] {2}>()
            zero = Constant<value = int64[1] {0}>()
            n0 = Slice(s, one, two)
            half = Div(n0, two)
            y = Slice(x, zero, half, one)
        }""",
        [{"x": f32(2, 6)}, {"x": f32(1, 9)}],
    ),
    "positions": (
        """agraph (float[b, n] x) => (float[b, n] y) {
            s = Shape(x)
            one = Constant<value = int64 {1}>()
            zero = Constant<value = int64 {0}>()
            n0 = Gather(s, one)
            r = Range(zero, n0, one)
            f = Cast<to = 1>(r)
            e = Expand(f, s)
            y = Add(x, e)
        }""",
        [{"x": f32(2, 6)}, {"x": f32(3, 1)}],
    ),
    "filled": (
        """agraph (float[b, n] x) => (float[b, n] y, int64[2] s, int64 count) {
            s = Shape(x)
            c = ConstantOfShape<value = float[1] {3.5}>(s)
            y = Mul(x, c)
            count = Size(x)
        }""",
        [{"x": f32(2, 6)}, {"x": f32(3, 1)}],
    ),
    "known_branch": (
        """agraph (float[b, 1, n] x) => (float[b, n] y) {
            s = Shape(x)
            one = Constant<value = int64 {1}>()
            d = Gather(s, one)
            c = Equal(d, one)
            y = If(c) <
                then_branch = inner1 () => (float[b, n] p) { a = Constant<value = int64[1] {1}>() p = Squeeze(x, a) },
                else_branch = inner2 () => (float[b, 1, n] q) { q = Identity(x) }
            >
        }""",
        [{"x": f32(2, 1, 4)}],
    ),
    "branch": (
        """agraph (float[b, n] x, bool c) => (float[b, n] z) {
            k = Constant<value = float {2.0}>()
            y = If(c) <
                then_branch = inner1 () => (float[b, n] p) { t = Mul(x, k) p = Relu(t) },
                else_branch = inner2 () => (float[b, n] q) { q = Neg(x) }
            >
            z = Add(y, x)
        }""",
        [{"x": f32(2, 4), "c": np.array(True)}, {"x": f32(3, 2), "c": np.array(False)}],
    ),
    "down_and_up": (
        """agraph (float[1, 2, h, w] x) => (float[1, 2, h, w] y) {
            scales = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
            small = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
            big = Resize<mode = "nearest">(small, , scales)
            y = Add(big, x)
        }""",
        [{"x": f32(1, 2, 6, 8)}, {"x": f32(1, 2, 2, 4)}],
    ),
}


@both
@pytest.mark.parametrize("name", GRAPHS)
def test_graph(name: str, run: Run) -> None:
    text, cases = GRAPHS[name]
    check(run, parse(text), *cases)


def test_sizes_that_do_not_meet_are_refused_at_run_time() -> None:
    import tilewright as tw

    exe = tw.compile(parse(GRAPHS["down_and_up"][0]))
    with pytest.raises(ValueError):
        exe(f32(1, 2, 5, 8))


def test_a_branch_of_another_rank_asks_for_shapes() -> None:
    text = GRAPHS["known_branch"][0].replace("float[b, 1, n] x", "float[b, k, n] x")
    with pytest.raises(CompileError) as caught:
        from_onnx(parse(text))
    assert caught.value.diagnostics[0].code == "TW0309"
    assert "shape_dict" in str(caught.value)
    from_onnx(parse(text), shape_dict={"x": (None, 1, None)})


def test_weights_as_parameters() -> None:
    model = parse(
        """agraph (float[b, 4] x) => (float[b, 3] y) <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
            y = MatMul(x, w)
        }"""
    )
    from tilewright.relax.evaluate import evaluate

    module = from_onnx(model, keep_params_in_input=True)
    main = module["main"]
    assert [p.name_hint for p in main.params] == ["x", "w"]
    assert main.attrs["num_input"] == 1
    x = f32(2, 4)
    np.testing.assert_allclose(evaluate(module, x, *main.attrs["params"]), expected(model, {"x": x})[0], rtol=1e-5)


def test_model_functions_are_expanded() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        agraph (float[n] x) => (float[n] y) { y = local.twice(x) }
        <opset_import: ["" : 17], domain: "local">
        twice (a) => (b) { b = Add(a, a) }"""
    )
    x = f32(5)
    np.testing.assert_array_equal(imported(model, {"x": x})[0], x + x)


def test_the_field_names() -> None:
    from tilewright import relax
    from tilewright.relax.frontend.onnx import from_onnx as found

    assert found is from_onnx
    assert relax.frontend.onnx.from_onnx is from_onnx


def test_the_list_of_operators_is_up_to_date() -> None:
    import subprocess
    import sys
    from pathlib import Path

    script = Path(__file__).resolve().parents[2] / "docs" / "make_onnx.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_facts_of_a_model() -> None:
    from tilewright.frontend.onnx import inspect_model

    model = parse("""agraph (float[b, 3, 8, 8] x) => (float[b, 4, 6, 6] y) { c = Conv(x, w) y = Relu(c) }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(f32(4, 3, 3, 3), "w"))
    facts = inspect_model(model, shape_dict={"x": (2, None, None, None)})
    assert facts["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2, 3, 8, 8]}]
    assert {o["op"]: o["count"] for o in facts["operators"]} == {"Conv": 1, "Relu": 1}
    assert facts["parameters"] == 108
    elements = 2 * 4 * 6 * 6
    assert (facts["flops"], facts["flops_partial"]) == (elements * 2 * 27 + elements, False)
    assert inspect_model(model)["flops_partial"]
