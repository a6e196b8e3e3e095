"""Parses functions of the loop IR.

A suite of statements becomes one statement. What opens a scope without `with` (`x = value`, `T.attr(...)`) scopes over the
rest of its suite; the suite keeps a stack of such open scopes and closes them at its end, innermost first.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir.node import Node
from tilewright.ir.op import PrimType
from tilewright.script import commands as C
from tilewright.script.bindings import Bindings
from tilewright.script.evaluate import Environment, Evaluator, as_operand
from tilewright.script.immediate import acting_on
from tilewright.script.namespace import DtypeFactory, HandleFactory
from tilewright.script.state import finish_if, set_branch
from tilewright.script.suite import (
    BlockState,
    FunctionState,
    Macro,
    MacroCall,
    Suite,
    at,
    complete_root,
    what,
)
from tilewright.script.well_formed import check_function
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as tir

__all__ = ["TIRParser"]


class TIRParser(Bindings):
    """Parses functions, and statements, of the loop IR of one source in one environment."""

    # ---- functions

    def parse_function(self, d: ast.FunctionDef, annotations: dict[str, Any], options: dict[str, Any]) -> tir.PrimFunc:
        """The PrimFunc of a definition. `annotations` are the values that Python gave them, for those the script cannot see."""
        state = self.function = FunctionState(options.get("name") or d.name, private=bool(options.get("private")))
        with acting_on(None), self.env.scope():
            self._params(d, annotations, state)
            ret_type = self.return_type(d, annotations)
            body = self.parse_suite(d.body)
        if "global_symbol" not in state.attrs and not options.get("private"):
            state.attrs = {"global_symbol": state.name, **state.attrs}
        if options.get("root", True):
            body = complete_root(body, state)
        made = tir.PrimFunc(tuple(state.params), body, ret_type, state.buffer_map, state.attrs)
        at(made, self.source.span(d))
        if options.get("check_well_formed", True):
            check_function(made)
        return made

    def _params(self, d: ast.FunctionDef, annotations: dict[str, Any], state: FunctionState) -> None:
        a = d.args
        if a.vararg or a.kwarg or a.kwonlyargs:
            self.fail(
                "TW0107", "a function of script takes plain parameters only", a.vararg or a.kwarg or a.kwonlyargs[0]
            )
        late: list[tuple[ast.arg, E.Var]] = []
        seen: set[str] = set()
        for arg in (*a.posonlyargs, *a.args):
            if arg.arg in seen:
                self.fail("TW0119", f"two parameters are named {arg.arg!r}", arg)
            seen.add(arg.arg)
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

    def return_type(self, d: ast.FunctionDef, annotations: dict[str, Any]) -> Any:
        """The type that the definition says the function returns."""
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
        try:
            method(self, s)
        except (TypeError, ValueError) as e:
            raise CompileError.at("TW0104", str(e), self.source.span(s)) from e

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
            self.placed(s, self.func_attr, value)
        elif isinstance(value, (C.Reads, C.Writes, C.Predicate, C.BlockAttr)):
            self.placed(s, self.block_command, value)
        elif isinstance(value, (C.AxisCommand, C.AllocBuffer, C.MatchBuffer)):
            self.placed(s, self.act, value)
        elif isinstance(value, (C.BlockFrame, C.InitFrame, C.SeqFrame, C.IfFrame, C.BranchFrame)):
            self.fail("TW0108", "this opens a scope: write `with ...:`", s)
        elif isinstance(value, (list, tuple)):
            for v in value:  # pyright: ignore[reportUnknownVariableType]
                self.apply(v, s)
        elif isinstance(value, Node):
            self.fail("TW0105", f"a {type(value).__name__} is no statement", s)

    def expand(self, call: MacroCall) -> Any:
        """Expand a macro that a function of the user's program called."""
        self._expand(call, call.macro.definition)

    def _expand(self, call: MacroCall, s: ast.AST) -> None:
        macro = call.macro
        given = self.placed(s, bind_arguments, call)
        saved = self.source, self.env, self.evaluator, self.eval
        env = Environment(*macro.env.outer)
        env.global_vars, env.returns = self.env.global_vars, self.env.returns
        env.scopes = [*(macro.env.scopes if macro.hygienic else self.env.scopes), given]
        self.use(macro.source, env)
        try:
            with acting_on(None):
                for stmt in macro.definition.body:
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
        with self.env.scope():
            variables = self._loop_targets(s.target, loop)
            body = self.parse_suite(s.body)
        made = loop.make(variables, body)
        head = self.source.span(s.iter)
        x: Any = made
        while isinstance(x, tir.For) and x.span is None:
            at(x, head)
            x = x.body
        self.emit(made, s)

    def _loop_targets(self, target: ast.AST, loop: C.Loop) -> list[E.Var]:
        """The variables of the loops, bound to the names of the target: one for all of them, or one each."""
        n = len(loop.dtypes)
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        starred = any(isinstance(t, ast.Starred) for t in parts)
        if isinstance(target, ast.Name):
            names = [target.id] if n == 1 and loop.what != "T.grid" else [f"{target.id}_{i}" for i in range(n)]
            names = [target.id] if n == 1 else names
        elif starred:
            names = [f"i{i}" for i in range(n)]
        else:
            if len(parts) != n or not all(isinstance(t, ast.Name) for t in parts):
                self.fail("TW0106", f"{loop.what} has {n} loops, not {len(parts)}", target)
            names = [ast.unparse(t) for t in parts]
        if len(set(names)) != len(names):
            self.fail("TW0119", f"two loops of {loop.what} have one name", target)
        variables = self.loop_variables(loop, names)
        spans = parts if len(parts) == n else [target] * n
        for v, t in zip(variables, spans, strict=True):
            at(v, self.source.span(t))
        if isinstance(target, ast.Name):
            self.env.define(target.id, variables[0] if n == 1 else tuple(variables))
            return variables
        for t, value in self.unpack(target, variables):  # pyright: ignore[reportArgumentType]
            if not isinstance(t, ast.Name):
                self.fail("TW0106", "a loop variable is a name", t)
            self.env.define(t.id, value)
            if isinstance(value, list):
                for i, v in enumerate(value):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                    v.name = f"{t.id}_{i}"
            elif starred:
                value.name = t.id
        return variables

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
            block = self.placed(item.context_expr, self.may_init)
            block.init = self.parse_suite(rest)
        elif isinstance(value, C.IfFrame):
            self._if_frame(value, rest, s)
        elif isinstance(value, C.BranchFrame):
            owner = self.placed(item.context_expr, self.branch_of, value)
            set_branch(owner, value, self.parse_suite(rest))
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
        head = s.items[0].context_expr
        self.blocks.append(BlockState(frame.name, frame.no_realize))
        if self.function is not None:
            self.function.has_block = True
        try:
            body = self.parse_suite(stmts)
        finally:
            state = self.blocks.pop()
        self.emit(self.placed(head, self.finish_block, state, body, self.source.span(head)), s)

    def _if_frame(self, frame: C.IfFrame, stmts: Sequence[ast.stmt], s: ast.With) -> None:
        self.branches.append(frame)
        try:
            self.parse_suite(stmts)
        finally:
            self.branches.pop()
        self.emit(self.placed(s.items[0].context_expr, finish_if, frame), s)


def bind_arguments(call: MacroCall) -> dict[str, Any]:
    """The parameters of a macro with their values. Raises TypeError where they do not fit, TW0104 in a default."""
    macro = call.macro
    a = macro.definition.args
    kinds = inspect.Parameter
    evaluator = Evaluator(macro.source, macro.env)
    plain = [*a.posonlyargs, *a.args]
    defaults: list[Any] = [kinds.empty] * (len(plain) - len(a.defaults)) + [evaluator.eval(d) for d in a.defaults]
    params = [kinds(p.arg, kinds.POSITIONAL_OR_KEYWORD, default=d) for p, d in zip(plain, defaults, strict=True)]
    if a.vararg is not None:
        params.append(kinds(a.vararg.arg, kinds.VAR_POSITIONAL))
    for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True):
        params.append(kinds(p.arg, kinds.KEYWORD_ONLY, default=kinds.empty if d is None else evaluator.eval(d)))
    if a.kwarg is not None:
        params.append(kinds(a.kwarg.arg, kinds.VAR_KEYWORD))
    try:
        bound = inspect.Signature(params).bind(*call.args, **call.kwargs)
    except TypeError as e:
        raise CompileError.at("TW0104", f"macro {macro.definition.name!r}: {e}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


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
