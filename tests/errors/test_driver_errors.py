"""Errors of the driver and of the demo, each by a program that meets it."""

import numpy as np
import pytest

from tests.relax.test_lower_to_host import affine
from tilewright.arith.expr import const, pointer_var
from tilewright.cli.main import main
from tilewright.driver.kernels import compile_kernel
from tilewright.ir.target import Target
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import AllocateConst, BufferStore, PrimFunc, decl_buffer


def test_a_kernel_may_hold_no_constant_array(monkeypatch):
    out, data = decl_buffer([1], "float32", "out"), pointer_var("data", "float32")
    store = BufferStore(out, decl_buffer([4], "float32", "view", data=data)[0], (const(0),))
    body = AllocateConst(data, "float32", (const(4),), np.ones(4, np.float32), store)
    flat = PrimFunc((out.data,), body, None, {}, {"global_symbol": "k"})
    monkeypatch.setattr("tilewright.driver.kernels.lower_one", lambda func, symbol, target: flat)
    with pytest.raises(CompileError, match="TW0650"):
        compile_kernel(affine((1,), 1.0, 0.0, "k"), "k", Target("llvm"))


def test_the_demo_says_how_to_get_its_networks(capsys, monkeypatch):
    monkeypatch.setattr("tilewright.cli.demo_command.find_spec", lambda name: None)
    assert main(["demo"]) == 1
    err = capsys.readouterr().err
    assert "TW0801" in err
    assert "pip install" in err


def test_the_demo_names_a_picture_it_cannot_read(capsys, tmp_path):
    bad = tmp_path / "page.png"
    bad.write_bytes(b"no picture")
    assert main(["demo", "--image", str(bad)]) == 1
    assert "page.png" in capsys.readouterr().err
