"""Is a function well formed? The verifiers of the forms `blocks` and `flat`, and `verify_well_formed`.

Both forms: every variable and buffer is defined where it is used, and not twice inside its own scope; both sides of an
operation have one dtype, conditions are bools, indices are integers, one for each dimension; stores and lets keep the
dtype; calls name a known intrinsic with the right number of arguments. Form `blocks` in addition: block iterators are
bound, one value each, of their dtype; a block with iterators does not look at loops outside of it; its accesses are among
its declared reads and writes. Form `flat` in addition: no blocks, no buffer_map, memory of one dimension, loops serial or
parallel only.

    TW0510 variable not defined          TW0511 variable defined twice       TW0512 dtypes differ
    TW0513 buffer not declared           TW0514 number or type of indices    TW0515 condition is no bool
    TW0516 loop                          TW0517 block                        TW0518 call
    TW0519 not allowed in this form
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NoReturn

from tilewright.arith import expr as ex
from tilewright.arith.expr import PrimExpr, Var
from tilewright.ir import dtype as dt
from tilewright.ir.module import IRModule, attrs_of
from tilewright.ir.node import Node
from tilewright.ir.op import GlobalVar, Op
from tilewright.ir.rewrite import free_vars
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as t
from tilewright.tir.intrin import INTRINSICS, result_dtype

__all__ = ["verify_blocks", "verify_flat", "verify_module_blocks", "verify_module_flat", "verify_well_formed"]


def verify_well_formed(obj: t.PrimFunc | IRModule, assert_mode: bool = True) -> bool:
    """Is the function (or every PrimFunc of the module) well formed, in whichever form it is?

    With `assert_mode`, CompileError says what is wrong; without, the result is False.
    """
    funcs = obj.functions.values() if isinstance(obj, IRModule) else [obj]
    try:
        for f in funcs:
            if isinstance(f, t.PrimFunc):
                _Verifier(f, "any").run()
    except CompileError:
        if assert_mode:
            raise
        return False
    return True


def verify_blocks(f: t.PrimFunc) -> None:
    """Raise CompileError unless `f` is well formed, in form `blocks`."""
    _Verifier(f, "blocks").run()


def verify_flat(f: t.PrimFunc) -> None:
    """Raise CompileError unless `f` is well formed, in form `flat`."""
    _Verifier(f, "flat").run()


def verify_module_blocks(mod: IRModule) -> None:
    """`verify_blocks` of every PrimFunc."""
    for f in mod.functions.values():
        if isinstance(f, t.PrimFunc):
            verify_blocks(f)


def verify_module_flat(mod: IRModule) -> None:
    """`verify_flat` of every PrimFunc."""
    for f in mod.functions.values():
        if isinstance(f, t.PrimFunc):
            verify_flat(f)


def _brief(n: Any) -> str:
    """A node as text, cut to what fits into a message."""
    lines = [line for line in repr(n).splitlines() if line.strip() and not line.startswith(("#", "from "))]
    text = " ".join(line.strip() for line in lines[:3])
    return text[:200] + (" ..." if len(text) > 200 or len(lines) > 3 else "")


class _Verifier:
    def __init__(self, f: t.PrimFunc, form: str) -> None:
        self.f = f
        self.form = form
        self.vars: set[Var] = set()
        self.hidden: set[Var] = set()  # loop variables outside of the block that we are in
        self.loops: list[Var] = []
        self.buffers: set[t.Buffer] = set()
        self.at: list[Node] = []
        self.covers: list[tuple[t.Block, set[t.Buffer], set[t.Buffer]]] = []

    def fail(self, code: str, what: str, hint: str | None = None) -> NoReturn:
        name = attrs_of(self.f).get("global_symbol", "the function")
        where = next((n for n in reversed(self.at) if isinstance(n, t.Stmt)), None)
        place = f" in `{_brief(where)}`" if where is not None else ""
        span = next((n.span for n in reversed(self.at) if n.span is not None), None)
        raise CompileError.at(code, f"{name}: {what}{place}", span, hint=hint)

    # ---- scopes ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def defining(self, *variables: Var) -> Any:
        """The variables are defined in the body of the `with`."""
        for v in variables:
            if v in self.vars:
                self.fail("TW0511", f"variable {v.name} is defined again inside of its own scope", "use a new variable")
            self.vars.add(v)
        yield
        self.vars.difference_update(variables)

    @contextmanager
    def declaring(self, *buffers: t.Buffer, memory: bool) -> Any:
        """The buffers are declared in the body of the `with`; with `memory`, their pointers are defined there too."""
        for b in buffers:
            if b in self.buffers:
                self.fail("TW0511", f"buffer {b.name} is declared again inside of its own scope")
            self.shape(b)
        data = [b.data for b in buffers if memory and b.data not in self.vars]
        self.vars.update(data)
        self.buffers.update(buffers)
        yield
        self.buffers.difference_update(buffers)
        self.vars.difference_update(data)

    def shape(self, b: t.Buffer) -> None:
        for e in (*b.shape, *b.strides, *([b.elem_offset] if b.elem_offset is not None else [])):
            self.expr(e)
            if not dt.is_int(e.dtype):
                self.fail("TW0514", f"buffer {b.name} has a dimension of dtype {e.dtype}, not an integer")

    # ---- functions and statements ----------------------------------------------------------------------------------------

    def run(self) -> None:
        f = self.f
        if self.form == "flat" and f.buffer_map:
            self.fail("TW0519", "the flat form has no buffer_map: parameters are pointers and scalars")
        params = list(f.params)
        if len(set(params)) != len(params):
            self.fail("TW0511", "a parameter is listed twice")
        self.vars.update(params)
        for p in f.buffer_map:
            if p not in self.vars:
                self.fail("TW0510", f"buffer_map binds {p.name}, which is no parameter")
        for b in f.buffer_map.values():
            self.vars.add(b.data)
            self.vars.update(v for e in (*b.shape, *b.strides) for v in free_vars(e))
            if b.elem_offset is not None:
                self.vars.update(free_vars(b.elem_offset))
            self.buffers.add(b)
        for b in f.buffer_map.values():
            self.shape(b)
        self.stmt(f.body)

    def stmt(self, s: t.Stmt) -> None:
        method: Callable[[Any], None] | None = getattr(self, "s_" + type(s).__name__, None)
        if method is None:
            self.fail("TW0519", f"{type(s).__name__} is no statement of the loop IR")
        self.at.append(s)
        method(s)
        self.at.pop()

    def not_flat(self, what: str) -> None:
        if self.form == "flat":
            self.fail("TW0519", f"the flat form has no {what}")

    def condition(self, e: PrimExpr) -> None:
        self.expr(e)
        if not dt.is_bool(e.dtype) or dt.lanes(e.dtype) != 1:
            self.fail("TW0515", f"the condition {_brief(e)} is of dtype {e.dtype}, not bool")

    def s_SeqStmt(self, s: t.SeqStmt) -> None:
        for x in s.seq:
            self.stmt(x)

    def s_Evaluate(self, s: t.Evaluate) -> None:
        self.expr(s.value)

    def s_BufferStore(self, s: t.BufferStore) -> None:
        self.expr(s.value)
        want = self.access(s.buffer, s.indices, store=True)
        if s.value.dtype != want:
            self.fail("TW0512", f"a store of {s.value.dtype} where {s.buffer.name} holds {want}", "cast the value")

    def s_LetStmt(self, s: t.LetStmt) -> None:
        self.expr(s.value)
        if s.var.dtype != s.value.dtype:
            self.fail("TW0512", f"{s.var.name} is {s.var.dtype}, its value {s.value.dtype}")
        with self.defining(s.var):
            self.stmt(s.body)

    def s_AttrStmt(self, s: t.AttrStmt) -> None:
        self.expr(s.value)
        if isinstance(s.node, t.IterVar) and s.node.var not in self.vars:
            with self.defining(s.node.var):
                self.stmt(s.body)
        else:
            self.stmt(s.body)

    def s_AssertStmt(self, s: t.AssertStmt) -> None:
        self.condition(s.condition)
        self.stmt(s.body)

    def s_IfThenElse(self, s: t.IfThenElse) -> None:
        self.condition(s.condition)
        self.stmt(s.then_case)
        if s.else_case is not None:
            self.stmt(s.else_case)

    def s_While(self, s: t.While) -> None:
        self.condition(s.condition)
        self.stmt(s.body)

    def s_For(self, s: t.For) -> None:
        v = s.loop_var
        self.expr(s.min)
        self.expr(s.extent)
        if not dt.is_int(v.dtype) or not (v.dtype == s.min.dtype == s.extent.dtype):
            kinds = f"{v.dtype}, {s.min.dtype}, {s.extent.dtype}"
            self.fail("TW0516", f"loop {v.name}, its start and its extent must be of one integer dtype, not {kinds}")
        if self.form == "flat" and s.kind not in (t.ForKind.SERIAL, t.ForKind.PARALLEL):
            self.fail("TW0519", f"the flat form has no {t.ForKind(s.kind).name.lower()} loop ({v.name})")
        if s.kind == t.ForKind.THREAD_BINDING and s.thread_binding is None:
            self.fail("TW0516", f"loop {v.name} is bound to a thread, but does not say to which")
        self.loops.append(v)
        with self.defining(v):
            self.stmt(s.body)
        self.loops.pop()

    def s_Allocate(self, s: t.Allocate) -> None:
        for e in s.extents:
            self.expr(e)
        self.condition(s.condition)
        with self.defining(s.buffer_var):
            self.stmt(s.body)

    def s_AllocateConst(self, s: t.AllocateConst) -> None:
        with self.defining(s.buffer_var):
            self.stmt(s.body)

    def s_DeclBuffer(self, s: t.DeclBuffer) -> None:
        if s.buffer.data not in self.vars and self.form == "flat":
            self.fail("TW0510", f"buffer {s.buffer.name} is declared over memory that nothing defines")
        with self.declaring(s.buffer, memory=True):
            self.stmt(s.body)

    def s_BufferRealize(self, s: t.BufferRealize) -> None:
        self.not_flat("BufferRealize")
        with self.declaring(s.buffer, memory=True):
            self.stmt(s.body)

    def s_BlockRealize(self, s: t.BlockRealize) -> None:
        self.not_flat(f"block ({s.block.name_hint})")
        b = s.block
        if len(s.iter_values) != len(b.iter_vars):
            self.fail(
                "TW0517", f"block {b.name_hint} has {len(b.iter_vars)} iterators, but {len(s.iter_values)} values"
            )
        for iv, value in zip(b.iter_vars, s.iter_values, strict=True):
            self.expr(value)
            if value.dtype != iv.var.dtype:
                self.fail("TW0512", f"block {b.name_hint}: {iv.var.name} is {iv.var.dtype}, its value {value.dtype}")
        self.condition(s.predicate)
        self.stmt(b)

    def s_Block(self, b: t.Block) -> None:
        self.not_flat(f"block ({b.name_hint})")
        for iv in b.iter_vars:
            if iv.dom is None:
                self.fail("TW0517", f"block {b.name_hint}: iterator {iv.var.name} has no domain")
            self.expr(iv.dom.min)
            self.expr(iv.dom.extent)
            if not iv.dom.min.dtype == iv.dom.extent.dtype == iv.var.dtype:
                self.fail("TW0512", f"block {b.name_hint}: {iv.var.name} and its domain have different dtypes")
        hidden, loops = self.hidden, self.loops
        if b.iter_vars:
            self.hidden, self.loops = hidden | set(loops), []
        with self.defining(*(iv.var for iv in b.iter_vars)), self.declaring(*b.alloc_buffers, memory=True):
            self.regions(b)
            views = [m.buffer for m in b.match_buffers]
            sizes = {v for m in views for e in (*m.shape, *m.strides) for v in free_vars(e)}
            sizes |= {v for m in views if m.elem_offset is not None for v in free_vars(m.elem_offset)}
            with self.defining(*(v for v in sizes if v not in self.vars)), self.declaring(*views, memory=True):
                self.body(b)
        self.hidden, self.loops = hidden, loops

    def regions(self, b: t.Block) -> None:
        for r in (*b.reads, *b.writes, *(m.source for m in b.match_buffers)):
            if r.buffer not in self.buffers:
                self.fail("TW0513", f"block {b.name_hint} names buffer {r.buffer.name}, which is not declared here")
            if len(r.region) != r.buffer.ndim:
                dims = f"{len(r.region)} ranges for the {r.buffer.ndim} dimensions of {r.buffer.name}"
                self.fail("TW0514", f"block {b.name_hint} has a region of {dims}")
            for d in r.region:
                self.expr(d.min, inside_region=True)
                self.expr(d.extent, inside_region=True)

    def body(self, b: t.Block) -> None:
        checks = bool(b.iter_vars) and bool(b.reads or b.writes)
        if checks:
            own = {*b.alloc_buffers, *(m.buffer for m in b.match_buffers)}
            writes = {r.buffer for r in b.writes} | own
            self.covers.append((b, {r.buffer for r in b.reads} | writes, writes))
        if b.init is not None:
            self.stmt(b.init)
        self.stmt(b.body)
        if checks:
            self.covers.pop()

    # ---- expressions -----------------------------------------------------------------------------------------------------

    def access(self, b: t.Buffer, indices: tuple[PrimExpr, ...], store: bool, inside_region: bool = False) -> str:
        """Check an access; gives the dtype it has."""
        if b not in self.buffers:
            if self.form == "blocks" or (b.data not in self.vars):
                self.fail("TW0513", f"buffer {b.name} is not declared where it is used")
        if len(indices) != b.ndim:
            self.fail("TW0514", f"{b.name} has {b.ndim} dimensions, but is used with {len(indices)} indices")
        if self.form == "flat" and b.ndim != 1:
            self.fail("TW0519", f"buffer {b.name} has {b.ndim} dimensions, in the flat form memory has one")
        for d, i in enumerate(indices):
            self.expr(i, inside_region=inside_region)
            if not dt.is_int(i.dtype):
                self.fail("TW0514", f"index {d} of {b.name} is {i.dtype}, not an integer")
            if dt.lanes(i.dtype) > 1 and d != len(indices) - 1:
                self.fail("TW0514", f"index {d} of {b.name} is a vector; only the last one may be")
        if self.covers and not inside_region:
            block, reads, writes = self.covers[-1]
            if b not in (writes if store else reads):
                kind = "writes" if store else "reads"
                self.fail(
                    "TW0517", f"block {block.name_hint} {kind[:-1]}s {b.name}, which is not among its declared {kind}"
                )
        return t.load_dtype(b.dtype, indices)

    def expr(self, e: Any, inside_region: bool = False) -> None:
        """Check an expression. `inside_region`: loads in it are no accesses of the block."""
        kind = type(e)
        if kind is ex.IntImm or kind is ex.FloatImm or kind is ex.StringImm:
            return
        if isinstance(e, Var):
            if e not in self.vars:
                self.fail("TW0510", f"variable {e.name} is used, but nothing defines it here")
            if e in self.hidden:
                self.fail("TW0517", f"loop variable {e.name} is used inside of a block; only its iterators may be",
                          "bind an iterator of the block to the loop variable")  # fmt: skip
            return
        if isinstance(e, t.BufferLoad):
            self.access(e.buffer, e.indices, store=False, inside_region=inside_region)
        elif isinstance(e, ex.Call):
            self.call(e, inside_region)
        elif isinstance(e, ex.Let):
            self.expr(e.value, inside_region)
            self.same(e, e.var.dtype, e.value.dtype)
            with self.defining(e.var):
                self.expr(e.body, inside_region)
        else:
            self.operation(e, inside_region)

    def same(self, e: PrimExpr, a: str, b: str) -> None:
        if a != b:
            self.fail("TW0512", f"the sides of {_brief(e)} are {a} and {b}")

    def operation(self, e: Any, inside_region: bool) -> None:
        for f in e.node_fields:
            v = getattr(e, f.name)
            for x in v if isinstance(v, tuple) else (v,):
                if isinstance(x, PrimExpr):
                    self.expr(x, inside_region)
        if isinstance(e, (ex.BinaryOp, ex.CmpOp)):
            self.same(e, e.a.dtype, e.b.dtype)
            if isinstance(e, (ex.And, ex.Or)) and not dt.is_bool(e.a.dtype):
                self.fail("TW0515", f"{_brief(e)} needs bools, got {e.a.dtype}")
        elif isinstance(e, ex.Not):
            if not dt.is_bool(e.a.dtype):
                self.fail("TW0515", f"{_brief(e)} needs a bool, got {e.a.dtype}")
        elif isinstance(e, ex.Select):
            self.same(e, e.true_value.dtype, e.false_value.dtype)
            if not dt.is_bool(e.condition.dtype):
                self.fail("TW0515", f"the condition of {_brief(e)} is {e.condition.dtype}, not bool")
        elif isinstance(e, ex.Ramp):
            self.same(e, dt.element(e.base.dtype), dt.element(e.stride.dtype))
        elif isinstance(e, ex.Cast):
            if dt.lanes(e.dtype) != dt.lanes(e.value.dtype):
                self.fail("TW0512", f"{_brief(e)} changes the number of lanes")
        elif isinstance(e, (t.ProducerLoad, t.Reduce)) or not isinstance(e, (ex.Broadcast, ex.Shuffle)):
            self.fail("TW0519", f"{type(e).__name__} is no expression of the loop IR")

    def call(self, e: ex.Call, inside_region: bool) -> None:
        name = getattr(e.op, "name", "")
        addresses = name in ("tir.address_of", "tir.prefetch")
        for a in e.args:
            if addresses and isinstance(a, t.BufferLoad):
                self.address(a)
            elif isinstance(a, PrimExpr):
                self.expr(a, inside_region)
            elif isinstance(a, t.Buffer) and a not in self.buffers:
                self.fail("TW0513", f"buffer {a.name} is not declared where it is used")
        if isinstance(e.op, GlobalVar):
            return
        row = INTRINSICS.get(name) if isinstance(e.op, Op) else None
        if row is None:
            self.fail("TW0518", f"{name or e.op} is no known intrinsic", "the table of tir/intrin.py has them all")
        if row.arity is not None and row.arity != len(e.args):
            self.fail("TW0518", f"{name} takes {row.arity} arguments, got {len(e.args)}")
        want = result_dtype(name, e.args) if e.args or row.rule not in ("first", "last", "bool", "lane") else None
        if want is not None and want != e.dtype:
            self.fail("TW0518", f"{name} gives {want} here, but the call says {e.dtype}")

    def address(self, load: t.BufferLoad) -> None:
        """The element that `address_of` names: it is not read, and may be one past the end."""
        covers, self.covers = self.covers, []
        self.access(load.buffer, load.indices, store=False)
        self.covers = covers
