"""The verifiers: good functions pass, each kind of fault is found and named."""

import pytest

from tilewright import te, tir
from tilewright.arith.expr import EQ, Add, And, Call, Select, const, pointer_var
from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.ir.op import Op
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.verify import verify_blocks, verify_flat, verify_module_blocks, verify_well_formed

TRUE = const(True)
A = t.decl_buffer((4,), "float32", "A")
H = tir.Var("h", "handle")
I = tir.Var("i", "int32")
J = tir.Var("j", "int32")


def matmul():
    n = te.var("n", "int64")
    a, b = te.placeholder((n, 6), name="A"), te.placeholder((6, 5), name="B")
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((n, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, 5), lambda i, j: te.exp(c[i, j]), name="D")
    return te.create_prim_func([a, b, d])


def func(body, buffers=(A,), params=()):
    handles = {tir.Var(b.name, "handle"): b for b in buffers}
    return t.PrimFunc((*handles, *params), body, None, handles, {"global_symbol": "f"})


def loop(body, v=I, extent=4, kind=t.ForKind.SERIAL):
    return t.For(v, const(0), const(extent), kind, body)


def store(value=1.0, index=I, buffer=A):
    return t.BufferStore(buffer, value if isinstance(value, tir.PrimExpr) else const(value), (index,))


def test_good_functions_pass():
    f = matmul()
    verify_blocks(f)
    assert verify_well_formed(f)
    verify_module_blocks(IRModule.from_expr(f, "f"))
    verify_blocks(func(loop(store())))


def test_flat_functions_pass():
    p = pointer_var("p", "float32")
    flat = t.decl_buffer((16,), "float32", "flat", data=p)
    lanes = tir.Ramp(I * 4, const(1), 4)
    body = loop(t.BufferStore(flat, tir.Broadcast(const(1.0), 4), (lanes,)), kind=t.ForKind.PARALLEL)
    verify_flat(t.PrimFunc((p,), body))


def block(iters=(), body=None, reads=(), writes=(), values=(), init=None, alloc=()):
    return t.BlockRealize(
        tuple(values), TRUE, t.Block(tuple(iters), tuple(reads), tuple(writes), "blk", body, init, tuple(alloc))
    )


V = t.IterVar(t.Range(const(0), const(4)), tir.Var("v", "int32"))
WHOLE = t.BufferRegion(A, (t.Range(const(0), const(4)),))
X64 = tir.Var("x", "int64")
B2 = t.decl_buffer((4, 4), "float32", "B2")
OTHER = t.decl_buffer((4,), "float32", "OTHER")

BAD = [
    ("TW0510", "variable i is used, but nothing defines it", func(store())),
    ("TW0511", "variable i is defined again", func(loop(loop(store())))),
    ("TW0511", "buffer A is declared again", func(t.DeclBuffer(A, loop(store())))),
    ("TW0512", "are int32 and int64", func(loop(store(1.0, Add(I, X64))), params=[X64])),
    ("TW0512", "a store of int32 where A holds float32", func(loop(store(const(1))))),
    ("TW0512", "j is int32, its value float32", func(t.LetStmt(J, const(1.0), loop(store())))),
    ("TW0512", "the sides of .* are float32 and int32", func(loop(store(Select(TRUE, const(1.0), const(1)))))),
    ("TW0513", "buffer OTHER is not declared", func(loop(store(OTHER[I])))),
    ("TW0514", "A has 1 dimensions, but is used with 2 indices", func(loop(t.BufferStore(A, const(1.0), (I, I))))),
    ("TW0514", "index 0 of A is float32", func(loop(store(1.0, const(1.0))))),
    ("TW0514", "only the last one may be", func(
        t.BufferStore(B2, tir.Broadcast(const(1.0), 4), (tir.Ramp(const(0), const(1), 4), const(0))), [B2])),
    ("TW0515", "is of dtype int32, not bool", func(loop(t.IfThenElse(I, store())))),
    ("TW0515", "needs bools", func(loop(t.While(And(I, I), store())))),
    ("TW0516", "must be of one integer dtype", func(t.For(I, const(0, "int64"), const(4), t.ForKind.SERIAL, store()))),
    ("TW0516", "bound to a thread", func(loop(store(), kind=t.ForKind.THREAD_BINDING))),
    ("TW0517", "1 iterators, but 0 values", func(block([V], store(1.0, V.var), writes=[WHOLE]))),
    ("TW0517", "not among its declared writes", func(loop(block([V], store(1.0, V.var), reads=[WHOLE], values=[I])))),
    ("TW0517", "blk reads OTHER", func(
        loop(block([V], store(OTHER[V.var], V.var), writes=[WHOLE], values=[I])), [A, OTHER])),
    ("TW0517", "loop variable i is used inside of a block", func(loop(block([V], store(), writes=[WHOLE], values=[I])))),
    ("TW0517", "has no domain", func(
        loop(block([t.IterVar(None, V.var)], store(1.0, V.var), writes=[WHOLE], values=[I])))),
    ("TW0512", "block blk: v is int32, its value int64", func(
        loop(block([V], store(1.0, V.var), writes=[WHOLE], values=[tir.cast(I, "int64")])))),
    ("TW0513", "which is not declared here", func(block([], store(1.0, const(0)), reads=[t.BufferRegion(OTHER, WHOLE.region)]))),
    ("TW0514", "a region of 1 ranges", func(block([], loop(store()), reads=[t.BufferRegion(B2, WHOLE.region)]), [A, B2])),
    ("TW0518", "no known intrinsic", func(loop(store(Call("float32", Op.get("tir.nonsense"), ()))))),
    ("TW0518", "takes 1 arguments, got 2", func(loop(store(Call("float32", Op.get("tir.exp"), (A[I], A[I])))))),
    ("TW0518", "gives float32 here, but the call says float64", func(loop(t.Evaluate(Call("float64", Op.get("tir.exp"), (A[I],)))))),
]  # fmt: skip


@pytest.mark.parametrize("code, text, f", BAD, ids=[f"{c}-{i}" for i, (c, _, _) in enumerate(BAD)])
def test_faults(code, text, f):
    with pytest.raises(CompileError, match=f"(?s){code}.*{text}") as e:
        verify_blocks(f)
    assert "f: " in str(e.value)
    assert not verify_well_formed(f, assert_mode=False)


def test_flat_form_has_no_blocks_dimensions_or_fancy_loops():
    with pytest.raises(CompileError, match=r"TW0519.*buffer_map"):
        verify_flat(func(loop(store())))
    p = pointer_var("p", "float32")
    flat, two = t.decl_buffer((4,), "float32", "flat", data=p), t.decl_buffer((2, 2), "float32", "two", data=p)
    with pytest.raises(CompileError, match=r"TW0519.*no vectorized loop"):
        verify_flat(t.PrimFunc((p,), loop(store(buffer=flat), kind=t.ForKind.VECTORIZED)))
    with pytest.raises(CompileError, match=r"TW0519.*memory has one"):
        verify_flat(t.PrimFunc((p,), t.BufferStore(two, const(1.0), (const(0), const(0)))))
    with pytest.raises(CompileError, match=r"TW0519.*no block"):
        verify_flat(t.PrimFunc((p,), block([], store(1.0, const(0), flat))))
    with pytest.raises(CompileError, match=r"TW0513"):
        verify_flat(t.PrimFunc((), store(1.0, const(0), flat)))


def test_te_expressions_are_refused():
    a = te.placeholder((4,), name="a")
    with pytest.raises(CompileError, match=r"TW0519.*ProducerLoad"):
        verify_blocks(func(loop(store(a[I]))))


def test_the_message_shows_the_statement():
    with pytest.raises(CompileError, match=r"in `.*A.*i == i"):
        verify_blocks(func(loop(store(EQ(I, I)))))


def test_renamed_parameters_of_a_buffer_map():
    f = matmul()
    with pytest.raises(CompileError, match=r"TW0510.*no parameter"):
        verify_blocks(replace(f, params=f.params[1:]))
