"""Walking and rewriting by plain functions."""

import numpy as np

from tilewright import te, tir
from tilewright.arith.expr import const
from tilewright.ir.rewrite import bound_vars
from tilewright.ir.structure import structural_equal
from tilewright.tir import stmt_functor
from tilewright.tir.interp import interpret
from tilewright.tir.verify import verify_blocks


def example(n=4):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[i] * 2.0, name="C")
    return te.create_prim_func([a, c])


def test_visits():
    f = example()
    seen = []
    stmt_functor.post_order_visit(f.body, seen.append)
    kinds = [type(n).__name__ for n in seen]
    assert kinds[-1] == "BlockRealize"
    assert kinds.index("BufferStore") < kinds.index("For")
    assert len({id(n) for n in seen}) == len(seen)
    loops = []

    def stop_at_loops(n):
        if isinstance(n, tir.For):
            loops.append(n)
            return False
        assert not isinstance(n, tir.BufferStore)
        return True

    stmt_functor.pre_order_visit(f.body, stop_at_loops)
    assert len(loops) == 2


def test_transform():
    f = example()

    def double(s):
        return tir.BufferStore(s.buffer, s.value * 10.0, s.indices) if s.buffer.name == "B" else None

    body = stmt_functor.ir_transform(f.body, None, double, ["tir.BufferStore"])
    x, out = np.arange(4, dtype="float32"), np.empty(4, "float32")
    interpret(f.with_body(body), x, out)
    np.testing.assert_array_equal(out, (x + 1) * 20)
    gone = stmt_functor.ir_transform(f.body, lambda s: tir.Evaluate(const(0)), None, ["tir.For"])
    assert not [n for n in [*gone.block.body.seq] if isinstance(n, tir.For)]
    assert stmt_functor.ir_transform(f.body, None, lambda s: None) is f.body


def test_substitute_by_a_function():
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    assert structural_equal(stmt_functor.substitute(x + y, lambda v: const(3) if v is x else None), 3 + y)
    assert structural_equal(stmt_functor.substitute(x + y, {x: const(3)}), 3 + y)


def test_renew_defs():
    n = te.var("n", "int64")
    f = example(n)
    g = stmt_functor.renew_defs(f)
    assert structural_equal(f, g)
    verify_blocks(g)
    assert not bound_vars(f) & bound_vars(g)
    assert not {id(b) for b in f.buffer_map.values()} & {id(b) for b in g.buffer_map.values()}
    x, out = np.arange(4, dtype="float32"), np.empty(4, "float32")
    interpret(g, x, out)
    np.testing.assert_array_equal(out, (x + 1) * 2)
