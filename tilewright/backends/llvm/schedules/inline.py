"""Fewer, larger stages: elementwise producers move into their consumers, elementwise consumers into a reduction's end.

t = x + b ; y = max(t, 0)                   ▶  y = max(x + b, 0)
s = sum(a*w) ; y = max(s + b, 0)            ▶  y = max(sum(a*w) + b, 0), computed on the accumulators
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Call, Cast, Div, FloatImm, IntImm, Let, PrimExpr, Var
from tilewright.backends.llvm.schedules.stages import Opaque, Program, Stage
from tilewright.ir import dtype as dt
from tilewright.ir.node import map_children, walk
from tilewright.ir.op import Op
from tilewright.ir.rewrite import substitute
from tilewright.tir.ir import Buffer, BufferLoad
from tilewright.tir.lower.index import IndexSpace, expr_key

__all__ = ["consumers", "inline_stages", "is_plain"]

_DEAR = {"exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "tanh", "sinh", "cosh", "erf",
         "pow", "sigmoid", "sqrt", "rsqrt", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh", "fmod", "hypot"}  # fmt: skip
_LIMIT = 400
"""Nodes that an expression may have after inlining."""


def inline_stages(p: Program) -> Program:
    """The program with as many stages inlined as pays; see the head of the module."""
    changed = True
    while changed:
        changed = _inline_producers(p)
        changed = _fuse_epilogues(p) or changed
    return p


def _cost(e: PrimExpr) -> int:
    """About how many operations a value takes; transcendental functions and divisions count more."""
    total = 0
    for x in walk(e):
        if isinstance(x, Call):
            name = x.op.name.removeprefix("tir.") if isinstance(x.op, Op) else "?"
            total += 12 if name in _DEAR or name == "?" else 1
        elif isinstance(x, Div) and dt.is_float(x.dtype):
            total += 4
        elif isinstance(x, PrimExpr) and not isinstance(x, (Var, IntImm, FloatImm)) and not dt.is_int(x.dtype):
            total += 1
    return total


def is_plain(s: Any) -> bool:
    """A map stage that writes its whole buffer in order, so that a load of it can be replaced by its value."""
    return (
        isinstance(s, Stage)
        and s.combine is None
        and len(s.index) == len(s.axes) == len(s.out.shape)
        and all(i is a.var for i, a in zip(s.index, s.axes))
    )


def consumers(p: Program, b: Buffer) -> list[tuple[Stage | Opaque, list[BufferLoad]]]:
    """The stages that read a buffer, each with its loads."""
    out: list[tuple[Stage | Opaque, list[BufferLoad]]] = []
    for s in p.stages:
        loads = [x for x in s.reads() if x.buffer is b]
        if loads or (isinstance(s, Opaque) and b in s.buffers):
            out.append((s, loads))
    return out


def _inline_producers(p: Program) -> bool:
    for s in list(p.stages):
        if not is_plain(s) or not isinstance(s, Stage) or s.out not in p.temps:
            continue
        users = consumers(p, s.out)
        if not users or any(isinstance(u, Opaque) for u, _ in users):
            continue
        if any(not _worth_inlining(s, u, loads, len(users)) for u, loads in users if isinstance(u, Stage)):
            continue
        for u, loads in users:
            assert isinstance(u, Stage)
            _inline_into(s, u, loads)
        p.stages.remove(s)
        p.temps.remove(s.out)
        return True
    return False


def _is_trivial(s: Stage) -> bool:
    """Does the stage only move or scale data: no branch, at most a couple of operations?"""
    return _cost(s.value) <= 3 and not any(_is_branch(x) for x in walk(s.value))


def _is_branch(x: Any) -> bool:
    return isinstance(x, Call) and isinstance(x.op, Op) and x.op.name == "tir.if_then_else"


def _worth_inlining(s: Stage, user: Stage, loads: list[BufferLoad], users: int) -> bool:
    if sum(1 for _ in walk(user.value)) + len(loads) * sum(1 for _ in walk(s.value)) > _LIMIT:
        return False
    cost = _cost(s.value)
    if users > 1 and cost > 6:
        return False
    inside = [x for x in loads if any(x is y for y in walk(user.value))]
    if user.combine is not None and inside:
        # Each element is read once where every axis of the reduction indexes the producer plainly; otherwise its work is
        # repeated (a matrix product, a convolution), which only pays for data that is merely renamed.
        variables = {v for x in inside for i in x.indices for v in walk(i) if isinstance(v, Var)}
        every = [a.var for a in [*user.axes, *user.reduce]]
        once = (
            all(v in variables for v in every)
            and len(inside) == 1
            and all(isinstance(i, Var) for i in inside[0].indices)
        )
        return once or (_is_trivial(s) and _is_rename(s))
    return True


def _is_rename(s: Stage) -> bool:
    """Is the value one load, maybe at other indices?"""
    value: PrimExpr = s.value
    while isinstance(value, Cast) and dt.code(value.dtype) == dt.code(value.value.dtype):
        value = value.value
    return isinstance(value, BufferLoad) and all(isinstance(i, (Var, IntImm)) for i in value.indices)


def _inline_into(s: Stage, user: Stage, loads: list[BufferLoad]) -> None:
    """Replace the loads of s.out in `user` by the value of `s`, computed once where several loads agree."""
    groups: dict[Any, list[BufferLoad]] = {}
    for x in loads:
        groups.setdefault(expr_key(x.indices), []).append(x)
    guarded = {id(y) for root in (user.value, user.epilogue) if root is not None for y in _guarded_loads(root)}
    for group in groups.values():
        mapping = {a.var: i for a, i in zip(s.axes, group[0].indices, strict=True)}
        value = _fresh_lets(substitute(s.value, mapping))
        again = len(group) > 1 and not isinstance(value, (BufferLoad, IntImm, FloatImm))
        for name in ("value", "epilogue", "init"):
            root = getattr(user, name)
            if root is None:
                continue
            here = [x for x in walk(root) if isinstance(x, BufferLoad) and any(x is y for y in group)]
            if not here:
                continue
            if again and len(here) > 1 and not any(id(x) in guarded for x in here):
                var = Var(s.out.name, value.dtype)
                setattr(user, name, Let(var, value, _replace(root, here, var)))
            else:
                setattr(user, name, _replace(root, here, value))


def _guarded_loads(e: PrimExpr, inside: bool = False) -> list[BufferLoad]:
    """The loads that stand in a branch."""
    out: list[BufferLoad] = [e] if inside and isinstance(e, BufferLoad) else []
    for field in () if e.identity else e.node_fields:
        value = getattr(e, field.name)
        for i, child in enumerate(value if isinstance(value, tuple) else (value,)):  # pyright: ignore
            if isinstance(child, PrimExpr):
                out += _guarded_loads(child, inside or (_is_branch(e) and i > 0))
    return out


def _replace(root: PrimExpr, loads: list[BufferLoad], value: PrimExpr) -> PrimExpr:
    wanted = {id(x) for x in loads}

    def visit(x: Any) -> Any:
        if id(x) in wanted:
            return value
        return x if x.identity else map_children(x, visit)

    return visit(root)


def _fresh_lets(e: PrimExpr) -> PrimExpr:
    """The expression with its let variables renamed, so that it can stand in several places."""
    bound = [x.var for x in walk(e) if isinstance(x, Let)]
    return substitute(e, {v: Var(v.name, v.dtype) for v in bound}) if bound else e


def _fuse_epilogues(p: Program) -> bool:
    """Compute a map over a reduction's result at the end of the reduction."""
    for r in list(p.stages):
        if not isinstance(r, Stage) or r.combine is None or r.out not in p.temps:
            continue
        users = consumers(p, r.out)
        if len(users) != 1:
            continue
        user, loads = users[0]
        if not isinstance(user, Stage) or user.combine is not None or not _same_points(r, user, loads):
            continue
        position = p.stages.index(user)
        mapping: dict[Any, PrimExpr] = {}
        for mine, theirs in zip(r.index, loads[0].indices, strict=True):
            if isinstance(theirs, Var):
                mapping[theirs] = mine
        var = Var(r.out.name, r.acc_dtype)
        if r.epilogue is None:
            body = substitute(_replace(user.value, loads, var), mapping)
        else:
            assert r.result is not None
            inner = Var(r.out.name, r.epilogue.dtype)
            body = Let(inner, r.epilogue, substitute(_replace(user.value, loads, inner), mapping))
            var = r.result
        r.epilogue, r.result = body, var
        for axis in user.axes:
            if axis.var not in mapping:
                mapping[axis.var] = IntImm(axis.var.dtype, 0)
        r.epilogue = substitute(r.epilogue, mapping)
        r.index = tuple(substitute(i, mapping) for i in user.index)
        p.temps.remove(r.out)
        r.out = user.out
        p.stages.remove(r)
        p.stages[position - 1] = r
        return True
    return False


def _same_points(r: Stage, user: Stage, loads: list[BufferLoad]) -> bool:
    """Does `user` read every point of the reduction exactly once, at an index made of its own axes?"""
    key = expr_key(loads[0].indices) if loads else None
    if key is None or any(expr_key(x.indices) != key for x in loads):
        return False
    if len(r.index) != len(r.axes) or not all(
        i is a.var or (a.size == 1 and isinstance(i, IntImm)) for i, a in zip(r.index, r.axes)
    ):
        return False
    space = IndexSpace()
    seen: set[Var] = set()
    extents = {a.var: a.extent for a in user.axes}
    for mine, theirs in zip(r.axes, loads[0].indices, strict=True):
        if isinstance(theirs, Var) and theirs in extents and theirs not in seen:
            if space.poly(extents[theirs]) != space.poly(mine.extent):
                return False
            seen.add(theirs)
        elif not (isinstance(theirs, IntImm) and theirs.value == 0 and mine.size == 1):
            return False
    return all(a.var in seen or a.size == 1 for a in user.axes)
