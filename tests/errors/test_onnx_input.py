"""Faulty models: each gives one clear error that names the node, its operator and a way out; nothing else escapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.onnx_tools import Const, model_of, one_node
from tilewright.frontend.onnx import from_onnx, inspect_model
from tilewright.support.diagnostics import CompileError


def fails(model: Any, code: str, *parts: str, **options: Any) -> str:
    """Importing fails with this one code, and the message has all the parts."""
    with pytest.raises(CompileError) as caught:
        from_onnx(model, **options)
    text = str(caught.value)
    assert {d.code for d in caught.value.diagnostics} == {code}, text
    for part in parts:
        assert part in text, text
    return text


def value(name: str, shape: Any = (2, 3), kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def graph(nodes: Any, inputs: Any = None, outputs: Any = ("y",), constants: Any = ()) -> Any:
    made = helper.make_graph(
        nodes, "small", inputs or [value("x")], [onnx.ValueInfoProto(name=o) for o in outputs], list(constants)
    )
    return model_of(made)


def relu(x: str = "x", y: str = "y", name: str = "r") -> Any:
    return helper.make_node("Relu", [x], [y], name=name)


# ---- the file ---------------------------------------------------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    fails(tmp_path / "none.onnx", "TW0301", "none.onnx", "No such file")


def test_directory(tmp_path: Path) -> None:
    fails(tmp_path, "TW0301", "cannot read")


def test_empty_and_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"")
    fails(path, "TW0301", "empty")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    fails(path, "TW0301", "no ONNX model")
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    fails(path, "TW0301", "LFS pointer")
    fails(b"hello", "TW0301")
    fails(3, "TW0301", "int")


def test_truncated_file(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    data = graph([helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", (2, 64))], constants=[weight])
    data = data.SerializeToString()
    for cut in (len(data) // 2, len(data) - 3, 40):
        path = tmp_path / "cut.onnx"
        path.write_bytes(data[:cut])
        with pytest.raises(CompileError) as caught:
            from_onnx(path)
        assert caught.value.diagnostics[0].code.startswith("TW03")


def test_damaged_tensor() -> None:
    weight = TensorProto(name="w", data_type=1, dims=[4, 4], raw_data=b"123")
    fails(graph([helper.make_node("Add", ["x", "w"], ["y"])], constants=[weight]), "TW0311", "'w'", "(4, 4)")


def test_operator_sets() -> None:
    old = graph([relu()])
    old.opset_import[0].version = 5
    fails(old, "TW0304", "5", "convert_version")
    old.opset_import[0].version = 999
    fails(old, "TW0304", "999")
    del old.opset_import[:]
    fails(old, "TW0304", "names no operator set")


# ---- external data ----------------------------------------------------------------------------------------------------


def external(location: str, **entries: int) -> Any:
    tensor = TensorProto(name="w", data_type=1, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, v in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(v))
    return graph([helper.make_node("Add", ["x", "w"], ["y"], name="sum")], constants=[tensor])


def save(model: Any, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_read(tmp_path: Path) -> None:
    path = save(external("w.bin", offset=4), tmp_path)
    weight = np.arange(7, dtype=np.float32)
    (path.parent / "w.bin").write_bytes(weight.tobytes())
    module = from_onnx(path)
    from tilewright.relax.evaluate import evaluate

    np.testing.assert_array_equal(evaluate(module, np.zeros((2, 3), np.float32)), weight[1:].reshape(2, 3))


def test_external_data_missing_or_short(tmp_path: Path) -> None:
    path = save(external("w.bin"), tmp_path)
    fails(path, "TW0302", "'w'", "w.bin", "missing")
    (path.parent / "w.bin").write_bytes(bytes(20))
    fails(path, "TW0302", "which has 20")
    fails(external("w.bin"), "TW0302", "no folder")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "sub/../../secret.bin", "link.bin"])
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(24))
    path = save(external(location), tmp_path)
    (path.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    fails(path, "TW0303", "outside the model's folder", location)


# ---- the graph --------------------------------------------------------------------------------------------------------


def test_cycle() -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Relu", ["b"], ["y"], name="last"),
    ]
    fails(graph(nodes), "TW0305", "cycle", "'first'", "'second'", "Add")


def test_names() -> None:
    fails(graph([relu(), relu(name="again")]), "TW0306", "'y'", "twice", "'again'")
    fails(graph([relu("nowhere")]), "TW0307", "'nowhere'", "Relu", "'r'")
    fails(graph([relu()], outputs=("z",)), "TW0307", "'z'")
    double = [numpy_helper.from_array(np.ones(3, np.float32), "w")] * 2
    fails(graph([helper.make_node("Add", ["x", "w"], ["y"])], constants=double), "TW0306", "'w'")


def test_nodes_in_any_order() -> None:
    model = graph([relu("a", "y", "second"), relu("x", "a", "first")])
    before = model.SerializeToString()
    from_onnx(model)
    assert model.SerializeToString() == before, "the caller's model is not changed"


def test_all_unsupported_operators_at_once() -> None:
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], name="f1"),
        helper.make_node("Foo", ["a"], ["b"], name="f2"),
        helper.make_node("Bar", ["b"], ["y"], name="b1", domain="my.domain"),
    ]
    model = graph(nodes)
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    fails(model, "TW0308", "Foo", "my.domain.Bar", "2 nodes: f1, f2", "3 nodes")
    report = inspect_model(model)
    assert {o["op"]: (o["count"], o["supported"]) for o in report["operators"]} == {
        "Foo": (2, False), "my.domain.Bar": (1, False)
    }  # fmt: skip


def test_unsupported_attributes_at_once() -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a", "i"], name="pool", kernel_shape=[2, 2]),
        helper.make_node("Relu", ["x"], ["b"], name="odd", slope=3.0),
        helper.make_node("Pad", ["x", "p"], ["c"], name="pad", mode="weird"),
        helper.make_node("Sum", ["a", "b", "c", "i"], ["y"], name="sum"),
    ]
    pads = numpy_helper.from_array(np.ones(8, np.int64), "p")
    text = fails(graph(nodes, [value("x", (1, 1, 4, 4))], constants=[pads]), "TW0309")
    for part in ("MaxPool node 'pool'", "Indices", "Relu node 'odd'", "'slope'", "'weird'", "Pad node 'pad'"):
        assert part in text
    assert "node 'sum'" not in text, "what depends on a faulty node is no fault"


def test_malformed_nodes() -> None:
    model, _ = one_node("Add", [np.ones(3, np.float32)])
    fails(model, "TW0311", "operand 1", "the_add")
    model, _ = one_node("Concat", [np.ones(3, np.float32)])
    fails(model, "TW0311", "'axis' is missing")
    model, _ = one_node("Concat", [np.ones(3, np.float32)] * 2, {"axis": 4})
    fails(model, "TW0311", "axis 4 is out of range for 1 dimensions")
    model, _ = one_node("Softmax", [np.ones(3, np.float32)], {"axis": "x"})
    fails(model, "TW0311", "'axis'", "str")


def test_data_dependent_shape() -> None:
    model, _ = one_node("Reshape", [np.ones((2, 3), np.float32), np.array([3, 2])])
    fails(model, "TW0312", "the_reshape", "depends on data")


def test_shapes_that_do_not_fit() -> None:
    model, _ = one_node("Add", [np.ones((2, 3), np.float32), np.ones(4, np.float32)])
    fails(model, "TW0313", "the_add", "3", "4")
    model, _ = one_node("MatMul", [np.ones((2, 3), np.float32), Const(np.ones((4, 5), np.float32))])
    fails(model, "TW0313", "the_matmul", "3", "4")


def test_element_types() -> None:
    fails(graph([relu()], [value("x", (2,), TensorProto.STRING)]), "TW0314", "'x'", "string")
    fails(graph([relu()], [value("x", (2,), TensorProto.COMPLEX64)]), "TW0314", "complex64")


def test_inputs_without_rank() -> None:
    model = graph([relu()], [value("x", None)])
    fails(model, "TW0316", "'x'", "rank")
    from_onnx(model, shape_dict={"x": (2, 3)})


# ---- what the user says -----------------------------------------------------------------------------------------------


def test_given_shapes() -> None:
    model = graph([relu()], [value("x", ("n", 3))])
    fails(model, "TW0310", "no input 'z'", "x", shape_dict={"z": (1, 3)})
    fails(model, "TW0310", "2 dimensions (n, 3)", "has 3", shape_dict={"x": (1, 3, 4)})
    fails(model, "TW0310", "dimension 1 of input 'x' is 3", "has 5", shape_dict={"x": (1, 5)})
    fails(model, "TW0310", "must be positive", shape_dict={"x": (0, 3)})
    fails(model, "TW0310", "no input 'z'", dtype_dict={"z": "float32"})
    two = graph([helper.make_node("Add", ["x", "z"], ["y"])], [value("x", ("n", 3)), value("z", ("n", 3))])
    fails(two, "TW0310", "'n'", "2 and 4", shape_dict={"x": (2, 3), "z": (4, 3)})


def test_a_named_dimension_is_fixed_everywhere() -> None:
    two = graph([helper.make_node("Add", ["x", "z"], ["y"])], [value("x", ("n", 3)), value("z", ("n", 3))])
    main = from_onnx(two, shape_dict={"z": (4, 3)})["main"]
    assert [[int(d) for d in p.struct_info.shape] for p in main.params] == [[4, 3], [4, 3]]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnx", None)
    fails("model.onnx", "TW0315", "pip install onnx")


def test_an_operator_of_the_standard_without_a_row_is_expanded() -> None:
    from tests.frontend.onnx_tools import assert_same, expected, imported

    model, feeds = one_node("Shrink", [np.linspace(-2, 2, 9, dtype=np.float32)], {"lambd": 0.5, "bias": 0.25}, opset=18)
    before = model.SerializeToString()
    assert_same(imported(model, feeds), expected(model, feeds))
    assert model.SerializeToString() == before
