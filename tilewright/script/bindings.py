"""Assignments in functions of the loop IR: what `name = value` and `A[i] = value` mean for each kind of value."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir import dtype as dt
from tilewright.script import commands as C
from tilewright.script.evaluate import as_operand, region_to_load
from tilewright.script.namespace import DtypeFactory, HandleFactory
from tilewright.script.parser_state import ParserState
from tilewright.script.suite import at
from tilewright.tir import ir as tir

__all__ = ["Bindings"]


class Bindings(ParserState):
    """The part of the parser that assigns."""

    def _assign(self, s: ast.Assign) -> None:
        if len(s.targets) != 1:
            self.fail("TW0105", "assign to one target at a time", s)
        target = s.targets[0]
        if isinstance(target, ast.Subscript):
            self._store(target, self.eval(s.value), s)
            return
        self.bind(target, self.eval(s.value), s)

    def bind(self, target: ast.AST, value: Any, s: ast.AST) -> None:
        """Give the names of `target` their values."""
        if isinstance(target, (ast.Tuple, ast.List)):
            for t, v in self.unpack(target, value):
                self.bind(t, v, s)
            return
        if isinstance(target, ast.Subscript):
            self._store(target, value, s)
            return
        if not isinstance(target, ast.Name):
            self.fail("TW0105", f"cannot assign to {ast.unparse(target)}", target)
        known = self.env.scopes[-1].get(target.id)
        made = self._named(target.id, value, s)
        if known is not None and known is not made and not isinstance(s, ast.AugAssign):
            self.refuse_redefinition(target, made)
        self.env.define(target.id, made)

    def refuse_redefinition(self, target: ast.Name, made: Any) -> None:
        """A name of the program is given once in a scope."""
        if isinstance(made, (tir.Buffer, E.Var, tir.IterVar)):
            self.fail(
                "TW0119",
                f"{target.id!r} is defined already in this scope",
                target,
                hint="use another name; what changes while the program runs is an element of a buffer",
            )

    def unpack(self, target: ast.Tuple | ast.List, value: Any) -> list[tuple[ast.AST, Any]]:
        """The parts of a target with their values; one of them may be starred."""
        meta = isinstance(value, C.MetaVar)
        try:
            values = list(value.value if meta else value)
        except TypeError:
            self.fail("TW0106", f"{len(target.elts)} names for one value", target)
        values = [C.MetaVar(v) if meta else v for v in values]
        parts: list[ast.AST] = list(target.elts)
        starred = [i for i, t in enumerate(parts) if isinstance(t, ast.Starred)]
        if len(values) != len(parts) and not (starred and len(values) >= len(parts) - 1):
            self.fail("TW0106", f"{len(parts)} names for {len(values)} values", target)
        if starred:
            i = starred[0]
            n = len(values) - len(parts) + 1
            rest: Any = [v.value if meta else v for v in values[i : i + n]]
            values[i : i + n] = [C.MetaVar(rest) if meta else rest]
            parts[i] = parts[i].value  # pyright: ignore[reportAttributeAccessIssue]
        return list(zip(parts, values, strict=True))

    def _named(self, name: str, value: Any, s: ast.AST) -> Any:
        """What `name = value` makes `name` stand for."""
        handler = _BIND.get(type(value))
        if handler is not None:
            return handler(self, name, value, s)
        if isinstance(value, tir.Buffer):
            return C.name_buffer(value, name)
        if isinstance(value, tir.BufferRegion):
            return value
        if isinstance(value, E.Var) and value not in self.bound:
            C.fresh_name(value, name)
            self.bound.add(value)
            return value
        if isinstance(value, (E.PrimExpr, int, float)):
            return self.let(name, value, None, s)
        return value

    def let(self, name: str, value: Any, var: E.Var | None, s: ast.AST) -> E.Var:
        """Open the scope of a LetStmt."""
        e = E.convert(value)
        v = var if var is not None else at(E.Var(name=name, dtype=e.dtype), self.source.span(s))
        self.bound.add(v)
        self.suite.scope(lambda body: tir.LetStmt(v, e, body), self.source.span(s))
        return v

    def _frame(self, name: str, value: C.Frame, s: ast.AST) -> Any:
        if value.value is None:
            self.fail("TW0105", f"{value.what} has no value to assign", s)
        self._name_frame(name, value)
        self.suite.scope(value.wrap, self.source.span(s))
        return value.value

    def _name_frame(self, name: str, value: C.Frame) -> None:
        if isinstance(value.value, tir.Buffer):
            C.name_buffer(value.value, name)
        elif isinstance(value.value, E.Var):
            C.fresh_name(value.value, name)
            self.bound.add(value.value)

    def _axis(self, name: str, value: C.AxisCommand, s: ast.AST) -> E.Var:
        return at(self.placed(s, self.add_axis, value, name), self.source.span(s))

    def _alloc(self, name: str, value: C.AllocBuffer, s: ast.AST) -> tir.Buffer:
        return self.placed(s, self.add_buffer, value, name)

    def _match(self, name: str, value: C.MatchBuffer, s: ast.AST) -> tir.Buffer:
        b = self.placed(s, self.add_match, value, name)
        if self.blocks and self.blocks[-1].match_buffers and self.blocks[-1].match_buffers[-1].buffer is b:
            at(self.blocks[-1].match_buffers[-1], self.source.span(s))
        return b

    def _store(self, target: ast.Subscript, value: Any, s: ast.AST) -> None:
        buffer = self.eval(target.value)
        if not isinstance(buffer, tir.Buffer):
            hint = "only elements of buffers can be assigned"
            self.fail("TW0109", f"{ast.unparse(target.value)} is no buffer", target.value, hint=hint)
        indices = self._indices(buffer, target)
        self.emit(self._make_store(buffer, indices, value, target, s), s)

    def _indices(self, buffer: tir.Buffer, target: ast.Subscript) -> tuple[E.PrimExpr, ...]:
        element = self.evaluator.element(buffer, self.evaluator.index(target.slice), target)
        try:
            return (region_to_load(element) if isinstance(element, tir.BufferRegion) else element).indices
        except TypeError as e:
            self.fail("TW0109", str(e), target)

    def _make_store(self, b: tir.Buffer, indices: Any, value: Any, target: ast.AST, s: Any) -> tir.Stmt:
        want = tir.load_dtype(b.dtype, indices)
        value = as_operand(value)
        if isinstance(value, (bool, int, float)):
            return tir.BufferStore(b, E.const(value, want), indices)
        try:
            e = E.convert(value)
        except TypeError as err:
            self.fail("TW0109", str(err), s.value)
            raise
        if e.dtype != want:
            if dt.lanes(e.dtype) not in (1, dt.lanes(want)) or isinstance(e, E.StringImm):
                self.fail("TW0109", f"a value of {e.dtype} is stored where {want} belongs", s)
            e = E.cast(e, want)
        return tir.BufferStore(b, e, indices)

    def _ann_assign(self, s: ast.AnnAssign) -> None:
        if not isinstance(s.target, ast.Name) or s.value is None:
            self.fail("TW0105", "an annotated assignment binds one name to a value", s)
        kind, value = self.eval(s.annotation), self.eval(s.value)
        if isinstance(kind, (DtypeFactory, HandleFactory)):
            kind = kind()
        if not isinstance(kind, E.Var):
            self.fail("TW0107", f"{ast.unparse(s.annotation)} is no type of a variable", s.annotation)
        C.fresh_name(kind, s.target.id)
        if isinstance(value, C.MetaVar):
            self.fail("TW0105", "a T.meta_var has no type", s.annotation)
        value = as_operand(value)
        if isinstance(value, (bool, int, float)):
            value = E.const(value, kind.dtype)
        self.env.define(s.target.id, self.let(s.target.id, value, kind, s))

    def _aug_assign(self, s: ast.AugAssign) -> None:
        load = ast.copy_location(ast.parse(ast.unparse(s.target), mode="eval").body, s.target)
        for n in ast.walk(load):
            ast.copy_location(n, s.target)
        value = self.eval(ast.copy_location(ast.BinOp(load, s.op, s.value), s))
        if isinstance(s.target, ast.Subscript):
            self._store(s.target, value, s)
        else:
            self.bind(s.target, value, s)


_BIND: dict[type, Callable[[Bindings, str, Any, ast.AST], Any]] = {
    C.Frame: Bindings._frame,
    C.AxisCommand: Bindings._axis,
    C.AllocBuffer: Bindings._alloc,
    C.MatchBuffer: Bindings._match,
    C.MetaVar: lambda _p, _n, v, _s: v.value,
    tir.IterVar: lambda _p, n, v, _s: (C.fresh_name(v.var, n), v)[1],
    bool: lambda p, n, v, s: p.let(n, v, None, s),
}
