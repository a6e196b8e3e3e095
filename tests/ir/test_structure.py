"""Equality up to renaming, the digest that agrees with it, the first difference, JSON."""

import numpy as np
import pytest

from tilewright.arith.expr import Add, Call, IntImm, Let, Var, const
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.rewrite import Rules, bound_vars, free_vars, rewrite, substitute, transform
from tilewright.ir.serialize import load_json, save_json
from tilewright.ir.structure import assert_structural_equal, first_difference, structural_digest, structural_equal
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import BufferStore, For, ForKind, PrimFunc, decl_buffer


def copy_func(loop="i", add=1.0, size="n"):
    i, n, p = Var(loop, "int64"), Var(size, "int64"), Var("a", "handle")
    a = decl_buffer([n, 4], "float32", "A")
    body = For(i, const(0, "int64"), n, ForKind.SERIAL, BufferStore(a, a[i, 0] + add, (i, const(1, "int64"))))
    return PrimFunc((p,), body, None, {p: a})


def test_equal_up_to_names():
    assert structural_equal(copy_func("i", size="n"), copy_func("j", size="m"))
    assert structural_digest(copy_func("i")) == structural_digest(copy_func("j", size="k"))


def test_difference_has_a_path():
    difference = first_difference(copy_func(), copy_func(add=2.0))
    assert difference is not None
    assert difference.path == "<root>.body.body.value.b.value"
    assert structural_digest(copy_func()) != structural_digest(copy_func(add=2.0))
    with pytest.raises(ValueError, match="body.value.b.value"):
        assert_structural_equal(copy_func(), copy_func(add=2.0))


def test_free_variables_equal_only_themselves():
    x, y = Var("x"), Var("y")
    assert not structural_equal(x + 1, y + 1)
    assert structural_equal(x + 1, y + 1, map_free_vars=True)
    assert not structural_equal(x + y, x + x, map_free_vars=True)
    assert not structural_equal(x + x, x + y, map_free_vars=True)


def test_a_variable_cannot_stand_for_two():
    x, y, v, w = Var("x"), Var("y"), Var("v"), Var("w")
    left = Let(x, const(1), Let(y, const(2), x + y))
    right = Let(v, const(1), Let(w, const(2), w + v))
    assert not structural_equal(left, right)


def test_free_and_bound_variables():
    f = copy_func()
    assert free_vars(f) == []
    loop = f.body
    names = {v.name for v in free_vars(loop)}
    assert names == {"n", "A"}
    assert {v.name for v in bound_vars(loop)} == {"i"}


def test_substitute_changes_a_buffer_everywhere():
    f = copy_func()
    n = f.body.extent
    new = substitute(f, {n: const(5, "int64")})
    assert new.body.buffer if hasattr(new.body, "buffer") else True
    store = new.body.body
    assert store.buffer is store.value.a.buffer
    assert store.buffer is next(iter(new.buffer_map.values()))
    assert store.buffer.shape[0].value == 5


def test_same_object_means_unchanged():
    f = copy_func()
    assert transform(f, lambda n: None) is f
    assert substitute(f, {Var("other"): const(1)}) is f


def test_rules():
    fold = Rules("fold")

    @fold
    def zero(e: Add, ctx):
        match e:
            case Add(a, IntImm(value=0)):
                return a
        return None

    x = Var("x")
    assert rewrite(Add(Add(x, const(0)), const(0)), fold) is x


def test_rules_that_never_end_say_so():
    loop = Rules("loop")

    @loop
    def swap(e: Add, ctx):
        return Add(e.b, e.a)

    with pytest.raises(RuntimeError, match="loop"):
        rewrite(Add(Var("x"), Var("y")), loop)


def test_json_round_trip():
    f = copy_func().with_attr("data", np.arange(6, dtype=np.int16).reshape(2, 3))
    mod = IRModule.from_expr(f)
    again = load_json(save_json(mod))
    assert_structural_equal(mod, again)
    assert again["main"].attrs["data"].dtype == np.int16
    call = Call("float32", Op.get("tir.exp"), (const(float("inf"), "float32"),))
    assert load_json(save_json(call)).op is Op.get("tir.exp")


@pytest.mark.parametrize("text", ["", "{}", '{"tilewright": 99, "root": 1, "nodes": []}', "[1]"])
def test_foreign_json_is_refused(text):
    with pytest.raises(CompileError, match="TW0902"):
        load_json(text)


def test_a_view_binds_its_offset() -> None:
    from tilewright.script import from_source
    from tilewright.script import tir as T

    @T.prim_func
    def view(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("A"):
                v = T.axis.spatial(8, i)
                W = T.match_buffer(A[v], (), offset_factor=1)
                W[()] = 1.0

    again = from_source(view.script())
    assert structural_equal(view, again)
    assert structural_digest(view) == structural_digest(again)
