"""Parses functions of the graph IR: bindings go through a BlockBuilder, which brings them to normal form and infers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tilewright.arith import expr as E
from tilewright.ir.module import IRModule
from tilewright.ir.node import Node
from tilewright.relax import ir as rx
from tilewright.relax import struct_info as si
from tilewright.relax.block_builder import BlockBuilder, function_struct_info, is_leaf
from tilewright.relax.values import convert, make_var
from tilewright.script import commands as C
from tilewright.script import relax as R
from tilewright.script.evaluate import Environment, Evaluator, as_operand
from tilewright.script.namespace import DtypeFactory
from tilewright.script.source import Source, did_you_mean
from tilewright.script.suite import Macro, MacroCall, at, what
from tilewright.support.diagnostics import CompileError

__all__ = ["RelaxParser", "Signature"]


class Signature:
    """The parameters and result of a function, before its body is parsed."""

    def __init__(self, params: list[rx.Var], ret: Any, symbols: dict[str, E.Var]) -> None:
        self.params, self.ret, self.symbols = params, ret, symbols

    def stub(self, *, is_pure: bool) -> rx.Function:
        """A function without a body, from which calls of it are inferred."""
        params = tuple(p.struct_info or si.ObjectStructInfo() for p in self.params)
        ret = self.ret or si.ObjectStructInfo()
        body = rx.SeqExpr((), rx.Tuple(()), struct_info=ret)
        info = si.FuncStructInfo(params, si.erase(ret, set(si.free_symbols(*params))), is_pure)
        return rx.Function(tuple(self.params), body, self.ret, is_pure, {}, struct_info=info)


class RelaxParser:
    """Parses one function (and those inside it) of one source in one environment."""

    def __init__(self, source: Source, env: Environment, mod: IRModule | None = None) -> None:
        self.source, self.env = source, env
        self.evaluator = Evaluator(source, env)
        self.evaluator.call_hook = R.call_value
        self.eval = self.evaluator.eval
        self.mod = mod if mod is not None else IRModule({}, {})
        self.bb = BlockBuilder(self.mod)
        self.attrs: dict[str, Any] = {}
        self.symbols: dict[str, E.Var] = {}
        self.outputs: dict[str, ast.stmt] | None = None  # in a dataflow block: the binding of each output
        self.returned = False

    def fail(self, code: str, message: str, n: Any, **kw: Any) -> NoReturn:
        """Raise an error that underlines the syntax node."""
        self.source.fail(code, message, n, **kw)

    # ---- signatures

    def signature(self, d: ast.FunctionDef, annotations: dict[str, Any]) -> Signature:
        """Parameters and result. Symbols are taken from the declarations at the head of the body (`n = T.int64()`)."""
        self.symbols = {}
        for s in d.body:
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) and isinstance(s.value, ast.Call):
                name = s.targets[0].id
                if self._is_symbol(s.value):
                    self.symbols.setdefault(name, self._new_symbol(s.value, name))
                    continue
            if not isinstance(s, (ast.Assign, ast.Expr)):
                break
        params: list[rx.Var] = []
        with self.env.scope():
            for name, v in self.symbols.items():
                self.env.define(name, v)
            for arg in (*d.args.posonlyargs, *d.args.args):
                info = None if arg.annotation is None else self.info(arg.annotation, annotations.get(arg.arg))
                v = make_var(arg.arg, info, False, self.source.span(arg))
                params.append(v)
            ret = None if d.returns is None else self.info(d.returns, annotations.get("return"))
        return Signature(params, ret, self.symbols)

    def _is_symbol(self, call: ast.Call) -> bool:
        if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name) or call.args:
            return False
        base = self.env.lookup(call.func.value.id, None)
        return base is not None and isinstance(getattr(base, call.func.attr, None), DtypeFactory)

    def _new_symbol(self, call: ast.Call, name: str) -> E.Var:
        v = self.eval(call)
        C.fresh_name(v, name)
        return v

    def info(self, n: ast.AST, known: Any = None) -> Any:
        """The struct info of an annotation; quoted dimensions are symbols of the function."""
        try:
            if isinstance(n, ast.Constant) and n.value is None:
                return si.TupleStructInfo(())
            if isinstance(n, ast.Constant) and isinstance(n.value, str):
                value = self.eval(ast.copy_location(ast.parse(n.value, mode="eval").body, n))
            else:
                value = self.eval(n)
        except CompileError as e:
            if known is None or isinstance(known, str) or e.diagnostics[0].code != "TW0102":
                raise
            value = known
        try:
            return self.resolve(R.to_info(value), n)
        except TypeError as e:
            self.fail("TW0107", str(e), n)

    def resolve(self, value: Any, n: ast.AST) -> Any:
        """A struct info of a proxy of one."""
        return value.build(lambda text: self._symbol(text, n)) if isinstance(value, R.InfoProxy) else value

    def _symbol(self, text: str, n: ast.AST) -> E.PrimExpr:
        """The dimension that a quoted text stands for; unknown names become symbols."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            self.fail("TW0107", f"{text!r} is no dimension", n)
            raise
        scope = Environment(*self.env.outer)
        scope.scopes = [*self.env.scopes, self.symbols]
        for x in ast.walk(tree):
            ast.copy_location(x, n)
            if isinstance(x, ast.Name) and x.id not in self.symbols:
                found = scope.lookup(x.id, None)
                if not isinstance(found, (E.PrimExpr, int)) and not _is_module(found):
                    self.symbols[x.id] = E.Var(x.id, "int64")
        value = Evaluator(self.source, scope).eval(tree)
        return value if isinstance(value, E.PrimExpr) else E.const(int(value), "int64")

    # ---- functions

    def parse_function(self, d: ast.FunctionDef, sig: Signature, options: dict[str, Any]) -> rx.Function:
        """The function of a definition, whose signature was parsed before."""
        name = options.get("name") or d.name
        pure = options.get("pure", True)
        private = bool(options.get("private"))
        self.symbols = sig.symbols
        bb = self.bb
        frame: Any = None
        with self.env.scope(), bb.function(name, sig.params, {}, private=True, is_pure=pure):
            frame = bb._function[-1]
            frame.ret_struct_info = sig.ret
            for v in sig.params:
                self.env.define(v.name_hint, v)
            for symbol, v in self.symbols.items():
                if self.env.lookup(symbol, None) is None or not isinstance(self.env.lookup(symbol), rx.Var):
                    self.env.define(symbol, v)
            self.suite(d.body)
            if not self.returned:
                self.fail("TW0112", f"function {name!r} returns nothing", d, hint="end it with `return value`")
            frame.attrs = (
                self.attrs if private or "global_symbol" in self.attrs else {"global_symbol": name, **self.attrs}
            )
        made: Any = bb.get()[name]
        made.span = self.source.span(d)
        if sig.ret is not None:
            self._check_info(sig.ret, made.body.struct_info, d.returns or d)
        return made

    def suite(self, stmts: Sequence[ast.stmt]) -> None:
        """Parse statements in order."""
        for s in stmts:
            if self.returned:
                self.fail("TW0112", "this stands behind the return", s)
            self.statement(s)

    def statement(self, s: ast.stmt) -> None:
        """Parse one statement."""
        method = _STATEMENTS.get(type(s))
        if method is None:
            self.fail("TW0105", f"script of the graph IR has no {what(s)} statements", s)
        try:
            method(self, s)
        except CompileError as e:
            raise self.evaluator.placed(e, s) from e.__cause__

    # ---- bindings

    def _assign(self, s: ast.Assign) -> None:
        if len(s.targets) != 1:
            self.fail("TW0105", "assign to one target at a time", s)
        target = s.targets[0]
        value = self.eval(s.value)
        if isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, s)
            return
        if not isinstance(target, ast.Name):
            self.fail("TW0105", f"cannot assign to {ast.unparse(target)}: a value of the graph never changes", target)
        self.bind(target.id, value, None, s)

    def _unpack(self, target: ast.Tuple | ast.List, value: Any, s: ast.stmt) -> None:
        if isinstance(value, rx.Expr):
            whole = self.emit("_tuple", value, None, s)
            value = [rx.TupleGetItem(whole, i) for i in range(len(target.elts))]
        items = list(value)
        if len(items) != len(target.elts):
            self.fail("TW0106", f"{len(target.elts)} names for {len(items)} values", target)
        for t, v in zip(target.elts, items, strict=True):
            if not isinstance(t, ast.Name):
                self.fail("TW0105", "only names can be bound here", t)
            self.bind(t.id, v, None, s)

    def _ann_assign(self, s: ast.AnnAssign) -> None:
        if not isinstance(s.target, ast.Name) or s.value is None:
            self.fail("TW0105", "an annotated assignment binds one name to a value", s)
        value = self.eval(s.value)
        info = self.info(s.annotation)
        self.bind(s.target.id, value, info, s)

    def bind(self, name: str, value: Any, info: Any, s: ast.stmt) -> None:
        """`name = value`: a binding for a value of the graph; anything else is a name of the script only."""
        if isinstance(value, E.Var) and info is None:
            if not value.name:
                value = self.symbols.setdefault(name, value)
                C.fresh_name(value, name)
            self.env.define(name, value)
            return
        if isinstance(value, R.EmitTE):
            value = self.bb.call_te(value.func, *value.args, **value.kwargs)
        if self._is_graph_value(value, info):
            self.env.define(name, self.emit(name, value, info, s))
        else:
            self.env.define(name, value)

    @staticmethod
    def _is_graph_value(value: Any, info: Any) -> bool:
        if info is not None or isinstance(value, (R.MatchCastCommand, rx.Expr, rx.Function)):
            return True
        if isinstance(value, (tuple, list)):
            return any(isinstance(v, (rx.Expr, rx.Function)) for v in value)  # pyright: ignore[reportUnknownVariableType]
        return False

    def emit(self, name: str, value: Any, info: Any, s: ast.stmt) -> rx.Var:
        """Append a binding; the variable."""
        local = self.bb.current_block_is_dataflow() and (self.outputs or {}).get(name) is not s
        span = self.source.span(s)
        if isinstance(value, R.MatchCastCommand):
            operand = self.bb.normalize(convert(value.value))
            made_info = self.resolve(value.info, s)
            var = make_var(name, info or made_info, local, span)
            self.bb.emit_normalized(at(rx.MatchCast(var, operand, made_info), span))
            return var
        try:
            made: Any = convert(value)
        except TypeError as e:
            self.fail("TW0104", str(e), s)
            raise
        expr: Any = self.bb.normal(made)
        is_function = isinstance(expr, rx.Function)
        known = function_struct_info(expr) if is_function else getattr(expr, "struct_info", None)
        if info is not None:
            self._check_info(info, known, s.annotation if isinstance(s, ast.AnnAssign) else s)
        var = make_var(name, info or known, local, span)
        self.bb.emit_normalized(at(rx.VarBinding(var, expr), span))
        return var

    def _check_info(self, said: Any, known: Any, n: ast.AST) -> None:
        """An annotation must not contradict what is inferred."""
        problem = _contradiction(said, known)
        if problem:
            self.fail(
                "TW0110",
                f"the annotation contradicts the value: {problem}",
                n,
                hint="leave the annotation out, or use R.match_cast",
            )

    def _expr(self, s: ast.Expr) -> None:
        if isinstance(s.value, ast.Constant) and isinstance(s.value.value, (str, type(...))):
            return
        value = self.eval(s.value)
        if value is None:
            return
        if isinstance(value, C.FuncAttr):
            self.attrs.update(value.attrs)
        elif isinstance(value, R.OutputCommand):
            if self.outputs is None:
                self.fail("TW0113", "R.output belongs at the end of `with R.dataflow():`", s)
        elif isinstance(value, (R.DataflowFrame, R.BindingsFrame)):
            self.fail("TW0108", "this opens a scope: write `with ...:`", s)
        elif isinstance(value, R.EmitTE):
            self.bind("_", value, None, s)
        elif isinstance(value, (rx.Expr, R.MatchCastCommand)):
            self.emit("_", value, None, s)
        elif isinstance(value, MacroCall):
            self._expand(value, s)
        else:
            self.fail("TW0105", f"a {type(value).__name__} is no statement", s)

    def _expand(self, call: MacroCall, s: ast.AST) -> None:
        macro = call.macro
        names = [a.arg for a in macro.definition.args.args]
        if len(call.args) + len(call.kwargs) != len(names):
            self.fail("TW0104", f"macro {macro.definition.name!r} takes {', '.join(names) or 'nothing'}", s)
        saved = self.source, self.env, self.evaluator, self.eval
        env = Environment(*macro.env.outer)
        env.scopes = [
            *(macro.env.scopes if macro.hygienic else self.env.scopes),
            dict(zip(names, call.args)) | call.kwargs,
        ]
        self.source, self.env, self.evaluator = macro.source, env, Evaluator(macro.source, env)
        self.evaluator.call_hook = R.call_value
        self.eval = self.evaluator.eval
        try:
            self.suite(macro.definition.body)
        finally:
            self.source, self.env, self.evaluator, self.eval = saved

    def _return(self, s: ast.Return) -> None:
        if s.value is None:
            self.fail("TW0112", "a function of the graph returns a value", s)
        if self.bb.current_block_is_dataflow() or len(self.bb._scopes) > 1:
            self.fail("TW0112", "return stands at the end of the function, not in a block or branch", s)
        self.bb.emit_func_output(self.eval(s.value))
        self.returned = True

    # ---- blocks and branches

    def _with(self, s: ast.With) -> None:
        value = self.eval(s.items[0].context_expr)
        if isinstance(value, R.BindingsFrame):
            self.suite(s.body)
            return
        if not isinstance(value, R.DataflowFrame):
            self.fail("TW0105", f"{ast.unparse(s.items[0].context_expr)} opens no scope", s.items[0].context_expr)
        if self.outputs is not None:
            self.fail("TW0113", "a dataflow block cannot stand in another", s)
        self.outputs = self._find_outputs(s)
        names = list(self.outputs)
        with self.env.scope():
            with self.bb.dataflow():
                self.suite(s.body)
            inner = dict(self.env.scopes[-1])
        self.outputs = None
        for name, value in inner.items():
            # names of the script go on; of the bindings only the outputs do
            if name in names or not isinstance(value, rx.DataflowVar):
                self.env.define(name, value)
            else:
                self.env.hints[name] = f"{name!r} is local to a dataflow block: name it in its R.output(...)"

    def _find_outputs(self, s: ast.With) -> dict[str, ast.stmt]:
        last = s.body[-1]
        call = last.value if isinstance(last, ast.Expr) else None
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "output"):
            self.fail(
                "TW0113", "a dataflow block ends with R.output(...)", last, hint="add R.output(x, ...) as its last line"
            )
            raise AssertionError
        found: dict[str, ast.stmt] = {}
        for a in call.args:
            if not isinstance(a, ast.Name):
                self.fail("TW0113", "R.output takes names bound in the block", a)
                raise AssertionError
            binding = [b for b in s.body if a.id in _bound_names(b)]
            if not binding:
                known = [n for b in s.body for n in _bound_names(b)]
                self.fail("TW0113", f"{a.id!r} is not bound in this block", a, hint=did_you_mean(a.id, known))
            found[a.id] = binding[-1]
        return found

    def _if(self, s: ast.If) -> None:
        test = as_operand(self.eval(s.test))
        if not isinstance(test, Node):
            self.suite(s.body if test else s.orelse)
            return
        if self.bb.current_block_is_dataflow():
            self.fail("TW0113", "a dataflow block has no branches", s)
        names = [self._last_name(s.body, s), self._last_name(s.orelse, s)]
        if names[0] != names[1]:
            self.fail(
                "TW0114",
                f"the branches end by binding different names, {names[0]!r} and {names[1]!r}",
                s.orelse[-1],
                hint="bind one name last in both: it is the value of the if",
            )
        condition = self.bb.normalize(convert(test))
        branches = [self.bb.seq_expr(lambda b=b: self._branch(b)) for b in (s.body, s.orelse)]
        self.env.define(names[0], self.emit(names[0], rx.If(condition, branches[0], branches[1]), None, s))

    def _last_name(self, stmts: Sequence[ast.stmt], s: ast.If) -> str:
        if not stmts:
            self.fail("TW0114", "an if of the graph needs an else: both give the value", s)
        names = _bound_names(stmts[-1])
        if not names:
            self.fail("TW0114", "a branch ends by binding the value of the if to a name", stmts[-1])
        return names[-1]

    def _branch(self, stmts: Sequence[ast.stmt]) -> Any:
        """The statements of a branch; its value."""
        with self.env.scope():
            self.suite(stmts[:-1])
            last = stmts[-1]
            if isinstance(last, (ast.Assign, ast.AnnAssign)) and last.value is not None:
                value = self.eval(last.value)
                if not isinstance(value, (R.MatchCastCommand, R.EmitTE)):
                    value = convert(value)
                    if is_leaf(value) and not isinstance(value, rx.Function):
                        return value
                info = self.info(last.annotation) if isinstance(last, ast.AnnAssign) else None
                self.bind(_bound_names(last)[-1], value, info, last)
            else:
                self.statement(last)
            return self.env.lookup(_bound_names(last)[-1])

    def _function_def(self, s: ast.FunctionDef) -> None:
        from tilewright.script.parser import decoration

        kind, options = decoration(self.evaluator, s)
        if kind == "macro":
            env = Environment(*self.env.outer)
            env.scopes = list(self.env.scopes)
            self.env.define(s.name, Macro(self.source, s, env, options.get("hygienic", True)))
            return
        if kind != "relax":
            self.fail("TW0105", "a function in a function of the graph must be an R.function", s)
        inner = RelaxParser(self.source, self.env, self.mod)
        sig = inner.signature(s, {})
        func = inner.parse_function(s, sig, {**options, "private": True})
        self.env.define(s.name, self.emit(s.name, func, None, s))

    def _pass(self, s: ast.Pass) -> None:
        del s


def _is_module(value: Any) -> bool:
    return type(value).__name__ == "module"


def _bound_names(s: ast.stmt) -> list[str]:
    """The names that a statement binds, the last one last."""
    if isinstance(s, ast.Assign):
        return [n.id for t in s.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    if isinstance(s, ast.AnnAssign):
        return [s.target.id] if isinstance(s.target, ast.Name) else []
    if isinstance(s, ast.FunctionDef):
        return [s.name]
    if isinstance(s, ast.If):
        return _bound_names(s.body[-1])
    if isinstance(s, ast.With):
        last = s.body[-1]
        call = last.value if isinstance(last, ast.Expr) else None
        return [a.id for a in call.args if isinstance(a, ast.Name)] if isinstance(call, ast.Call) else []
    return []


def _contradiction(said: Any, known: Any) -> str | None:
    """Where an annotation and an inferred struct info cannot both hold."""
    if known is None or said is None or isinstance(said, si.ObjectStructInfo) or isinstance(known, si.ObjectStructInfo):
        return None
    if type(said) is not type(known):
        return f"{si.describe(said)}, but it is {si.describe(known)}"
    if isinstance(said, si.TensorStructInfo):
        if said.dtype and known.dtype and said.dtype != known.dtype:
            return f"dtype {said.dtype}, but it is {known.dtype}"
        if said.ndim >= 0 and known.ndim >= 0 and said.ndim != known.ndim:
            return f"{said.ndim} dimensions, but it has {known.ndim}"
        return _dims_contradict(said.shape, known.shape)
    if isinstance(said, si.ShapeStructInfo):
        return _dims_contradict(said.values, known.values)
    if isinstance(said, si.TupleStructInfo):
        if len(said.fields) != len(known.fields):
            return f"{len(said.fields)} values, but it has {len(known.fields)}"
        return next(filter(None, map(_contradiction, said.fields, known.fields)), None)
    return None


def _dims_contradict(a: Any, b: Any) -> str | None:
    if a is None or b is None:
        return None
    if len(a) != len(b):
        return f"{len(a)} dimensions, but it has {len(b)}"
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        p, q = si.as_int(x), si.as_int(y)
        if p is not None and q is not None and p != q:
            return f"dimension {i} is {p}, but it is {q}"
    return None


_STATEMENTS: dict[type, Callable[[RelaxParser, Any], None]] = {
    ast.Assign: RelaxParser._assign,
    ast.AnnAssign: RelaxParser._ann_assign,
    ast.Expr: RelaxParser._expr,
    ast.Return: RelaxParser._return,
    ast.With: RelaxParser._with,
    ast.If: RelaxParser._if,
    ast.FunctionDef: RelaxParser._function_def,
    ast.Pass: RelaxParser._pass,
}
