"""Parses functions of the loop IR.

A suite of statements becomes one statement. What opens a scope without `with` (`x = value`, `T.attr(...)`) scopes over the
rest of its suite; the suite keeps a stack of such open scopes and closes them at its end, innermost first.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.arith import expr as E
from tilewright.ir import dtype as dt
from tilewright.ir.node import Node
from tilewright.ir.op import GlobalVar, PrimType
from tilewright.script import commands as C
from tilewright.script.evaluate import Environment, Evaluator, as_operand, region_to_load
from tilewright.script.namespace import DtypeFactory, HandleFactory
from tilewright.script.source import Source
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as tir

__all__ = ["FunctionState", "Macro", "TIRParser"]


@dataclass
class BlockState:
    """What has been said of the block being parsed."""

    name: str
    iter_vars: list[tir.IterVar] = field(default_factory=list[tir.IterVar])
    iter_values: list[Any] = field(default_factory=list[Any])
    reads: tuple[tir.BufferRegion, ...] | None = None
    writes: tuple[tir.BufferRegion, ...] | None = None
    predicate: Any = None
    init: tir.Stmt | None = None
    alloc_buffers: list[tir.Buffer] = field(default_factory=list[tir.Buffer])
    match_buffers: list[tir.MatchBufferRegion] = field(default_factory=list[tir.MatchBufferRegion])
    annotations: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class FunctionState:
    """What has been said of the function being parsed."""

    name: str
    params: list[E.Var] = field(default_factory=list[E.Var])
    buffer_map: dict[E.Var, tir.Buffer] = field(default_factory=dict[E.Var, tir.Buffer])
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    root_allocs: list[tir.Buffer] = field(default_factory=list[tir.Buffer])
    has_block: bool = False


@dataclass
class Macro:
    """A macro: script that is parsed again at each call."""

    source: Source
    definition: ast.FunctionDef
    env: Environment
    hygienic: bool = True

    def __call__(self, *args: Any, **kwargs: Any) -> MacroCall:
        return MacroCall(self, args, kwargs)


@dataclass
class MacroCall:
    """A call of a macro, which the parser expands."""

    macro: Macro
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Suite:
    """One suite: the statements so far, and the scopes that are open in it."""

    def __init__(self) -> None:
        self.stmts: list[tir.Stmt] = []
        self.open: list[tuple[list[tir.Stmt], Callable[[tir.Stmt], tir.Stmt], Any]] = []

    def scope(self, wrap: Callable[[tir.Stmt], tir.Stmt], span: Any) -> None:
        """The rest of the suite is the body of `wrap`."""
        self.open.append((self.stmts, wrap, span))
        self.stmts = []

    def close(self) -> tir.Stmt:
        """The statement of the whole suite."""
        body = _sequence(self.stmts)
        for before, wrap, span in reversed(self.open):
            made = wrap(body)
            if made.span is None:
                object.__setattr__(made, "span", span)
            body = _sequence([*before, made])
        return body


def _sequence(stmts: Sequence[tir.Stmt]) -> tir.Stmt:
    """Statements one after the other; none of them: nothing to do."""
    if len(stmts) == 1:
        return stmts[0]
    if not stmts:
        return tir.Evaluate(E.IntImm("int32", 0))
    return tir.SeqStmt(tuple(stmts))


def call_function(func: Any, args: Any, kwargs: Any) -> E.PrimExpr:
    """A direct call of a function of the module: it gives a status."""
    if not isinstance(func, GlobalVar) or kwargs:
        raise TypeError(f"{func!r} cannot be called so")
    return E.Call("int32", func, tuple(a if isinstance(a, Node) else E.convert(a) for a in map(as_operand, args)))


class TIRParser:
    """Parses statements of the loop IR of one source in one environment."""

    def __init__(self, source: Source, env: Environment) -> None:
        self.source, self.env = source, env
        self.evaluator = Evaluator(source, env)
        self.evaluator.call_hook = call_function
        self.eval = self.evaluator.eval
        self.blocks: list[BlockState] = []
        self.function: FunctionState | None = None
        self.loops: dict[E.Var, tuple[Any, Any]] = {}
        self.bound: set[E.Var] = set()
        self.suite = Suite()

    def fail(self, code: str, message: str, n: Any, **kw: Any) -> Any:
        """Raise an error that underlines the syntax node."""
        self.source.fail(code, message, n, **kw)

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
        made = tir.PrimFunc(
            tuple(state.params), body, ret_type, state.buffer_map, state.attrs, span=self.source.span(d)
        )
        return made

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
            v = E.Var(f"{arg.arg}_handle", "handle", span=span)
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
            self.fail("TW0105", f"script of the loop IR has no {_what(s)} statements", s)
        method(self, s)

    def emit(self, stmt: tir.Stmt, n: ast.AST) -> None:
        """Append a statement."""
        if stmt.span is None:
            object.__setattr__(stmt, "span", self.source.span(n))
        self.suite.stmts.append(stmt)

    # ---- assignments

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
            try:
                values = list(value)
            except TypeError:
                self.fail("TW0106", f"{len(target.elts)} names for one value", target)
            if len(values) != len(target.elts):
                self.fail("TW0106", f"{len(target.elts)} names for {len(values)} values", target)
            for t, v in zip(target.elts, values, strict=True):
                self.bind(t, v, s)
            return
        if isinstance(target, ast.Subscript):
            self._store(target, value, s)
            return
        if not isinstance(target, ast.Name):
            self.fail("TW0105", f"cannot assign to {ast.unparse(target)}", target)
        self.env.define(target.id, self._named(target.id, value, s))

    def _named(self, name: str, value: Any, s: ast.AST) -> Any:
        """What `name = value` makes `name` stand for."""
        handler = _BIND.get(type(value))
        if handler is not None:
            return handler(self, name, value, s)
        if isinstance(value, tir.Buffer):
            return C.name_buffer(value, name)
        if isinstance(value, tir.BufferRegion):
            return value
        if isinstance(value, E.Var) and not value.name:
            C.fresh_name(value, name)
            return value
        if isinstance(value, (E.PrimExpr, int, float)):
            return self.let(name, value, None, s)
        return value

    def let(self, name: str, value: Any, var: E.Var | None, s: ast.AST) -> E.Var:
        """Open the scope of a LetStmt."""
        e = E.convert(value)
        v = var if var is not None else E.Var(name, e.dtype, span=self.source.span(s))
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
        if not self.blocks:
            self.fail("TW0108", "an axis belongs to a block: put it in `with T.block(...)`", s)
        binding = None if value.binding is None else E.convert(as_operand(value.binding))
        if value.domain is None:
            if not isinstance(binding, E.Var) or binding not in self.loops:
                self.fail("TW0108", "remap binds loop variables only; use T.axis.spatial(extent, value)", s)
            low, extent = self.loops[binding]
            dom = tir.Range(low, extent)
        else:
            dom = C.range_of(value.domain)
        v = E.Var(name, dom.extent.dtype, span=self.source.span(s))
        block = self.blocks[-1]
        if any(x.var.name == name for x in block.iter_vars):
            self.fail("TW0108", f"the block has an axis {name!r} already", s)
        if isinstance(binding, E.IntImm) and binding.dtype != v.dtype:
            binding = E.cast(binding, v.dtype)
        block.iter_vars.append(tir.IterVar(dom, v, value.iter_type))
        block.iter_values.append(binding)
        self.bound.add(v)
        return v

    def _alloc(self, name: str, value: C.AllocBuffer, s: ast.AST) -> tir.Buffer:
        b = C.name_buffer(value.buffer, name)
        if self.blocks:
            self.blocks[-1].alloc_buffers.append(b)
        elif self.function is not None:
            self.function.root_allocs.append(b)
        else:
            self.fail("TW0108", "alloc_buffer belongs in a function or a block", s)
        return b

    def _match(self, name: str, value: C.MatchBuffer, s: ast.AST) -> tir.Buffer:
        b = C.name_buffer(value.buffer, name)
        source = value.source
        if isinstance(source, E.Var):
            if self.function is None or source not in self.function.params:
                self.fail("TW0108", f"match_buffer needs a parameter of the function, {source.name!r} is none", s)
            if source in self.function.buffer_map:
                self.fail("TW0108", f"parameter {source.name!r} is a buffer already", s)
            self.function.buffer_map[source] = b
            return b
        if not self.blocks:
            self.fail("TW0108", "match_buffer of a region belongs in a block", s)
        try:
            (region,) = C.regions([source])
        except TypeError as e:
            self.fail("TW0108", str(e), s)
        self.blocks[-1].match_buffers.append(tir.MatchBufferRegion(b, region))
        return b

    def _store(self, target: ast.Subscript, value: Any, s: ast.AST) -> None:
        buffer = self.eval(target.value)
        if not isinstance(buffer, tir.Buffer):
            hint = "only elements of buffers can be assigned"
            self.fail("TW0109", f"{ast.unparse(target.value)} is no buffer", target.value, hint=hint)
        indices = self._indices(buffer, target)
        self.emit(self._make_store(buffer, indices, value, target, s), s)

    def _indices(self, buffer: tir.Buffer, target: ast.Subscript) -> tuple[E.PrimExpr, ...]:
        value = self.evaluator.index(target.slice)
        items: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
        if len(items) != len(buffer.shape):
            self.fail("TW0109", f"buffer {buffer.name!r} has {len(buffer.shape)} dimensions, not {len(items)}", target)
        try:
            element = buffer[items]
            return (region_to_load(element) if isinstance(element, tir.BufferRegion) else element).indices
        except (TypeError, ValueError) as e:
            self.fail("TW0109", str(e), target)
            raise

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
            if dt.lanes(e.dtype) not in (1, dt.lanes(want)):
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
                v = E.Var(name, dtype, span=self.source.span(t))
                variables.append(v)
                self.loops[v] = bounds
                self.bound.add(v)
                self.env.define(name, v)
            body = self.parse_suite(s.body)
        made = loop.make(variables, body)
        head = self.source.span(s.iter)
        x: Any = made
        while isinstance(x, tir.For) and x.span is None:
            object.__setattr__(x, "span", head)
            x = x.body
        self.emit(made, s)

    def _loop_of(self, n: ast.AST) -> Any:
        """What the loop goes over; `range` of Python is a serial loop here."""
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and self.env.lookup(n.func.id, None) is range:
            args = [self.eval(a) for a in n.args]
            if len(args) == 3 and not (isinstance(args[2], (int, E.IntImm)) and int(args[2]) == 1):
                self.fail("TW0105", "a loop of script has step 1", n.args[2], hint="multiply the variable in the body")
            from tilewright.script.tir import serial

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
                self.emit(self.parse_suite(s.body), s)

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
        span = self.source.span(s)
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
            span=self.source.span(s.items[0].context_expr),
        )
        if state.reads is None or state.writes is None:
            block = self._detect(block, state, s)
        if frame.no_realize:
            self.emit(block, s)
            return
        if any(v is None for v in state.iter_values):
            self.fail("TW0108", f"an axis of block {frame.name!r} is bound to nothing", s.items[0].context_expr)
        predicate = state.predicate if state.predicate is not None else E.IntImm("bool", 1)
        self.emit(tir.BlockRealize(tuple(state.iter_values), predicate, block, span=span), s)

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

_BIND: dict[type, Callable[[TIRParser, str, Any, ast.AST], Any]] = {
    C.Frame: TIRParser._frame,
    C.AxisCommand: TIRParser._axis,
    C.AllocBuffer: TIRParser._alloc,
    C.MatchBuffer: TIRParser._match,
    C.MetaVar: lambda _p, _n, v, _s: v.value,
    tir.IterVar: lambda _p, n, v, _s: (C.fresh_name(v.var, n), v)[1],
    bool: lambda p, n, v, s: p.let(n, v, None, s),
}

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

_WORDS = {
    "Try": "try",
    "Import": "import",
    "ImportFrom": "import",
    "AsyncFor": "async",
    "Delete": "del",
    "ClassDef": "class",
}


def _what(s: ast.AST) -> str:
    kind = type(s).__name__
    return _WORDS.get(kind, kind.lower())


def _contains_block(body: Any) -> bool:
    stack: list[Any] = [body]
    while stack:
        n = stack.pop()
        if isinstance(n, tir.BlockRealize):
            return True
        if isinstance(n, tir.Stmt):
            stack.extend(getattr(n, f.name) for f in n.node_fields)
        elif isinstance(n, tuple):
            stack.extend(n)
    return False


def complete_root(body: tir.Stmt, state: FunctionState) -> tir.Stmt:
    """Put the outermost block around the body of a function that has blocks, unless it is there."""
    if not state.root_allocs:
        if isinstance(body, tir.BlockRealize):
            if not body.block.iter_vars:
                return body
        elif not _contains_block(body):
            return body
    block = tir.Block((), (), (), "root", body, None, tuple(state.root_allocs), span=body.span)
    return tir.BlockRealize((), E.IntImm("bool", 1), block, span=body.span)
