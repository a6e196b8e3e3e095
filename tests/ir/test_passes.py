"""Passes, contexts, instruments, pipelines, reproducers."""

import pytest

from tests.ir.test_structure import copy_func
from tilewright.ir.module import IRModule
from tilewright.ir.passes import (
    DumpIR,
    PassContext,
    PassTimingInstrument,
    Sequential,
    check_pipeline,
    module_pass,
    pass_,
    prim_func_pass,
)  # fmt: skip
from tilewright.ir.reproduce import replay
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import PrimFunc


@pass_(needs="blocks", gives="flat", ends="blocks")
def mark(f: PrimFunc, ctx: PassContext) -> PrimFunc:
    return f.with_attr("marked", 1)


@pass_(needs="blocks")
def nothing(f: PrimFunc, ctx: PassContext) -> PrimFunc:
    return f


def module():
    return IRModule.from_expr(copy_func())


def test_pass_sees_each_function():
    assert mark(module())["main"].attrs["marked"] == 1
    mod = module()
    assert nothing(mod) is mod


def test_disabled_and_timing():
    timing = PassTimingInstrument()
    with PassContext(disabled_pass=["mark"], instruments=[timing]):
        out = Sequential([nothing, mark], name="both")(module())
    assert "marked" not in out["main"].attrs
    assert [row[1] for row in timing.rows] == ["both", "nothing"]
    assert "nothing" in timing.render()


def test_dump_writes_numbered_files(tmp_path):
    with PassContext(instruments=[DumpIR(tmp_path)]):
        mark(module())
    assert [p.name for p in tmp_path.iterdir()] == ["000-mark.py"]


def test_order_is_checked_without_ir():
    check_pipeline([nothing, mark], start="blocks")
    with pytest.raises(ValueError, match="nothing"):
        check_pipeline([mark, nothing], start="blocks")


def test_decorators_of_the_field():
    @module_pass(opt_level=1, name="Twice")
    class Twice:
        def transform_module(self, mod, ctx):
            return mod.with_attr("twice", True)

    @prim_func_pass(opt_level=0)
    def rename(func, mod, ctx):
        return func.with_attr("seen", len(mod))

    assert Twice()(module()).attrs["twice"] is True
    assert rename(module())["main"].attrs["seen"] == 1


def test_an_internal_error_leaves_a_reproducer(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path))

    @pass_()
    def broken(f: PrimFunc, ctx: PassContext) -> PrimFunc:
        raise KeyError("surprise")

    with pytest.raises(KeyError):
        broken(module())
    (file,) = tmp_path.iterdir()
    assert file.read_text().startswith("# pass: broken")
    with pytest.raises(CompileError, match="no pass is named 'broken'"):
        replay(file)


def test_a_foreign_file_is_no_reproducer(tmp_path):
    file = tmp_path / "x.py"
    file.write_text("print(1)\n")
    with pytest.raises(CompileError, match="TW0903"):
        replay(file)
