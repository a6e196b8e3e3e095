"""PrimFuncs to Python source: how the interpreter runs fast enough to judge everything.

Values at run time: an integer or bool is a Python number (kept in range of its dtype), a float a numpy scalar of exactly its
dtype (so that each operation rounds), a vector a numpy array of its lanes, a buffer a numpy array of its shape, a pointer
the flat array behind it. Bounds of integers are followed through the expressions, so that most wrap-arounds and bounds
checks are proven away.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.arith import expr as ex
from tilewright.arith.expr import PrimExpr, Var
from tilewright.ir import dtype as dt
from tilewright.ir.op import GlobalVar, Op
from tilewright.ir.rewrite import collect, free_vars
from tilewright.tir import ir as t
from tilewright.tir.interp_runtime import RUNTIME, meaning, unsupported
from tilewright.tir.intrin import INTRINSICS

__all__ = ["generate"]

Value = tuple[str, Any, Any]
"""A piece of source, and for integers the least and greatest value (of any lane)."""

_CMP: dict[type, str] = {ex.EQ: "==", ex.NE: "!=", ex.LT: "<", ex.LE: "<=", ex.GT: ">", ex.GE: ">="}
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


class _Source:
    def __init__(self, where: str, resolve: Callable[[GlobalVar], Any]) -> None:
        self.where = where
        self.resolve = resolve
        self.lines: list[str] = []
        self.depth = 0
        self.nesting: list[int] = [0]  # nested Python blocks in each enclosing def
        self.names_space: dict[str, Any] = dict(RUNTIME)
        self.names: dict[Any, str] = {}
        self.ranges: dict[Var, tuple[int, int]] = {}
        self.declared: set[Any] = set()
        self.mask: str | None = None
        self.counter = 0
        self.backwards = False
        self.undeclared: dict[Var, list[t.Buffer]] = {}

    # ---- lines and names -------------------------------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def fresh(self, hint: str) -> str:
        self.counter += 1
        return f"{re.sub(r'[^0-9a-zA-Z_]', '_', hint) or 'x'}_{self.counter}"

    def name_of(self, x: Any) -> str:
        found = self.names.get(x)
        if found is None:
            found = self.names[x] = self.fresh(x.name)
        return found

    def constant(self, value: Any, hint: str = "c") -> str:
        name = self.fresh("_" + hint)
        self.names_space[name] = value
        return name

    def define(self, v: Var, code: str, low: Any = None, high: Any = None) -> None:
        """`v = code`, with what is known of an integer's range."""
        self.emit(f"{self.name_of(v)} = {code}")
        self.declared.add(v)
        if low is not None and dt.lanes(v.dtype) == 1:
            self.ranges[v] = (low, high)
        else:
            self.ranges.pop(v, None)

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
        values = [self.expr(v) for v in s.iter_values]
        for iv, value in zip(b.iter_vars, values, strict=True):
            self.define(iv.var, *value)
        always = isinstance(s.predicate, ex.IntImm) and s.predicate.value
        if always:
            self.block(b)
        else:
            self.nested(f"if {self.code(s.predicate)}:", lambda: self.block(b))

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

    # ---- expressions -----------------------------------------------------------------------------------------------------

    def code(self, e: PrimExpr) -> str:
        return self.expr(e)[0]

    def expr(self, e: PrimExpr) -> Value:
        """The source of an expression, and the range of an integer."""
        method = _EXPR.get(type(e))
        if method is None:
            raise unsupported(type(e).__name__, "it has no value in the loop IR")
        code, low, high = method(self, e)
        if low is None and not dt.is_float(e.dtype) and dt.code(e.dtype) in ("int", "uint", "bool"):
            low, high = dt.min_value(e.dtype), dt.max_value(e.dtype)
        return code, low, high

    def kind(self, dtype: str) -> str:
        """The name of the numpy scalar type."""
        base = dt.element(dtype)
        name = "_t_" + base
        if name not in self.names_space:
            self.names_space[name] = dt.to_numpy(base).type
        return name

    def wrapped(self, code: str, dtype: str) -> str:
        """An integer brought into the range of the dtype."""
        bits = dt.bits(dtype)
        mask = (1 << bits) - 1
        if dt.is_bool(dtype):
            return f"int(({code}) != 0)"
        if dt.is_uint(dtype):
            return f"(({code}) & {mask})"
        half = 1 << (bits - 1)
        return f"((({code}) + {half} & {mask}) - {half})"

    def fit(self, code: str, low: int, high: int, dtype: str) -> Value:
        """An integer result that wraps where its range leaves the dtype's."""
        least, greatest = dt.min_value(dtype), dt.max_value(dtype)
        if least <= low and high <= greatest:
            return code, low, high
        if dt.lanes(dtype) > 1:
            return code, least, greatest
        return self.wrapped(code, dtype), least, greatest

    def e_Var(self, e: Var) -> Value:
        if e not in self.declared and e not in self.names:
            raise unsupported(f"variable {e.name}", "nothing defines it")
        low, high = self.ranges.get(e, (None, None))
        return self.name_of(e), low, high

    def e_IntImm(self, e: ex.IntImm) -> Value:
        return (str(e.value) if e.value >= 0 else f"({e.value})"), e.value, e.value

    def e_FloatImm(self, e: ex.FloatImm) -> Value:
        return self.constant(dt.to_numpy(e.dtype).type(e.value)), None, None

    def e_StringImm(self, e: ex.StringImm) -> Value:
        return repr(e.value), None, None

    def e_arith(self, e: Any) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        symbol = {ex.Add: "+", ex.Sub: "-", ex.Mul: "*"}[type(e)]
        code = f"({a} {symbol} {b})"
        if dt.is_float(e.dtype):
            return code, None, None
        if type(e) is ex.Add:
            return self.fit(code, a0 + b0, a1 + b1, e.dtype)
        if type(e) is ex.Sub:
            return self.fit(code, a0 - b1, a1 - b0, e.dtype)
        corners = [a0 * b0, a0 * b1, a1 * b0, a1 * b1]
        return self.fit(code, min(corners), max(corners), e.dtype)

    def e_FloorDiv(self, e: ex.FloorDiv) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        if dt.is_float(e.dtype):
            return f"_np.floor_divide({a}, {b})", None, None
        if b0 <= 0 <= b1:
            return self.fit(f"({a} // {b})", dt.min_value(e.dtype), dt.max_value(e.dtype) + (b0 < 0), e.dtype)
        corners = [a0 // b0, a0 // b1, a1 // b0, a1 // b1]
        return self.fit(f"({a} // {b})", min(corners), max(corners), e.dtype)

    def e_FloorMod(self, e: ex.FloorMod) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        if dt.is_float(e.dtype):
            return f"_np.mod({a}, {b})", None, None
        if b0 > 0:
            if a0 >= 0 and a1 < b0:
                return a, a0, a1
            return f"({a} % {b})", 0, b1 - 1
        return f"({a} % {b})", None, None

    def e_Div(self, e: ex.Div) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        if dt.is_float(e.dtype):
            return f"({a} / {b})", None, None
        if a0 >= 0 and b0 > 0:
            return f"({a} // {b})", a0 // b1, a1 // b0
        f = "_vdiv" if dt.lanes(e.dtype) > 1 else "_tdiv"
        return self.fit(f"{f}({a}, {b})", dt.min_value(e.dtype), dt.max_value(e.dtype) + (b0 < 0), e.dtype)

    def e_Mod(self, e: ex.Mod) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        if dt.is_float(e.dtype):
            return f"_np.fmod({a}, {b})", None, None
        if a0 >= 0 and b0 > 0:
            return f"({a} % {b})", 0, min(a1, b1 - 1)
        return f"{'_vmod' if dt.lanes(e.dtype) > 1 else '_tmod'}({a}, {b})", None, None

    def e_minmax(self, e: Any) -> Value:
        a, a0, a1 = self.expr(e.a)
        b, b0, b1 = self.expr(e.b)
        least = type(e) is ex.Min
        if dt.lanes(e.dtype) > 1:
            code = f"_np.{'minimum' if least else 'maximum'}({a}, {b})"
        elif dt.is_float(e.dtype):
            x, y = self.fresh("x"), self.fresh("y")
            # NaN on either side gives NaN, as in numpy
            code = f"(lambda {x}, {y}: {x} if {x} {'<' if least else '>'} {y} or {x} != {x} else {y})({a}, {b})"
        else:
            code = f"{'min' if least else 'max'}({a}, {b})"
        if dt.is_float(e.dtype):
            return code, None, None
        return (code, min(a0, b0), min(a1, b1)) if least else (code, max(a0, b0), max(a1, b1))

    def e_compare(self, e: Any) -> Value:
        return f"({self.code(e.a)} {_CMP[type(e)]} {self.code(e.b)})", 0, 1

    def e_logic(self, e: Any) -> Value:
        return f"({self.code(e.a)} {'&' if type(e) is ex.And else '|'} {self.code(e.b)})", 0, 1

    def e_Not(self, e: ex.Not) -> Value:
        a = self.code(e.a)
        return (f"(~{a})" if dt.lanes(e.dtype) > 1 else f"(not {a})"), 0, 1

    def e_Select(self, e: ex.Select) -> Value:
        a, a0, a1 = self.expr(e.true_value)
        b, b0, b1 = self.expr(e.false_value)
        c = self.code(e.condition)
        low, high = (None, None) if a0 is None else (min(a0, b0), max(a1, b1))
        if dt.lanes(e.dtype) > 1:
            return f"_np.where({c}, {a}, {b})", low, high
        return f"({a}, {b})[not {c}]", low, high

    def e_Let(self, e: ex.Let) -> Value:
        value, low, high = self.expr(e.value)
        name = self.name_of(e.var)
        self.declared.add(e.var)
        if low is not None and dt.lanes(e.var.dtype) == 1:
            self.ranges[e.var] = (low, high)
        body, b0, b1 = self.expr(e.body)
        return f"(lambda {name}: {body})({value})", b0, b1

    def e_Cast(self, e: ex.Cast) -> Value:
        code, low, high = self.expr(e.value)
        source, target = e.value.dtype, e.dtype
        vector = dt.lanes(target) > 1
        if "handle" in (source, target):
            return code, None, None
        if dt.is_bool(target):
            return (f"({code} != 0)" if vector else f"bool({code} != 0)"), 0, 1
        if dt.is_float(target):
            if vector:
                return f"({code}).astype({self.kind(target)})", None, None
            return f"{self.kind(target)}({code})", None, None
        least, greatest = dt.min_value(target), dt.max_value(target)
        if dt.is_float(source):
            if vector:
                return f"_vtoint({code}, {self.kind(target)}, {least}, {greatest})", None, None
            return f"_toint({code}, {least}, {greatest})", None, None
        if vector:
            fits = least <= low and high <= greatest
            return f"({code}).astype({self.kind(target)})", low if fits else None, high if fits else None
        if dt.is_bool(source):
            code = f"int({code})"
        return self.fit(code, low, high, target)

    def e_Ramp(self, e: ex.Ramp) -> Value:
        base, b0, b1 = self.expr(e.base)
        stride, s0, s1 = self.expr(e.stride)
        steps = self.constant(np.arange(e.lanes, dtype=dt.to_numpy(e.dtype)), "lanes")
        n = e.lanes - 1
        low, high = b0 + min(0, s0 * n), b1 + max(0, s1 * n)
        if dt.lanes(e.base.dtype) > 1:
            code = f"(({base})[None, :] + ({stride}) * {steps}[:, None]).ravel()"
        else:
            code = f"({base} + {stride} * {steps})"
        return self.fit(code, low, high, e.dtype)

    def e_Broadcast(self, e: ex.Broadcast) -> Value:
        code, low, high = self.expr(e.value)
        if dt.lanes(e.value.dtype) > 1:
            return f"_np.tile({code}, {e.lanes})", low, high
        return f"_np.full({e.lanes}, {code}, {self.kind(e.dtype)})", low, high

    def e_Shuffle(self, e: ex.Shuffle) -> Value:
        indices = [int(i) for i in e.indices]  # pyright: ignore[reportArgumentType]
        code = f"_shuffle([{', '.join(self.code(v) for v in e.vectors)}], {indices})"
        if dt.lanes(e.dtype) == 1 and not dt.is_float(e.dtype):
            code = f"int({code})"
        return code, None, None

    # ---- memory ----------------------------------------------------------------------------------------------------------

    def access(self, b: t.Buffer, indices: tuple[PrimExpr, ...]) -> str:
        """The element or lanes, as something to load or to assign."""
        if b not in self.declared:
            raise unsupported(f"buffer {b.name}", "it is not declared where it is used")
        if len(indices) != b.ndim:
            raise unsupported(f"an access of {b.name}", f"it has {len(indices)} indices for {b.ndim} dimensions")
        values = [self.expr(i) for i in indices]
        inside = all(
            low >= 0 and isinstance(n, ex.IntImm) and high < n.value
            for (_, low, high), n in zip(values, b.shape, strict=True)
        )
        array = self.name_of(b)
        index = "".join(v + ", " for v, _, _ in values)
        vector = any(dt.lanes(i.dtype) > 1 for i in indices)
        if vector and self.mask is not None:
            return f"{array}[_ckv({array}, {b.name!r}, ({index}), {self.mask})]"
        if inside or not indices:
            return f"{array}[{index.rstrip(', ') or '()'}]"
        return f"{array}[{'_ckv' if vector else '_ck'}({array}, {b.name!r}, ({index}))]"

    def e_BufferLoad(self, e: t.BufferLoad) -> Value:
        code = self.access(e.buffer, e.indices)
        if dt.lanes(e.dtype) == 1 and not dt.is_float(e.dtype):
            return f"{'bool' if dt.is_bool(e.dtype) else 'int'}({code})", None, None
        return code, None, None

    # ---- calls -----------------------------------------------------------------------------------------------------------

    def e_Call(self, e: ex.Call) -> Value:
        if isinstance(e.op, GlobalVar):
            target = self.constant(self.resolve(e.op), "fn")
            return f"{target}({', '.join(self.argument(a) for a in e.args)})", None, None
        name: str = e.op.name  # pyright: ignore[reportAttributeAccessIssue]
        special = getattr(self, "c_" + name.removeprefix("tir."), None)
        if special is not None:
            return special(e)
        row = INTRINSICS.get(name)
        if row is None:
            raise unsupported(name, "it is not in the table of intrinsics")
        if row.numpy is None:
            raise unsupported(name, row.doc)
        args = [self.code(a) for a in e.args]
        if name == "tir.likely":
            return args[0], 0, 1
        function = "_f_" + re.sub(r"\W", "_", name) + "_" + e.dtype
        if function not in self.names_space:
            self.names_space[function] = meaning(name, e.dtype)
        return f"{function}({', '.join(args)})", None, None

    def argument(self, a: Any) -> str:
        return self.name_of(a) if isinstance(a, t.Buffer) else self.code(a)

    def c_if_then_else(self, e: ex.Call) -> Value:
        c, yes, no = e.args
        condition = self.code(c)
        if dt.lanes(c.dtype) == 1:
            a, a0, a1 = self.expr(yes)
            b, b0, b1 = self.expr(no)
            low, high = (None, None) if a0 is None else (min(a0, b0), max(a1, b1))
            return f"({a} if {condition} else {b})", low, high
        outer, mask = self.mask, self.fresh("m")
        self.mask = mask
        a, b = self.code(yes), self.code(no)
        self.mask = outer
        return f"_ifl({condition}, {outer}, lambda {mask}: {a}, lambda {mask}: {b})", None, None

    def c_bitwise(self, e: ex.Call) -> Value:
        assert isinstance(e.op, Op)
        symbol = {"tir.bitwise_and": "&", "tir.bitwise_or": "|", "tir.bitwise_xor": "^"}[e.op.name]
        a, a0, _ = self.expr(e.args[0])
        b, b0, b1 = self.expr(e.args[1])
        known = symbol == "&" and b0 >= 0 and a0 >= 0
        return f"({a} {symbol} {b})", 0 if known else None, b1 if known else None

    c_bitwise_and = c_bitwise_or = c_bitwise_xor = c_bitwise

    def c_bitwise_not(self, e: ex.Call) -> Value:
        if dt.lanes(e.dtype) > 1:
            return f"(~{self.code(e.args[0])})", None, None
        return self.fit(f"(~{self.code(e.args[0])})", -(1 << 63), 1 << 64, e.dtype)

    def c_shift_left(self, e: ex.Call) -> Value:
        code = f"({self.code(e.args[0])} << {self.code(e.args[1])})"
        return self.fit(code, -(1 << 128), 1 << 128, e.dtype)

    def c_shift_right(self, e: ex.Call) -> Value:
        a, a0, a1 = self.expr(e.args[0])
        b, b0, b1 = self.expr(e.args[1])
        code = f"({a} >> {b})"
        return (code, a0 >> b1, a1 >> b0) if a0 >= 0 and b0 >= 0 and b1 < 64 else (code, None, None)

    def c_reinterpret(self, e: ex.Call) -> Value:
        return f"_reinterpret({self.code(e.args[0])}, {e.args[0].dtype!r}, {e.dtype!r})", None, None

    def c_reduce_lanes(self, e: ex.Call) -> Value:
        function = self.constant(meaning("tir.reduce_lanes", e.dtype), "reduce")
        return f"{function}({self.code(e.args[0])}, {self.code(e.args[1])})", None, None

    def c_address_of(self, e: ex.Call) -> Value:
        load: t.BufferLoad = e.args[0]
        index = "".join(self.code(i) + ", " for i in load.indices)
        return f"_address({self.name_of(load.buffer)}, ({index}), {load.buffer.name!r})", None, None

    def c_undef(self, e: ex.Call) -> Value:
        return self.code(ex.const(0, e.dtype)), None, None

    def c_tw_raise(self, e: ex.Call) -> Value:
        return f"_raise({', '.join(self.code(a) for a in e.args)})", None, None

    def c_tvm_storage_sync(self, e: ex.Call) -> Value:
        raise unsupported("tir.tvm_storage_sync", "it runs threads one after the other")

    def c_external(self, e: ex.Call) -> Value:
        name = e.args[0].value
        target = self.constant(self.resolve(GlobalVar(name)), "extern")
        call = f"{target}({', '.join(self.argument(a) for a in e.args[1:])})"
        if dt.is_float(e.dtype):
            return f"{self.kind(e.dtype)}({call})", None, None
        return call, None, None

    c_call_extern = c_call_pure_extern = c_tvm_call_packed = c_tvm_call_cpacked = c_external


_EXPR: dict[type, Callable[[_Source, Any], Value]] = {
    Var: _Source.e_Var, ex.SizeVar: _Source.e_Var, ex.IntImm: _Source.e_IntImm, ex.FloatImm: _Source.e_FloatImm,
    ex.StringImm: _Source.e_StringImm, ex.Add: _Source.e_arith, ex.Sub: _Source.e_arith, ex.Mul: _Source.e_arith,
    ex.FloorDiv: _Source.e_FloorDiv, ex.FloorMod: _Source.e_FloorMod, ex.Div: _Source.e_Div, ex.Mod: _Source.e_Mod,
    ex.Min: _Source.e_minmax, ex.Max: _Source.e_minmax, ex.EQ: _Source.e_compare, ex.NE: _Source.e_compare,
    ex.LT: _Source.e_compare, ex.LE: _Source.e_compare, ex.GT: _Source.e_compare, ex.GE: _Source.e_compare,
    ex.And: _Source.e_logic, ex.Or: _Source.e_logic, ex.Not: _Source.e_Not, ex.Select: _Source.e_Select,
    ex.Let: _Source.e_Let, ex.Cast: _Source.e_Cast, ex.Ramp: _Source.e_Ramp, ex.Broadcast: _Source.e_Broadcast,
    ex.Shuffle: _Source.e_Shuffle, ex.Call: _Source.e_Call, t.BufferLoad: _Source.e_BufferLoad,
}  # fmt: skip
