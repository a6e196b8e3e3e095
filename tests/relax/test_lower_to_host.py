"""Lowering graph functions to host functions: by meaning, through native code."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.arith.expr import SizeVar
from tilewright.ir.module import IRModule
from tilewright.ir.op import GlobalVar
from tilewright.relax import ir as rx
from tilewright.relax.calls import call_tir
from tilewright.relax.struct_info import TensorStructInfo, TupleStructInfo, tensor
from tilewright.relax.transform.lower_to_host import lower_to_host
from tilewright.support.diagnostics import CompileError


def affine(shape, scale, shift, name):
    x = te.placeholder(shape, "float32", "x")
    y = te.compute(shape, lambda *i: x(*i) * scale + shift, name=name)
    return te.create_prim_func([x, y]).with_attr("global_symbol", name)


def chain(shape, count):
    """count kernels in a row: y = 2 y + 1"""
    gv, info = GlobalVar("step"), tensor(shape)
    x = rx.Var("x", info)
    bindings, last = [], x
    for i in range(count):
        v = rx.Var(f"lv{i}", info)
        bindings.append(rx.VarBinding(v, call_tir(gv, (last,), info)))
        last = v
    body = rx.SeqExpr((rx.DataflowBlock(tuple(bindings)),), last)
    main = rx.Function((x,), body, info, attrs={"global_symbol": "main"})
    return IRModule({GlobalVar("main"): main, gv: affine(info.shape, 2.0, 1.0, "step")})


def expected(x, count):
    for _ in range(count):
        x = 2 * x + 1
    return x


@pytest.mark.parametrize("count", [1, 2, 5])
def test_chain(count):
    mod = chain((3, 5), count)
    host = lower_to_host(mod)
    assert host.plan.size.value == (0 if count == 1 else 64 * min(count - 1, 2))
    x = np.random.default_rng(0).random((3, 5), np.float32)
    np.testing.assert_allclose(tvm.compile(mod)(x), expected(x, count), rtol=1e-6)


def test_symbolic_shape():
    n = SizeVar("n", "int64")
    exe = tvm.compile(chain((n, 4), 3))
    for size in (1, 6, 33):
        x = np.random.default_rng(size).random((size, 4), np.float32)
        np.testing.assert_allclose(exe(x), expected(x, 3), rtol=1e-6)


def test_tuple_and_repeated_output():
    mod = chain((2, 2), 2)
    main = mod["main"]
    first = main.body.blocks[0].bindings[0].var
    last = main.body.body
    info = TupleStructInfo((first.struct_info, last.struct_info, last.struct_info))
    body = rx.SeqExpr(main.body.blocks, rx.Tuple((first, last, last)))
    mod["main"] = rx.Function(main.params, body, info, attrs=main.attrs)
    x = np.ones((2, 2), np.float32)
    a, b, c = tvm.compile(mod)(x)
    np.testing.assert_array_equal(a, expected(x, 1))
    np.testing.assert_array_equal(b, expected(x, 2))
    np.testing.assert_array_equal(c, b)


def test_an_input_may_be_the_output():
    x = rx.Var("x", tensor((2, 3)))
    mod = IRModule.from_expr(rx.Function((x,), rx.SeqExpr((), x), x.struct_info))
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = tvm.compile(mod)(data)
    np.testing.assert_array_equal(out, data)
    assert out is not data


def test_a_constant_may_be_the_output():
    data = np.arange(4, dtype=np.float32)
    x = rx.Var("x", tensor((1,)))
    constant = rx.Constant(data, struct_info=tensor((4,)))
    mod = IRModule.from_expr(rx.Function((x,), rx.SeqExpr((), constant), tensor((4,))))
    np.testing.assert_array_equal(tvm.compile(mod)(np.zeros(1, np.float32)), data)


def test_branches():
    info, gv, gw = tensor((4,)), GlobalVar("up"), GlobalVar("down")
    flag, x = rx.Var("flag", TensorStructInfo((), "bool")), rx.Var("x", info)

    def arm(g):
        v = rx.Var("v", info)
        return rx.SeqExpr((rx.BindingBlock((rx.VarBinding(v, call_tir(g, (x,), info)),)),), v)

    out, twice = rx.Var("out", info), rx.Var("twice", info)
    bindings = (
        rx.VarBinding(out, rx.If(flag, arm(gv), arm(gw), struct_info=info)),
        rx.VarBinding(twice, call_tir(gv, (out,), info)),
    )
    main = rx.Function(
        (flag, x), rx.SeqExpr((rx.BindingBlock(bindings),), twice), info, attrs={"global_symbol": "main"}
    )
    shape = info.shape
    mod = IRModule({GlobalVar("main"): main, gv: affine(shape, 1.0, 10.0, "up"), gw: affine(shape, 1.0, -10.0, "down")})
    exe = tvm.compile(mod)
    data = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(exe(np.array(True), data), data + 20)
    np.testing.assert_array_equal(exe(np.array(False), data), data)


def test_unknown_shape_is_refused_by_name():
    n = SizeVar("n", "int64")
    x = rx.Var("x", tensor((4,)))
    lv = rx.Var("lv", tensor((n,)))
    body = rx.SeqExpr((rx.DataflowBlock((rx.VarBinding(lv, call_tir(GlobalVar("f"), (x,), lv.struct_info)),)),), lv)
    mod = IRModule({GlobalVar("main"): rx.Function((x,), body), GlobalVar("f"): affine((n,), 1.0, 0.0, "f")})
    with pytest.raises(CompileError, match="TW0550.*dimension n does not follow"):
        lower_to_host(mod)
