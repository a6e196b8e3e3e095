"""Small models for tests, and running them through the importer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]


class Const:
    """An operand that is an initialiser and no input."""

    def __init__(self, array: Any, dtype: str | None = None) -> None:
        self.array = np.asarray(array, dtype=dtype)


def one_node(
    op_type: str,
    operands: Sequence[Array | Const | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    opset: int = 17,
    outputs: int = 1,
    dynamic: bool = False,
    domain: str = "",
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node, and its inputs. Dynamic: every dimension of the inputs is unknown."""
    names, inputs, constants, feeds = [], [], [], {}
    for i, x in enumerate(operands):
        if x is None:
            names.append("")
            continue
        names.append(f"x{i}")
        if isinstance(x, Const):
            constants.append(numpy_helper.from_array(x.array, f"x{i}"))
        else:
            shape = [f"x{i}_{k}" for k in range(x.ndim)] if dynamic else list(x.shape)
            inputs.append(helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), shape))
            feeds[f"x{i}"] = x
    out = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, out, name=f"the_{op_type.lower()}", domain=domain, **(attributes or {}))
    graph = helper.make_graph([node], "small", inputs, [onnx.ValueInfoProto(name=o) for o in out], constants)
    return model_of(graph, opset), feeds


def model_of(graph: onnx.GraphProto, opset: int = 17) -> onnx.ModelProto:
    """A model of a graph, for the operator set."""
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def expected(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """What onnxruntime gives."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, dict(feeds)
    )


def imported(model: Any, feeds: Mapping[str, Array], **options: Any) -> list[Array]:
    """What the imported graph means, by the numpy references of its operators."""
    from tilewright.frontend.onnx import from_onnx
    from tilewright.relax.evaluate import evaluate

    module = from_onnx(model, **options)
    names = module.attrs["input_names"]
    result = evaluate(module, *(feeds[n] for n in names))
    return [np.asarray(r) for r in (result if isinstance(result, (tuple, list)) else [result])]


def compiled(model: Any, feeds: Mapping[str, Array], **options: Any) -> list[Array]:
    """What native code gives."""
    import tilewright as tw

    executable = tw.compile(model, **options)
    result = executable(**dict(feeds))
    return [np.asarray(r) for r in (result if isinstance(result, (tuple, list)) else [result])]


def assert_same(got: Sequence[Array], want: Sequence[Array], tolerance: float = 1e-5) -> None:
    """Equal shapes and dtypes; floats within the tolerance of the output's scale, others equal."""
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.shape == w.shape, (g.shape, w.shape)
        assert g.dtype == w.dtype, (g.dtype, w.dtype)
        if w.dtype.kind == "f":
            scale = float(np.nanmax(np.abs(np.where(np.isfinite(w), w, 0)))) if w.size else 0.0
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance * max(scale, 1e-30))
        else:
            np.testing.assert_array_equal(g, w)
