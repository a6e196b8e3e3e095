"""The builder that predates script: `ib = tir.ir_builder.create()`, `with ib.for_range(0, n, "i") as i: out[i] = a[i] + 1`.

    ib = tilewright.tir.ir_builder.create()
    A = ib.buffer_ptr(a)                       # or ib.pointer("float32", "A"), ib.allocate("float32", n, "A")
    with ib.for_range(0, n, name="i") as i:
        with ib.if_scope(ib.likely(i < m)):
            A[i] = A[i] + 1
    body = ib.get()

What `scope_attr`, `allocate` and `let` open lasts to the end of the suite that it stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.arith import expr as E
from tilewright.arith.expr import ExprLike, PrimExpr, Var
from tilewright.ir import dtype as dt
from tilewright.ir.node import Node
from tilewright.support.diagnostics import CompileError
from tilewright.tir import build
from tilewright.tir.ir import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    decl_buffer,
)

__all__ = ["BufferVar", "IRBuilder", "create"]

_KINDS = {
    "serial": ForKind.SERIAL,
    "parallel": ForKind.PARALLEL,
    "vectorize": ForKind.VECTORIZED,
    "vectorized": ForKind.VECTORIZED,
    "unroll": ForKind.UNROLLED,
    "unrolled": ForKind.UNROLLED,
}


def _refuse(message: str, hint: str | None = None) -> CompileError:
    return CompileError.at("TW0123", message, hint=hint)


class BufferVar:
    """A buffer whose elements are read and assigned like those of an array: `A[i, j] = A[i, j] + 1`.

    One number for several dimensions counts the elements row by row.
    """

    def __init__(self, builder: IRBuilder, buffer: Buffer, content_type: str) -> None:
        self._builder, self._buffer, self._content_type = builder, buffer, content_type

    @property
    def dtype(self) -> str:
        """The dtype of an access."""
        return self._content_type

    @property
    def buffer(self) -> Buffer:
        """The buffer itself."""
        return self._buffer

    def asobject(self) -> Var:
        """The pointer, where an expression is wanted."""
        return self._buffer.data

    def _indices(self, index: Any) -> tuple[PrimExpr, ...]:
        items = [E.convert(i.var if isinstance(i, IterVar) else i) for i in _tuple(index)]
        b = self._buffer
        if len(items) == 1 and b.ndim != 1:  # one number counts the elements, row by row
            items = _unravel(items[0], b.shape)
        if len(items) != b.ndim:
            raise _refuse(f"buffer {b.name!r} has {b.ndim} dimensions, not {len(items)}")
        return tuple(items)

    def __getitem__(self, index: Any) -> PrimExpr:
        return BufferLoad(self._buffer, self._indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        indices = self._indices(index)
        e = value.var if isinstance(value, IterVar) else value
        want = BufferLoad(self._buffer, indices).dtype
        if isinstance(e, (bool, int, float)):
            e = E.const(e, want)
        e = E.convert(e)
        if dt.element(e.dtype) != dt.element(want):
            raise _refuse(
                f"data type does not match: a {e.dtype} is stored into {self._buffer.name!r}, which holds {want}",
                f"convert it: value.astype({want!r})",
            )
        self._builder.emit(BufferStore(self._buffer, e, indices))


def _unravel(i: PrimExpr, shape: tuple[PrimExpr, ...]) -> list[PrimExpr]:
    out: list[PrimExpr] = []
    for n in reversed(shape):
        out.append(i % n)
        i = i // n
    return out[::-1]


def _tuple(v: Any) -> tuple[Any, ...]:
    return tuple(v) if isinstance(v, (tuple, list)) else (v,)


class IRBuilder:
    """See the head of the module."""

    def __init__(self) -> None:
        self._suites: list[list[Stmt | Callable[[Stmt], Stmt]]] = [[]]
        self._unnamed = 0

    # ---- suites

    def _close(self) -> Stmt:
        """The statement of the innermost suite, which ends."""
        body: list[Stmt] = []
        for item in reversed(self._suites.pop()):
            if isinstance(item, Stmt):
                body = [*item.seq, *body] if isinstance(item, SeqStmt) else [item, *body]
            else:
                body = [item(_sequence(body))]
        return _sequence(body)

    @contextmanager
    def _suite(self, make: Callable[[Stmt], Stmt], value: Any = None) -> Generator[Any]:
        self._suites.append([])
        depth = len(self._suites)
        try:
            yield value
        except BaseException:
            del self._suites[depth - 1 :]
            raise
        self.emit(make(self._close()))

    def emit(self, stmt: Stmt | PrimExpr | Callable[[Stmt], Stmt]) -> None:
        """Append a statement (or an expression to evaluate, or a function that takes the rest of the suite as its body)."""
        if isinstance(stmt, PrimExpr):
            stmt = Evaluate(stmt)
        self._suites[-1].append(stmt)

    def get(self) -> Stmt:
        """The statement that was built."""
        if len(self._suites) != 1:
            raise _refuse("a scope is open still", "leave every `with` before ib.get()")
        made = self._close()
        self._suites = [[]]
        return made

    # ---- scopes

    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """An attribute of the rest of the suite."""
        if isinstance(node, str):
            node = E.StringImm(node)
        e: Any = value if isinstance(value, Node) else E.convert(value)
        if attr_key == "thread_extent":  # it may be 0 where sizes are symbolic
            e = build.max(E.const(1, e.dtype), e)
        self.emit(lambda body: AttrStmt(node, attr_key, e, body))

    def for_range(
        self, begin: ExprLike, end: ExprLike, name: str = "i", dtype: str | None = None, kind: str = "serial"
    ) -> Any:
        """`with ib.for_range(0, n, "i", kind="parallel") as i:`; the loop variable has `dtype`, or that of the bounds.

        Loops without a name are i, j, k, i_0, i_1, ...
        """
        if kind not in _KINDS:
            raise _refuse(f"unknown kind {kind!r} of a loop", f"kinds: {', '.join(_KINDS)}")
        if name == "i":
            name = "ijk"[self._unnamed] if self._unnamed < 3 else f"i_{self._unnamed - 3}"
            self._unnamed += 1
        start, stop = E.convert(begin), E.convert(end)
        dtype = dtype or ("int64" if "int64" in (start.dtype, stop.dtype) else "int32")
        start, stop = E.cast(start, dtype), E.cast(stop, dtype)
        var = Var(name, dtype)
        extent = stop if isinstance(start, E.IntImm) and start.value == 0 else E.sub(stop, start)
        return self._suite(lambda body: For(var, start, extent, _KINDS[kind], body), var)

    def while_loop(self, condition: PrimExpr) -> Any:
        """`with ib.while_loop(x[0] < 10):`"""
        return self._suite(lambda body: While(condition, body))

    def if_scope(self, cond: PrimExpr) -> Any:
        """`with ib.if_scope(i < n):`"""
        return self._suite(lambda body: IfThenElse(E.convert(cond), body))

    def else_scope(self) -> Any:
        """`with ib.else_scope():` directly behind an `if_scope`. Raises TW0123 elsewhere."""
        last = self._suites[-1][-1] if self._suites[-1] else None
        if not isinstance(last, IfThenElse) or last.else_case is not None:
            raise _refuse("else_scope stands directly behind an if_scope")
        self._suites[-1].pop()
        return self._suite(lambda body: IfThenElse(last.condition, last.then_case, body))

    def new_scope(self) -> Any:
        """`with ib.new_scope():` what is opened in it ends with it."""
        return self._suite(lambda body: body)

    def let(self, var_name: str, value: ExprLike) -> Var:
        """A variable for the rest of the suite."""
        e = E.convert(value)
        var = Var(var_name, e.dtype)
        self.emit(lambda body: LetStmt(var, e, body))
        return var

    # ---- memory

    def allocate(
        self,
        dtype: str,
        shape: ExprLike | Sequence[ExprLike],
        name: str = "buf",
        axis_separators: Sequence[int] = (),
        scope: str = "",
    ) -> BufferVar:
        """Memory for the rest of the suite."""
        dims = tuple(E.convert(n) for n in _tuple(shape))
        pointer = E.pointer_var(name, dtype, scope or "global")
        buffer = decl_buffer(dims, dtype, name, data=pointer, axis_separators=axis_separators)
        true = E.IntImm("bool", 1)
        self.emit(lambda body: Allocate(pointer, dtype, dims, true, DeclBuffer(buffer, body)))
        return BufferVar(self, buffer, dtype)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "") -> BufferVar:
        """A buffer of one dimension behind a new pointer, which is a parameter of the program."""
        buffer = decl_buffer((1,), content_type, name, scope=scope)
        return BufferVar(self, buffer, content_type)

    def buffer_ptr(self, buf: Buffer, shape: Sequence[ExprLike] | None = None) -> BufferVar:
        """The elements of a buffer, perhaps of another shape over the same memory."""
        if shape is not None:
            buf = decl_buffer(shape, buf.dtype, buf.name, data=buf.data)
        return BufferVar(self, buf, buf.dtype)

    def likely(self, expr: ExprLike) -> PrimExpr:
        """The condition, said to hold nearly always."""
        e = E.convert(expr)
        return E.call_intrin(e.dtype, "tir.likely", e)


def _sequence(body: list[Stmt]) -> Stmt:
    if not body:
        return Evaluate(E.IntImm("int32", 0))
    return body[0] if len(body) == 1 else SeqStmt(tuple(body))


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()
