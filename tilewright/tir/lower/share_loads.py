"""A load that several statements of a straight line make is made once, just before the first of them.

C[0] = C[0] + A[0]*B[p]                 b = B[p]
C[1] = C[1] + A[1]*B[p]         ▶       C[0] = C[0] + A[0]*b
                                        C[1] = C[1] + A[1]*b
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.expr import Add, Call, IntImm, Let, PrimExpr, Ramp, Sub, Var
from tilewright.ir.node import children, map_children
from tilewright.ir.op import Op
from tilewright.tir.ir import BufferLoad, BufferStore, LetStmt, Stmt, seq

__all__ = ["share_loads"]


def _index_key(e: PrimExpr) -> Any:
    """A key of a simplified address (base variable plus constant, or a ramp of one); None for anything else."""
    if isinstance(e, Var):
        return id(e)
    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, (Add, Sub)) and isinstance(e.a, Var) and isinstance(e.b, IntImm):
        return (id(e.a), e.b.value if isinstance(e, Add) else -e.b.value)
    if isinstance(e, Ramp):
        base, stride = _index_key(e.base), _index_key(e.stride)
        return None if base is None or stride is None else ("r", base, stride, e.lanes)
    return None


def _loads(e: PrimExpr, out: list[tuple[Any, BufferLoad]]) -> None:
    """The loads of an expression that are made whatever its conditions are, with their keys."""
    if isinstance(e, BufferLoad):
        key = _index_key(e.indices[0])
        if key is not None:
            out.append(((id(e.buffer), key), e))
        return
    if isinstance(e, Call) and isinstance(e.op, Op) and e.op.name in ("tir.if_then_else", "tir.address_of"):
        return
    if e.identity or isinstance(e, Let):
        return
    for child in children(e):
        if isinstance(child, PrimExpr):
            _loads(child, out)


def share_loads(run: list[Stmt]) -> list[Stmt]:
    """The statements `run` with common loads of consecutive stores bound to variables."""
    out: list[Stmt] = []
    i = 0
    while i < len(run):
        j = i
        while j < len(run) and isinstance(run[j], BufferStore):
            j += 1
        if j - i > 1:
            stores: Any = run[i:j]
            out.append(_share(stores))
        else:
            j = max(j, i + 1)
            out.extend(run[i:j])
        i = j
    return out


def _share(stores: list[BufferStore]) -> Stmt:
    written = {id(s.buffer.data) for s in stores}
    found: list[list[tuple[Any, BufferLoad]]] = []
    first: dict[Any, int] = {}
    count: dict[Any, int] = {}
    for i, s in enumerate(stores):
        loads: list[tuple[Any, BufferLoad]] = []
        _loads(s.value, loads)
        loads = [x for x in loads if id(x[1].buffer.data) not in written]
        found.append(loads)
        for key, _ in loads:
            count[key] = count.get(key, 0) + 1
            first.setdefault(key, i)
    shared = {key for key, n in count.items() if n > 1}
    if not shared:
        return seq(*stores)
    variables: dict[int, Var] = {}
    by_key: dict[Any, Var] = {}
    items: list[Any] = []
    for s, loads in zip(stores, found):
        for key, load in loads:
            if key in shared:
                var = by_key.get(key)
                if var is None:
                    var = by_key[key] = Var("t", load.dtype)
                    items.append((var, load))
                variables[id(load)] = var
        items.append(BufferStore(s.buffer, _replace(s.value, variables), s.indices))
    tail: list[Stmt] = []
    for item in reversed(items):
        if isinstance(item, tuple):
            tail = [LetStmt(item[0], item[1], seq(*reversed(tail)))]
        else:
            tail.append(item)
    return seq(*reversed(tail))


def _replace(e: PrimExpr, variables: dict[int, Var]) -> PrimExpr:
    def visit(x: Any) -> Any:
        if x.identity:
            return x
        found = variables.get(id(x))
        return found if found is not None else map_children(x, visit)

    return visit(e)
