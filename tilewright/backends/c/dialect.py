"""C99 for the host: kernels and their packed entry points, in one file that needs libc, libm and the FFI's error function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tilewright.arith import expr as E
from tilewright.backends.c.support import SUPPORT, SUPPORT_NEEDS
from tilewright.backends.source.dialect import MATH, Dialect, storage_scope
from tilewright.backends.source.expr import c_string, cast_text, convert
from tilewright.backends.source.intrinsics import COMMON
from tilewright.backends.source.stmt import write
from tilewright.backends.source.writer import ATOM, POSTFIX, SourceModule, Text, Writer
from tilewright.ir import dtype as dt
from tilewright.ir.op import GlobalVar
from tilewright.tir import ir as T
from tilewright.tir.lower.make_packed_api import dtype_word

__all__ = ["CDialect"]

_STACK_LIMIT = 16 * 1024
_LOCAL_LIMIT = 256 * 1024
_INT, _BOOL, _FLOAT, _POINTER, _DLTENSOR, _STRING = 1, 2, 3, 4, 7, 8


class CDialect(Dialect):
    """Portable C99."""

    intrinsics: ClassVar[dict[str, Callable[[Writer, Any], Text]]] = dict(COMMON)

    def helper(self, mod: SourceModule, name: str) -> str:
        """Helpers of all dialects, and the support of packed functions."""
        text = SUPPORT.get(name)
        if text is None:
            return super().helper(mod, name)
        for header in ("stdint.h", "stddef.h", "stdio.h"):
            mod.include(header)
        for need in SUPPORT_NEEDS.get(name, ()):
            (mod.include if need.endswith(".h") else mod.helper)(need)
        return text

    # ---- leaving a function

    def leave(self, w: Writer, value: str) -> None:
        """Free what is alive and return."""
        for release in reversed(w.cleanups):
            w.line(release)
        w.line(f"return {value};")

    def check(self, w: Writer, call: str) -> None:
        """Leave the function unless a call gives 0."""
        with w.block(f"if ({call} != 0)"):
            self.leave(w, "-1")

    def fail(self, w: Writer, kind: str, message: str, *values: str) -> None:
        """Raise an error and leave."""
        w.mod.helper("tw_raise")
        args = "".join(f", {v}" for v in values)
        text = f"tw_raise({c_string(kind)}, {c_string(message)}{args})"
        if w.cleanups:
            w.line(f"{text};")
            self.leave(w, "-1")
        else:
            w.line(f"return {text};")

    # ---- statements

    def evaluate(self, w: Writer, e: E.PrimExpr) -> None:
        """A call as a statement; that of a function of the module is checked."""
        if isinstance(e, E.Call) and isinstance(e.op, GlobalVar):
            self.check(w, w.text(e))
            return
        super().evaluate(w, e)

    def call_function(self, w: Writer, e: E.Call) -> Text:
        """`name(args)`: its status."""
        name = e.op.name_hint  # pyright: ignore[reportAttributeAccessIssue]
        symbol = w.mod.signatures.get(name, name)
        return f"{symbol}({', '.join(w.text(a) for a in e.args)})", POSTFIX

    def assertion(self, w: Writer, s: T.AssertStmt) -> None:
        """Raise unless the condition holds; `KindError: text` names the kind."""
        text = s.message.value if isinstance(s.message, E.StringImm) else "the condition of an assertion does not hold"
        kind, colon, rest = text.partition(": ")
        if not (colon and kind.isidentifier() and kind.endswith("Error")):
            kind, rest = "AssertionError", text
        with w.block(f"if ({w.text(E.Not(s.condition))})"):
            self.fail(w, kind, rest.replace("%", "%%"))

    def attribute(self, w: Writer, s: T.AttrStmt) -> Any:
        """A thread axis has no meaning here; other attributes are hints."""
        if s.attr_key in ("thread_extent", "virtual_thread"):
            raise w.unsupported(f"the thread axis {getattr(s.node, 'thread_tag', '')!r}", "C code runs on one thread")
        return s.body

    def loop_head(self, w: Writer, s: T.For) -> None:
        """A parallel loop says so; it runs in order."""
        if s.kind == T.ForKind.PARALLEL:
            w.line("/* the iterations are independent */")

    def allocate(self, w: Writer, s: T.Allocate) -> Any:
        """An array on the stack where it is small, else from malloc."""
        size, scope = 1, storage_scope(s.buffer_var)
        if all(isinstance(x, E.IntImm) for x in s.extents):
            for x in s.extents:
                size *= int(x)  # pyright: ignore[reportArgumentType]
            if size * dt.storage_bytes(s.dtype) <= (_LOCAL_LIMIT if scope == "local" else _STACK_LIMIT):
                return super().allocate(w, s)
        count: Any = s.extents[0]
        for x in s.extents[1:]:
            count = E.Mul(count, x)
        w.mod.include("stdlib.h")
        ty = self.memory_type(s.dtype)
        with w.block(""):
            name = w.bind(s.buffer_var)
            w.pointers[s.buffer_var] = (s.dtype, scope)
            w.line(f"{ty}* {name} = ({ty}*)malloc((size_t)({w.index(count)}) * sizeof({ty}));")
            with w.block(f"if ({name} == NULL)"):
                self.fail(w, "MemoryError", f"{w.name}: no memory for the workspace {name}")
            w.cleanups.append(f"free({name});")
            write(w, s.body)
            w.line(w.cleanups.pop())
        return None


def _row(*names: str) -> Callable[[Callable[[Writer, Any], Text]], Callable[[Writer, Any], Text]]:
    def enter(f: Callable[[Writer, Any], Text]) -> Callable[[Writer, Any], Text]:
        for name in names:
            CDialect.intrinsics[name] = f
        return f

    return enter


def _c(w: Writer) -> CDialect:
    assert isinstance(w.dialect, CDialect)
    return w.dialect


@_row("ret")
def _ret(w: Writer, e: E.Call) -> Text:
    if e.args[0].dtype != "int32":
        raise w.unsupported(
            f"a function that returns a {e.args[0].dtype}", "a native function returns its int32 status"
        )
    _c(w).leave(w, w.text(e.args[0]))
    return "", ATOM


@_row("tw_raise")
def _raise(w: Writer, e: E.Call) -> Text:
    kind, message, *values = e.args
    texts: list[str] = []
    for v in values:
        if v.dtype == "handle":
            texts.append(cast_text("const char*", w.expr(v))[0])
        else:
            wide = "double" if dt.is_float(v.dtype) else "long long"
            texts.append(cast_text(wide, w.expr(v))[0])
    # pointers come in the place of `%s`
    _c(w).fail(w, kind.value, message.value, *texts)
    return "", ATOM


@_row("call_extern", "call_pure_extern")
def _call_extern(w: Writer, e: E.Call) -> Text:
    """A C function: one of the support, one of the module, or an outer one, which is declared."""
    name = e.args[0].value
    args = ", ".join(w.text(a) for a in e.args[1:])
    if name in SUPPORT:
        w.mod.helper(name)
    elif name in w.mod.signatures:
        name = w.mod.signatures[name]
    elif name not in MATH:
        params = ", ".join(
            w.dialect.type(a.dtype) if not isinstance(a, E.StringImm) else "const char*" for a in e.args[1:]
        )
        w.mod.declarations.setdefault(name, f"{w.dialect.type(e.dtype)} {name}({params or 'void'});")
    else:
        w.mod.include("math.h")
    return f"{name}({args})", POSTFIX


@_row("tvm_call_packed", "tvm_call_cpacked")
def _call_packed(w: Writer, e: E.Call) -> Text:
    """A function with the packed convention: registered, or a symbol."""
    if w.lazy:
        raise w.unsupported("a packed call in an operand that may not be evaluated")
    name = e.args[0].value
    w.mod.helper("tw_any")
    table, result = "NULL", w.fresh("result")
    if len(e.args) > 1:
        table = w.fresh("args")
        values = [_argument(w, a) for a in e.args[1:]]
        w.line(f"tw_any {table}[{len(values)}] = {{{{0}}}};")
        for i, (index, field, text) in enumerate(values):
            w.line(f"{table}[{i}].type_index = {index};")
            w.line(f"{table}[{i}].v.{field} = {text};")
    w.line(f"tw_any {result} = {{0}};")
    count = len(e.args) - 1
    if e.op.name == "tir.tvm_call_cpacked":  # pyright: ignore[reportAttributeAccessIssue]
        w.mod.declarations.setdefault(
            name, f"int32_t {name}(void* self, const void* args, int32_t num_args, void* ret);"
        )
        _c(w).check(w, f"{name}(NULL, {table}, {count}, &{result})")
    else:
        w.mod.helper("tw_call_packed")
        _c(w).check(w, f"tw_call_packed({c_string(name)}, {table}, {count}, &{result})")
    if e.dtype in ("void", "int32") and not e.dtype:
        return "", ATOM
    if dt.is_float(e.dtype):
        number: Text = f"{result}.type_index == {_FLOAT} ? {result}.v.number : (double){result}.v.whole", 3
        return convert(w, (f"({number[0]})", ATOM), "float64", e.dtype)
    if e.dtype == "handle":
        return f"{result}.v.pointer", POSTFIX
    if e.dtype == "void":
        return "", ATOM
    return convert(w, (f"{result}.v.whole", POSTFIX), "int64", e.dtype)


def _argument(w: Writer, a: Any) -> tuple[int, str, str]:
    """Type index, field and text of an argument."""
    if isinstance(a, T.Buffer):
        return _DLTENSOR, "pointer", f"&{_tensor(w, a)}"
    if isinstance(a, E.StringImm):
        return _STRING, "text", c_string(a.value)
    if a.dtype == "handle":
        return _POINTER, "pointer", cast_text("void*", w.expr(a))[0]
    if dt.is_float(a.dtype):
        return _FLOAT, "number", convert(w, w.expr(a), a.dtype, "float64")[0]
    return (_BOOL if dt.is_bool(a.dtype) else _INT), "whole", w.text(a)


def _tensor(w: Writer, b: T.Buffer) -> str:
    """A tensor on the stack that views a buffer."""
    w.mod.helper("tw_dltensor")
    n = len(b.shape)
    shape, strides, name = "NULL", "NULL", w.fresh(b.name + "_tensor")
    if n:
        shape = w.fresh(b.name + "_shape")
        w.line(f"int64_t {shape}[{n}] = {{{', '.join(w.index(d) for d in b.shape)}}};")
        strides = w.fresh(b.name + "_strides")
        steps: list[Any] = list(b.strides)
        if not steps:
            step: Any = E.IntImm("int64", 1)
            for d in reversed(b.shape):
                steps.insert(0, step)
                step = step * d.astype("int64")
        w.line(f"int64_t {strides}[{n}] = {{{', '.join(w.index(s) for s in steps)}}};")
    data = w.text(b.data)
    if b.elem_offset is not None:
        flat = T.Buffer(b.data, b.dtype, (E.IntImm("int64", 1),), name=b.name)
        data = w.dialect.address(w, flat, b.elem_offset)[0]
    w.line(f"tw_dltensor {name} = {{(void*)({data}), 1, 0, {n}, {dtype_word(b.dtype)}, {shape}, {strides}, 0}};")
    return name
