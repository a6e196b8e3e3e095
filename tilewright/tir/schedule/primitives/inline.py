"""Primitives that remove a block by computing it where its result is used, or where its input is made.

    B[i, j] = f(i, j); C[i, j] = g(B[i, j])     ▶   C[i, j] = g(f(i, j))     compute_inline(B), reverse_compute_inline(C)

Indices may rearrange the axes (`B[i // 4, i % 4]`): they are inverted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.expr import LE, LT, CmpOp, PrimExpr, Var, cast, cmp, logical_and
from tilewright.arith.int_set import eval_range
from tilewright.arith.iter_map import detect_iter_map, iter_map_simplify
from tilewright.ir.node import map_children, replace, walk
from tilewright.ir.rewrite import substitute
from tilewright.ir.structure import structural_equal
from tilewright.tir.ir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    IntImm,
    Range,
    Stmt,
)
from tilewright.tir.schedule.errors import fail
from tilewright.tir.schedule.primitives.flow import (
    check_complete,
    check_not_output,
    consumers,
    find_block,
    paths_of,
    producers,
    scope_path,
    uses_pointer,
)
from tilewright.tir.schedule.primitives.relax import block_ends, proves, shown, value_of
from tilewright.tir.schedule.primitives.renew import renew_regions
from tilewright.tir.schedule.primitives.solve import invert
from tilewright.tir.schedule.registry import primitive
from tilewright.tir.schedule.state import BlockRV, Path, State, conjuncts

__all__ = ["compute_inline", "reverse_compute_inline"]

CODE = "TW0421"


def _lone_store(s: State, block: BlockRV, what: str) -> BufferStore:
    """The store that the block's body is."""
    realize = s.block(block)
    body = realize.block.body
    if realize.block.init is not None or not isinstance(body, BufferStore):
        reason = "it is a reduction" if realize.block.init is not None else "its body is not one store"
        raise fail(CODE, f"cannot {what} the block {block.name!r}: {reason}", s.func(block.func), realize)
    return body


def _nest(path: Path) -> Path:
    """The way to the outermost loop that holds only this block (or to the block itself)."""
    end = len(path)
    while end >= 2 and isinstance(path[end - 2], For):
        end -= 1
    return path[:end]


def _without(s: State, scope: Path, path: Path, buffer: Buffer, change: Any) -> BlockRealize:
    """The scope without the block at the end of `path` and the buffer, its other statements changed."""
    gone = _nest(path)[-1]
    top = scope[-1]
    assert isinstance(top, BlockRealize)

    def visit(x: Stmt) -> Stmt | None:
        if x is gone:
            return None
        changes: dict[str, Any] = {}
        for f in x.node_fields:
            old = getattr(x, f.name)
            if isinstance(old, Stmt):
                new = visit(old)
                if new is None:
                    return None
                if new is not old:
                    changes[f.name] = new
            elif isinstance(old, tuple) and old and isinstance(old[0], Stmt):
                items = [y for y in (visit(z) for z in old) if y is not None]  # pyright: ignore
                if not items:
                    return None
                if len(items) == 1:
                    return items[0]
                changes[f.name] = tuple(items)
        return replace(x, **changes) if changes else x

    body = visit(top.block.body)
    if body is None:
        raise fail("TW0404", "nothing of the function would be left")
    kept = tuple(b for b in top.block.alloc_buffers if b is not buffer)
    return replace(top, block=replace(top.block, body=change(body), alloc_buffers=kept))


def _not_passing(s: State, rv: BlockRV, between: Sequence[Path], touches: set[Buffer], changes: set[Buffer]) -> None:
    """No block in between may write what the moved computation touches, or read what it changes."""
    for p in between:
        realize = p[-1]
        assert isinstance(realize, BlockRealize)
        other = realize.block
        bad = [r.buffer.name for r in other.writes if r.buffer in touches]
        bad += [r.buffer.name for r in other.reads if r.buffer in changes]
        if bad:
            raise fail(
                CODE,
                f"cannot inline the block {rv.name!r}: {other.name_hint!r}, in between, uses or changes {bad[0]}",
                s.func(rv.func),
                realize,
            )


def _loads(n: Any, buffer: Buffer) -> list[BufferLoad]:
    return [x for x in walk(n) if isinstance(x, BufferLoad) and x.buffer is buffer]


def _invert(
    indices: Sequence[PrimExpr], block: Block, outputs: Sequence[PrimExpr]
) -> tuple[dict[Var, PrimExpr], bool] | None:
    """The block's axes in terms of `outputs`, the values of the indices; and whether indices had to be taken apart.

    None where the indices do not tell the axes. Axes of one value that do not occur are that value.
    """
    axes = {iv.var: iv.dom for iv in block.iter_vars if iv.dom is not None}
    found: dict[Var, PrimExpr] = {}
    plain = True
    for e, out in zip(indices, outputs, strict=True):
        if isinstance(e, Var) and e in axes and e not in found:
            found[e] = cast(out, e.dtype)
        elif any(x in axes for x in walk(e)):
            plain = False
    if not plain:
        taken_apart = invert(indices, axes, outputs)
        if taken_apart is None:
            return None
        found = taken_apart
    for v, r in axes.items():
        if v not in found:
            if value_of(r.extent) != 1:
                return None
            found[v] = r.min
    return found, plain


# ---- a producer into its consumers -----------------------------------------------------------------------------------


@primitive
def compute_inline(s: State, block: BlockRV) -> None:
    """Compute a block where it is read, and remove it: its consumers get its expression.

    It must be complete, be one store whose indices tell its axes, and make no output; nobody may use its buffer as a
    pointer or a view. Raises ScheduleError TW0421 otherwise.
    """
    path, realize = find_block(s, block)
    root = s.func(block.func)
    scope = scope_path(path)
    everyone = paths_of(scope)
    check_not_output(s, block, CODE, "inline")
    check_complete(s, block, CODE, "inline")
    store = _lone_store(s, block, "inline")
    buffer = store.buffer
    users = [p for p in everyone if p[-1] is not realize and _mentions(p[-1], buffer)]
    for p in users:
        user = p[-1]
        assert isinstance(user, BlockRealize)
        if uses_pointer(user, buffer) or _viewed(user.block, buffer):
            raise fail(
                CODE,
                f"cannot inline the block {block.name!r}: {user.block.name_hint!r} uses {buffer.name} as a pointer or a view",
                root,
                user,
            )
    mine = _place(everyone, path)
    last = max((_place(everyone, p) for p in users), default=mine)
    _not_passing(s, block, everyone[mine + 1 : last], {r.buffer for r in realize.block.reads}, set())
    marks = [Var(f"i{n}", e.dtype) for n, e in enumerate(store.indices)]
    inverse = _invert(store.indices, realize.block, marks)
    if inverse is None:
        raise fail(
            CODE,
            f"cannot inline the block {block.name!r}: it does not store at its own axes: {list(store.indices)} do not tell them",
            root,
            realize,
        )
    axes, _ = inverse

    def visit(x: Any) -> Any:
        if isinstance(x, BufferLoad) and x.buffer is buffer:
            at: dict[Any, Any] = {m: cast(visit(i), m.dtype) for m, i in zip(marks, x.indices, strict=True)}
            values: dict[Any, Any] = {v: substitute(e, at) for v, e in axes.items()}
            return substitute(store.value, values)
        return x if x.identity else map_children(x, visit)

    s.put(block.func, scope, _without(s, scope, path, buffer, lambda body: renew_regions(body, visit, {buffer})))


def _place(everyone: Sequence[Path], me: Path) -> int:
    return next(i for i, p in enumerate(everyone) if p[-1] is me[-1])


def _mentions(n: Any, buffer: Buffer) -> bool:
    return any(x is buffer or x is buffer.data for x in walk(n))


def _viewed(block: Block, buffer: Buffer) -> bool:
    return any(isinstance(x, Block) and any(m.source.buffer is buffer for m in x.match_buffers) for x in walk(block))


# ---- a consumer into its producer ------------------------------------------------------------------------------------


@primitive
def reverse_compute_inline(s: State, block: BlockRV) -> None:
    """Compute a consumer where its input is made, and remove it: the producer stores the consumer's result instead.

    Both must be complete and be one store; the consumer must be the only one, read all at the same indices, and these must
    tell its axes. What the producer makes beyond that is left out under an `if`. Raises ScheduleError TW0421 otherwise.
    """
    path, realize = find_block(s, block)
    root = s.func(block.func)
    scope = scope_path(path)
    everyone = paths_of(scope)
    check_complete(s, block, CODE, "inline")
    store = _lone_store(s, block, "inline")
    maker_path = _maker(s, block, everyone, path)
    maker = maker_path[-1]
    assert isinstance(maker, BlockRealize)
    maker_rv = BlockRV(maker.block.name_hint, block.func)
    check_not_output(s, maker_rv, CODE, "inline a consumer into")
    check_complete(s, maker_rv, CODE, "inline a consumer into")
    made, condition = _made(s, block, maker)
    buffer = made.buffer
    loads = _loads(realize.block.body, buffer)
    if not loads or uses_pointer(realize.block, buffer) or _viewed(realize.block, buffer):
        raise fail(CODE, f"the block {block.name!r} does not read {buffer.name} by its elements", root, realize)
    if any(not structural_equal(x.indices, loads[0].indices) for x in loads):
        raise fail(CODE, f"the block {block.name!r} reads {buffer.name} at different places", root, realize)
    inverse = _invert(loads[0].indices, realize.block, made.indices)
    if inverse is None:
        raise fail(
            CODE,
            f"the block {block.name!r} does not read {buffer.name} elementwise: its indices do not tell its axes",
            root,
            realize,
        )
    axes, plain = inverse
    _covered(s, block, realize, maker, loads[0], made)
    if not plain:
        _onto(s, block, realize, maker, loads[0], made, axes)
    mine, its = _place(everyone, path), _place(everyone, maker_path)
    reads = {r.buffer for r in realize.block.reads} - {buffer}
    writes = {r.buffer for r in realize.block.writes}
    _not_passing(s, block, everyone[its + 1 : mine], reads | writes, writes)
    mapping: dict[Any, Any] = dict(axes)

    def visit(x: Any) -> Any:
        if isinstance(x, BufferLoad) and x.buffer is buffer:
            return made.value
        return x if x.identity else map_children(x, visit)

    value = visit(substitute(store.value, mapping))
    new: Stmt = BufferStore(store.buffer, value, tuple(substitute(i, mapping) for i in store.indices))
    guard = _guard(s, block, realize, maker, axes)
    where = conjuncts(maker.predicate)
    if guard is not None and (condition is not None or any(isinstance(x, BufferLoad) for x in walk(guard))):
        new, guard = IfThenElse(visit(guard), new), None
    if condition is not None:
        new = IfThenElse(condition, new)
    if guard is not None:
        where = _at_the_loops(s, maker_rv, maker, guard, where)

    def change(x: Any) -> Any:
        return new if x is maker.block.body else map_children(x, lambda c: change(c) if isinstance(c, Stmt) else c)

    def bounded(x: Any) -> Any:
        if isinstance(x, BlockRealize) and x.block.body is new:
            return replace(x, predicate=_all(where))
        return map_children(x, lambda c: bounded(c) if isinstance(c, Stmt) else c)

    def rebuilt(body: Any) -> Any:
        return bounded(renew_regions(body, change, {buffer}))

    s.put(block.func, scope, _without(s, scope, path, buffer, rebuilt))


def _all(conditions: Sequence[PrimExpr]) -> PrimExpr:
    out: PrimExpr = IntImm("bool", 1)
    for c in conditions:
        out = logical_and(out, c)
    return out


def _at_the_loops(
    s: State, rv: BlockRV, maker: BlockRealize, guard: PrimExpr, old: Sequence[PrimExpr]
) -> list[PrimExpr]:
    """A condition on the producer's axes as one on its loops, beside the one that it has already."""
    ana = Analyzer()
    for p in s.block_path(rv):
        if isinstance(p, For):
            ana.bind(p.loop_var, Range(p.min, p.extent))
        elif isinstance(p, BlockRealize) and p is not maker:
            for iv in p.block.iter_vars:
                if iv.dom is not None:
                    ana.bind(iv.var, iv.dom)
    values: dict[Any, Any] = {iv.var: v for iv, v in zip(maker.block.iter_vars, maker.iter_values, strict=True)}
    out = list(old)
    with ana.constraint_scope(_all(old)):
        for c in conjuncts(substitute(guard, values)):
            if not proves(ana, c):
                out.append(_in_order(shown(ana.simplify(c)), s.block_path(rv)))
    return out


def _in_order(c: PrimExpr, path: Path) -> PrimExpr:
    """A condition with the terms of its sides in the order of the iterators that they are made of."""
    if not isinstance(c, CmpOp) or c.a.dtype not in ("int32", "int64"):
        return c
    loops = {p.loop_var: Range(p.min, p.extent) for p in path if isinstance(p, For)}
    a, b = (iter_map_simplify([x], loops)[0] for x in (c.a, c.b))
    return replace(c, a=a, b=b)


def _maker(s: State, block: BlockRV, everyone: Sequence[Path], path: Path) -> Path:
    """The one producer, of which the block is the one consumer."""
    realize = path[-1]
    root = s.func(block.func)
    makers = producers(everyone, path)
    if len(makers) != 1:
        raise fail(CODE, f"the block {block.name!r} has {len(makers)} producers, not one", root, realize)
    (maker,) = makers
    others = [p for p in consumers(everyone, maker) if p[-1] is not realize]
    if others:
        name = others[0][-1].block.name_hint  # pyright: ignore
        raise fail(CODE, f"what {block.name!r} reads is needed elsewhere too, by {name!r}", root, others[0][-1])
    return maker


def _made(s: State, block: BlockRV, maker: BlockRealize) -> tuple[BufferStore, PrimExpr | None]:
    """The store of the producer, and the condition that it stands under."""
    body = maker.block.body
    condition: PrimExpr | None = None
    if isinstance(body, IfThenElse) and body.else_case is None:
        condition, body = body.condition, body.then_case
    if maker.block.init is not None or not isinstance(body, BufferStore):
        raise fail(
            CODE,
            f"cannot inline {block.name!r} into {maker.block.name_hint!r}: that is not one store",
            s.func(block.func),
            maker,
        )
    return body, condition


def _covered(
    s: State, block: BlockRV, realize: BlockRealize, maker: BlockRealize, load: BufferLoad, made: BufferStore
) -> None:
    """All that the consumer reads must be made by the producer: it is computed only there from now on."""
    ana = Analyzer()
    domains = {iv.var: iv.dom for iv in realize.block.iter_vars if iv.dom is not None}
    inside = {iv.var: iv.dom for iv in maker.block.iter_vars if iv.dom is not None}
    for i, j in zip(load.indices, made.indices, strict=True):
        read = eval_range(i, domains, ana)
        written = eval_range(j, inside, ana)
        if (
            read is None
            or written is None
            or not proves(ana, written[0] <= read[0])
            or not proves(ana, read[1] <= written[1])
        ):
            raise fail(
                CODE,
                f"cannot inline {block.name!r} into {maker.block.name_hint!r}: that does not make all of {made.buffer.name} "
                "that is read",
                s.func(block.func),
                realize,
            )
    used = {x for j in made.indices for x in walk(j)}
    if not detect_iter_map(list(made.indices), {v: r for v, r in inside.items() if v in used}).indices:
        raise fail(
            CODE,
            f"cannot inline {block.name!r} into {maker.block.name_hint!r}: its indices {list(made.indices)} leave gaps",
            s.func(block.func),
            maker,
        )
    _predicate_allows(s, block, realize, maker, load, made)


def _onto(
    s: State,
    block: BlockRV,
    realize: BlockRealize,
    maker: BlockRealize,
    load: BufferLoad,
    made: BufferStore,
    axes: dict[Var, PrimExpr],
) -> None:
    """What the producer makes must be what the consumer reads at the axes that were found for it."""
    ana = Analyzer()
    for iv in maker.block.iter_vars:
        if iv.dom is not None:
            ana.bind(iv.var, iv.dom)
    mapping: dict[Any, Any] = dict(axes)
    for i, j in zip(load.indices, made.indices, strict=True):
        if not ana.can_prove_equal(substitute(i, mapping), j):
            raise fail(
                CODE,
                f"the block {block.name!r} does not read {made.buffer.name} elementwise: {i} leaves out elements",
                s.func(block.func),
                realize,
            )


def _predicate_allows(
    s: State, block: BlockRV, realize: BlockRealize, maker: BlockRealize, load: BufferLoad, made: BufferStore
) -> None:
    """A condition of the producer may only leave out what its axes' domains leave out, or what is not read."""
    if not conjuncts(maker.predicate):
        return
    path = s.block_path(BlockRV(maker.block.name_hint, block.func))
    ana = Analyzer()
    loops = [p for p in path[len(scope_path(path)) :] if isinstance(p, For)]
    for p in loops:
        ana.bind(p.loop_var, Range(p.min, p.extent))
    limits = [
        cmp(LT, v, iv.dom.min + iv.dom.extent)
        for iv, v in zip(maker.block.iter_vars, maker.iter_values, strict=True)
        if iv.dom is not None
    ]
    bounded = all(_follows(ana, limits, c) for c in conjuncts(maker.predicate))
    if bounded:
        return
    domains = {iv.var: iv.dom for iv in realize.block.iter_vars if iv.dom is not None}
    region = BufferRegion(made.buffer, tuple(Range(i, IntImm(i.dtype, 1)) for i in made.indices))
    fresh = Analyzer()
    for i, ends in zip(load.indices, block_ends(maker, region, loops, fresh), strict=True):
        read = eval_range(i, domains, fresh)
        if read is None or ends is None:
            break
        if not (proves(fresh, ends[0] <= read[0]) and proves(fresh, read[1] <= ends[1])):
            break
    else:
        return
    raise fail(
        CODE,
        f"cannot inline {block.name!r} into {maker.block.name_hint!r}: its condition {maker.predicate} leaves out what is read",
        s.func(block.func),
        maker,
    )


def _follows(ana: Analyzer, limits: Sequence[PrimExpr], condition: PrimExpr) -> bool:
    for x in limits:
        with ana.constraint_scope(x):
            if proves(ana, condition):
                return True
    return False


def _guard(
    s: State, block: BlockRV, realize: BlockRealize, maker: BlockRealize, axes: dict[Var, PrimExpr]
) -> PrimExpr | None:
    """The condition for the consumer's axes to be in their domains, and its own condition, at the producer's axes."""
    ana = Analyzer()
    for iv in maker.block.iter_vars:
        if iv.dom is not None:
            ana.bind(iv.var, iv.dom)
    out: PrimExpr = IntImm("bool", 1)
    where: dict[Any, PrimExpr] = {}
    limits: list[PrimExpr] = []
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        assert iv.dom is not None
        e, end = axes[iv.var], iv.dom.min + iv.dom.extent
        for limit in (cmp(LE, iv.dom.min, e), cmp(LT, e, end)):
            if not proves(ana, limit):
                out = logical_and(out, shown(ana.simplify(limit)))
        if isinstance(value, Var):
            where.setdefault(value, e)
        limits += [cmp(LE, iv.dom.min, value), cmp(LT, value, end)]
    path = s.block_path(block)
    old = Analyzer()
    loops = [p for p in path if isinstance(p, For)]
    for p in loops:
        old.bind(p.loop_var, Range(p.min, p.extent))
    for part in conjuncts(realize.predicate):
        if _follows(old, limits, part):
            continue
        if any(x is p.loop_var and x not in where for x in walk(part) for p in loops):
            raise fail(
                CODE,
                f"cannot inline the block {block.name!r}: its condition {part} is in terms of its loops",
                s.func(block.func),
                realize,
            )
        out = logical_and(out, substitute(part, where))
    return None if isinstance(out, IntImm) else out
