"""Move what depends on parameters alone out of a function: LiftTransformParams.

A function whose attribute `num_input` says that only its first parameters are inputs gets a companion
`<name>_transform_params`, from the other parameters to everything that is computed of them alone; the function itself takes
those results. Weights that are constants need none of this: FoldConstant transforms them at compile time.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.ir.passes import Pass, PassContext
from tilewright.relax.calls import is_impure
from tilewright.relax.ir import (
    DataflowBlock,
    Function,
    GlobalVar,
    If,
    MatchCast,
    SeqExpr,
    TupleGetItem,
    Var,
    VarBinding,
)
from tilewright.relax.rewrite import GraphMutator, graph_functions, vars_in
from tilewright.relax.struct_info import TupleStructInfo
from tilewright.relax.values import make_tuple, make_var

__all__ = ["lift_transform_params"]


def _split(mod: IRModule, f: Function) -> tuple[list[VarBinding], set[Var]]:
    """The bindings that depend on parameters alone, and every variable that does."""
    alone: set[Var] = set(f.params[int(f.attrs["num_input"]) :])
    lifted: list[VarBinding] = []
    assert isinstance(f.body, SeqExpr)
    for block in f.body.blocks:
        for b in block.bindings:
            if not isinstance(b, VarBinding) or isinstance(b.value, If) or is_impure(b.value, mod):
                continue
            used = list(vars_in(b.value))
            if used and all(v in alone for v in used):
                alone.add(b.var)
                lifted.append(b)
    return lifted, alone


class _Keep(GraphMutator):
    """Drops the lifted bindings; what the rest needs of them are parameters now."""

    def __init__(self, mod: IRModule, gone: set[Var], env: dict[Var, Any]) -> None:
        super().__init__(mod)
        self.gone = gone
        self.env.update(env)

    def binding(self, b: Any) -> None:
        if b.var in self.gone:
            self.changed = True
            return
        super().binding(b)


def _lift(mod: IRModule, name: str, f: Function) -> tuple[Function, Function] | None:
    lifted, alone = _split(mod, f)
    if not lifted:
        return None
    gone = {b.var for b in lifted}
    count = int(f.attrs["num_input"])
    needed: dict[Var, None] = {}
    assert isinstance(f.body, SeqExpr)
    for block in f.body.blocks:
        for b in block.bindings:
            if b.var not in gone and isinstance(b, (VarBinding, MatchCast)):
                needed.update((v, None) for v in vars_in(b.value) if v in alone)
    needed.update((v, None) for v in vars_in(f.body.body) if v in alone)
    results = list(needed)

    # the companion: one tuple of parameters in, one tuple of results out
    params = f.params[count:]
    packed = make_var("params", TupleStructInfo(tuple(p.struct_info for p in params if p.struct_info is not None)))
    table: dict[Var, Any] = {p: make_var(p.name_hint, p.struct_info, True) for p in params}
    unpack = [VarBinding(table[p], TupleGetItem(packed, i, struct_info=p.struct_info)) for i, p in enumerate(params)]
    inner = _Rename(mod, table)
    with inner.bb.rewriting(replace(f, params=(packed,))), inner.bb.block(True):
        for b in unpack:
            inner.bb.emit_normalized(b)
        for b in lifted:
            inner.binding(b)
        output = inner.bb.emit_output(make_tuple([inner.operand(v) for v in results]))
        blocks = inner.bb.bindings()
    si = output.struct_info
    body = SeqExpr((DataflowBlock(tuple(blocks)),), output, struct_info=si)
    companion = Function((packed,), body, si, True, {"global_symbol": f"{name}_transform_params"})

    fresh = {v: make_var(v.name_hint if v in params else f"{v.name_hint}_lifted", v.struct_info) for v in results}
    main = _Keep(mod, gone, dict(fresh)).function(f)
    new_params = (*f.params[:count], *(fresh[v] for v in results))
    return replace(main, params=new_params, struct_info=None), companion


class _Rename(GraphMutator):
    def __init__(self, mod: IRModule, env: dict[Var, Any]) -> None:
        super().__init__(mod)
        self.env.update(env)

    def binding(self, b: Any) -> None:
        fresh = make_var(b.var.name_hint, b.var.struct_info, True, b.var.span)
        value = self.value(b.value, b.var)
        self.env[b.var] = fresh
        self.bb.emit_normalized(VarBinding(fresh, value))


def lift_transform_params() -> Pass:
    """The pass LiftTransformParams; see the head of the module."""

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        del ctx
        for gv, f in graph_functions(mod):
            if "num_input" not in f.attrs or not isinstance(f.body, SeqExpr):
                continue
            made = _lift(mod, gv.name_hint, f)
            if made is not None:
                mod = mod.with_({gv: made[0], GlobalVar(f"{gv.name_hint}_transform_params"): made[1]})
        return mod

    return Pass(run, "LiftTransformParams", doc=__doc__)
