"""Programs as people write them: parsed from decorated Python, run by the interpreter, and round-tripped."""

# ruff: noqa: UP037, RET504, SIM115 (script is no Python: a quoted dtype is not an annotation)

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tests.script.test_round_trip import check
from tilewright.arith.expr import IntImm
from tilewright.ir.structure import assert_structural_equal, structural_equal
from tilewright.script import from_source
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.tir import ir as tir
from tilewright.tir.interp import interpret

RNG = np.random.default_rng(0)


@tvm.script.ir_module
class MyModule:
    @T.prim_func
    def mm_relu(
        A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")
    ):
        T.func_attr({"global_symbol": "mm_relu", "tir.noalias": True})
        Y = T.alloc_buffer((128, 128), dtype="float32")
        for i, j, k in T.grid(128, 128, 128):
            with T.block("Y"):
                vi = T.axis.spatial(128, i)
                vj = T.axis.spatial(128, j)
                vk = T.axis.reduce(128, k)
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(128, 128):
            with T.block("C"):
                vi = T.axis.spatial(128, i)
                vj = T.axis.spatial(128, j)
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


def blocks(f: tir.PrimFunc) -> dict[str, tir.Block]:
    from tilewright.ir.node import walk

    return {n.name_hint: n for n in walk(f.body) if isinstance(n, tir.Block)}


def test_course_module() -> None:
    f = MyModule["mm_relu"]
    assert f.attrs["global_symbol"] == "mm_relu"
    assert f.attrs["tir.noalias"] is True
    a, b = (RNG.random((128, 128), np.float32) - np.float32(0.5) for _ in range(2))
    c = np.empty((128, 128), np.float32)
    interpret(f, a, b, c)
    np.testing.assert_allclose(c, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)
    assert "T.reads(A[vi, vk], B[vk, vj])" in check(MyModule)
    root = blocks(f)["root"]
    assert [x.name for x in root.alloc_buffers] == ["Y"]
    assert not root.reads


def test_subscript_buffers_and_handles_are_the_same() -> None:
    @T.prim_func
    def one(A: T.Buffer[(16, 4), "float32"], n: T.int32):
        for i in range(n):
            A[i, 0] = T.float32(1)

    @T.prim_func
    def two(a: T.handle, n: T.int32) -> None:
        A = T.match_buffer(a, (16, 4), "float32")
        for i in T.serial(n):
            A[i, 0] = 1.0

    assert_structural_equal(one.with_attr("global_symbol", "f"), two.with_attr("global_symbol", "f"))
    check(one)


def test_symbolic_shapes() -> None:
    @T.prim_func
    def add(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        m = T.int64(is_size_var=True)
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, [m], "float32", offset_factor=1)
        C = T.match_buffer(c, (n, m + T.int64(1)))
        for i, j in T.grid(n, m):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj + 1] = A[vi, vj] + B[vj]

    check(add)
    x, y = RNG.random((3, 5), np.float32), RNG.random(5, np.float32)
    out = np.zeros((3, 6), np.float32)
    interpret(add, x, y, out)
    np.testing.assert_allclose(out[:, 1:], x + y)


def test_convolution_with_captured_values() -> None:
    n, ci, co, h, k, stride = 1, 3, 4, 9, 3, 2
    oh = (h - k) // stride + 1

    @T.prim_func
    def conv(
        X: T.Buffer((n, ci, h, h), "float32"),
        W: T.Buffer((co, ci, k, k), "float32"),
        Y: T.Buffer((n, co, oh, oh), "float32"),
    ):
        for b, c, y, x, r, ky, kx in T.grid(n, co, oh, oh, ci, k, k):
            with T.block("conv"):
                vb, vc, vy, vx, vr, vky, vkx = T.axis.remap("SSSSRRR", [b, c, y, x, r, ky, kx])
                with T.init():
                    Y[vb, vc, vy, vx] = 0.0
                Y[vb, vc, vy, vx] += X[vb, vr, vy * stride + vky, vx * stride + vkx] * W[vc, vr, vky, vkx]

    check(conv)
    x, w = RNG.random((n, ci, h, h), np.float32), RNG.random((co, ci, k, k), np.float32)
    y = np.empty((n, co, oh, oh), np.float32)
    interpret(conv, x, w, y)
    windows = np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3))[:, :, ::stride, ::stride]
    np.testing.assert_allclose(y, np.einsum("nchwij,ocij->nohw", windows, w), rtol=1e-4)


def test_softmax() -> None:
    @T.prim_func(private=True)
    def softmax(X: T.Buffer((4, 7), "float32"), Y: T.Buffer((4, 7), "float32")):
        top = T.alloc_buffer((4,))
        total = T.alloc_buffer((4,), scope="local")
        for i, k in T.grid(4, 7):
            with T.block("max"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    top[vi] = T.min_value("float32")
                top[vi] = T.max(top[vi], X[vi, vk])
        for i, k in T.grid(4, 7):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    total[vi] = 0.0
                total[vi] = total[vi] + T.exp(X[vi, vk] - top[vi])
        for i, j in T.grid(4, 7):
            with T.block("norm"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.exp(X[vi, vj] - top[vi]) / total[vi]

    assert "global_symbol" not in softmax.attrs
    check(softmax)
    x, y = RNG.random((4, 7), np.float32), np.empty((4, 7), np.float32)
    interpret(softmax, x, y)
    e = np.exp(x)
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_gpu_threads() -> None:
    @T.prim_func
    def gpu(A: T.Buffer((64,), "float32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(16, thread="threadIdx.x", annotations={"pragma": 1}):
                with T.block("A"):
                    v = T.axis.spatial(64, bx * 16 + tx)
                    A[v] = A[v] * 2.0

    check(gpu)
    a = RNG.random(64, np.float32)
    b = a.copy()
    interpret(gpu, b)
    np.testing.assert_allclose(b, a * 2)

    @T.prim_func
    def launched(A: T.Buffer((64,), "float32")):
        bx = T.launch_thread("blockIdx.x", 4)
        tx = T.launch_thread("threadIdx.x", 16)
        shared = T.allocate([16], "float32", "shared")
        S = T.decl_buffer((16,), "float32", data=shared, scope="shared")
        S[tx] = A[bx * 16 + tx]
        T.tvm_storage_sync("shared")
        A[bx * 16 + tx] = S[15 - tx]

    check(launched)


def test_flat_code() -> None:
    @T.prim_func
    def flat(a: T.handle("float32", "global"), n: T.int64, out: T.handle) -> T.int32:
        T.func_attr({"calling_conv": "x", "e": T.int32(3)})
        assert n > T.int64(0), "ValueError: n must be positive"
        A = T.decl_buffer((n,), "float32", data=a)
        p: T.handle("float32", "global") = T.call_extern("handle", "make", n)
        P = T.decl_buffer((n,), data=p)
        total: T.float32 = A[0] * 2
        for i in T.parallel(0, n // 4):
            A[T.Ramp(i * 4, 1, 4)] = A[i * 4 : i * 4 + 4] + T.Broadcast(total, 4)
        if n % 4 != 0:
            for i in T.unroll(3):
                if T.likely(i < n):
                    P[i] = T.if_then_else(i > 0, A[i], T.float32(0))
                elif i == 2:
                    P[i] = T.Select(i > 1, A[i], total)
                else:
                    T.evaluate(0)
        else:
            while A[0] < 3.0 and not (A[1] > 2.0 or n < 2):
                A[0] += T.float32(1)
        with T.attr(0, "pragma", "x"):
            T.evaluate(T.call_extern("int32", "f", T.address_of(A[0]), "text"))
        return T.int32(0)

    text = check(flat)
    assert "elif" in text
    assert "T.Ramp(i * T.int64(4), T.int64(1), 4)" in text


def test_block_without_regions_gets_them() -> None:
    @T.prim_func
    def f(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 8), "float32"), n: T.int32):
        for i0, j in T.grid(8, 8):
            with T.block("outer"):
                vi, vj = T.axis.remap("SS", [i0, j])
                for k, l in T.grid(4, 2):
                    with T.block("inner"):
                        vk = T.axis.spatial(4, k)
                        vl = T.axis.spatial(2, l)
                        B[vi * 4 + vk, vj] = A[vi * 4 + vk, vj * 4 + vl * 2 + 1] + A[0, n]

    inner, outer = blocks(f)["inner"], blocks(f)["outer"]
    assert [str(r) for r in inner.writes] == [
        "T.BufferRegion(B, [T.Range(vi * 4 + vk, vi * 4 + vk + 1), T.Range(vj, vj + 1)])"
    ]
    assert repr(outer.writes[0]).count("vi * 4") == 2
    extent = outer.writes[0].region[0].extent
    assert isinstance(extent, IntImm)
    assert extent.value == 4
    assert len(outer.reads) == 1
    assert repr(outer.reads[0].region[0].extent) == "32"  # the hull of row vi*4+k and row 0 is not linear
    check(f)


def test_regions_of_vectors_views_and_loops() -> None:
    @T.prim_func
    def f(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                view = T.match_buffer(A[vi * 4 : vi * 4 + 4, 0:16], (4, 16))
                local = T.alloc_buffer((4,))
                for j in range(4):
                    local[j] = view[j, 3]
                    B[vi * 4 + 3 - j] = local[j]

    b = blocks(f)["b"]
    text = check(f)
    assert "T.reads(A[vi * 4:vi * 4 + 4, 0:16])" in text
    assert "T.writes(B[vi * 4:vi * 4 + 4])" in text
    assert len(b.reads) == 1


def test_macro_and_python_values() -> None:
    table = [1.5, 2.5, 3.5]
    names = ("first", "second")

    @T.macro
    def accumulate(buffer, index, value):
        buffer[index] = buffer[index] + value

    def double(x):
        return x * 2

    @T.prim_func
    def f(A: T.Buffer((len(table),), "float32"), B: T.Buffer((3,), "float32")):
        for i, value in enumerate(table):
            accumulate(A, i, T.float32(value))
            B[i] = double(A[i]) + T.float32(sum([x for x in table if x > 2]))
        if len(names) == 2:
            accumulate(A, 0, T.float32(10))
        k = T.meta_var(T.float32(1) + B[0])
        B[1] = k + k

    check(f)
    a, b = np.zeros(3, np.float32), np.zeros(3, np.float32)
    interpret(f, a, b)
    np.testing.assert_allclose(a, [11.5, 2.5, 3.5])
    np.testing.assert_allclose(b, [9, 20, 13])
    assert len(f.body.seq) == 8


def test_functions_of_a_class_without_ir_module() -> None:
    class Cases:
        @T.prim_func
        def before(A: T.Buffer((4,), "float32")):
            A[0] = 1.0

        @R.function
        def graph(x: R.Tensor((4,), "float32")):
            y = R.add(x, x)
            return y

    assert structural_equal(Cases.before, Cases.before)
    assert Cases.graph.ret_struct_info.shape[0].value == 4


def test_a_class_defined_twice() -> None:
    """Each definition is found as the one it is, not the first of its name in the file."""

    @I.ir_module
    class Twice:
        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            A[0] = 1.0

    first = Twice

    @I.ir_module
    class Twice:
        @T.prim_func
        def f(A: T.Buffer((8,), "float32")):
            A[7] = 2.0

    assert first["f"].buffer_map[first["f"].params[0]].shape[0].value == 4
    assert Twice["f"].buffer_map[Twice["f"].params[0]].shape[0].value == 8


def test_notebook_cell() -> None:
    """A cell is known to linecache only."""
    import linecache

    text = '@T.prim_func\ndef cell(A: T.Buffer((4,), "float32")):\n    A[0] = missing\n'
    name = "<ipython-input-1-abc>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    with pytest.raises(tvm.error.DiagnosticError, match="ipython-input-1-abc>:3:12"):
        exec(compile(text, name, "exec"), {"T": T})


def test_graph_with_branches_casts_and_tuples() -> None:
    @I.ir_module
    class Module:
        @R.function
        def helper(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            y = R.nn.relu(x)
            return y

        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            w: R.Tensor((4, 4), "float32"),
            flag: R.Tensor((), "bool"),
            s: R.Shape(["n", 4]),
        ):
            R.func_attr({"num_input": 2})
            n = T.int64()
            cls = Module
            with R.dataflow():
                lv0 = R.matmul(x, w)
                lv1 = R.add(R.nn.relu(lv0), R.const(1.0, "float32"))
                pair = (lv0, lv1)
                gv = pair[1]
                R.output(gv, pair)
            m = T.int64()
            cast = R.match_cast(gv, R.Tensor((m, 4), "float32"))
            if flag:
                a = R.exp(cast)
                out = R.sum(a, axis=[0], keepdims=True)
            else:
                with R.dataflow():
                    b = cls.helper(x)
                    c = R.sum(b, axis=0, keepdims=True)
                    R.output(c)
                out = c
            r = R.reshape(x, R.shape([n * 4]))
            return (out, pair, r)

    f = Module["main"]
    check(Module)
    info = f.ret_struct_info
    assert [d.value for d in info.fields[0].shape] == [1, 4]
    assert repr(info.fields[2]) == 'R.Tensor((n * 4,), dtype="float32")'
    assert f.body.blocks[0].bindings[0].var.struct_info.shape[1].value == 4


def test_nested_functions_and_kernels() -> None:
    @I.ir_module
    class Module:
        I.module_attrs({"version": 1})

        @T.prim_func
        def scale(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in T.vectorized(8):
                B[i] = A[i] * T.float32(2)

        @R.function
        def main(x: R.Tensor((8,), "float32")):
            cls = Module

            @R.function
            def inner(y: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
                z = R.negative(y)
                return z

            a = R.call_tir(cls.scale, (x,), out_sinfo=R.Tensor((8,), "float32"))
            b: R.Tensor((8,), "float32") = inner(a)
            R.call_packed("debug.print", b, sinfo_args=R.Tuple())
            c = R.call_dps_packed("my.kernel", (a, b), out_sinfo=[R.Tensor((8,), "float32"), R.Tensor((2,), "int64")])
            return c[0]

    check(Module)
    assert Module.attrs["version"] == 1
    assert [v.name_hint for v in Module.functions] == ["scale", "main"]


def test_constants_stay_out_of_the_text() -> None:
    from tilewright.relax import ir as rx
    from tilewright.relax.block_builder import BlockBuilder
    from tilewright.relax.values import const, var

    weights = np.arange(4000, dtype="float32").reshape(40, 100)
    bb = BlockBuilder()
    x = var("x", (2, 100))
    with bb.function("main", [x]):
        half = const(weights.astype("float16"))
        bb.emit_func_output(rx.Tuple((x, const(weights), half, const(weights))))
    text = check(bb.get())
    assert len(text) < 600
    assert text.count('metadata["relax.expr.Constant"]') == 3
    assert text.count('metadata["relax.expr.Constant"][0]') == 2, "the same array is kept once"
    check(bb.get(), show_meta=True)


def test_text_written_for_tvm() -> None:
    mod = from_source(
        """
import tvm
from tvm.script import ir as I, tir as T

@tvm.script.ir_module
class Mod:
    @T.prim_func
    def main(A: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + extra
""",
        {"extra": 5},
    )
    a = np.zeros(4, np.int32)
    interpret(mod, a)
    assert a.tolist() == [5] * 4


def test_spans_say_where_nodes_come_from() -> None:
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.exp(A[i])

    store = f.body.body
    assert store.span.source == __file__
    assert store.value.span.line == store.span.line
    line = open(__file__).read().splitlines()[store.value.span.line - 1]
    assert line[store.value.span.column - 1 : store.value.span.end_column - 1] == "T.exp(A[i])"


def test_names_of_module_functions_and_plain_shapes() -> None:
    """As in older programs: the kernel by its bare name, the output by shape and dtype."""

    @I.ir_module
    class Module:
        @T.prim_func
        def copy(a: T.handle, b: T.handle):
            n = T.var("int64")
            A = T.match_buffer(a, (n,))
            B = T.match_buffer(b, (n,))
            for i in T.serial(0, n):
                B[i] = T.cast(A[i], "float32")

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.call_tir(copy, (x,), (4,), dtype="float32")
            return y

    assert Module["main"].body.blocks[0].bindings[0].value.args[0] is Module.get_global_var("copy")
    check(Module)


def test_buffers_that_nothing_declares() -> None:
    """Flat code may use a buffer over a pointer without declaring it; it is declared once, where its pointer is bound."""
    from tilewright.arith import expr as E

    n, p, q = E.Var("n", "int64"), E.pointer_var("p", "float32"), E.pointer_var("q", "float32", "local")
    i, k = E.Var("i", "int64"), E.Var("k", "int64")
    P, Q = (tir.Buffer(v, "float32", (n,), name=v.name) for v in (p, q))
    one = E.IntImm("int64", 1)

    def copy(v: E.Var, a: tir.Buffer, b: tir.Buffer) -> tir.Stmt:
        return tir.For(v, E.IntImm("int64", 0), n, tir.ForKind.SERIAL, tir.BufferStore(a, b[v], (v,)))

    body = tir.SeqStmt((copy(i, Q, P), copy(k, P, Q)))
    f = tir.PrimFunc(
        (p, n),
        tir.SeqStmt((tir.BufferStore(P, P[one], (one,)), tir.Allocate(q, "float32", (n,), E.IntImm("bool", 1), body))),
    )
    text = check(f)
    assert text.count("T.Buffer(") == 2
    check(tir.Allocate(q, "float32", (n,), E.IntImm("bool", 1), body))


def test_where_a_node_stands_in_the_text() -> None:
    from tilewright.script import locate
    from tilewright.support.diagnostics import CompileError

    f = MyModule["mm_relu"]
    block = blocks(f)["Y"]
    span = locate(MyModule, block.body)
    assert span is not None
    line = span.text.splitlines()[span.line - 1]
    assert line[span.column - 1 :] == "Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]"
    text = str(CompileError.at("TW0000", "here", span))
    assert "^" * len(line.strip()) in text
    assert locate(f, MyModule) is None


def test_names_are_unique_and_reused_after_their_scope() -> None:
    from tilewright.arith import expr as E
    from tilewright.script import to_script

    a, b, c = E.Var("i"), E.Var("i"), E.Var("i")
    zero, four = E.IntImm("int32", 0), E.IntImm("int32", 4)

    def loop(v: E.Var, body: tir.Stmt) -> tir.Stmt:
        return tir.For(v, zero, four, tir.ForKind.PARALLEL, body)

    s = tir.SeqStmt((loop(a, loop(b, tir.Evaluate(a + b))), loop(c, tir.Evaluate(c))))
    assert to_script(s).splitlines()[1].strip() == "for i_1 in T.parallel(4):"
    assert to_script(s).count("i_1") == 2
    check(s)


def test_prefixes_and_repr() -> None:
    from tilewright.script import to_script

    text = to_script(MyModule, tir_prefix="TT", ir_prefix="II", header=False)
    assert text.startswith("@II.ir_module")
    assert "T.grid" in text.replace("TT.grid", "T.grid")
    assert "\n    @T." not in text
    assert repr(MyModule["mm_relu"].body.block.alloc_buffers[0]) == 'T.Buffer((128, 128), "float32")'
    assert MyModule.script() == to_script(MyModule)


def test_deep_nests_print_without_recursion() -> None:
    from tilewright.arith import expr as E
    from tilewright.script import to_script

    e: E.PrimExpr = E.Var("i")
    for _ in range(5000):
        e = E.Sub(e, E.IntImm("int32", 2))
    assert len(to_script(e)) > 20000
    s: tir.Stmt = tir.Evaluate(e)
    for k in range(300):
        s = tir.For(E.Var("i"), E.IntImm("int32", 0), E.IntImm("int32", 4), tir.ForKind(k % 2), s)
    assert to_script(s).count("for ") == 300


def test_deep_expressions_parse_back() -> None:
    """Python reads at most 200 nested parentheses; deeper parts get a name of their own (`T.meta_var`)."""
    from tilewright.arith import expr as E

    i = E.Var("i")
    e: E.PrimExpr = i
    for _ in range(150):
        e = E.Sub(i, E.Mul(e, E.IntImm("int32", 3)))
    assert "T.meta_var" in check(tir.Evaluate(e))


def test_speed() -> None:
    """500 intrinsics parse in well under half a second (of this process's own time)."""
    import time

    lines = [f"    B[{i}] = T.exp(A[{i}] * T.float32(2) + T.float32(1))" for i in range(500)]
    head = '@T.prim_func\ndef f(A: T.Buffer((512,), "float32"), B: T.Buffer((512,), "float32")):\n'
    times: list[float] = []
    for _ in range(3):
        start = time.process_time()
        from_source(head + "\n".join(lines))
        times.append(time.process_time() - start)
    assert min(times) < 0.5


def test_vectors_by_slices() -> None:
    from tilewright.script.parser import tir as TT

    @TT.prim_func
    def f(A: TT.Buffer((16,), "float32"), B: TT.Buffer((16,), "float32")):
        for i in T.serial(4):
            B[i * 4 : i * 4 + 4] = T.exp(A[i * 4 : i * 4 + 4]) + T.Broadcast(T.float32(1), 4)
            B[0:16:8] = A[1:16:8]

    check(f)
    a = RNG.random(16, np.float32)
    b = np.zeros(16, np.float32)
    interpret(f, a, b)
    np.testing.assert_allclose(b[1:8], np.exp(a[1:8]) + 1, rtol=1e-6)
    assert b[8] == a[9]
