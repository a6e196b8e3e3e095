"""Parses functions of the loop IR.

A suite of statements becomes one statement. What opens a scope without `with` (`x = value`, `T.attr(...)`) scopes over the
rest of its suite; the suite keeps a stack of such open scopes and closes them at its end, innermost first.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir.node import Node
from tilewright.ir.op import PrimType
from tilewright.script import commands as C
from tilewright.script.bindings import Bindings
from tilewright.script.evaluate import Environment, Evaluator, as_operand
from tilewright.script.namespace import DtypeFactory, HandleFactory
from tilewright.script.suite import (
    BlockState,
    FunctionState,
    Macro,
    MacroCall,
    Suite,
    at,
    call_function,
    complete_root,
    what,
)
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as tir

__all__ = ["TIRParser"]


class TIRParser(Bindings):
    """Parses functions, and statements, of the loop IR of one source in one environment."""

    # ---- functions

    def parse_function(self, d: ast.FunctionDef, annotations: dict[str, Any], options: dict[str, Any]) -> tir.PrimFunc:
        """The PrimFunc of a definition. `annotations` are the values that Python gave them, for those the script cannot see."""
        state = self.function = FunctionState(options.get("name") or d.name)
        with self.env.scope():
            self._params(d, annotations, state)
            ret_type = self._ret_type(d, annotations)
            body = self.parse_suite(d.body)
        if "global_symbol" not in state.attrs and not options.get("private"):
            state.attrs = {"global_symbol": state.name, **state.attrs}
        if options.get("root", True):
            body = complete_root(body, state)
        made = tir.PrimFunc(tuple(state.params), body, ret_type, state.buffer_map, state.attrs)
        return at(made, self.source.span(d))

    def _params(self, d: ast.FunctionDef, annotations: dict[str, Any], state: FunctionState) -> None:
        a = d.args
        if a.vararg or a.kwarg or a.kwonlyargs:
            self.fail(
                "TW0107", "a function of script takes plain parameters only", a.vararg or a.kwarg or a.kwonlyargs[0]
            )
        late: list[tuple[ast.arg, E.Var]] = []
        for arg in (*a.posonlyargs, *a.args):
            if arg.annotation is None:
                self.fail(
                    "TW0107",
                    f"parameter {arg.arg!r} has no type",
                    arg,
                    hint=f'write {arg.arg}: T.Buffer((16, 16), "float32"), {arg.arg}: T.int32, or {arg.arg}: T.handle',
                )
            value = self._annotation(arg.annotation, annotations.get(arg.arg))
            v = self._param(arg, value, state)
            if v is not None:
                late.append((arg, v))
        del late

    def _annotation(self, n: ast.AST, known: Any) -> Any:
        """The value of an annotation; where its names are out of sight, the value that Python computed."""
        try:
            if isinstance(n, ast.Constant) and isinstance(n.value, str):
                return self.eval(ast.copy_location(ast.parse(n.value, mode="eval").body, n))
            return self.eval(n)
        except CompileError as e:
            if known is None or isinstance(known, str) or e.diagnostics[0].code != "TW0102":
                raise
            return known

    def _param(self, arg: ast.arg, value: Any, state: FunctionState) -> E.Var | None:
        span = self.source.span(arg)
        if isinstance(value, tir.Buffer):
            b = C.name_buffer(value, arg.arg)
            v = at(E.Var(name=f"{arg.arg}_handle", dtype="handle"), span)
            state.params.append(v)
            state.buffer_map[v] = b
            self.env.define(arg.arg, b)
            return None
        if isinstance(value, (DtypeFactory, HandleFactory)):
            value = value()
        if not isinstance(value, E.Var):
            self.fail(
                "TW0107",
                f"{ast.unparse(arg.annotation) if arg.annotation else value!r} is no type of a parameter",
                arg.annotation or arg,
                hint="use T.Buffer(shape, dtype), T.handle, or a dtype such as T.int32",
            )
        C.fresh_name(value, arg.arg)
        state.params.append(value)
        self.bound.add(value)
        self.env.define(arg.arg, value)
        return value

    def _ret_type(self, d: ast.FunctionDef, annotations: dict[str, Any]) -> Any:
        if d.returns is None:
            return None
        value = self._annotation(d.returns, annotations.get("return"))
        if isinstance(value, (DtypeFactory, HandleFactory)):
            return PrimType(value.dtype)
        if isinstance(value, E.Var):
            return value.type_annotation
        return value

    # ---- suites

    def parse_suite(self, stmts: Sequence[ast.stmt]) -> tir.Stmt:
        """The statements as one, in a scope of names."""
        outer, self.suite = self.suite, Suite()
        try:
            with self.env.scope():
                for s in stmts:
                    self.statement(s)
                return self.suite.close()
        finally:
            self.suite = outer

    def statement(self, s: ast.stmt) -> None:
        """Parse one statement into the current suite."""
        method = _STATEMENTS.get(type(s))
        if method is None:
            self.fail("TW0105", f"script of the loop IR has no {what(s)} statements", s)
        method(self, s)

    # ---- expressions as statements

    def _expr(self, s: ast.Expr) -> None:
        if isinstance(s.value, ast.Constant) and isinstance(s.value.value, (str, type(...))):
            return  # a docstring
        self.apply(self.eval(s.value), s)

    def apply(self, value: Any, s: ast.AST) -> None:
        """Do what a value that stands as a statement says."""
        if value is None:
            return
        if isinstance(value, tir.Stmt):
            self.emit(value, s)
        elif isinstance(value, E.PrimExpr):
            self.emit(tir.Evaluate(value), s)
        elif isinstance(value, C.Frame):
            self.suite.scope(value.wrap, self.source.span(s))
        elif isinstance(value, MacroCall):
            self._expand(value, s)
        elif isinstance(value, C.FuncAttr):
            if self.function is None:
                self.fail("TW0108", "T.func_attr belongs in a function", s)
            self.function.attrs.update(value.attrs)
        elif isinstance(value, (C.Reads, C.Writes, C.Predicate, C.BlockAttr)):
            self._block_command(value, s)
        elif isinstance(value, (C.AxisCommand, C.AllocBuffer, C.MatchBuffer)):
            self.fail("TW0108", "its value is needed: assign it to a name", s)
        elif isinstance(value, (C.BlockFrame, C.InitFrame, C.SeqFrame)):
            self.fail("TW0108", "this opens a scope: write `with ...:`", s)
        elif isinstance(value, (list, tuple)):
            for v in value:  # pyright: ignore[reportUnknownVariableType]
                self.apply(v, s)
        elif isinstance(value, Node):
            self.fail("TW0105", f"a {type(value).__name__} is no statement", s)

    def _block_command(self, value: Any, s: ast.AST) -> None:
        if not self.blocks:
            self.fail("TW0108", f"T.{_COMMANDS[type(value)]} belongs in a block", s)
        b = self.blocks[-1]
        if isinstance(value, C.Reads):
            b.reads = value.regions
        elif isinstance(value, C.Writes):
            b.writes = value.regions
        elif isinstance(value, C.Predicate):
            test = E.convert(value.condition)
            b.predicate = test if b.predicate is None else E.logical_and(b.predicate, test)
        else:
            b.annotations.update(value.annotations)

    def _expand(self, call: MacroCall, s: ast.AST) -> None:
        macro = call.macro
        d = macro.definition
        names = [a.arg for a in (*d.args.posonlyargs, *d.args.args)]
        given = dict(zip(names, call.args)) | call.kwargs
        defaults = dict(zip(reversed(names), reversed(d.args.defaults)))
        for name in names:
            if name not in given:
                if name not in defaults:
                    self.fail("TW0104", f"macro {d.name!r} needs an argument {name!r}", s)
                given[name] = Evaluator(macro.source, macro.env).eval(defaults[name])
        unknown = [k for k in given if k not in names]
        if unknown or len(call.args) > len(names):
            self.fail("TW0104", f"macro {d.name!r} takes {', '.join(names) or 'nothing'}", s)
        saved = self.source, self.env, self.evaluator, self.eval
        env = Environment(*macro.env.outer)
        env.scopes = [*(macro.env.scopes if macro.hygienic else self.env.scopes), dict(given)]
        self.source, self.env = macro.source, env
        self.evaluator = Evaluator(macro.source, env)
        self.evaluator.call_hook = call_function
        self.eval = self.evaluator.eval
        try:
            for stmt in d.body:
                self.statement(stmt)
        finally:
            self.source, self.env, self.evaluator, self.eval = saved

    # ---- control

    def _for(self, s: ast.For) -> None:
        if s.orelse:
            self.fail("TW0105", "a loop of script has no else", s.orelse[0])
        loop = self._loop_of(s.iter)
        if not isinstance(loop, C.Loop):
            self._unroll_in_script(s, loop)
            return
        targets = s.target.elts if isinstance(s.target, (ast.Tuple, ast.List)) else [s.target]
        if len(targets) != len(loop.dtypes) or not all(isinstance(t, ast.Name) for t in targets):
            self.fail("TW0106", f"{loop.what} has {len(loop.dtypes)} loops, not {len(targets)}", s.target)
        with self.env.scope():
            variables: list[E.Var] = []
            for t, dtype, bounds in zip(targets, loop.dtypes, loop.ranges, strict=True):
                name = ast.unparse(t)
                v = at(E.Var(name=name, dtype=dtype), self.source.span(t))
                variables.append(v)
                self.loops[v] = bounds
                self.bound.add(v)
                self.env.define(name, v)
            body = self.parse_suite(s.body)
        made = loop.make(variables, body)
        head = self.source.span(s.iter)
        x: Any = made
        while isinstance(x, tir.For) and x.span is None:
            at(x, head)
            x = x.body
        self.emit(made, s)

    def _loop_of(self, n: ast.AST) -> Any:
        """What the loop goes over; `range` of Python is a serial loop here."""
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and self.env.lookup(n.func.id, None) is range:
            args = [self.eval(a) for a in n.args]
            if len(args) == 3 and not (isinstance(args[2], (int, E.IntImm)) and int(args[2]) == 1):
                self.fail("TW0105", "a loop of script has step 1", n.args[2], hint="multiply the variable in the body")
            from tilewright.script.loops import serial

            try:
                return serial(*args[:2])
            except (TypeError, ValueError) as e:
                self.fail("TW0104", str(e), n)
        return self.eval(n)

    def _unroll_in_script(self, s: ast.For, values: Any) -> None:
        """A loop over Python values: the body is parsed once for each."""
        try:
            items = list(values)
        except (TypeError, ValueError):
            self.fail(
                "TW0106",
                f"a loop cannot go over {ast.unparse(s.iter)}",
                s.iter,
                hint="use range(n), T.grid(...), T.serial, T.parallel, T.vectorized, T.unroll, T.thread_binding",
            )
            raise
        for item in items:
            with self.env.scope():
                self.evaluator.assign_names(s.target, item)
                body = self.parse_suite(s.body)
                for x in body.seq if isinstance(body, tir.SeqStmt) else (body,):
                    self.emit(x, s)

    def _if(self, s: ast.If) -> None:
        test = as_operand(self.eval(s.test))
        if not isinstance(test, E.PrimExpr):
            branch = s.body if test else s.orelse
            for x in branch:
                self.statement(x)
            return
        then_case = self.parse_suite(s.body)
        else_case = self.parse_suite(s.orelse) if s.orelse else None
        self.emit(tir.IfThenElse(test, then_case, else_case), s)

    def _while(self, s: ast.While) -> None:
        if s.orelse:
            self.fail("TW0105", "a loop of script has no else", s.orelse[0])
        condition = E.convert(as_operand(self.eval(s.test)))
        self.emit(tir.While(condition, self.parse_suite(s.body)), s)

    def _assert(self, s: ast.Assert) -> None:
        condition = E.convert(as_operand(self.eval(s.test)))
        message = (
            E.convert(self.eval(s.msg)) if s.msg is not None else E.StringImm(f"{ast.unparse(s.test)} does not hold")
        )
        self.suite.scope(lambda body: tir.AssertStmt(condition, message, body), self.source.span(s))

    def _return(self, s: ast.Return) -> None:
        if s.value is None:
            self.fail("TW0105", "return a value, or leave the return out", s)
        value = E.convert(as_operand(self.eval(s.value)))
        self.emit(tir.Evaluate(E.call_intrin(value.dtype, "tir.ret", value)), s)

    def _pass(self, s: ast.Pass) -> None:
        del s

    def _function_def(self, s: ast.FunctionDef) -> None:
        from tilewright.script.parser import decoration

        kind, options = decoration(self.evaluator, s)
        if kind != "macro":
            self.fail("TW0105", "a function in a function of the loop IR must be a T.macro", s)
        env = Environment(*self.env.outer)
        env.scopes = list(self.env.scopes)
        self.env.define(s.name, Macro(self.source, s, env, options.get("hygienic", True)))

    def _with(self, s: ast.With) -> None:
        self._with_items(s, list(s.items))

    def _with_items(self, s: ast.With, items: list[ast.withitem]) -> None:
        item = items[0]
        rest: Sequence[ast.stmt] = s.body
        if len(items) > 1:
            rest = [ast.copy_location(ast.With(items[1:], s.body), s)]
        value = self.eval(item.context_expr)
        name = item.optional_vars
        if isinstance(value, C.BlockFrame):
            self._block(value, name, rest, s)
        elif isinstance(value, C.InitFrame):
            if not self.blocks or self.blocks[-1].init is not None:
                why = "belongs in a block" if not self.blocks else "stands once in a block"
                self.fail("TW0108", f"T.init() {why}", item.context_expr)
            self.blocks[-1].init = self.parse_suite(rest)
        elif isinstance(value, C.SeqFrame):
            self._explicit_seq(rest, s)
        elif isinstance(value, C.Frame):
            with self.env.scope():
                if isinstance(name, ast.Name):
                    self._name_frame(name.id, value)
                    self.env.define(name.id, value.value)
                self.emit(value.wrap(self.parse_suite(rest)), s)
        else:
            self.fail("TW0105", f"{ast.unparse(item.context_expr)} opens no scope", item.context_expr)

    def _explicit_seq(self, stmts: Sequence[ast.stmt], s: ast.AST) -> None:
        outer, self.suite = self.suite, Suite()
        try:
            with self.env.scope():
                for x in stmts:
                    self.statement(x)
            suite = self.suite
            made: tir.Stmt = suite.close() if suite.open else tir.SeqStmt(tuple(suite.stmts))
        finally:
            self.suite = outer
        self.emit(made if isinstance(made, tir.SeqStmt) else tir.SeqStmt((made,)), s)

    def _block(self, frame: C.BlockFrame, target: Any, stmts: Sequence[ast.stmt], s: ast.With) -> None:
        if target is not None:
            self.fail("TW0105", "a block has no value: name its axes by T.axis", target)
        state = BlockState(frame.name)
        self.blocks.append(state)
        if self.function is not None:
            self.function.has_block = True
        try:
            body = self.parse_suite(stmts)
        finally:
            self.blocks.pop()
        block = tir.Block(
            tuple(state.iter_vars),
            state.reads or (),
            state.writes or (),
            state.name,
            body,
            state.init,
            tuple(state.alloc_buffers),
            tuple(state.match_buffers),
            state.annotations,
        )
        at(block, self.source.span(s.items[0].context_expr))
        if state.reads is None or state.writes is None:
            block = self._detect(block, state, s)
        if frame.no_realize:
            self.emit(block, s)
            return
        if any(v is None for v in state.iter_values):
            self.fail("TW0108", f"an axis of block {frame.name!r} is bound to nothing", s.items[0].context_expr)
        predicate = state.predicate if state.predicate is not None else E.IntImm("bool", 1)
        self.emit(tir.BlockRealize(tuple(state.iter_values), predicate, block), s)

    def _detect(self, block: tir.Block, state: BlockState, s: ast.With) -> tir.Block:
        from tilewright.ir.node import replace
        from tilewright.tir.analysis.block_access import block_access_regions

        try:
            reads, writes = block_access_regions(block)
        except ValueError as e:
            self.fail("TW0108", f"the regions of block {state.name!r} cannot be told: {e}", s.items[0].context_expr)
            raise
        return replace(
            block,
            reads=state.reads if state.reads is not None else reads,
            writes=state.writes if state.writes is not None else writes,
        )


_COMMANDS: dict[type, str] = {C.Reads: "reads", C.Writes: "writes", C.Predicate: "where", C.BlockAttr: "block_attr"}

_STATEMENTS: dict[type, Callable[[TIRParser, Any], None]] = {
    ast.Assign: TIRParser._assign,
    ast.AnnAssign: TIRParser._ann_assign,
    ast.AugAssign: TIRParser._aug_assign,
    ast.Expr: TIRParser._expr,
    ast.For: TIRParser._for,
    ast.While: TIRParser._while,
    ast.If: TIRParser._if,
    ast.With: TIRParser._with,
    ast.Assert: TIRParser._assert,
    ast.Return: TIRParser._return,
    ast.Pass: TIRParser._pass,
    ast.FunctionDef: TIRParser._function_def,
}
