"""Faulty script: each error has its code, underlines the user's expression, and offers a way out."""

from __future__ import annotations

import pytest

import tilewright as tvm
from tilewright.script import from_source
from tilewright.script import ir as I
from tilewright.script import relax as R
from tilewright.script import tir as T
from tilewright.support.diagnostics import CompileError

TIR = '@T.prim_func\ndef f(A: T.Buffer((8, 8), "float32"), n: T.int32):\n'
GRAPH = '@R.function\ndef f(x: R.Tensor((3, 4), "float32"), c: R.Tensor((), "bool")):\n'


def tir(*lines: str) -> str:
    return TIR + "".join(f"    {line}\n" for line in lines)


def graph(*lines: str) -> str:
    return GRAPH + "".join(f"    {line}\n" for line in lines)


CASES: list[tuple[str, str, str, str, str]] = [
    # code, text, underlined, part of the message, part of the hint
    ("TW0100", tir("A[0, 0 = 1"), "[", "not Python", ""),
    ("TW0102", tir("A[0, 0] = AA[1, 1]"), "AA", "'AA' is not defined", "'A'"),
    ("TW0102", graph("with R.dataflow():", "    y = R.nn.relu(x)", "    z = R.nn.relu(y)", "    R.output(z)", "return y"), "y", "'y'", "R.output"),
    ("TW0102", "from tvm.script import nothing", "from tvm.script import nothing", "cannot import", ""),
    ("TW0103", tir("for i in T.seriel(8):", "    A[i, 0] = 1.0"), "T.seriel", "'seriel'", "'serial'"),
    ("TW0103", graph("y = R.nn.rleu(x)", "return y"), "R.nn.rleu", "'rleu'", "'relu'"),
    ("TW0103", "@I.ir_module\nclass M:\n    @R.function\n    def main(x: R.Tensor((3,))):\n        return M.other(x)\n    @T.prim_func\n    def othre(A: T.Buffer((1,))):\n        A[0] = 1.0\n", "M.other", "no function 'other'", "'othre'"),
    ("TW0904", tir("A[0, 0] = A[1, 1] // 0.0 + n // 0"), "n // 0", "zero", ""),
    ("TW0104", tir("A[0, 0] = T.exp(1, 2)"), "T.exp(1, 2)", "argument", ""),
    ("TW0104", graph("y = R.nn.softmax(x, axes=1)", "return y"), "R.nn.softmax(x, axes=1)", "no argument 'axes'", ""),
    ("TW0104", tir("for i in T.thread_binding(8):", "    A[0, 0] = 1.0"), "T.thread_binding(8)", "thread=", ""),
    ("TW0104", graph("y = R.call_tir(x, (x,))", "return y"), "R.call_tir(x, (x,))", "cls.f", ""),
    ("TW0104", tir("for i in range(1.5):", "    A[0, 0] = 1.0"), "range(1.5)", "integer", ""),
    ("TW0105", tir("try:", "    A[0, 0] = 1.0", "except ValueError:", "    pass"), "try:", "no try statements", ""),
    ("TW0105", tir("for i in range(0, 8, 2):", "    A[i, 0] = 1.0"), "2", "step", "multiply"),
    ("TW0105", graph("for i in range(3):", "    y = R.nn.relu(x)", "return x"), "for i in range(3):", "no for statements", ""),
    ("TW0105", tir("n.x = 3"), "n.x", "cannot assign", ""),
    ("TW0105", tir("with n:", "    A[0, 0] = 1.0"), "n", "opens no scope", ""),
    ("TW0105", graph("x[0] = x", "return x"), "x[0]", "never changes", ""),
    ("TW0106", tir("for i, j, k in T.grid(8, 8):", "    A[i, j] = 1.0"), "i, j, k", "2 loops, not 3", ""),
    ("TW0106", tir("for i in n:", "    A[i, 0] = 1.0"), "n", "cannot go over n", "T.grid"),
    ("TW0106", graph("a, b = (x, x, x)", "return a"), "a, b", "2 names for 3 values", ""),
    ("TW0107", "@T.prim_func\ndef f(A):\n    A[0] = 1\n", "A", "has no type", "T.Buffer"),
    ("TW0107", "@T.prim_func\ndef f(A: 3):\n    A[0] = 1\n", "3", "no type of a parameter", "T.handle"),
    ("TW0107", "@R.function\ndef f(x: 3):\n    return x\n", "3", "no struct info", ""),
    ("TW0108", tir("vi = T.axis.spatial(8, 0)", "A[vi, 0] = 1.0"), "vi = T.axis.spatial(8, 0)", "belongs to a block", ""),
    ("TW0108", tir("T.reads(A[0, 0])", "A[0, 0] = 1.0"), "T.reads(A[0, 0])", "belongs in a block", ""),
    ("TW0108", tir("T.block('x')"), "T.block('x')", "with", ""),
    ("TW0108", tir("with T.init():", "    A[0, 0] = 1.0"), "T.init()", "belongs in a block", ""),
    ("TW0108", tir("with T.block('b'):", "    v = T.axis.remap('S', [n])", "    A[v, 0] = 1.0"), "v = T.axis.remap('S', [n])", "loop variables", ""),
    ("TW0108", tir("B = T.match_buffer(n, (8,))", "B[0] = 1.0"), "B = T.match_buffer(n, (8,))", "", ""),
    ("TW0109", tir("A[0] = 1.0"), "A[0]", "2 dimensions, not 1", ""),
    ("TW0109", tir("A[0, 0] = A[0, 0, 0]"), "A[0, 0, 0]", "2 dimensions, not 3", ""),
    ("TW0109", tir("A[0, 0] = A[0, T.float32(1)]"), "0, T.float32(1)", "integer, not float32", ""),
    ("TW0109", tir("n[0] = 1.0"), "n", "no buffer", ""),
    ("TW0109", tir("A[0, 0] = 'text'"), "A[0, 0] = 'text'", "", ""),
    ("TW0104", tir("A[0, 0:8:-1] = T.broadcast(1.0, 8)"), "A[0, 0:8:-1]", "positive constant", ""),
    ("TW0104", tir("return T.evaluate(0)"), "return", "expression", ""),
    ("TW0104", tir("T.realize(A, 'local')"), "T.realize(A, 'local')", "a region", ""),
    ("TW0104", "@T.prim_func\ndef f(h: T.handle, A: T.Buffer((4,))):\n    A[0] = h + 2\n", "h + 2", "no number", "" ),
    ("TW0104", "@T.prim_func\ndef f(A: T.Buffer((8,), 'flaot32')):\n    A[0] = 1.0\n", "T.Buffer((8,), 'flaot32')", "no", ""),
    ("TW0104", tir("A[0, 0] = A[0:2, 0] + T.float32(1)"), "A[0:2, 0] + T.float32(1)", "only the last index", ""),
    ("TW0108", tir("with T.block('b'):", "    v = T.axis.S(8)", "    A[v, 0] = 1.0"), "v = T.axis.S(8)", "bound to nothing", "T.axis.S(16, i)"),
    ("TW0108", tir("with T.block('b'):", "    v = T.axis.S(8, T.float32(0))", "    A[v, 0] = 1.0"), "v = T.axis", "an integer, not float32", ""),
    ("TW0108", tir("with T.Then():", "    A[0, 0] = 1.0"), "T.Then()", "T.If", ""),
    ("TW0118", tir("with T.block('b'):", "    T.reads(A[0, 0])", "    T.reads(A[0, 1])", "    A[0, 0] = 1.0"), "T.reads(A[0, 1])", "T.reads already", "one T.reads"),
    ("TW0118", tir("with T.block('b'):", "    T.block_attr({'k': 1})", "    T.block_attr({'k': 2})", "    A[0, 0] = 1.0"), "T.block_attr({'k': 2})", "'k': 1 already", ""),
    ("TW0118", tir("with T.block('b'):", "    v = T.axis.S(8, 0)", "    v = T.axis.S(8, 1)", "    A[v, 0] = 1.0"), "v = T.axis.S(8, 1)", "an axis 'v' already", ""),
    ("TW0118", "@T.prim_func(private=True)\ndef f(A: T.Buffer((4,))):\n    T.func_attr({'global_symbol': 'g'})\n", "T.func_attr", "private", "private=True"),
    ("TW0119", tir("x = T.alloc_buffer((8,))", "x = T.alloc_buffer((9,))", "x[0] = A[0, 0]"), "x", "defined already", "another name"),
    ("TW0119", "@T.prim_func\ndef f(n: T.int32, n: T.int32):\n    T.evaluate(n)\n", "n: T.int32):", "two parameters", ""),
    ("TW0120", tir("with T.block('b'):", "    T.reads()", "    T.writes(A[0, 0:4])", "    v = T.match_buffer(A[0, 0:4], (5,))", "    v[0] = 1.0"), "v = T.match_buffer", "of the region is 4", "leading"),
    ("TW0121", tir("m = T.int32()", "A[m, 0] = 1.0"), "A[m, 0] = 1.0", "nothing defines it", "check_well_formed"),
    ("TW0121", tir("with T.LetStmt(1, var=n):", "    A[n, 0] = 1.0"), "with T.LetStmt", "again inside of its own scope", ""),
    ("TW0122", tir("for i in range(8):", "    with T.block('b'):", "        v = T.axis.S(8, i)", "        A[v, i] = 1.0"), "T.block('b')", "loop variable 'i'", "T.axis.spatial"),
    ("TW0110", graph('y: R.Tensor((3, 5), "float32") = R.nn.relu(x)', "return y"), 'R.Tensor((3, 5), "float32")', "dimension 1 is 5, but it is 4", "match_cast"),
    ("TW0110", graph('y: R.Tensor((3, 4), "int8") = R.nn.relu(x)', "return y"), 'R.Tensor((3, 4), "int8")', "dtype int8", ""),
    ("TW0112", graph("y = R.nn.relu(x)"), "def f(", "returns nothing", "return value"),
    ("TW0112", graph("return x", "y = x"), "y = x", "behind the return", ""),
    ("TW0114", graph("if c:", "    return x", "else:", "    y = x", "return x"), "return x", "", ""),
    ("TW0113", graph("with R.dataflow():", "    y = R.nn.relu(x)", "return x"), "y = R.nn.relu(x)", "ends with R.output", "last line"),
    ("TW0113", graph("with R.dataflow():", "    y = R.nn.relu(x)", "    R.output(yy)", "return x"), "yy", "not bound in this block", "'y'"),
    ("TW0113", graph("R.output(x)", "return x"), "R.output(x)", "belongs at the end", ""),
    ("TW0114", graph("if c:", "    y = R.nn.relu(x)", "return x"), "if c:", "needs an else", ""),
    ("TW0114", graph("if c:", "    y = R.nn.relu(x)", "else:", "    z = x", "return x"), "z = x", "'y' and 'z'", "one name"),
    ("TW0115", "@I.ir_module\nclass M:\n    def f(x):\n        return x\n", "def f(x):", "no script", "@T.prim_func"),
    ("TW0116", "import numpy\n", "", "defines nothing", ""),
    ("TW0116", "@I.ir_module\nclass M:\n    @T.prim_func\n    def f(n: T.int32):\n        T.evaluate(n)\n    @T.prim_func\n    def f(n: T.int32):\n        T.evaluate(n)\n", "def f(n", "two functions", ""),
    ("TW0203", graph("y = R.matmul(x, x)", "return y"), "R.matmul(x, x)", "matmul", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "underlined", "message", "hint"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_error(code: str, text: str, underlined: str, message: str, hint: str) -> None:
    with pytest.raises(CompileError) as caught:
        from_source(text)
    (d,) = caught.value.diagnostics
    assert d.code == code, d.render()
    assert message in d.message
    assert hint in (d.hint or "") if hint else True
    if not underlined:
        return
    assert d.span is not None
    line = text.splitlines()[d.span.line - 1]
    assert line[d.span.column - 1 :].startswith(underlined), (line, d.span, d.render())
    rendered = d.render().splitlines()
    assert f" | {line}" in rendered[2]
    assert set(rendered[3].partition("| ")[2].strip()) == {"^"}


def test_errors_of_a_decorated_function_name_the_file() -> None:
    with pytest.raises(tvm.error.DiagnosticError) as caught:

        @T.prim_func
        def broken(A: T.Buffer((8,), "float32")):
            for i in range(8):
                A[i] = A[i] + bias

    text = str(caught.value)
    assert __file__ in text
    assert "A[i] = A[i] + bias" in text
    assert text.splitlines()[3].rstrip().endswith("^^^^")


def test_columns_behind_other_scripts() -> None:
    """Columns count characters, not bytes."""
    with pytest.raises(CompileError) as caught:
        from_source(tir('T.evaluate(T.call_extern("int32", "größe", nn))'))
    (d,) = caught.value.diagnostics
    assert d.span is not None
    line = '    T.evaluate(T.call_extern("int32", "größe", nn))'
    assert line[d.span.column - 1 : d.span.end_column - 1] == "nn"


def test_source_that_is_nowhere() -> None:
    names: dict[str, object] = {"T": T}
    with pytest.raises(CompileError, match="TW0101"):
        exec('@T.prim_func\ndef f(A: T.Buffer((8,), "float32")):\n    A[0] = 1.0\n', names)


def test_error_in_a_macro_underlines_the_macro() -> None:
    @T.macro
    def twice(buffer):
        buffer[0] = buffer[0] * factor

    with pytest.raises(CompileError) as caught:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32")):
            twice(A)

    assert "buffer[0] * factor" in str(caught.value)


def test_undecorated_function_in_a_module() -> None:
    with pytest.raises(CompileError, match="TW0115"):

        @I.ir_module
        class Module:
            @R.function
            def main(x: R.Tensor((3,), "float32")):
                return x

            def helper(x):
                return x


def test_frames_need_something_to_build_on() -> None:
    with pytest.raises(CompileError, match="TW0117"), T.serial(4):
        pass


def test_what_is_not_well_formed_may_be_kept() -> None:
    @T.prim_func(check_well_formed=False)
    def free(A: T.Buffer((8,), "float32")):
        n = T.int32()
        A[n] = 1.0

    text = free.script()
    assert "check_well_formed=False" in text
    assert tvm.ir.structural_equal(from_source(text), free, map_free_vars=True)
    plain = text.replace("(check_well_formed=False)", "")
    with pytest.raises(CompileError, match="TW0121"):
        from_source(plain)
    assert tvm.ir.structural_equal(from_source(plain, check_well_formed=False), free, map_free_vars=True)

    @I.ir_module(check_well_formed=False)
    class Module:
        @T.prim_func
        def f(A: T.Buffer((8,), "float32")):
            n = T.int32()
            A[n] = 1.0

    assert len(Module.functions) == 1
