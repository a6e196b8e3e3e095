"""Group kernels that should run as one, so that what passes between them never reaches memory.

A group has one result. Its members are a convex part of the graph, and follow one of three forms:

    contraction     a conv or matmul, then elementwise work on its result (bias, activation, residual); nothing before it,
                    since what is fused into an operand of a contraction is computed again for every use
    reduction       elementwise work, one reduction, elementwise work on the reduced result
    injective       elementwise work, broadcasts, transposes, slices, in any order

A node is merged with its immediate post-dominator (the first node that everything made of its result runs through) together
with all nodes between; so no result of a group's inner member is wanted outside. Contractions go first, last one first: of two
branches that are added, the later one takes the addition. Groups become private functions with the attribute `Primitive`;
`fuse_tir` makes one kernel of each.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.node import replace
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.calls import is_call_tir
from tilewright.relax.dims import as_ints, dim_key
from tilewright.relax.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    Function,
    If,
    SeqExpr,
    ShapeExpr,
    Tuple,
    Var,
    VarBinding,
)
from tilewright.relax.op import OpPatternKind
from tilewright.relax.rewrite import count_uses, graph_functions, vars_in
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    free_symbols,
)
from tilewright.relax.transform.op_pattern import KernelPattern, analyse
from tilewright.relax.values import make_var
from tilewright.relax.verify import defined_symbols
from tilewright.tir.ir import PrimFunc

__all__ = ["fuse_ops"]

K = OpPatternKind
MAX_MEMBERS = 24
MAX_INPUTS = 24


@dataclass(eq=False)
class _Node:
    """One binding of a block."""

    index: int
    binding: Binding
    kind: OpPatternKind
    pattern: KernelPattern | None
    inputs: list[tuple[int, OpPatternKind]] = field(default_factory=list[tuple[int, OpPatternKind]])
    consumers: list[tuple[int, OpPatternKind]] = field(default_factory=list[tuple[int, OpPatternKind]])
    escapes: bool = False

    @property
    def info(self) -> Any:
        return self.binding.var.struct_info


@dataclass(eq=False)
class _Group:
    """Nodes that become one kernel; `out` is the one whose result is wanted outside."""

    members: set[int]
    out: int
    anchor: int | None = None


class _Fuser:
    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.patterns: dict[Any, KernelPattern] = {}
        self.nodes: list[_Node] = []
        self.groups: dict[int, _Group] = {}
        self.dominator: list[tuple[int, OpPatternKind] | None] = []

    # ---- the graph of a block ------------------------------------------------------------------------------------------

    def pattern(self, gv: Any) -> KernelPattern:
        found = self.patterns.get(gv)
        if found is None:
            f = self.mod.functions.get(gv)
            found = analyse(f) if isinstance(f, PrimFunc) else KernelPattern(K.OPAQUE)
            given = f.attrs.get("op_pattern") if isinstance(f, PrimFunc) else None
            if given is not None and int(given) == K.OPAQUE:
                found = KernelPattern(K.OPAQUE)
            self.patterns[gv] = found
        return found

    def build(self, block: BindingBlock, uses: dict[Var, int]) -> None:
        self.nodes, self.groups = [], {}
        index: dict[Var, int] = {}
        inside: dict[Var, int] = {}
        for i, b in enumerate(block.bindings):
            value: Any = getattr(b, "value", None)
            fusable = (
                isinstance(b, VarBinding) and is_call_tir(value) and isinstance(b.var.struct_info, TensorStructInfo)
            )
            pattern = self.pattern(value.args[0]) if fusable else None
            node = _Node(i, b, pattern.kind if pattern else K.OPAQUE, pattern)
            self.nodes.append(node)
            operands = value.args[1].fields if pattern is not None and isinstance(value.args[1], Tuple) else None
            if pattern is not None and operands is not None:
                for a, access in zip(operands, pattern.access):
                    if isinstance(a, Var) and a in index:
                        self.edge(index[a], i, access)
            else:
                for v in set(vars_in(value)):
                    if v in index:
                        self.edge(index[v], i, K.OPAQUE)
            for v in vars_in(value):
                inside[v] = inside.get(v, 0) + 1
            index[b.var] = i
        for node in self.nodes:
            var = node.binding.var
            node.escapes = uses.get(var, 0) > inside.get(var, 0)
            self.groups[node.index] = _Group(
                {node.index}, node.index, node.index if node.kind in (K.OUT_FUSABLE, K.REDUCE) else None
            )

    def edge(self, source: int, target: int, access: OpPatternKind) -> None:
        self.nodes[source].consumers.append((target, access))
        self.nodes[target].inputs.append((source, access))

    # ---- post-dominators -----------------------------------------------------------------------------------------------

    def post_dominators(self) -> None:
        """For each node the first one that all its consumers run through, and the worst access on the way."""
        n = len(self.nodes)
        self.dominator = [None] * n
        depth = [0] * n
        for node in reversed(self.nodes):
            if node.escapes or not node.consumers:
                continue
            found: tuple[int, OpPatternKind] | None = node.consumers[0]
            for other in node.consumers[1:]:
                found = self.common(found, other, depth)
                if found is None:
                    break
            self.dominator[node.index] = found
            if found is not None:
                depth[node.index] = depth[found[0]] + 1

    def common(
        self, a: tuple[int, OpPatternKind] | None, b: tuple[int, OpPatternKind], depth: list[int]
    ) -> tuple[int, OpPatternKind] | None:
        if a is None:
            return None
        x, y, kind = a[0], b[0], max(a[1], b[1])
        while x != y:
            if depth[x] < depth[y]:
                x, y = y, x
            up = self.dominator[x]  # the deeper one climbs
            if up is None:
                return None
            x, kind = up[0], max(kind, up[1])
        return x, kind

    def between(self, source: int, sink: int) -> set[int]:
        """The nodes on paths from `source` to `sink`, with `sink`, without `source`."""
        found = {sink}
        todo = [source]
        while todo:
            for c, _ in self.nodes[todo.pop()].consumers:
                if c not in found:
                    found.add(c)
                    todo.append(c)
        return found

    # ---- merging -------------------------------------------------------------------------------------------------------

    def merge(self, group: _Group) -> _Group | None:
        """The group together with its result's post-dominator and all between, if that is allowed."""
        dominator = self.dominator[group.out]
        if dominator is None:
            return None
        path = self.between(group.out, dominator[0])
        members = set(group.members)
        groups = {id(g): g for g in (self.groups[i] for i in path)}
        for g in groups.values():
            members |= g.members
        anchors = [g.anchor for g in (group, *groups.values()) if g.anchor is not None]
        out = self.groups[dominator[0]].out
        if (
            len(anchors) > 1
            or len(members) > MAX_MEMBERS
            or not self.allowed(members, out, anchors[0] if anchors else None)
        ):
            return None
        made = _Group(members, out, anchors[0] if anchors else None)
        for i in members:
            self.groups[i] = made
        return made

    def allowed(self, members: set[int], out: int, anchor: int | None) -> bool:
        order = sorted(members)
        nodes = [self.nodes[i] for i in order]
        if any(n.kind == K.OPAQUE for n in nodes) or order[-1] != out:
            return False
        for n in nodes:  # one result
            if n.index != out and (n.escapes or any(c not in members for c, _ in n.consumers)):
                return False
        if not self.convex(members, order) or self.inputs(nodes, members) > MAX_INPUTS:
            return False
        return self.injective_form(nodes, members) if anchor is None else self.anchored_form(nodes, members, anchor)

    def convex(self, members: set[int], order: list[int]) -> bool:
        """Does no outsider stand between members?"""
        tainted: set[int] = set()
        for i in range(order[0], order[-1] + 1):
            sources = [s for s, _ in self.nodes[i].inputs]
            if i in members:
                if any(s in tainted for s in sources):
                    return False
            elif any(s in members or s in tainted for s in sources):
                tainted.add(i)
        return True

    @staticmethod
    def inputs(nodes: list[_Node], members: set[int]) -> int:
        outside: set[Any] = set()
        own = {n.binding.var for n in nodes}
        for n in nodes:
            value: Any = n.binding.value  # pyright: ignore
            for a in value.args[1].fields:
                if not (isinstance(a, Var) and a in own):
                    outside.add(a if isinstance(a, Var) else id(a))
        return len(outside)

    def injective_form(self, nodes: list[_Node], members: set[int]) -> bool:
        if any(n.kind > K.INJECTIVE for n in nodes):
            return False
        return all(self.affordable(n, members) for n in nodes)

    def affordable(self, n: _Node, members: set[int]) -> bool:
        """Is it all right to compute the node's elements where they are used, perhaps several times?"""
        for c, access in n.consumers:
            if c in members and access > K.ELEMWISE and (n.pattern is None or n.pattern.expensive):
                if _grows(n.info, self.nodes[c].info):
                    return False
        return True

    def anchored_form(self, nodes: list[_Node], members: set[int], anchor: int) -> bool:
        contraction = self.nodes[anchor].kind == K.OUT_FUSABLE
        before = self.upstream(anchor, members)
        behind = self.downstream(anchor, members)
        if contraction and before:
            return False
        for n in nodes:
            if n.index == anchor:
                continue
            if n.kind > K.BROADCAST:
                return False
            for s, access in n.inputs:
                if s in behind or s == anchor:  # the epilogue runs over the anchor's own elements
                    if access != K.ELEMWISE or n.index not in behind:
                        return False
                elif s in members and not self.affordable(self.nodes[s], members):
                    return False
        for s, access in self.nodes[anchor].inputs:
            if s in members and access == K.OPAQUE:
                return False
        return all(_same_elements(self.nodes[i].info, self.nodes[anchor].info) for i in behind) and not before & behind

    def upstream(self, node: int, members: set[int]) -> set[int]:
        found: set[int] = set()
        todo = [node]
        while todo:
            for s, _ in self.nodes[todo.pop()].inputs:
                if s in members and s not in found:
                    found.add(s)
                    todo.append(s)
        return found

    def downstream(self, node: int, members: set[int]) -> set[int]:
        found: set[int] = set()
        todo = [node]
        while todo:
            for c, _ in self.nodes[todo.pop()].consumers:
                if c in members and c not in found:
                    found.add(c)
                    todo.append(c)
        return found

    def run(self) -> list[_Group]:
        """The groups of more than one node, by their results' order."""
        self.post_dominators()
        for kinds in ((K.OUT_FUSABLE,), (K.REDUCE,)):
            for node in reversed(self.nodes):
                if node.kind in kinds:
                    group = self.groups[node.index]
                    while True:
                        made = self.merge(group)
                        if made is None:
                            break
                        group = made
        for node in self.nodes:
            if node.kind <= K.INJECTIVE:
                self.merge(self.groups[node.index])
        found = {id(g): g for g in self.groups.values() if len(g.members) > 1}
        return sorted(found.values(), key=lambda g: g.out)


def _same_elements(a: Any, b: Any) -> bool:
    return [dim_key(d) for d in a.shape or ()] == [dim_key(d) for d in b.shape or ()]


def _grows(producer: Any, consumer: Any) -> bool:
    """Has the consumer more elements than the producer, as far as is known?"""
    if _same_elements(producer, consumer):
        return False
    a, b = as_ints(producer.shape), as_ints(consumer.shape)
    if a is None or b is None:
        return Counter(map(dim_key, producer.shape or ())) != Counter(map(dim_key, consumer.shape or ()))
    total_a, total_b = 1, 1
    for d in a:
        total_a *= d
    for d in b:
        total_b *= d
    return total_b > total_a


# ---- groups to functions -----------------------------------------------------------------------------------------------


class _Rewriter:
    def __init__(self, mod: IRModule) -> None:
        self.fuser = _Fuser(mod)
        self.bb = BlockBuilder(mod)

    def function(self, f: Function) -> Function:
        if not isinstance(f.body, SeqExpr) or f.attrs.get("Primitive"):
            return f
        uses = count_uses(f)
        body = self.sequence(f.body, uses)
        return f if body is f.body else replace(f, body=body)

    def sequence(self, s: SeqExpr, uses: dict[Var, int]) -> SeqExpr:
        blocks = [self.block(b, uses) for b in s.blocks]
        return s if all(a is b for a, b in zip(blocks, s.blocks)) else replace(s, blocks=tuple(blocks))

    def block(self, block: BindingBlock, uses: dict[Var, int]) -> BindingBlock:
        bindings = [self.branches(b, uses) for b in block.bindings]
        if any(a is not b for a, b in zip(bindings, block.bindings)):
            block = replace(block, bindings=tuple(bindings))
        self.fuser.build(block, uses)
        groups = self.fuser.run()
        if not groups:
            return block
        at = {g.out: g for g in groups}
        gone = {i for g in groups for i in g.members}
        out: list[Binding] = []
        for i, b in enumerate(block.bindings):
            if i in at:
                out.append(self.call(b, [block.bindings[k] for k in sorted(at[i].members)]))
            elif i not in gone:
                out.append(b)
        return replace(block, bindings=tuple(out))

    def branches(self, b: Binding, uses: dict[Var, int]) -> Binding:
        if not isinstance(b, VarBinding) or not isinstance(b.value, If):
            return b
        e = b.value
        branches = [self.sequence(s, uses) if isinstance(s, SeqExpr) else s for s in (e.true_branch, e.false_branch)]
        if branches[0] is e.true_branch and branches[1] is e.false_branch:
            return b
        return replace(b, value=replace(e, true_branch=branches[0], false_branch=branches[1]))

    def call(self, out: Binding, members: list[Binding]) -> VarBinding:
        """The binding of a call of the group's function."""
        own = {b.var for b in members}
        params: dict[Any, Var] = {}
        actual: list[Any] = []
        bindings: list[Binding] = []
        names: list[str] = []
        result = make_var("gv", out.var.struct_info, False)

        def operand(a: Any) -> Any:
            if (isinstance(a, Var) and a in own) or not isinstance(a, (Var, Constant)):
                return a
            key = a if isinstance(a, Var) else id(a.data)
            found = params.get(key)
            if found is None:
                name = a.name_hint if isinstance(a, Var) else f"param_{len(params)}"
                found = params[key] = make_var(name, a.struct_info, False)
                actual.append(a)
            return found

        for b in members:
            call: Any = b.value  # pyright: ignore
            names.append(call.args[0].name_hint)
            fields = tuple(operand(a) for a in call.args[1].fields)
            inner = replace(call, args=(call.args[0], replace(call.args[1], fields=fields), *call.args[2:]))
            bindings.append(VarBinding(result if b is out else b.var, inner))
        formal = list(params.values())
        told = {s for p in formal for s in defined_symbols(p.struct_info)}
        needed = free_symbols(
            *(p.struct_info for p in formal), *(b.var.struct_info for b in bindings),
            *(v for b in members for a in b.value.args[2:] for v in a.values),  # pyright: ignore
        )  # fmt: skip
        extra = tuple(v for v in needed if v not in told)
        if extra:
            formal.append(make_var("symbols", ShapeStructInfo(extra), False))
            actual.append(ShapeExpr(extra))
        si = out.var.struct_info
        assert si is not None
        body = SeqExpr((DataflowBlock(tuple(bindings)),), result, struct_info=si)
        info = FuncStructInfo(tuple(p.struct_info for p in formal), si)  # pyright: ignore
        func = Function(tuple(formal), body, si, True, {"Primitive": True}, struct_info=info)
        gv = self.bb.add_func(func, _fused_name(names))
        return VarBinding(out.var, Call(gv, tuple(actual), struct_info=si))


def _fused_name(names: list[str]) -> str:
    text = "fused"
    for n in names:
        short = n.rstrip("0123456789")
        if len(text) + len(short) > 56:
            return f"{text}_etc"
        text += f"_{short.removeprefix('nn_')}"
    return text


@pass_(needs="legal", name="FuseOps")
def fuse_ops(mod: IRModule, ctx: PassContext) -> IRModule:
    """Groups of kernels become private functions with the attribute `Primitive`; see the head of the module."""
    del ctx
    rewriter = _Rewriter(mod)
    changed: dict[Any, Function] = {}
    for gv, f in graph_functions(mod):
        new = rewriter.function(f)
        if new is not f:
            changed[gv] = new
    return rewriter.bb.get().with_(changed) if changed else mod
