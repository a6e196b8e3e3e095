"""Walking and rewriting graph functions, binding by binding.

    class Fold(GraphMutator):
        def call(self, call, var):         # operands are rewritten already
            ...                            # what to bind instead; a leaf replaces the variable; the same object: no change

Whatever a hook builds may be nested: the builder brings it to normal form and infers its struct info. A variable stays the
same object as long as what is known of it does not change. A function in which nothing changed is the same object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.node import Node, children, replace
from tilewright.relax.block_builder import BlockBuilder, is_leaf
from tilewright.relax.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from tilewright.relax.struct_info import StructInfo, TupleStructInfo, sinfo_equal
from tilewright.relax.values import make_tuple, make_var
from tilewright.tir.ir import PrimFunc

__all__ = ["GraphMutator", "all_bindings", "count_uses", "graph_functions", "uses_of", "vars_in"]


def graph_functions(mod: IRModule) -> list[tuple[GlobalVar, Function]]:
    """The graph functions of a module, in order."""
    return [(v, f) for v, f in mod.functions.items() if isinstance(f, Function)]


def all_bindings(e: Any) -> Iterator[Binding]:
    """Every binding of a function or sequence in order, those of branches before the If that has them."""
    if isinstance(e, Function):
        yield from all_bindings(e.body)
    elif isinstance(e, SeqExpr):
        for block in e.blocks:
            for b in block.bindings:
                value = b.value if isinstance(b, (VarBinding, MatchCast)) else None
                if isinstance(value, If):
                    yield from all_bindings(value.true_branch)
                    yield from all_bindings(value.false_branch)
                yield b


def vars_in(e: Any) -> Iterator[Var]:
    """The graph variables that an operand or a binding's value uses (those used inside branches too), with repetition."""
    if isinstance(e, Var):
        yield e
    elif isinstance(e, Call):
        if isinstance(e.op, Var):
            yield e.op
        for a in e.args:
            yield from vars_in(a)
    elif isinstance(e, Tuple):
        for f in e.fields:
            yield from vars_in(f)
    elif isinstance(e, TupleGetItem):
        yield from vars_in(e.tuple_value)
    elif isinstance(e, If):
        yield from vars_in(e.cond)
        yield from vars_in(e.true_branch)
        yield from vars_in(e.false_branch)
    elif isinstance(e, SeqExpr):
        for block in e.blocks:
            for b in block.bindings:
                if isinstance(b, (VarBinding, MatchCast)):
                    yield from vars_in(b.value)
        yield from vars_in(e.body)
    elif isinstance(e, Function):
        yield from vars_in(e.body)


def count_uses(f: Function | SeqExpr) -> dict[Var, int]:
    """How often each variable is used."""
    counts: dict[Var, int] = {}
    for v in vars_in(f):
        counts[v] = counts.get(v, 0) + 1
    return counts


def uses_of(e: Node) -> set[GlobalVar]:
    """The functions of the module that `e` refers to. What a kernel refers to is remembered."""
    cached = _USES.get(id(e))
    if cached is not None and cached[0] is e:
        return cached[1]
    found: set[GlobalVar] = set()

    def visit(n: Node) -> None:
        if isinstance(n, GlobalVar):
            found.add(n)
        elif isinstance(n, Call) and isinstance(n.op, GlobalVar):
            found.add(n.op)
        for c in () if n.identity else children(n):
            visit(c)

    visit(e)
    if isinstance(e, PrimFunc):
        if len(_USES) > 4096:
            _USES.clear()
        _USES[id(e)] = (e, found)
    return found


_USES: dict[int, tuple[Node, set[GlobalVar]]] = {}


class GraphMutator:
    """Rewrites the graph functions of a module; see the head of the module. Hooks: `call`, `leaf`, `condition`."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.bb = BlockBuilder(mod)
        self.env: dict[Var, Any] = {}
        self.changed = False

    # ---- hooks ---------------------------------------------------------------------------------------------------------

    def call(self, call: Call, var: Var) -> Expr:
        """What to bind to `var` instead of `call`."""
        del var
        return call

    def leaf(self, e: Any) -> Any:
        """What stands for an operand (a variable's replacement is looked up before)."""
        return e

    def match_cast(self, b: MatchCast) -> Binding | None:
        """A MatchCast with its value rewritten: what stays of it (None: the value takes the variable's place)."""
        return b

    def begin(self, f: Function) -> None:
        """Before a function's body is rewritten."""

    # ---- the walk ------------------------------------------------------------------------------------------------------

    def run(self) -> IRModule:
        """The module with every graph function rewritten; the same module if nothing changed."""
        changed = False
        for gv, f in graph_functions(self.mod):
            new = self.function(f)
            if new is not f:
                self.bb.get().functions[gv] = new
                changed = True
        return self.bb.get() if changed else self.mod

    def function(self, f: Function) -> Function:
        """One function."""
        self.changed = False
        self.begin(f)
        with self.bb.rewriting(f):
            body = self.sequence(f.body)
        if not self.changed:
            return f
        return replace(f, body=body, struct_info=f.struct_info)

    def sequence(self, s: Any) -> SeqExpr:
        """The blocks and the value of a body, in the scope that is open."""
        if not isinstance(s, SeqExpr):
            return self.bb.close_scope(self.bb.normalize(self.operand(s)))
        for block in s.blocks:
            with self.bb.block(isinstance(block, DataflowBlock)):
                self.block(block)
        return self.bb.close_scope(self.bb.normalize(self.operand(s.body)))

    def block(self, block: BindingBlock) -> None:
        """The bindings of a block."""
        for b in block.bindings:
            self.binding(b)

    def binding(self, b: Binding) -> None:
        """One binding: emit what becomes of it."""
        if isinstance(b, VarBinding):
            self.bind(b, self.value(b.value, b.var))
        elif isinstance(b, MatchCast):
            value = self.operand(b.value)
            new = self.match_cast(b if value is b.value else replace(b, value=value))
            if new is None:
                self.substitute(b.var, value)
            else:
                self.changed |= new is not b
                self.bb.emit_normalized(new)

    def bind(self, b: VarBinding, value: Any) -> None:
        """Bind what the variable of `b` now stands for."""
        if value is b.value:
            self.bb.emit_normalized(b)
            return
        self.changed = True
        if is_leaf(value) and not isinstance(value, Tuple):
            self.substitute(b.var, value)
            return
        value = self.bb.normal(value)
        if is_leaf(value) and not isinstance(value, Tuple):
            self.substitute(b.var, value)
            return
        var = b.var
        if not sinfo_equal(var.struct_info, value.struct_info):
            var = make_var(var.name_hint, value.struct_info, isinstance(var, DataflowVar), var.span)
            self.env[b.var] = var
        self.bb.emit_normalized(VarBinding(var, value))

    def substitute(self, var: Var, value: Any) -> None:
        """`value` stands for `var` from here on. A variable of a dataflow block may not leave it: then it is bound again."""
        self.changed = True
        if isinstance(value, DataflowVar) and not isinstance(var, DataflowVar):
            fresh = make_var(var.name_hint, value.struct_info, False, var.span)
            self.bb.emit_normalized(VarBinding(fresh, value))
            self.env[var] = fresh
        else:
            self.env[var] = value

    def value(self, e: Any, var: Var) -> Any:
        """A binding's value with its operands rewritten, then the hook's word on it."""
        if isinstance(e, Call):
            args = tuple(self.operand(a) for a in e.args)
            op = self.env.get(e.op, e.op) if isinstance(e.op, Var) else e.op
            if op is not e.op or any(a is not b for a, b in zip(args, e.args)):
                same = all(sinfo_equal(_info(a), _info(b)) for a, b in zip(args, e.args))
                e = replace(e, op=op, args=args, struct_info=e.struct_info if same or e.sinfo_args else None)
                if e.struct_info is None:
                    e = self.bb.normal(e)
            return self.call(e, var)
        if isinstance(e, If):
            cond = self.operand(e.cond)
            return self.branch(e if cond is e.cond else replace(e, cond=cond), var)
        return self.operand(e)

    def branch(self, e: If, var: Var) -> Any:
        """An If whose condition is rewritten: rewrite its branches."""
        del var
        outer, self.changed = self.changed, False
        t = self.inner(e.true_branch)
        f = self.inner(e.false_branch)
        changed, self.changed = self.changed, outer or self.changed
        return self.bb.normal(replace(e, true_branch=t, false_branch=f, struct_info=None)) if changed else e

    def inner(self, s: Any) -> SeqExpr:
        """A branch, in a scope of its own."""
        with self.bb.scope():
            return self.sequence(s)

    def operand(self, e: Any) -> Any:
        """What stands for an operand."""
        if isinstance(e, Var):
            found = self.env.get(e)
            return self.leaf(e if found is None else found)
        if isinstance(e, Tuple):
            fields = [self.operand(f) for f in e.fields]
            return e if all(a is b for a, b in zip(fields, e.fields)) else make_tuple(fields)
        if isinstance(e, TupleGetItem):
            value = self.operand(e.tuple_value)
            if isinstance(value, Tuple):
                return value.fields[e.index]
            if value is e.tuple_value:
                return e
            si = _info(value)
            field = si.fields[e.index] if isinstance(si, TupleStructInfo) else e.struct_info
            return replace(e, tuple_value=value, struct_info=field)
        return self.leaf(e)


def _info(e: Any) -> StructInfo | None:
    return getattr(e, "struct_info", None)
