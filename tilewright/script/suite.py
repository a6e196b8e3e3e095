"""What the parser of the loop IR keeps: suites with their open scopes, blocks, functions, macros."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tilewright.arith import expr as E
from tilewright.ir.node import Node
from tilewright.ir.op import GlobalVar
from tilewright.ir.structure import structural_equal
from tilewright.script.evaluate import Environment, as_operand
from tilewright.script.immediate import active
from tilewright.script.source import Source
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as tir

__all__ = [
    "BlockState",
    "FunctionState",
    "Macro",
    "MacroCall",
    "merge_annotations",
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
    no_realize: bool = False
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
    private: bool = False
    ret_type: Any = None


@dataclass
class Macro:
    """A macro: script that is parsed again at each call. In a class it is a method: `self` is its first argument."""

    source: Source
    definition: ast.FunctionDef
    env: Environment
    hygienic: bool = True
    bound_to: tuple[Any, ...] = ()

    def __get__(self, instance: Any, owner: Any) -> Macro:
        return self if instance is None else replace(self, bound_to=(instance,))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = MacroCall(self, (*self.bound_to, *args), kwargs)
        state = active()
        expand = getattr(state, "expand", None)
        if state is None or expand is None:
            return call
        return expand(call)  # called from a function of the user's program


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


def merge_annotations(into: dict[str, Any], new: dict[str, Any], whose: str) -> None:
    """Add annotations; dictionaries under one key are merged. Raises TW0118 where a key would get another value."""
    for key, value in new.items():
        old = into.get(key)
        if old is None:
            into[key] = value
        elif isinstance(old, dict) and isinstance(value, dict):
            into[key] = dict(old)  # pyright: ignore[reportUnknownArgumentType]
            merge_annotations(into[key], value, whose)  # pyright: ignore[reportUnknownArgumentType]
        elif not _same_value(old, value):
            raise CompileError.at("TW0118", f"{whose} has {key!r}: {old!r} already, it cannot be {value!r} too")


def _same_value(a: Any, b: Any) -> bool:
    if isinstance(a, Node) and isinstance(b, Node):
        return structural_equal(a, b)
    return bool(type(a) is type(b) and a == b)


def call_function(func: Any, args: Any, kwargs: Any, returns: Mapping[str, str] | None = None) -> E.PrimExpr:
    """A direct call of a function: its dtype is what `returns` says of the function's name, else int32, a status."""
    if not isinstance(func, GlobalVar) or kwargs:
        raise TypeError(f"{func!r} cannot be called so")
    dtype = (returns or {}).get(func.name_hint, "int32")
    return E.Call(dtype, func, tuple(a if isinstance(a, Node) else E.convert(a) for a in map(as_operand, args)))


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
