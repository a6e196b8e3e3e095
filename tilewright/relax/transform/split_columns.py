"""Products that are cut into columns, and columns that are put together again.

    y = matmul(x, W) + b, used only as y[..., :n], y[..., n:2n], ...    ->  one matmul for each part, with its columns of W and b
    f(concat(conv(a), conv(b)), c)                                      ->  concat(f(conv(a), c[:n]), f(conv(b), c[n:]))

The first saves the copies that the slices would be; the second lets elementwise work join the kernels of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.passes import PassContext, pass_
from tilewright.relax.dims import as_int, as_ints
from tilewright.relax.ir import Call, Constant, Expr, PrimValue, Tuple, Var, VarBinding
from tilewright.relax.op import OPS
from tilewright.relax.rewrite import GraphMutator, count_uses
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.values import make_tuple

__all__ = ["sink_into_concat", "split_columns"]

_LEAST = 16
"""Parts of fewer columns are not worth a product of their own."""


def _name(e: Any) -> str:
    return getattr(e.op, "name", "") if isinstance(e, Call) else ""


class _Split(GraphMutator):
    def begin(self, f: Any) -> None:
        self.uses = count_uses(f)
        self.sources: dict[Var, tuple[Call, Any]] = {}
        for block in f.body.blocks:
            calls = {b.var: b.value for b in block.bindings if isinstance(b, VarBinding) and isinstance(b.value, Call)}
            cut: dict[Var, int] = {}
            for call in calls.values():
                x = call.args[0] if call.args else None
                if isinstance(x, Var) and x in calls and self.parts(call) is not None:
                    cut[x] = cut.get(x, 0) + 1
            for v, n in cut.items():
                found = self.product(calls, calls[v]) if self.uses.get(v) == n else None
                if found is not None:
                    self.sources[v] = found

    def product(self, calls: dict[Var, Any], e: Call) -> tuple[Call, Any] | None:
        """The matmul with constant weights (and the constant added to it) that a call is."""
        bias = None
        if _name(e) == "add" and isinstance(e.args[0], Var) and isinstance(e.args[1], Constant):
            bias = e.args[1].data
            if self.uses.get(e.args[0]) != 1 or e.args[0] not in calls:
                return None
            e = calls[e.args[0]]
        if _name(e) != "matmul" or not isinstance(e.args[1], Constant) or e.args[1].data.ndim != 2 or e.op.packed_b:
            return None
        columns = e.args[1].data.shape[0 if e.op.transpose_b else 1]
        if bias is not None and (bias.size != columns or bias.shape[-1] != columns):
            return None
        return e, bias

    @staticmethod
    def parts(call: Call) -> list[tuple[int, int]] | None:
        """The ranges of the last axis that a slice, or a split, takes; None if it is another call."""
        si = call.args[0].struct_info if call.args else None
        n = as_int(si.shape[-1]) if isinstance(si, TensorStructInfo) and si.shape else None
        if n is None or not isinstance(si, TensorStructInfo):
            return None
        op: Any = call.op
        found: list[tuple[int, int]] = []
        if _name(call) == "strided_slice":
            begin, end = (as_ints(getattr(a, "values", None)) for a in call.args[1:3])
            if (
                begin is None
                or end is None
                or tuple(a % si.ndim for a in op.axes) != (si.ndim - 1,)
                or op.strides != (1,)
            ):
                return None
            start, stop, _ = slice(begin[0], end[0]).indices(n)
            found = [(start, stop)]
        elif _name(call) == "split" and op.axis % si.ndim == si.ndim - 1:
            cuts = op.indices_or_sections
            if isinstance(cuts, int):
                if n % cuts:
                    return None
                cuts = tuple(n // cuts * k for k in range(1, cuts))
            found = list(zip((0, *cuts), (*cuts, n)))
        return found if found and all(b - a >= _LEAST and b <= n for a, b in found) else None

    def value(self, e: Any, var: Var) -> Any:
        if isinstance(e, Call) and e.args and isinstance(e.args[0], Var) and e.args[0] in self.sources:
            ranges = self.parts(e)
            if ranges is not None:
                made = [self.columns(*self.sources[e.args[0]], a, b) for a, b in ranges]
                return made[0] if _name(e) == "strided_slice" else make_tuple([self.bb.emit(m) for m in made])
        return super().value(e, var)

    def columns(self, product: Call, bias: Any, a: int, b: int) -> Expr:
        w = product.args[1].data  # pyright: ignore
        part = w[a:b] if product.op.transpose_b else w[:, a:b]
        made = Call(product.op, (self.operand(product.args[0]), Constant(np.ascontiguousarray(part))))
        if bias is None:
            return made
        return Call(OPS["add"](), (made, Constant(np.ascontiguousarray(bias[..., a:b]))))


class _Sink(GraphMutator):
    def begin(self, f: Any) -> None:
        self.uses = count_uses(f)
        self.fresh: set[Var] = set()

    def once(self, e: Any) -> Any:
        """The call that an operand is the only use of."""
        if not isinstance(e, Var) or not (e in self.fresh or self.uses.get(e) == 1):
            return None
        found = self.bb.visible_binding(e)
        return found if isinstance(found, Call) else None

    def call(self, call: Call, var: Var) -> Expr:
        if not getattr(call.op, "elementwise", False):
            return call
        places = [i for i, a in enumerate(call.args) if _name(self.once(a)) == "concat"]
        if len(places) != 1:
            return call
        joined = self.once(call.args[places[0]])
        si = joined.struct_info
        parts = joined.args[0]
        if (
            not isinstance(parts, Tuple)
            or not isinstance(si, TensorStructInfo)
            or joined.op.axis % si.ndim != si.ndim - 1
        ):
            return call
        if not all(self.is_kernel(p) for p in parts.fields) or getattr(call.struct_info, "ndim", -1) != si.ndim:
            return call
        sizes = [as_int(p.struct_info.shape[-1]) for p in parts.fields]  # pyright: ignore
        rest = [self.pieces(a, sizes) if i != places[0] else list(parts.fields) for i, a in enumerate(call.args)]
        if any(r is None for r in rest) or any(n is None for n in sizes):
            return call
        made: list[Any] = []
        for args in zip(*(r for r in rest if r is not None)):
            made.append(self.bb.emit(Call(call.op, args)))
            self.fresh.add(made[-1])
        self.fresh.add(var)
        if self.uses.get(var) != 1:
            self.fresh.discard(var)
        return Call(joined.op, (make_tuple(made),))

    def is_kernel(self, e: Any) -> bool:
        """Is a part made by a contraction, perhaps with elementwise work behind it?"""
        found = self.once(e)
        while found is not None and getattr(found.op, "elementwise", False):
            found = next((c for c in map(self.once, found.args) if c is not None), None)
        return _name(found) in ("nn.conv2d", "matmul")

    @staticmethod
    def pieces(e: Any, sizes: Sequence[int | None]) -> list[Any] | None:
        """A scalar for every part, or a constant cut along the last axis."""
        if isinstance(e, PrimValue) or (isinstance(e, Constant) and e.data.size == 1):
            return [e] * len(sizes)
        if not isinstance(e, Constant) or e.data.ndim < 1:
            return None
        if e.data.shape[-1] == 1:
            return [e] * len(sizes)
        cuts = np.cumsum([n or 0 for n in sizes])
        if e.data.shape[-1] != cuts[-1]:
            return None
        return [Constant(np.ascontiguousarray(p)) for p in np.split(e.data, cuts[:-1], axis=-1)]


@pass_(name="SplitColumns")
def split_columns(mod: IRModule, ctx: PassContext) -> IRModule:
    """A matmul whose result is only used in slices of its columns becomes one for each slice."""
    del ctx
    return _Split(mod).run()


@pass_(name="SinkIntoConcat")
def sink_into_concat(mod: IRModule, ctx: PassContext) -> IRModule:
    """Elementwise work on contractions that are put together is done before."""
    del ctx
    return _Sink(mod).run()
