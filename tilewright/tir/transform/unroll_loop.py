"""Loops are unrolled: those marked so, and short ones by a budget of steps.

Options of `tir.UnrollLoop` in the PassContext: `auto_max_step` (a loop whose whole run is at most so many stores and calls is
unrolled), `auto_max_depth` (how many nested loops), `auto_max_extent` (loops no longer than this), `explicit_unroll` (copy
the body; else only mark the loop UNROLLED), `unroll_local_access` (loops that index local memory are unrolled). Pragmas
`pragma_auto_unroll_max_step` and `pragma_unroll_explicit` set the first and the fourth for what is inside, as attributes or as
annotations of a loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arith.expr import IntImm, PrimExpr, Var, add, const
from tilewright.ir.node import replace, walk
from tilewright.ir.passes import Pass
from tilewright.ir.rewrite import Mutator, substitute
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.lower.place_buffers import EXPLICIT, MAX_STEP
from tilewright.tir.transform.base import func_pass, option
from tilewright.tir.transform.convert_ssa import convert_ssa

__all__ = ["UnrollLoop", "UnrollOptions", "unroll_loops"]


@dataclass(frozen=True)
class UnrollOptions:
    """See the head of the module."""

    auto_max_step: int = 0
    auto_max_depth: int = 8
    auto_max_extent: int = 0
    explicit_unroll: bool = True
    unroll_local_access: bool = False

    @classmethod
    def current(cls) -> UnrollOptions:
        """The options of the PassContext."""
        defaults = {name: getattr(cls(), name) for name in cls.__dataclass_fields__}
        return cls(**{name: type(d)(option("tir.UnrollLoop", name, d)) for name, d in defaults.items()})


def unroll_loops(f: t.PrimFunc, options: UnrollOptions | None = None) -> t.PrimFunc:
    """The function with loops unrolled. Raises TW0533 where a loop marked UNROLLED has no constant length."""
    run = _Unroll(options or UnrollOptions.current())
    body = run.visit(f.body)
    if body is f.body:
        return f
    return convert_ssa(f.with_body(body)) if run.copied else f.with_body(body)


class _Unroll(Mutator):
    def __init__(self, options: UnrollOptions) -> None:
        self.max_step, self.explicit = options.auto_max_step, options.explicit_unroll
        self.options = options
        self.steps = self.unrolled = self.normal = 0
        """Of what is inside: steps, depth of unrolled loops, depth of loops that stay."""
        self.local: set[Var] = set()
        self.copied = False

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_AttrStmt(self, s: t.AttrStmt) -> t.Stmt:
        if s.attr_key not in (MAX_STEP, EXPLICIT):
            return self.generic(s)
        return self.under(s.attr_key, int(s.value), s.body)  # type: ignore[arg-type]

    def under(self, key: str, value: int, body: t.Stmt) -> t.Stmt:
        saved = self.max_step, self.explicit
        if key == MAX_STEP:
            self.max_step = value
        else:
            self.explicit = bool(value)
        out = self.visit(body)
        self.max_step, self.explicit = saved
        return out

    def visit_BufferStore(self, s: t.BufferStore) -> t.Stmt:
        self.steps += 1
        if self.options.unroll_local_access:
            for x in (s, *(x for x in walk(s.value) if isinstance(x, t.BufferLoad))):
                if x.buffer.scope() in ("local", "wmma"):
                    self.local.update(v for i in x.indices for v in walk(i) if isinstance(v, Var))
        return s

    def visit_Evaluate(self, s: t.Evaluate) -> t.Stmt:
        self.steps += 1
        return s

    def visit_SeqStmt(self, s: t.SeqStmt) -> t.Stmt:
        steps, unrolled, normal = self.steps, self.unrolled, self.normal
        out: list[t.Stmt] = []
        for x in s.seq:
            self.steps = self.unrolled = self.normal = 0
            out.append(self.visit(x))
            steps += self.steps
            unrolled, normal = max(unrolled, self.unrolled), max(normal, self.normal)
        self.steps, self.unrolled, self.normal = steps, unrolled, normal
        return s if all(a is b for a, b in zip(out, s.seq, strict=True)) else t.seq(*out)

    def visit_For(self, s: t.For) -> t.Stmt:
        pragmas = {k: int(v) for k, v in s.annotations.items() if k in (MAX_STEP, EXPLICIT)}
        if pragmas:
            rest = {k: v for k, v in s.annotations.items() if k not in pragmas}
            saved = self.max_step, self.explicit
            self.max_step = pragmas.get(MAX_STEP, self.max_step)
            self.explicit = bool(pragmas.get(EXPLICIT, self.explicit))
            out = self.loop(replace(s, annotations=rest))
            self.max_step, self.explicit = saved
            return out
        return self.loop(s)

    def loop(self, s: t.For) -> t.Stmt:
        body = self.visit(s.body)
        new = s if body is s.body else replace(s, body=body)
        n = s.extent.value if isinstance(s.extent, IntImm) else -1
        chosen = self.chosen(s, n)
        if s.kind == t.ForKind.UNROLLED:
            if n < 0:
                raise CompileError.at(
                    "TW0533", f"the loop {s.loop_var.name} is to be unrolled, but its length {s.extent!r} is no constant", s.span,
                    hint="split the loop by a constant, and unroll the inner one",
                )  # fmt: skip
            chosen = True
        if chosen:
            self.steps *= n
            self.unrolled += 1
        else:
            self.normal += 1
        limit = self.options.auto_max_extent
        if (chosen and self.explicit) or (0 <= n <= limit == 1 and s.kind == t.ForKind.SERIAL):
            return self.copies(new, n)
        if chosen and s.kind != t.ForKind.UNROLLED:
            return replace(new, kind=t.ForKind.UNROLLED)
        return new

    def chosen(self, s: t.For, n: int) -> bool:
        """Is the loop unrolled though nobody marked it?"""
        if s.kind != t.ForKind.SERIAL or n < 0 or self.normal:
            return False
        if s.loop_var in self.local:
            return True
        short = n * self.steps <= self.max_step or n <= self.options.auto_max_extent
        return short and self.unrolled <= self.options.auto_max_depth

    def copies(self, s: t.For, n: int) -> t.Stmt:
        self.copied = True
        parts = [substitute(s.body, {s.loop_var: add(s.min, const(i, s.loop_var.dtype))}) for i in range(n)]
        return t.seq(*parts) if parts else t.Evaluate(IntImm("int32", 0))


def UnrollLoop() -> Pass:
    """Loops are unrolled by marks, pragmas and the options `tir.UnrollLoop`."""
    return func_pass("UnrollLoop", unroll_loops)
