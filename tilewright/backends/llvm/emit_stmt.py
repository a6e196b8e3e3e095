"""Statements as LLVM text: loops, branches, memory, errors, and parallel loops outlined into functions.

Every function returns an i32 status. What can fail (a direct call, an allocation, an assertion) jumps to a block of the
innermost scope that owns heap memory; that block frees it and jumps on outwards, until -1 is returned.

Loops are written bottom-tested with a 64-bit counter, so that the address arithmetic needs no sign extension, and no pass
has to rotate them. A parallel loop becomes three pieces: a closure on the stack, `<f>_par<i>` that unpacks it, and
`<f>_par<i>_body`, whose pointer parameters are `noalias` again where the outer function's were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.arith import expr as E
from tilewright.backends.llvm.emit_core import ModuleWriter, element_bytes, llvm_type, memory_type, symbol, unsupported
from tilewright.backends.llvm.emit_expr import ExprWriter, is_natural
from tilewright.ir import dtype as dt
from tilewright.ir.op import GlobalVar
from tilewright.tir import ir as T

__all__ = ["StmtWriter"]

_STACK_LIMIT = 16 * 1024
_LOCAL_LIMIT = 256 * 1024
_WORTH_VECTORISING = 8
_NO_TRANSFORM = ", !llvm.loop "


class StmtWriter(ExprWriter):
    """Writes statements into a function named `name`. `signatures`: types of params of the module's functions."""

    def __init__(self, mod: ModuleWriter, name: str, signatures: dict[str, list[str]]) -> None:
        super().__init__(mod)
        self.name = self.where = self.root = name
        self.signatures = signatures
        self.fail = "fail"
        self.fail_used = False
        self.cleanups: list[str] = []
        self.live: list[str] = []
        self.parallel = 0
        self.in_parallel = False
        self.raw: set[E.Var] = set()

    def stmt(self, s: Any) -> None:
        """Write a statement. Handlers give back a body that is left to write, so that long chains do not nest."""
        while s is not None:
            handler = _STMT.get(type(s))
            if handler is None:
                raise unsupported(
                    "TW0602",
                    f"the LLVM emitter cannot write {type(s).__name__} (in {self.where})",
                    "functions must be in flat form: run lower_kernel first",
                )
            s = handler(self, s)

    def finish(self, header: str) -> str:
        """The text of the function: `header` is its `define` line without the brace."""
        self.do("ret i32 0")
        tail = list(self.cleanups)
        if self.fail_used:
            tail += ["fail:", "  ret i32 -1"]
        return "\n".join([f"{header} {{", "entry:", *self.entry, *self.out, *tail, "}"])

    # ---- failing

    def fail_target(self) -> str:
        """Where to jump when something failed."""
        self.fail_used = True
        return self.fail

    def check_status(self, status: str) -> None:
        """Leave the function unless `status` is zero."""
        ok = self.label("ok")
        bad = self.op(f"icmp ne i32 {status}, 0")
        self.branch_if(bad, self.fail_target(), ok, ", !prof !1")
        self.start(ok)

    def raise_text(self, kind: str, message: str) -> None:
        """Set the error and leave the function; the block ends here."""
        f = self.mod.declare("TVMFFIErrorSetRaisedFromCStr", "void (ptr, ptr)")
        self.do(f"call void {f}(ptr {self.mod.string(kind)}, ptr {self.mod.string(message)})")
        self.branch(self.fail_target())

    # ---- calls of functions of the module

    def call_function(self, callee: GlobalVar, e: E.Call) -> str:
        """A direct call; its status is checked."""
        name = callee.name_hint
        args = [self.expr(a) for a in e.args]
        types = [llvm_type(a.dtype) for a in e.args]
        want = self.signatures.get(name)
        if want is not None and want != types:
            raise unsupported(
                "TW0606", f"{self.where} calls {name} with ({', '.join(types)}), but it takes ({', '.join(want)})"
            )
        if want is None:
            self.mod.declare(name, f"i32 ({', '.join(types)})")
        given = ", ".join(f"{t} {a}" for t, a in zip(types, args, strict=True))
        status = self.inst(f"call i32 {symbol(name)}({given})")
        self.clobber(None)
        self.check_status(status)
        return status

    # ---- loops

    def loop(self, var: E.Var, start: str, end: str, guard: bool, body: Callable[[], None]) -> None:
        """`for var in [start, end)` over i64 operands; `guard`: it may run zero times."""
        head, done = self.label("loop"), self.label("done")
        before = self.block
        if guard:
            before = self.label("enter")
            some = self.op(f"icmp slt i64 {start}, {end}")
            self.branch_if(some, before, done)
            self.start(before)
        self.branch(head)
        self.start(head)
        counter = f"%i{self.n}"
        after = f"%n{self.n}"
        self.n += 1
        hole = len(self.out)
        self.out.append("")
        mark = self.push()
        self.wide[var] = counter
        if var.dtype == "int64":
            self.env[var] = counter
        vectors = self.vector_accesses
        body()
        self.pop(mark)
        self.out[hole] = f"  {counter} = phi i64 [ {start}, %{before} ], [ {after}, %{self.block} ]"
        # `nuw` only from a start known not to be negative
        unsigned = " nuw" if start.isdigit() else ""
        self.do(f"{after} = add{unsigned} nsw i64 {counter}, 1")
        more = self.inst(f"icmp slt i64 {after}, {end}")
        # Scalar loops are LLVM's to vectorise and unroll; code that a schedule has vectorised stays as it is.
        plain = vectors == self.vector_accesses
        if plain and (end[0] == "%" or int(end) >= _WORTH_VECTORISING):
            self.mod.plain = True
        self.branch_if(more, head, done, "" if plain else _NO_TRANSFORM + "!0")
        self.start(done)
        self.wide.pop(var, None)
        self.env.pop(var, None)

    def serial(self, s: T.For) -> None:
        """A serial loop; of one iteration: its body."""
        low, extent = s.min, s.extent
        if type(extent) is E.IntImm and extent.value <= 0:
            return
        if is_natural(self, low):
            self.natural.add(s.loop_var)
        start = self.scalar64(low)
        if type(extent) is E.IntImm and extent.value == 1:
            self.wide[s.loop_var] = start
            if s.loop_var.dtype == "int64":
                self.env[s.loop_var] = start
            self.stmt(s.body)
            return
        name, c = self.index(extent)
        if type(low) is E.IntImm:
            end = self.add64c(name, c + low.value)
        else:
            end = self.add64c(self.add64(name, "" if start == "0" else start), c)
        self.loop(s.loop_var, start, end, type(extent) is not E.IntImm, lambda: self.stmt(s.body))

    # ---- memory

    def allocate(self, s: T.Allocate) -> T.Stmt | None:
        """Stack memory where it is small, else from the runtime."""
        size, scope = 1, getattr(s.buffer_var.type_annotation, "storage_scope", "global")
        constant = all(type(x) is E.IntImm for x in s.extents)
        unit = element_bytes(s.dtype) * dt.lanes(s.dtype)
        self.distinct.add(s.buffer_var)
        if constant:
            for x in s.extents:
                size *= x.value  # pyright: ignore[reportAttributeAccessIssue]
            if size * unit <= (_LOCAL_LIMIT if scope == "local" else _STACK_LIMIT):
                self.env[s.buffer_var] = self.alloca(f"[{max(size, 1)} x {memory_type(s.dtype)}], align 64")
                return s.body
        count = self.scalar64(s.extents[0]) if s.extents else "1"
        for x in s.extents[1:]:
            count = self.op(f"mul i64 {count}, {self.scalar64(x)}")
        if unit != 1:
            count = str(int(count) * unit) if count[0] != "%" else self.op(f"mul i64 {count}, {unit}")
        self._heap(s, count)
        return None

    def _heap(self, s: T.Allocate, size: str) -> None:
        pointer = self.inst(f"call noalias ptr {self.mod.declare('tw_alloc', 'noalias ptr (i64)')}(i64 {size})")
        got, none = self.label("got"), self.label("nomem")
        outer = self.fail_target()
        self.branch_if(self.op(f"icmp eq ptr {pointer}, null"), none, got, ", !prof !1")
        self.start(none)
        self.raise_text("MemoryError", f"{self.name}: no memory for the workspace {s.buffer_var.name}")
        self.start(got)
        release = f"call void {self.mod.declare('tw_free', 'void (ptr)')}(ptr {pointer})"
        self.fail = self.label("release")
        here = self.fail
        self.env[s.buffer_var] = pointer
        self.live.append(release)
        mark = self.push()
        self.stmt(s.body)
        self.pop(mark)
        self.live.pop()
        self.do(release)
        # Innermost first: a cleanup block jumps to the next one outwards.
        self.cleanups += [f"{here}:", f"  {release}", f"  br label %{outer}"]
        self.fail = outer

    def constant(self, s: T.AllocateConst) -> T.Stmt:
        """Constant memory is an external symbol that the linker binds."""
        name = f"{self.root}_const_{self.mod.counter(self.root)}"
        self.mod.constants.append((name, s.data))
        self.mod.globals.append(f"{symbol(name)} = external constant i8")
        self.env[s.buffer_var] = symbol(name)
        self.distinct.add(s.buffer_var)
        return s.body

    # ---- leaving

    def leave(self, value: str) -> None:
        """Return `value` from the middle: free what is alive; what follows is dead code."""
        for release in reversed(self.live):
            self.do(release)
        self.do(f"ret i32 {value}")
        self.start(self.label("dead"))


def _seq(w: StmtWriter, s: T.SeqStmt) -> T.Stmt | None:
    for child in s.seq[:-1]:
        w.stmt(child)
    return s.seq[-1] if s.seq else None


def _store(w: StmtWriter, s: T.BufferStore) -> None:
    if len(s.indices) != 1:
        raise unsupported("TW0604", f"a store to {s.buffer.name!r} in {w.where} has {len(s.indices)} indices, not one")
    w.store_buffer(s.buffer, s.indices[0], s.value)


def _for(w: StmtWriter, s: T.For) -> None:
    if s.kind == T.ForKind.PARALLEL and not w.in_parallel:
        if not (type(s.extent) is E.IntImm and s.extent.value <= 1):
            from tilewright.backends.llvm.emit_parallel import parallel_loop

            parallel_loop(w, s)
            return
    elif s.kind not in (T.ForKind.SERIAL, T.ForKind.PARALLEL):
        raise unsupported(
            "TW0607",
            f"loop {s.loop_var.name!r} in {w.where} is {s.kind.name.lower()}: it must be lowered before emission",
        )
    w.serial(s)


def _while(w: StmtWriter, s: T.While) -> None:
    head, body, done = w.label("while"), w.label("do"), w.label("done")
    w.branch(head)
    w.start(head)
    mark = w.push()
    w.branch_if(w.expr(s.condition), body, done)
    w.start(body)
    w.stmt(s.body)
    w.branch(head)
    w.pop(mark)
    w.start(done)


def _if(w: StmtWriter, s: T.IfThenElse) -> None:
    condition = w.expr(s.condition)
    if dt.lanes(s.condition.dtype) != 1:
        _masked(w, s, condition)
        return
    if condition in ("true", "false"):
        chosen = s.then_case if condition == "true" else s.else_case
        if chosen is not None:
            w.stmt(chosen)
        return
    then, other, done = w.label("then"), w.label("else"), w.label("end")
    w.branch_if(condition, then, other if s.else_case is not None else done)
    w.start(then)
    mark = w.push()
    w.stmt(s.then_case)
    w.pop(mark)
    w.branch(done)
    if s.else_case is not None:
        w.start(other)
        mark = w.push()
        w.stmt(s.else_case)
        w.pop(mark)
        w.branch(done)
    w.start(done)


def _masked(w: StmtWriter, s: T.IfThenElse, condition: str) -> None:
    """A vector condition: the stores inside write only the lanes where it holds, and loads read only those."""
    outer, ty = w.mask, llvm_type(s.condition.dtype)
    if s.else_case is not None:
        raise unsupported(
            "TW0602", f"a branch on a vector condition in {w.where} has an else part", "write it as a second branch"
        )
    w.mask = f"{ty} {condition}" if outer is None else f"{ty} {w.op(f'and {outer}, {condition}')}"
    for child in s.then_case.seq if isinstance(s.then_case, T.SeqStmt) else (s.then_case,):
        if not isinstance(child, T.BufferStore) or dt.lanes(child.indices[0].dtype) != dt.lanes(s.condition.dtype):
            raise unsupported("TW0602", f"a branch on a vector condition in {w.where} may only hold vector stores")
        w.store_buffer(child.buffer, child.indices[0], child.value, w.mask)
    w.mask = outer


def _let(w: StmtWriter, s: T.LetStmt) -> T.Stmt:
    if s.var.dtype == "handle":
        # A pointer of unknown origin: nothing is known to be apart from it any more.
        w.distinct.clear()
        w.clobber(None)
        w.raw.add(s.var)
    w.env[s.var] = w.expr(s.value)
    if s.var.dtype != "handle" and is_natural(w, s.value):
        w.natural.add(s.var)
    return s.body


def _assert(w: StmtWriter, s: T.AssertStmt) -> T.Stmt:
    condition = w.expr(s.condition)
    if condition != "true":
        good, bad = w.label("ok"), w.label("bad")
        w.branch_if(condition, good, bad, ", !prof !2")
        w.start(bad)
        text = s.message.value if isinstance(s.message, E.StringImm) else "the condition of an assertion does not hold"
        kind, colon, rest = text.partition(": ")
        if colon and kind.isidentifier() and kind.endswith("Error"):
            w.raise_text(kind, rest)
        else:
            w.raise_text("AssertionError", text)
        w.start(good)
    return s.body


def _body(w: StmtWriter, s: Any) -> T.Stmt:
    return s.body


def _evaluate(w: StmtWriter, s: T.Evaluate) -> None:
    if type(s.value) is not E.IntImm:
        w.expr(s.value)


_STMT: dict[type, Callable[[Any, Any], T.Stmt | None]] = {
    T.SeqStmt: _seq, T.BufferStore: _store, T.For: _for, T.While: _while, T.IfThenElse: _if, T.LetStmt: _let,
    T.AssertStmt: _assert, T.AttrStmt: _body, T.DeclBuffer: _body, T.Evaluate: _evaluate,
    T.Allocate: lambda w, s: w.allocate(s), T.AllocateConst: lambda w, s: w.constant(s),
}  # fmt: skip
