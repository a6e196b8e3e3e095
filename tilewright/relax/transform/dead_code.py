"""Remove what nothing uses: bindings without effects, and functions that no public function reaches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.ir.module import IRModule, attrs_of
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass, PassContext, pass_
from tilewright.relax.calls import is_impure
from tilewright.relax.ir import Call, Function, If, MatchCast, SeqExpr, Var, VarBinding
from tilewright.relax.rewrite import uses_of, vars_in
from tilewright.relax.struct_info import subsumes

__all__ = ["dead_code", "remove_unused_functions"]


def _has_effects(e: Any) -> bool:
    if isinstance(e, If):
        return _has_effects(e.true_branch) or _has_effects(e.false_branch)
    if isinstance(e, SeqExpr):
        return any(_keep(b) for block in e.blocks for b in block.bindings)
    return isinstance(e, Call) and is_impure(e)


def _keep(b: Any) -> bool:
    """A binding that stays even if its variable is not used. A check that is not proved is an effect."""
    if isinstance(b, MatchCast):
        have = getattr(b.value, "struct_info", None)
        return have is None or not subsumes(b.struct_info, have)
    return _has_effects(b.value)


class _Sweep:
    """Bottom up: a binding is kept if its variable was met below."""

    def __init__(self) -> None:
        self.used: set[Var] = set()

    def sequence(self, s: Any) -> Any:
        self.used.update(vars_in(s.body))
        blocks: list[Any] = []
        changed = False
        for block in reversed(s.blocks):
            kept: list[Any] = []
            for b in reversed(block.bindings):
                if b.var not in self.used and not _keep(b):
                    changed = True
                    continue
                if isinstance(b, VarBinding) and isinstance(b.value, If):
                    value = self.branches(b.value)
                    changed |= value is not b.value
                    b = b if value is b.value else replace(b, value=value)
                else:
                    self.used.update(vars_in(b.value))
                kept.append(b)
            if kept:
                blocks.append(
                    block if len(kept) == len(block.bindings) and not changed else replace(block, bindings=kept[::-1])
                )
            else:
                changed = True
        return replace(s, blocks=blocks[::-1]) if changed else s

    def branches(self, e: If) -> If:
        self.used.update(vars_in(e.cond))
        t = self.sequence(e.true_branch) if isinstance(e.true_branch, SeqExpr) else e.true_branch
        f = self.sequence(e.false_branch) if isinstance(e.false_branch, SeqExpr) else e.false_branch
        return e if t is e.true_branch and f is e.false_branch else replace(e, true_branch=t, false_branch=f)


def remove_unused_functions(mod: IRModule, entry: Iterable[str] | None = None) -> IRModule:
    """The module with only what is reached from `entry` (default: `main` and every function with a global symbol)."""
    names = set(entry) if entry is not None else None
    todo = [
        v
        for v, f in mod.functions.items()
        if (v.name_hint in names if names is not None else v.name_hint == "main" or "global_symbol" in attrs_of(f))
    ]
    reached: set[Any] = set()
    while todo:
        v = todo.pop()
        if v in reached:
            continue
        reached.add(v)
        if v in mod.functions:
            todo += uses_of(mod.functions[v])
    dead = [v for v in mod.functions if v not in reached]
    return mod.without(*dead) if dead and reached else mod


@pass_(name="DeadCodeElimination")
def dead_code(mod: IRModule, ctx: PassContext) -> IRModule:
    """Drop bindings that nothing uses and that have no effects, and functions that nothing reaches."""
    del ctx
    changed: dict[Any, Any] = {}
    for gv, f in mod.functions.items():
        if isinstance(f, Function) and isinstance(f.body, SeqExpr):
            body = _Sweep().sequence(f.body)
            if body is not f.body:
                changed[gv] = replace(f, body=body)
    return remove_unused_functions(mod.with_(changed) if changed else mod)


def dead_code_of(entry: Iterable[str]) -> Pass:
    """DeadCodeElimination that keeps only what the functions `entry` reach."""
    names = list(entry)

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        return remove_unused_functions(dead_code(mod), names)

    return Pass(run, "DeadCodeElimination")
