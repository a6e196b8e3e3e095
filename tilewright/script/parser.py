"""Parses script: decorated functions and classes of the user's program, and texts.

    @I.ir_module
    class Module:
        @T.prim_func
        def f(A: T.Buffer((8,), "float32")): ...

The decorator of a function in a class only notes the function; the class's decorator parses them together, so that they can
refer to each other. In a class without `I.ir_module` such a function is parsed when it is first asked for.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, FunctionType
from typing import Any

from tilewright.arith.build import convert
from tilewright.arith.expr import Var
from tilewright.ir.module import IRModule
from tilewright.ir.node import Node
from tilewright.ir.op import GlobalVar
from tilewright.relax import ir as rx
from tilewright.relax.values import make_tuple
from tilewright.script import commands as C
from tilewright.script import ir, relax, tir
from tilewright.script.evaluate import Environment, Evaluator
from tilewright.script.parser_relax import RelaxParser
from tilewright.script.parser_tir import TIRParser
from tilewright.script.source import Source, Tree, did_you_mean, find_class, find_function, parse_text
from tilewright.script.suite import Macro, at, call_function
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import Buffer, MatchBufferRegion

__all__ = ["PendingFunction", "decorate", "decoration", "from_source", "ir", "parse", "parse_class", "relax", "tir"]

I, T, R = ir, tir, relax

_KINDS: dict[Any, str] = {T.prim_func: "tir", R.function: "relax", T.macro: "macro", R.macro: "macro"}


# ---- what a function of the user's program sees


def _visible(frame: FrameType | None) -> list[Mapping[str, Any]]:
    """The names around a decorated function: those of the class body it stands in, and of the function around."""
    out: list[Mapping[str, Any]] = []
    while frame is not None and frame.f_locals is not frame.f_globals:
        names = frame.f_locals
        out.append(names)
        if "__qualname__" not in names or "__module__" not in names:
            break  # a function; what is around it is seen through the closure
        frame = frame.f_back
    return out


def _caller() -> FrameType:
    """The frame of the user's program that called into this package."""
    frame: Any = sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith("tilewright.script"):
        frame = frame.f_back
    return frame


def _closure(func: FunctionType) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or ()):
        try:
            out[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return out


def _annotations(func: FunctionType) -> dict[str, Any]:
    """The values of the annotations, where Python has them."""
    try:
        return dict(func.__annotations__)
    except Exception:  # Python 3.14 evaluates them when asked; the parser evaluates what it needs by itself
        return {}


class PendingFunction:
    """A decorated function in a class, not parsed yet."""

    def __init__(self, kind: str, func: FunctionType, options: dict[str, Any], around: list[Mapping[str, Any]]) -> None:
        self.kind, self.func, self.options, self.around = kind, func, options, around
        self.parsed: Any = None

    def environment(self) -> Environment:
        """The names that the function sees."""
        return Environment(_closure(self.func), *self.around, self.func.__globals__)

    def parse(self) -> Any:
        """The function by itself, outside of a module."""
        if self.parsed is None:
            self.parsed = _parse_function(self.kind, self.func, self.options, self.environment())
        return self.parsed

    def __get__(self, instance: Any, owner: Any) -> Any:
        del instance, owner
        return self.parse()


def decorate(kind: str, func: Any, options: dict[str, Any]) -> Any:
    """What `@T.prim_func`, `@R.function` and `@T.macro` do, with or without arguments."""
    if func is not None and not callable(func) and not isinstance(func, FunctionType):
        raise ValueError(
            f"the decorator's options go by keyword: @T.{'macro' if kind == 'macro' else 'prim_func'}(name={func!r})"
        )
    if func is None:
        return lambda f: _decorated(kind, f, options, _caller())
    return _decorated(kind, func, options, _caller())


def _decorated(kind: str, func: Any, options: dict[str, Any], frame: FrameType) -> Any:
    if not isinstance(func, FunctionType):
        raise TypeError(f"the decorator takes a function, not {func!r}")
    around = _visible(frame)
    parent = func.__qualname__.rpartition(".")[0]
    if parent and not parent.endswith("<locals>") and kind != "macro":
        return PendingFunction(kind, func, options, around)
    return _parse_function(kind, func, options, Environment(_closure(func), *around, func.__globals__))


def _parse_function(kind: str, func: FunctionType, options: dict[str, Any], env: Environment) -> Any:
    tree, d = find_function(func)
    return _parse_definition(kind, tree.source, d, options, env, _annotations(func))


def _parse_definition(
    kind: str,
    source: Source,
    d: ast.FunctionDef,
    options: dict[str, Any],
    env: Environment,
    annotations: dict[str, Any],
    mod: IRModule | None = None,
) -> Any:
    if kind == "macro":
        return Macro(source, d, env, options.get("hygienic", True))
    if kind == "tir":
        return TIRParser(source, env).parse_function(d, annotations, options)
    parser = RelaxParser(source, env, mod)
    return parser.parse_function(d, parser.signature(d, annotations), options)


def decoration(evaluator: Evaluator, d: ast.FunctionDef) -> tuple[str, dict[str, Any]]:
    """Which decorator of script a definition has, and its options. Raises TW0115 if it has none."""
    for n in d.decorator_list:
        call = n if isinstance(n, ast.Call) else None
        value = evaluator.eval(call.func if call is not None else n)
        kind = _KINDS.get(value) if isinstance(value, FunctionType) else None
        if kind is not None:
            keywords = call.keywords if call is not None else []
            return kind, {k.arg: evaluator.eval(k.value) for k in keywords if k.arg}
    return evaluator.source.fail(
        "TW0115", f"function {d.name!r} is no script", d, hint="decorate it with @T.prim_func or @R.function"
    )


# ---- modules


class ModuleProxy:
    """`cls` and the class's name inside a module's functions: its functions as GlobalVars."""

    def __init__(self, name: str, variables: dict[str, GlobalVar]) -> None:
        self.__name, self.__variables = name, variables

    def __getattr__(self, name: str) -> GlobalVar:
        if name.startswith("__"):
            raise AttributeError(name)
        found = self.__variables.get(name)
        if found is None:
            hint = did_you_mean(name, self.__variables)
            raise CompileError.at("TW0103", f"the module {self.__name} has no function {name!r}", hint=hint)
        return found

    def __getitem__(self, name: str) -> GlobalVar:
        return next((v for v in self.__variables.values() if v.name_hint == name), None) or self.__getattr__(name)

    def __dir__(self) -> Iterable[str]:
        return list(self.__variables)


def parse_class(cls: type, *, check_well_formed: bool = True) -> IRModule:
    """What `@I.ir_module` does: the module of a class."""
    if not isinstance(cls, type):
        raise TypeError(f"I.ir_module decorates a class, not {cls!r}")
    pending = {n: v for n, v in vars(cls).items() if isinstance(v, PendingFunction)}
    plain = [v for v in vars(cls).values() if isinstance(v, FunctionType)]
    tree, node = find_class(cls, [*(p.func for p in pending.values()), *plain])
    by_line = {p.func.__code__.co_firstlineno: p for p in pending.values()}
    from tilewright.script.source import first_line

    frame = _caller()
    outside = Environment(*_visible(frame), frame.f_globals)

    def environment(d: ast.FunctionDef | None) -> tuple[Environment, dict[str, Any]]:
        p = by_line.get(first_line(d)) if d is not None else None
        if p is None:
            return outside, {}
        return p.environment(), _annotations(p.func)

    return _parse_module(tree.source, node, environment, check_well_formed)


class _Member:
    """One function of a module being parsed."""

    def __init__(self, d: ast.FunctionDef, kind: str, options: dict[str, Any], env: Environment, notes: Any) -> None:
        self.d, self.kind, self.options, self.env, self.annotations = d, kind, options, env, notes
        self.var = GlobalVar(options.get("name") or d.name)


def _parse_module(
    source: Source,
    node: ast.ClassDef,
    environment: Callable[[ast.FunctionDef | None], tuple[Environment, dict[str, Any]]],
    check: bool = True,
) -> IRModule:
    """The module of a class definition. `environment` gives what each function sees."""
    members: list[_Member] = []
    names: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    base_env, _ = environment(None)
    evaluator = Evaluator(source, base_env)
    with base_env.scope():
        for s in node.body:
            if isinstance(s, ast.FunctionDef):
                env, notes = environment(s)
                kind, options = decoration(Evaluator(source, env), s)
                if kind == "macro":
                    names[s.name] = Macro(source, s, env, options.get("hygienic", True))
                else:
                    if not check:
                        options = {**options, "check_well_formed": False}
                    members.append(_Member(s, kind, options, env, notes))
            elif isinstance(s, ast.Assign) and all(isinstance(t, ast.Name) for t in s.targets):
                value = evaluator.eval(s.value)
                for t in s.targets:
                    names[ast.unparse(t)] = value
                    base_env.define(ast.unparse(t), value)
            elif isinstance(s, ast.Expr):
                value = evaluator.eval(s.value)
                if isinstance(value, I.ModuleAttrs):
                    attrs.update(value.attrs)
            elif not isinstance(s, ast.Pass):
                source.fail("TW0105", f"a module has no {type(s).__name__.lower()} statements", s)
    return _parse_members(source, node, members, names, attrs)


def _returned_dtype(source: Source, m: _Member) -> str:
    """The dtype of a call of a function of the loop IR: void where it says nothing."""
    if m.d.returns is None:
        return "void"
    made = TIRParser(source, m.env).return_type(m.d, m.annotations)
    return getattr(made, "dtype", "handle") if made is not None else "void"


def _parse_members(
    source: Source, node: ast.ClassDef, members: list[_Member], names: dict[str, Any], attrs: dict[str, Any]
) -> IRModule:
    variables: dict[str, GlobalVar] = {}
    for m in members:
        if m.d.name in variables:
            source.fail("TW0116", f"the module has two functions named {m.d.name!r}", m.d)
        variables[m.d.name] = m.var
    proxy = ModuleProxy(node.name, variables)
    mod = IRModule({}, attrs)
    parsed: dict[GlobalVar, Any] = {}
    graphs: list[tuple[_Member, RelaxParser, Any]] = []
    by_name = {v.name_hint: v for v in variables.values()}
    returns = {m.var.name_hint: _returned_dtype(source, m) for m in members if m.kind == "tir"}
    for m in members:
        m.env.global_vars, m.env.returns = by_name, returns
        free = {n: v for n, v in variables.items() if isinstance(m.env.lookup(n, None), (PendingFunction, type(None)))}
        m.env.scopes.append({**free, **names, "cls": proxy, node.name: proxy})
        if m.kind == "relax":
            parser = RelaxParser(source, m.env, mod)
            sig = parser.signature(m.d, m.annotations)
            mod.functions[m.var] = sig.stub(is_pure=m.options.get("pure", True))
            graphs.append((m, parser, sig))
            continue
        parsed[m.var] = TIRParser(source, m.env).parse_function(m.d, m.annotations, m.options)
        mod.functions[m.var] = parsed[m.var]
        m.env.scopes.pop()
    for m, parser, sig in graphs:
        parser.bb._mod = mod.clone()
        parsed[m.var] = parser.parse_function(m.d, sig, m.options)
        mod.functions[m.var] = parsed[m.var]
        m.env.scopes.pop()
    return at(IRModule({m.var: parsed[m.var] for m in members}, attrs), source.span(node))


# ---- texts


def from_source(
    text: str,
    extra_vars: Mapping[str, Any] | None = None,
    *,
    metadata: Mapping[str, list[Any]] | None = None,
    filename: str = "<script>",
    check_well_formed: bool = True,
) -> Any:
    """What a text of script defines: its last module or function; or the node that a fragment (an expression, statements) is.

    `extra_vars` are names that the text may use besides `I`, `T`, `R`; `metadata` the constants that `to_script` kept out of
    the text. Functions of the loop IR are checked (see `well_formed.py`) unless `check_well_formed=False` here or in their
    decorator. Raises CompileError that underlines the text.
    """
    tree = parse_text(text, filename)
    given: dict[str, Any] = {"I": I, "T": T, "R": R, **(extra_vars or {})}
    if metadata is not None:
        given["metadata"] = I.as_metadata(metadata)
    return _Text(tree, Environment(given), check_well_formed).run()


def parse(program: Any, extra_vars: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """Parse a text (see `from_source`), a class, or a function whose decorator was left out (taken as a `T.prim_func`)."""
    if isinstance(program, str):
        return from_source(program, extra_vars, **options)
    check = options.get("check_well_formed", True)
    if isinstance(program, type):
        return parse_class(program, check_well_formed=check)
    if isinstance(program, FunctionType):
        env = Environment(dict(extra_vars or {}), _closure(program), program.__globals__)
        return _parse_function("tir", program, {"check_well_formed": check}, env)
    raise TypeError(f"parse takes a text, a class or a function, not {program!r}")


def _call(func: Any, args: Any, kwargs: Any) -> Any:
    """A call of a function of some module, in a fragment: of the IR that its arguments are of."""
    graph = isinstance(func, rx.Expr) or any(isinstance(a, rx.Expr) for a in args)
    return R.call_value(func, args, kwargs) if graph else call_function(func, args, kwargs)


class _Text:
    """One text being parsed."""

    def __init__(self, tree: Tree, env: Environment, check: bool = True) -> None:
        self.tree, self.source, self.env, self.check = tree, tree.source, env, check
        self.evaluator = Evaluator(tree.source, env)
        self.evaluator.call_hook = _call
        self.result: Any = None

    def run(self) -> Any:
        """Go through the statements of the text."""
        body = self.tree.module.body
        for i, s in enumerate(body):
            if isinstance(s, (ast.Import, ast.ImportFrom)):
                self._import(s)
            elif isinstance(s, ast.ClassDef):
                self.result = _parse_module(self.source, s, lambda _d: (self.env, {}), self.check)
                self.env.define(s.name, self.result)
            elif isinstance(s, ast.FunctionDef):
                kind, options = decoration(self.evaluator, s)
                if not self.check:
                    options = {**options, "check_well_formed": False}
                value = _parse_definition(kind, self.source, s, options, self.env, {})
                self.env.define(s.name, value)
                if kind != "macro":
                    self.result = value
            elif not self._declaration(s):
                return self._fragment(body[i:])
        if self.result is None:
            raise CompileError.at("TW0116", f"{self.source.name} defines nothing: no module, function or expression")
        return self.result

    def _import(self, s: ast.Import | ast.ImportFrom) -> None:
        """Imports are carried out; programs written for `tvm` get this package."""
        if isinstance(s, ast.ImportFrom):
            s.module = _renamed(s.module or "")
        else:
            for a in s.names:
                if a.name.partition(".")[0] == "tvm":
                    a.asname = a.asname or "tvm"
                    a.name = _renamed(a.name)
        names: dict[str, Any] = {}
        try:
            exec(compile(ast.Module([s], []), self.source.name, "exec"), names)
        except ImportError as e:
            self.source.fail("TW0102", str(e), s)
        for name, value in names.items():
            if name != "__builtins__":
                self.env.define(name, value)

    def _declaration(self, s: ast.stmt) -> bool:
        """`n = T.int32()`, `A = T.Buffer(...)`, `x = R.Var(...)`, `metadata = ...` at the head of the text."""
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str):
            return True
        if not (isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name)):
            return False
        name = s.targets[0].id
        if self.env.lookup(name, None) is not None and name != "metadata":
            return False
        if not isinstance(s.value, ast.Call):
            return False
        value = self.evaluator.eval(s.value)
        if isinstance(value, C.MetaVar):
            self.env.define(name, value.value)
            return True
        if isinstance(value, Buffer) and not value.name:
            C.name_buffer(value, name)
        elif isinstance(value, (Buffer, Var)):
            if value.name:
                return False
            C.fresh_name(value, name)
        elif not isinstance(value, (rx.Var, dict)):
            return False
        self.env.define(name, value)
        return True

    def _fragment(self, stmts: list[ast.stmt]) -> Any:
        only = stmts[0] if len(stmts) == 1 else None
        if isinstance(only, ast.Expr):
            value = self.evaluator.eval(only.value)
            if isinstance(value, R.InfoFactory):
                return value.make()
            if isinstance(value, (bool, int, float)):
                return convert(value)
            if isinstance(value, tuple) and any(isinstance(v, rx.Expr) for v in value):
                return make_tuple(value)
            if isinstance(value, Node) or not _opens(value):
                return value
        if isinstance(only, ast.Assign) and isinstance(only.targets[0], ast.Name):
            value = self.evaluator.eval(only.value)
            if isinstance(value, C.MatchBuffer):
                (region,) = C.regions([value.source])
                return MatchBufferRegion(C.name_buffer(value.buffer, only.targets[0].id), region)
        return (
            self._relax_fragment(stmts)
            if self._is_relax(stmts)
            else TIRParser(self.source, self.env).parse_suite(stmts)
        )

    def _is_relax(self, stmts: list[ast.stmt]) -> bool:
        for s in stmts:
            for n in ast.walk(s):
                if isinstance(n, ast.Name):
                    value = self.env.lookup(n.id, None)
                    if value is R or isinstance(value, rx.Expr):
                        return True
        return False

    def _relax_fragment(self, stmts: list[ast.stmt]) -> Any:
        parser = RelaxParser(self.source, self.env)
        bb = parser.bb
        single = len(stmts) == 1
        with bb.function("fragment", [], {}, private=True):
            parser.suite(stmts)
            if not parser.returned:
                bb.emit_func_output(rx.Tuple(()))
        body: Any = bb.get()["fragment"].body
        if parser.returned:
            return body
        (block,) = body.blocks if len(body.blocks) == 1 else (None,)
        if block is None:
            return body
        if single and isinstance(stmts[0], ast.With):
            return block
        if single and len(block.bindings) == 1:
            binding = block.bindings[0]
            return binding.value if isinstance(stmts[0], ast.If) and binding.var.name_hint == "_" else binding
        return block


def _opens(value: Any) -> bool:
    return isinstance(value, (C.Frame, C.BlockFrame, C.InitFrame, C.SeqFrame)) or value is None


def _renamed(module: str) -> str:
    return "tilewright" + module[3:] if module == "tvm" or module.startswith("tvm.") else module
