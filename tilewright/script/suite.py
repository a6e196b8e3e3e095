"""What the parser of the loop IR keeps: suites with their open scopes, blocks, functions, macros."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from tilewright.arith import expr as E
from tilewright.ir.node import Node
from tilewright.ir.op import GlobalVar
from tilewright.script.evaluate import Environment, Evaluator, as_operand
from tilewright.script.source import Source
from tilewright.tir import ir as tir

__all__ = [
    "BlockState",
    "FunctionState",
    "Macro",
    "MacroCall",
    "ParserState",
    "Suite",
    "at",
    "call_function",
    "complete_root",
    "what",
]

N = TypeVar("N", bound=Node)


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
        body = sequence(self.stmts)
        for before, wrap, span in reversed(self.open):
            made = wrap(body)
            if made.span is None:
                at(made, span)
            body = sequence([*before, made])
        return body


def at(n: N, span: Any) -> N:
    """The node, which was made at `span`."""
    n.span = span
    return n


def sequence(stmts: Sequence[tir.Stmt]) -> tir.Stmt:
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


class ParserState:
    """What the parts of the parser share: source, names, and what is open."""

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

    def fail(self, code: str, message: str, n: Any, **kw: Any) -> NoReturn:
        """Raise an error that underlines the syntax node."""
        self.source.fail(code, message, n, **kw)

    def emit(self, stmt: tir.Stmt, n: ast.AST) -> None:
        """Append a statement."""
        if stmt.span is None:
            at(stmt, self.source.span(n))
        self.suite.stmts.append(stmt)


_WORDS = {
    "Try": "try",
    "Import": "import",
    "ImportFrom": "import",
    "AsyncFor": "async",
    "Delete": "del",
    "ClassDef": "class",
}


def what(s: ast.AST) -> str:
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
    block = at(tir.Block((), (), (), "root", body, None, tuple(state.root_allocs)), body.span)
    return at(tir.BlockRealize((), E.IntImm("bool", 1), block), body.span)
