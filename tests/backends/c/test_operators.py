"""Kernels of the operators as C: the same results as LLVM's code, scheduled (vectors, parallel loops) and as they are."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.arith.expr import IntImm
from tilewright.backends.c import cc
from tilewright.backends.c.emit import emit_c
from tilewright.backends.llvm.testing import load_kernel
from tilewright.driver import compile as driver
from tilewright.driver.kernels import lower_one
from tilewright.ir import dtype as dt
from tilewright.ir.target import Target
from tilewright.relax.op import OPS
from tilewright.tir.lower import lower_kernel

pytestmark = pytest.mark.skipif(cc.get_cc() is None, reason="needs a C compiler")

_path = Path(__file__).parents[2] / "ops" / "test_native.py"
_spec = importlib.util.spec_from_file_location("ops_native_for_c", _path)
assert _spec is not None
assert _spec.loader is not None
native = importlib.util.module_from_spec(_spec)
sys.modules["ops_native_for_c"] = native
_spec.loader.exec_module(native)

FEW = ["nn.softmax", "nn.conv2d", "matmul", "floor_mod", "gelu", "nn.gelu", "take", "argmax", "cast", "sum"]
TARGET = Target("llvm")


class _Enough(Exception):
    pass


def kernels(name: str, monkeypatch: Any) -> list[Any]:
    """The kernels that the first samples of an operator become."""
    found: list[Any] = []

    def take(given: Any, *_: Any, **__: Any) -> Any:
        found.extend(f for _, f in given)
        raise _Enough

    monkeypatch.setattr(driver, "compile_kernels", take)
    mod, _, _ = native.module(OPS[name].samples()[:2])
    with pytest.raises(_Enough):
        driver.compile_module(mod, TARGET, use_cache=False)
    return found


def operand(buffer: Any, rng: Any, least: int) -> Any:
    shape, kind = [int(d) for d in buffer.shape], dt.to_numpy(buffer.dtype)
    if buffer.dtype == "bool" or not dt.is_float(buffer.dtype):
        return np.asarray(rng.integers(least, least + 2, shape), kind)  # small: some are indices, some are divisors
    return np.asarray(rng.random(shape) * 2 + 0.1, kind)


def check(name: str, monkeypatch: Any, folder: Path) -> None:
    rng = np.random.default_rng(0)
    least = 1 if "div" in name or "mod" in name else 0
    flat: list[Any] = []
    inputs: list[list[Any]] = []
    for f in kernels(name, monkeypatch):
        buffers = [f.buffer_map[p] for p in f.params if p in f.buffer_map]
        if all(isinstance(d, IntImm) for b in buffers for d in b.shape):
            for low in (lower_one(f, "k", TARGET), lower_kernel(f)):
                flat.append(low.with_attr("global_symbol", f"k{len(flat)}"))
                inputs.append([operand(b, rng, least) for b in buffers])
    if not flat:
        pytest.skip("its samples have no kernels of constant shape")
    source, library = folder / "k.c", folder / "k.so"
    source.write_text(emit_c(flat))
    options = [
        "-std=c99",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
        "-Wno-unused-variable",
        "-Wno-unused-but-set-variable",
    ]
    cc.create_shared(str(library), [str(source)], [*options, "-lm"])
    loaded = ctypes.CDLL(str(library))
    for f, arrays in zip(flat, inputs):
        want, got = [np.array(a) for a in arrays], [np.array(a) for a in arrays]
        load_kernel(f)(*want)
        assert loaded[f.attrs["global_symbol"]](*[ctypes.c_void_p(a.ctypes.data) for a in got]) == 0
        for x, y in zip(got, want):
            np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in FEW if n in OPS])
def test_some_operators(name, monkeypatch, tmp_path):
    check(name, monkeypatch, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in native.OPERATORS if n not in FEW])
def test_other_operators(name, monkeypatch, tmp_path):
    check(name, monkeypatch, tmp_path)
