"""PrimFuncs to Python source: how the interpreter runs fast enough to judge everything.

Values at run time: an integer or bool is a Python number (kept in range of its dtype), a float a numpy scalar of exactly its
dtype (so that each operation rounds), a vector a numpy array of its lanes, a buffer a numpy array of its shape, a pointer
the flat array behind it. Bounds of integers are followed through the expressions, so that most wrap-arounds and bounds
checks are proven away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.arith import expr as ex
from tilewright.arith.expr import PrimExpr, Var
from tilewright.arith.linear import linear_form
from tilewright.ir import dtype as dt
from tilewright.ir.op import GlobalVar, Op
from tilewright.ir.rewrite import collect, free_vars
from tilewright.tir import ir as t
from tilewright.tir.interp_expr import Expressions
from tilewright.tir.interp_runtime import unsupported

__all__ = ["generate"]

_DEPTH = 14  # Python allows 20 nested blocks


def generate(
    func: t.PrimFunc, name: str, resolve: Callable[[GlobalVar], Any], backwards: bool = False
) -> tuple[str, dict[str, Any]]:
    """The source of a Python function `run(*params)` and the names it uses. `resolve` gives a callee of the module;
    `backwards` runs the loops that may run in any order from the end."""
    g = _Source(name, resolve)
    g.backwards = backwards
    g.function(func)
    return "\n".join(g.lines) + "\n", g.names_space


class _Source(Expressions):
    # ---- the function ----------------------------------------------------------------------------------------------------

    def function(self, f: t.PrimFunc) -> None:
        args = [self.name_of(p) for p in f.params]
        self.emit(f"def run({', '.join(args)}):")
        self.depth += 1
        self.find_views(f)
        buffers = [(p, f.buffer_map[p]) for p in f.params if p in f.buffer_map]
        for p in f.params:
            self.declared.add(p)
            if p not in f.buffer_map and p.dtype != "handle":
                self.scalar_param(p)
        for p, b in buffers:
            self.emit(
                f"{self.name_of(b)} = _bind({self.name_of(p)}, {b.dtype!r}, {b.ndim}, {b.name!r}, {self.where!r})"
            )
            self.declared.add(b)
        for _, b in buffers:
            self.bind_shape(b)
        for _, b in buffers:
            self.solve_shape(b)
        for _, b in buffers:
            self.check_shape(b)
            if b.data not in self.declared:
                self.emit(f"{self.name_of(b.data)} = {self.name_of(b)}")
                self.declared.add(b.data)
                self.views_of(b.data)
        for p in f.params:
            self.views_of(p)
        self.stmt(f.body)

    def find_views(self, f: t.PrimFunc) -> None:
        """Buffers that are used without a declaration, by their memory: their views are made where the memory begins."""
        bound: set[t.Buffer] = set(f.buffer_map.values())
        for n in collect(f.body, (t.DeclBuffer, t.BufferRealize, t.Block, t.MatchBufferRegion)):
            bound.update(n.alloc_buffers if isinstance(n, t.Block) else (n.buffer,))
        for b in collect(f.body, t.Buffer):
            if b not in bound:
                self.undeclared.setdefault(b.data, []).append(b)

    def views_of(self, data: Var) -> None:
        """Make the views of memory that has just become known, as far as their shapes are known too."""
        for b in self.undeclared.get(data, ()):
            sizes = [x for x in (*b.shape, *b.strides, b.elem_offset) if x is not None]
            if b not in self.declared and all(v in self.declared for e in sizes for v in free_vars(e)):
                self.make_view(b)

    def scalar_param(self, p: Var) -> None:
        name = self.name_of(p)
        if dt.is_float(p.dtype):
            self.emit(f"{name} = {self.kind(p.dtype)}({name})")
        else:
            self.emit(f"{name} = {self.wrapped(f'int({name})', p.dtype)}")

    def bind_shape(self, b: t.Buffer) -> None:
        """Variables that are a whole dimension (or stride) of an argument get their values from it."""
        array = self.name_of(b)
        for axis, n in enumerate(b.shape):
            if isinstance(n, Var) and n not in self.declared:
                self.define(n, f"{array}.shape[{axis}]", 0, dt.max_value(n.dtype))
        if b.strides:
            for axis, s in enumerate(b.strides):
                if isinstance(s, Var) and s not in self.declared:
                    self.define(s, f"_estrides({array})[{axis}]")
        if isinstance(b.elem_offset, Var) and b.elem_offset not in self.declared:
            self.define(b.elem_offset, "0", 0, 0)

    def solve_shape(self, b: t.Buffer) -> None:
        """A variable that occurs only inside of dimensions (n*2 + 1) gets its value from one of them."""
        for axis, n in enumerate(b.shape):
            unknown = [v for v in free_vars(n) if v not in self.declared]
            form = linear_form(n, unknown) if len(unknown) == 1 else None
            if form is not None and form[0][0]:
                code = f"({self.name_of(b)}.shape[{axis}] - ({self.code(form[1])})) // {form[0][0]}"
                self.define(unknown[0], code, dt.min_value(unknown[0].dtype), dt.max_value(unknown[0].dtype))

    def check_shape(self, b: t.Buffer) -> None:
        array = self.name_of(b)
        for axis, n in enumerate(b.shape):
            code = self.code(n)
            self.emit(f"_bind_dim({array}.shape[{axis}], {code}, {b.name!r}, {axis}, {array}.shape, {self.where!r})")
        for axis, n in enumerate(b.strides):
            self.emit(f"_bind_stride({array}, {axis}, {self.code(n)}, {b.name!r}, {self.where!r})")

    # ---- statements ------------------------------------------------------------------------------------------------------

    def stmt(self, s: t.Stmt) -> None:
        getattr(self, "s_" + type(s).__name__)(s)

    def nested(self, header: str, body: Callable[[], None]) -> None:
        """`header:` with an indented body; past the depth Python allows, the body becomes a function."""
        saved = set(self.declared)
        if self.nesting[-1] >= _DEPTH:
            name = self.fresh("_part")
            self.emit(f"def {name}():")
            self.nesting.append(0)
            self._block(header, body, saved)
            self.nesting.pop()
            self.emit(f"{name}()")
        else:
            self._block(header, body, saved)

    def _block(self, header: str, body: Callable[[], None], saved: set[Any]) -> None:
        inside = len(self.nesting) > 1 and self.nesting[-1] == 0
        if inside:
            self.depth += 1
        self.emit(header)
        self.depth += 1
        self.nesting[-1] += 1
        count = len(self.lines)
        body()
        if len(self.lines) == count:
            self.emit("pass")
        self.nesting[-1] -= 1
        self.depth -= 2 if inside else 1
        self.declared = saved

    def s_SeqStmt(self, s: t.SeqStmt) -> None:
        for x in s.seq:
            self.stmt(x)

    def s_Evaluate(self, s: t.Evaluate) -> None:
        v = s.value
        if isinstance(v, ex.Call) and isinstance(v.op, Op):
            if v.op.name == "tir.ret":
                self.prepare(v.args[0])
                code = self.code(v.args[0])
                self.emit(f"raise _Return({code})" if len(self.nesting) > 1 else f"return {code}")
                return
            if v.op.name in ("tir.assume", "tir.prefetch"):
                return
        if not isinstance(v, ex.IntImm):
            self.prepare(v)
            self.emit(self.code(v))

    def s_LetStmt(self, s: t.LetStmt) -> None:
        self.prepare(s.value)
        self.define(s.var, *self.expr(s.value))
        self.stmt(s.body)

    def s_AttrStmt(self, s: t.AttrStmt) -> None:
        if s.attr_key in ("thread_extent", "virtual_thread") and isinstance(s.node, t.IterVar):
            v = s.node.var
            if v not in self.declared:
                code, _, high = self.expr(s.value)
                name = self.name_of(v)

                def body() -> None:
                    self.declared.add(v)
                    self.ranges[v] = (0, max(high - 1, 0))
                    self.stmt(s.body)

                self.nested(f"for {name} in range({code}):", body)
                return
        self.stmt(s.body)

    def s_AssertStmt(self, s: t.AssertStmt) -> None:
        self.prepare(s.condition)
        text = s.message.value if isinstance(s.message, ex.StringImm) else "assertion failed"
        self.emit(f"if not ({self.code(s.condition)}): _fail({text!r})")
        self.stmt(s.body)

    def s_IfThenElse(self, s: t.IfThenElse) -> None:
        self.prepare(s.condition)
        other = s.else_case
        if other is None:
            self.nested(f"if {self.code(s.condition)}:", lambda: self.stmt(s.then_case))
            return
        flag = self.fresh("taken")  # a variable, because either side may have to become a function of its own
        self.emit(f"{flag} = {self.code(s.condition)}")
        self.nested(f"if {flag}:", lambda: self.stmt(s.then_case))
        self.nested(f"if not {flag}:", lambda: self.stmt(other))

    def s_While(self, s: t.While) -> None:
        self.prepare(s.condition)
        self.nested(f"while {self.code(s.condition)}:", lambda: self.stmt(s.body))

    def s_For(self, s: t.For) -> None:
        loops: list[tuple[str, str]] = []
        inner: t.Stmt = s
        self.prepare(s.min, s.extent)
        while isinstance(inner, t.For):
            if loops and not (isinstance(inner.min, ex.IntImm) and isinstance(inner.extent, ex.IntImm)):
                break
            low, low_min, low_max = self.expr(inner.min)
            extent, _, extent_max = self.expr(inner.extent)
            v = inner.loop_var
            bounds = f"{extent}" if low == "0" else f"{low}, {low} + {extent}"
            text = f"range({bounds})"
            if self.backwards and inner.kind not in (t.ForKind.SERIAL, t.ForKind.UNROLLED):
                text += "[::-1]"
            loops.append((self.name_of(v), text))
            self.ranges[v] = (low_min, min(low_max + max(extent_max - 1, 0), dt.max_value(v.dtype)))
            self.declared.add(v)
            inner = inner.body
        if len(loops) == 1:
            header = f"for {loops[0][0]} in {loops[0][1]}:"
        else:
            header = f"for {', '.join(n for n, _ in loops)} in _product({', '.join(r for _, r in loops)}):"
        self.nested(header, lambda: self.stmt(inner))

    def s_Allocate(self, s: t.Allocate) -> None:
        shape = ", ".join(self.code(e) for e in s.extents)
        self.emit(f"{self.name_of(s.buffer_var)} = _alloc({s.dtype!r}, ({shape},), {s.buffer_var.name!r})")
        self.declared.add(s.buffer_var)
        self.views_of(s.buffer_var)
        self.stmt(s.body)

    def s_AllocateConst(self, s: t.AllocateConst) -> None:
        data: Any = np.array(s.data).reshape(-1)
        data.flags.writeable = False
        self.emit(f"{self.name_of(s.buffer_var)} = {self.constant(data, 'data')}")
        self.declared.add(s.buffer_var)
        self.views_of(s.buffer_var)
        self.stmt(s.body)

    def s_DeclBuffer(self, s: t.DeclBuffer) -> None:
        self.make_view(s.buffer)
        self.stmt(s.body)

    def s_BufferRealize(self, s: t.BufferRealize) -> None:
        self.allocate(s.buffer)
        self.stmt(s.body)

    def allocate(self, b: t.Buffer) -> None:
        """New memory for a buffer, and its view."""
        if b.strides:
            size: PrimExpr = ex.IntImm("int64", 1)
            for n, st in zip(b.shape, b.strides, strict=True):
                size = size + (ex.cast(n, "int64") - 1) * ex.cast(st, "int64")
            shape = self.code(size)
        else:
            shape = ", ".join(self.code(n) for n in b.shape)
        self.emit(f"{self.name_of(b.data)} = _alloc({b.dtype!r}, ({shape}{',' if shape else ''}), {b.name!r})")
        self.declared.add(b.data)
        self.make_view(b)

    def make_view(self, b: t.Buffer) -> None:
        if b.data not in self.declared:
            raise unsupported(f"buffer {b.name}", "nothing gives it memory")
        shape = "".join(self.code(n) + ", " for n in b.shape)
        strides = "".join(self.code(n) + ", " for n in b.strides)
        offset = "0" if b.elem_offset is None else self.code(b.elem_offset)
        self.emit(
            f"{self.name_of(b)} = _view({self.name_of(b.data)}, {b.dtype!r}, ({shape}), ({strides}), {offset}, {b.name!r})"
        )
        self.declared.add(b)

    def prepare(self, *exprs: Any) -> None:
        """Make the views of buffers that are used without a declaration (before the statement that uses them)."""
        stack: list[Any] = list(exprs)
        while stack:
            x = stack.pop()
            if isinstance(x, t.Buffer):
                if x not in self.declared:
                    self.make_view(x)
            elif isinstance(x, (PrimExpr, t.BufferRegion)):
                if not isinstance(x, (Var, ex.IntImm)):
                    stack.extend(getattr(x, f.name) for f in x.node_fields)
            elif isinstance(x, tuple):
                stack.extend(x)

    def s_BufferStore(self, s: t.BufferStore) -> None:
        b = s.buffer
        self.prepare(b, s.value, s.indices)
        lanes = dt.lanes(b.dtype) * (dt.lanes(s.indices[-1].dtype) if s.indices else 1)
        if dt.element(b.dtype) != dt.element(s.value.dtype) or dt.lanes(s.value.dtype) != lanes:
            raise unsupported(f"a store of {s.value.dtype} into {b.name}", f"the buffer is {b.dtype} (x{lanes} here)")
        self.emit(f"{self.access(b, s.indices)} = {self.code(s.value)}")

    def s_BlockRealize(self, s: t.BlockRealize) -> None:
        b = s.block
        self.prepare(s.predicate, s.iter_values)

        def bound() -> None:
            values = [self.expr(v) for v in s.iter_values]
            for iv, value in zip(b.iter_vars, values, strict=True):
                self.define(iv.var, *value)
            self.block(b)

        always = isinstance(s.predicate, ex.IntImm) and s.predicate.value
        if always:
            bound()
        else:
            self.nested(f"if {self.code(s.predicate)}:", bound)

    def s_Block(self, s: t.Block) -> None:
        self.block(s)

    def block(self, b: t.Block) -> None:
        starts: list[str] = []
        for iv in b.iter_vars:
            assert iv.dom is not None
            low, low_min, low_max = self.expr(iv.dom.min)
            extent, extent_min, _ = self.expr(iv.dom.extent)
            name = self.name_of(iv.var)
            least, greatest = self.ranges.get(iv.var, (dt.min_value(iv.dtype), dt.max_value(iv.dtype)))
            constant = low_min == low_max
            if not (
                constant
                and isinstance(iv.dom.extent, ex.IntImm)
                and low_min <= least
                and greatest < low_min + extent_min
            ):
                self.emit(f"_dom({name}, {low}, {extent}, {iv.var.name!r}, {b.name_hint!r})")
                if constant and isinstance(iv.dom.extent, ex.IntImm):
                    self.ranges[iv.var] = (max(least, low_min), min(greatest, low_min + extent_min - 1))
            if iv.iter_type == t.IterVar.CommReduce:
                starts.append(f"{name} == {low}")
        for buffer in b.alloc_buffers:
            self.allocate(buffer)
        for m in b.match_buffers:
            self.match(m)
        if b.init is not None:
            init = b.init
            if starts:
                self.nested(f"if {' and '.join(starts)}:", lambda: self.stmt(init))
            else:
                self.stmt(init)
        self.stmt(b.body)

    def match(self, m: t.MatchBufferRegion) -> None:
        b, source = m.buffer, m.source.buffer
        self.prepare(source)
        starts = "".join(self.code(r.min) + ", " for r in m.source.region)
        extents = "".join(self.code(r.extent) + ", " for r in m.source.region)
        array = self.name_of(b)
        self.emit(f"{array} = _match({self.name_of(source)}, ({starts}), ({extents}), {b.ndim}, {b.name!r})")
        self.declared.add(b)
        if isinstance(b.elem_offset, Var):
            self.emit(f"{self.name_of(b.elem_offset)} = _eoffset({array}, {self.name_of(source.data)})")
            self.declared.add(b.elem_offset)
        self.bind_shape(b)
        self.check_shape(b)
        self.emit(f"{self.name_of(b.data)} = {self.name_of(source.data)}")
        self.declared.add(b.data)
