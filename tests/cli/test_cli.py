"""The command line as its user meets it: through its own process-like entry, on files."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.cli.main import main


def make_model(path, op="Relu"):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node(op, ["h"], ["y"], "last")]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])],
        [onnx.numpy_helper.from_array(np.linspace(-1, 1, 40, dtype=np.float32).reshape(8, 5), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return str(path)


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "small.onnx")


def run(capsys, *args):
    status = main(list(args))
    out = capsys.readouterr()
    return status, out.out, out.err


def run_json(capsys, *args):
    status, out, _ = run(capsys, *args, "--json")
    return status, json.loads(out)


@pytest.mark.parametrize("suffix", [".tw", ".so", ".o", ".ll"])
def test_compile_writes_each_kind(capsys, tmp_path, model, suffix):
    target = tmp_path / f"small{suffix}"
    status, report = run_json(capsys, "compile", model, "-o", str(target))
    assert status == 0
    assert target.stat().st_size == report["bytes"] > 0
    assert report["kernels"] >= 1


@pytest.mark.parametrize("suffix", [".tw", ".so"])
def test_an_artifact_runs_as_the_model_does(capsys, tmp_path, model, suffix):
    artifact, x = str(tmp_path / f"small{suffix}"), np.random.default_rng(1).random((3, 8), np.float32)
    np.save(tmp_path / "x.npy", x)
    assert run(capsys, "compile", model, "-o", artifact)[0] == 0
    outputs = []
    for what in (model, artifact):
        out = str(tmp_path / "out.npz")
        status, _, err = run(capsys, "run", what, "--input", f"x={tmp_path / 'x.npy'}", "-o", out)
        assert status == 0, err
        outputs.append(np.load(out)["y"])
    np.testing.assert_array_equal(outputs[0], outputs[1])
    w = np.linspace(-1, 1, 40, dtype=np.float32).reshape(8, 5)
    np.testing.assert_allclose(outputs[0], np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)


def test_check_against_onnxruntime(capsys, model):
    pytest.importorskip("onnxruntime")
    status, report = run_json(capsys, "run", model, "--shape", "x=4,8", "--check", "onnxruntime")
    assert status == 0
    assert max(report["differences"]) < 1e-5


def test_bench(capsys, model):
    pytest.importorskip("onnxruntime")
    status, report = run_json(
        capsys, "bench", model, "--shape", "x=2,8", "--against", "onnxruntime", "--seconds", "0.05", "--threads", "1"
    )
    assert status == 0
    assert report["times"]["tilewright"]["median"] > 0
    assert report["ratio"] > 0


def test_inspect(capsys, model):
    status, report = run_json(capsys, "inspect", model, "--shape", "x=2,8")
    assert status == 0
    assert {op["op"]: op["count"] for op in report["operators"]} == {"MatMul": 1, "Relu": 1}
    assert report["parameters"] == 40
    assert report["memory"]["arena_bytes"] >= report["memory"]["arena_lower_bound"] >= 0


def test_inspect_lists_what_is_not_supported(capsys, tmp_path):
    model = make_model(tmp_path / "odd.onnx", "StringNormalizer")
    status, out, err = run(capsys, "inspect", model)
    assert status == 1
    assert "StringNormalizer" in out
    assert "not supported: StringNormalizer" in err


def test_dump_ir(capsys, tmp_path, model):
    folder = tmp_path / "ir"
    assert run(capsys, "compile", model, "-o", str(tmp_path / "m.tw"), "--dump-ir", str(folder))[0] == 0
    names = sorted(p.name for p in folder.iterdir())
    assert names[0] == "000-imported.py"
    assert len(names) > 2


@pytest.mark.parametrize("command", ["targets", "doctor"])
def test_reports(capsys, command):
    assert run(capsys, command)[0] == 0
    assert run_json(capsys, command)[0] == 0


def test_cache_commands(capsys, tmp_path, model, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    first = run_json(capsys, "compile", model, "-o", str(tmp_path / "m.tw"))[1]
    again = run_json(capsys, "compile", model, "-o", str(tmp_path / "m.tw"))[1]
    assert first["kernels_cached"] == 0
    assert again["kernels_cached"] == again["kernels"]
    assert run_json(capsys, "cache", "info")[1]["entries"] >= again["kernels"]
    assert run_json(capsys, "cache", "clear")[0] == 0
    assert run_json(capsys, "cache", "info")[1]["entries"] == 0


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["compile"],
        ["compile", "m.onnx", "-o", "m.exe"],
        ["compile", "m.onnx", "-o", "m.tw", "--shape", "x"],
        ["run", "m.onnx", "--input", "x"],
        ["run", "m.tw", "--check", "onnxruntime"],
        ["run", "m.onnx", "-o", "out.csv"],
        ["bench", "m.onnx", "--threads", "0"],
        ["nonsense"],
    ],
)
def test_wrong_usage_is_status_2(capsys, args):
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "args, says",
    [
        (["run", "missing.onnx"], "missing.onnx"),
        (["inspect", "missing.onnx"], "missing.onnx"),
        (["run", "MODEL", "--input", "z=random"], "no input 'z'"),
        (["run", "MODEL", "--input", "x=nothing.npy"], "nothing.npy"),
        (["run", "MODEL", "--shape", "x=2,9"], "9"),
        (["run", "MODEL", "--target", "cuda"], "TW0651"),
        (["run", "MODEL", "--target", "llwm"], "TW0901"),
        (["replay", "MODEL"], ""),
    ],
)
def test_bad_input_is_status_1_and_one_clear_error(capsys, model, args, says):
    status, _, err = run(capsys, *[model if a == "MODEL" else a for a in args])
    assert status == 1
    assert says in err
    assert "Traceback" not in err


def test_nothing_half_written_is_left(capsys, tmp_path, model):
    folder = tmp_path / "out"
    folder.mkdir()
    assert run(capsys, "compile", model, "-o", str(folder / "m.tw"), "--shape", "x=2,9")[0] == 1
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "command", ["compile", "run", "bench", "inspect", "targets", "cache", "doctor", "replay", "demo"]
)
def test_help_has_an_example(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "example: tilewright" in capsys.readouterr().out
