"""The options of `script()`: what is not written, how it is laid out, what is underlined and annotated."""

from __future__ import annotations

import re

import pytest
from tvm_ffi.access_path import AccessPath

import tilewright as tvm
from tilewright.script import from_source
from tilewright.script import tir as T


@T.prim_func
def main(a: T.handle, B: T.Buffer((8, 4), "float32")):
    A = T.match_buffer(a, (8, 4))
    for i, j in T.grid(8, 4):
        with T.block("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)


LOOP = main.body.block.body
BLOCK = LOOP.body.body.block


@T.prim_func
def steps(n: T.int32, m: T.int32):
    T.evaluate(n)
    T.evaluate(m + n)
    T.evaluate(m)
    T.evaluate(n * 2)
    T.evaluate(m * 3)
    T.evaluate(m * 4)


def lines(text: str) -> list[str]:
    """The lines of the function, without the header."""
    return [line for line in text.split("\n") if line and not line.startswith("#")]


def test_without_sugar() -> None:
    text = main.script(syntax_sugar=False)
    for part in ("B = T.match_buffer(", 'with T.block("root"):', "for j in range(4):", "vj = T.axis.spatial(4, j)"):
        assert part in text
    assert "T.grid" not in text
    assert "remap" not in text
    tvm.ir.assert_structural_equal(from_source(text), main)


def test_dtypes_that_are_not_written() -> None:
    x, y = tvm.tir.Var("x", "int64"), tvm.tir.Var("y", "float16")
    assert (x + 1).script(verbose_expr=False) == "x + T.int64(1)"
    assert (x + 1).script(verbose_expr=False, int_dtype="int64") == "x + 1"
    assert (y * 0.5).script(verbose_expr=False, float_dtype="float16") == "y * 0.5"
    assert 'T.alloc_buffer((4,), "float32")' in _with_alloc().script(buffer_dtype="float16")
    assert "T.alloc_buffer((4,))" in _with_alloc().script()


def _with_alloc():
    @T.prim_func
    def f():
        A = T.alloc_buffer((4,))
        A[0] = 1.0

    return f


def test_free_variables_are_declared_unless_told_otherwise() -> None:
    e = tvm.tir.Var("x", "int32") + 1
    assert e.script() == "x = T.int32()\nx + 1"
    assert e.script(verbose_expr=False) == "x + 1"


def test_layout() -> None:
    text = main.script(indent_spaces=2, print_line_numbers=True)
    assert "\n 4 def main(A" in text
    assert '\n 6     with T.block("scale"):' in text
    assert "\n10 " in text


def test_addresses_in_names() -> None:
    plain, text = main.script(), main.script(show_object_address=True)
    assert re.sub(r"_0x[0-9a-f]+", "", text) == plain
    assert len(set(re.findall(r"vi_0x[0-9a-f]+", text))) == 1
    tvm.ir.assert_structural_equal(from_source(text), main)


def test_every_use_of_a_variable_is_underlined() -> None:
    text = lines(steps.script(obj_to_underline=[steps.params[0]]))
    assert text[2:6] == ["    T.evaluate(n)", "               ^", "    T.evaluate(m + n)", "                   ^"]


def test_a_statement_with_a_suite_is_underlined_at_its_head() -> None:
    text = main.script(obj_to_underline=[LOOP.body])
    assert "        for j in range(4):\n        ^^^^^^^^^^^^^^^^^^\n" in text
    assert text.count("^") == len("for j in range(4):")
    for node in (BLOCK, LOOP.body.body):
        assert 'with T.block("scale"):\n            ^^^^^^^^^^^^^^^^^^^^^^\n' in main.script(
            obj_to_underline=[node, LOOP.body]
        )
    root = main.script(obj_to_underline=[main.body.block])
    assert '    with T.block("root"):\n    ^^^^^^^^^^^^^^^^^^^^^\n' in root


def test_functions_and_modules_are_underlined_whole() -> None:
    mod = tvm.IRModule({"steps": steps})
    whole = lines(mod.script(path_to_underline=[AccessPath.root()]))
    assert whole[:4] == ["@I.ir_module", "^" * 12, "class Module:", "^" * 13]
    assert len(whole) == 2 * 10
    one = lines(mod.script(obj_to_underline=[steps]))
    assert one[:4] == ["@I.ir_module", "class Module:", "    @T.prim_func", "    " + "^" * 12]


def test_comments() -> None:
    text = main.script(obj_to_annotate={BLOCK: "block 0", BLOCK.body: "the store"})
    assert '        # block 0\n        with T.block("scale"):' in text
    assert "T.float32(2.0)  # the store" in text
    path = AccessPath.root().attr("body").attr("seq").array_item(1)
    assert "T.evaluate(m + n)  # second" in steps.script(path_to_annotate={path: "second"})
    assert "T.evaluate(m + n)  # second" in steps.script(path_to_annotate={"<root>.body.seq[1]": "second"})


def test_only_the_lines_around() -> None:
    text = steps.script(obj_to_underline=[steps.body[3]], num_context_lines=1, print_line_numbers=True)
    assert text.split("\n") == [
        "(... 6 lines skipped ...)",
        " 7     T.evaluate(m)",
        " 8     T.evaluate(n * 2)",
        "       " + "^" * 17,
        " 9     T.evaluate(m * 3)",
        "10     T.evaluate(m * 4)",
    ]
    assert "skipped" not in steps.script(obj_to_underline=[main], num_context_lines=1)


def test_what_is_not_there() -> None:
    with pytest.raises(ValueError, match="no 'nothing' in a PrimFunc"):
        steps.script(path_to_underline=["<root>.nothing"])
    with pytest.raises(TypeError):
        steps.script(colour=True)


@pytest.mark.parametrize("style", [None, "light", "dark", "ansi"])
def test_show(capsys: pytest.CaptureFixture[str], style: str | None) -> None:
    main.show(style=style)
    main.show(style, False, indent_spaces=2)
    assert "T.grid(8, 4)" in capsys.readouterr().out


def test_cprint(capsys: pytest.CaptureFixture[str]) -> None:
    from tilewright.script.highlight import cprint

    cprint(main)
    cprint("text", "light")
    assert capsys.readouterr().out == main.script() + "\ntext\n"


def test_black(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The formatter runs if asked for, and says what to install where it is not there."""
    try:
        import black  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install black"):
            main.show(black_format=True)
        monkeypatch.setenv("TVM_BLACK_FORMAT", "1")
        with pytest.raises(ImportError, match="pip install black"):
            main.show()
        return
    main.show(black_format=True)
    assert "T.grid" in capsys.readouterr().out
