"""What is being built: the open suites, blocks and function, and what each command and frame of script does to them.

The parser and `IRBuilder` are both a BuildState. Errors raised here have no place; the parser gives them that of the
statement.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NoReturn

from tilewright.arith import expr as E
from tilewright.ir import dtype as dt
from tilewright.ir.node import replace
from tilewright.script import commands as C
from tilewright.script.evaluate import as_operand
from tilewright.script.suite import BlockState, FunctionState, Suite, at, merge_annotations
from tilewright.support.diagnostics import CompileError
from tilewright.tir import ir as tir

__all__ = ["BuildState"]


def _refuse(code: str, message: str, hint: str | None = None) -> NoReturn:
    raise CompileError.at(code, message, hint=hint)


class BuildState:
    """Open suites, blocks and function of one program being built."""

    def __init__(self) -> None:
        self.blocks: list[BlockState] = []
        self.function: FunctionState | None = None
        self.loops: dict[E.Var, tuple[Any, Any]] = {}
        self.bound: set[E.Var] = set()
        self.suite = Suite()
        self.outer: list[Suite] = []
        self.branches: list[C.IfFrame] = []
        self.detects = True  # regions that a block leaves out are found when it closes

    def emit(self, stmt: tir.Stmt, n: ast.AST | None = None) -> None:
        """Append a statement (made by the syntax node `n`, if any)."""
        del n
        self.suite.stmts.append(stmt)

    def act(self, record: Any) -> Any:
        """Do what a record says, and give what it stands for."""
        if isinstance(record, tir.Stmt):
            return self.emit(record)
        if isinstance(record, list):
            return [self.act(r) for r in record]  # pyright: ignore[reportUnknownVariableType]
        action = _ACTIONS.get(type(record))
        return record if action is None else action(self, record)

    # ---- commands

    def add_axis(self, command: C.AxisCommand, name: str = "") -> E.Var:
        """One more axis of the block."""
        if not self.blocks:
            _refuse("TW0108", "an axis belongs to a block: put it in `with T.block(...)`")
        block = self.blocks[-1]
        binding = None if command.binding is None else E.convert(as_operand(command.binding))
        if binding is None and not block.no_realize:
            _refuse("TW0108", f"an axis of block {block.name!r} is bound to nothing", "say to what: T.axis.S(16, i)")
        if command.domain is None:
            if not isinstance(binding, E.Var) or binding not in self.loops:
                _refuse("TW0108", "remap binds loop variables only; use T.axis.spatial(extent, value)")
            dom = tir.Range(*self.loops[binding])
        else:
            dom = C.range_of(command.domain)
        v = E.Var(name=name, dtype=dom.extent.dtype)
        for what, e in (("the domain", dom.extent), ("the binding", binding)):
            if e is not None and not (dt.is_int(e.dtype) and dt.lanes(e.dtype) == 1):
                _refuse("TW0108", f"{what} of an axis is an integer, not {e.dtype}")
        if name and any(x.var.name == name for x in block.iter_vars):
            _refuse("TW0118", f"the block has an axis {name!r} already", "give every axis of a block its own name")
        if isinstance(binding, E.IntImm) and binding.dtype != v.dtype:
            binding = E.cast(binding, v.dtype)
        block.iter_vars.append(tir.IterVar(dom, v, command.iter_type))
        block.iter_values.append(binding)
        self.bound.add(v)
        return v

    def add_buffer(self, command: C.AllocBuffer, name: str = "") -> tir.Buffer:
        """A buffer of the innermost block, or of the function."""
        b = C.name_buffer(command.buffer, name) if name else command.buffer
        if self.blocks:
            self.blocks[-1].alloc_buffers.append(b)
        elif self.function is not None:
            self.function.root_allocs.append(b)
        else:
            _refuse("TW0108", "alloc_buffer belongs in a function or a block")
        return b

    def add_match(self, command: C.MatchBuffer, name: str = "") -> tir.Buffer:
        """Bind a parameter to a buffer, or make a view of a region."""
        b = C.name_buffer(command.buffer, name) if name else command.buffer
        source = command.source
        if isinstance(source, E.Var):
            f = self.function
            if f is None or source not in f.params:
                _refuse("TW0108", f"match_buffer needs a parameter of the function, {source.name!r} is none")
            if source.dtype != "handle":
                _refuse("TW0108", f"match_buffer needs a T.handle, {source.name!r} is a {source.dtype}")
            if source in f.buffer_map:
                _refuse("TW0118", f"parameter {source.name!r} is a buffer already")
            f.buffer_map[source] = b
            return b
        if not self.blocks:
            _refuse("TW0108", "match_buffer of a region belongs in a block")
        (region,) = C.regions([source])
        self.blocks[-1].match_buffers.append(tir.MatchBufferRegion(b, region))
        return b

    def block_command(self, value: Any) -> None:
        """`T.reads`, `T.writes`, `T.where`, `T.block_attr`."""
        what = _COMMANDS[type(value)]
        if not self.blocks:
            _refuse("TW0108", f"T.{what} belongs in a block")
        b = self.blocks[-1]
        said = {C.Reads: b.reads, C.Writes: b.writes, C.Predicate: b.predicate}.get(type(value))
        if said is not None:
            _refuse("TW0118", f"block {b.name!r} has its T.{what} already", f"put all of it into one T.{what}")
        if isinstance(value, C.Reads):
            b.reads = value.regions
        elif isinstance(value, C.Writes):
            b.writes = value.regions
        elif isinstance(value, C.Predicate):
            b.predicate = E.convert(value.condition)
            if not dt.is_bool(b.predicate.dtype):
                b.predicate = E.cast(b.predicate, "bool")
        else:
            merge_annotations(b.annotations, value.annotations, f"block {b.name!r}")

    def func_attr(self, value: C.FuncAttr) -> None:
        """Attributes of the function."""
        if self.function is None:
            _refuse("TW0108", "T.func_attr belongs in a function")
        if self.function.private and "global_symbol" in value.attrs:
            _refuse("TW0118", "a private function has no global_symbol", "leave out private=True, or the attribute")
        merge_annotations(self.function.attrs, value.attrs, f"function {self.function.name!r}")

    # ---- frames

    def push(self) -> None:
        """Begin a suite."""
        self.outer.append(self.suite)
        self.suite = Suite()

    def pop(self) -> tir.Stmt:
        """The statement of the suite begun last."""
        body = self.suite.close()
        self.suite = self.outer.pop()
        return body

    def abandon(self) -> None:
        """Leave a frame whose suite failed."""
        if self.outer:
            self.suite = self.outer.pop()

    def open(self, frame: Any) -> Callable[[], None]:
        """Begin a frame; what is given back ends it."""
        self.push()
        opener = _FRAMES.get(type(frame))
        if opener is None:
            self.abandon()
            _refuse("TW0117", f"{type(frame).__name__} opens no scope")
        return opener(self, frame)

    def _open_frame(self, frame: C.Frame) -> Callable[[], None]:
        if isinstance(frame.value, E.Var):
            self.bound.add(frame.value)
        return lambda: self.emit(frame.wrap(self.pop()))

    def _open_loop(self, loop: C.Loop) -> Callable[[], None]:
        variables = self.loop_variables(loop, [""] * len(loop.dtypes))
        loop.value = variables if loop.what == "T.grid" else variables[0]
        return lambda: self.emit(loop.make(variables, self.pop()))

    def _open_block(self, frame: C.BlockFrame) -> Callable[[], None]:
        self.blocks.append(BlockState(frame.name, frame.no_realize))
        if self.function is not None:
            self.function.has_block = True
        return lambda: self.emit(self.finish_block(self.blocks.pop(), self.pop()))

    def _open_init(self, frame: C.InitFrame) -> Callable[[], None]:
        del frame
        block = self.may_init()

        def close() -> None:
            block.init = self.pop()

        return close

    def _open_if(self, frame: C.IfFrame) -> Callable[[], None]:
        self.branches.append(frame)

        def close() -> None:
            self.branches.pop()
            self.pop()
            self.emit(finish_if(frame))

        return close

    def _open_branch(self, frame: C.BranchFrame) -> Callable[[], None]:
        owner = self.branch_of(frame)

        def close() -> None:
            set_branch(owner, frame, self.pop())

        return close

    def branch_of(self, frame: C.BranchFrame) -> C.IfFrame:
        """The `T.If` that a branch belongs to."""
        what = "T.Then" if frame.is_then else "T.Else"
        if not self.branches:
            _refuse("TW0108", f"{what}() belongs directly in `with T.If(...)`")
        owner = self.branches[-1]
        if (owner.then_case if frame.is_then else owner.else_case) is not None:
            _refuse("TW0118", f"the T.If has its {what} already")
        return owner

    def may_init(self) -> BlockState:
        """The block that `T.init()` belongs to."""
        if not self.blocks:
            _refuse("TW0108", "T.init() belongs in a block")
        if self.blocks[-1].init is not None:
            _refuse("TW0108", "T.init() stands once in a block")
        return self.blocks[-1]

    def loop_variables(self, loop: C.Loop, names: list[str]) -> list[E.Var]:
        """New variables of a loop."""
        made = [E.Var(name=n, dtype=d) for n, d in zip(names, loop.dtypes, strict=True)]
        for v, bounds in zip(made, loop.ranges, strict=True):
            self.loops[v] = bounds
            self.bound.add(v)
        return made

    def finish_block(self, b: BlockState, body: tir.Stmt, span: Any = None) -> tir.Stmt:
        """The block of what was said of it, and its body."""
        block = tir.Block(
            tuple(b.iter_vars), b.reads or (), b.writes or (), b.name, body, b.init,
            tuple(b.alloc_buffers), tuple(b.match_buffers), b.annotations,
        )  # fmt: skip
        at(block, span)
        if b.reads is None or b.writes is None:
            if self.detects:
                block = detect_regions(block, b)
            else:
                mask = (b.reads is None) + 2 * (b.writes is None)
                block = replace(block, annotations={**b.annotations, DETECT: E.IntImm("int64", mask)})
        if b.no_realize:
            return block
        predicate = b.predicate if b.predicate is not None else E.IntImm("bool", 1)
        return tir.BlockRealize(tuple(b.iter_values), predicate, block)


DETECT = "tir.script_parsing_detect_access"
"""The annotation of a block built outside of a function whose regions (1 reads, 2 writes) nobody gave."""


def detect_regions(block: tir.Block, b: BlockState) -> tir.Block:
    """The block with the regions that were left out. Raises TW0108 where they cannot be told."""
    from tilewright.tir.analysis.block_access import block_access_regions

    try:
        reads, writes = block_access_regions(block)
    except ValueError as e:
        _refuse("TW0108", f"the regions of block {b.name!r} cannot be told: {e}", "say them by T.reads and T.writes")
    return replace(
        block, reads=b.reads if b.reads is not None else reads, writes=b.writes if b.writes is not None else writes
    )


def finish_if(frame: C.IfFrame) -> tir.Stmt:
    """The statement of a `T.If` whose branches are closed."""
    if frame.then_case is None:
        _refuse("TW0108", "T.If needs a `with T.Then():`")
    return tir.IfThenElse(frame.condition, frame.then_case, frame.else_case)


def set_branch(owner: C.IfFrame, frame: C.BranchFrame, body: tir.Stmt) -> None:
    """Note the body of a branch."""
    if frame.is_then:
        owner.then_case = body
    else:
        owner.else_case = body


_COMMANDS: dict[type, str] = {C.Reads: "reads", C.Writes: "writes", C.Predicate: "where", C.BlockAttr: "block_attr"}

_ACTIONS: dict[type, Callable[[BuildState, Any], Any]] = {
    C.AxisCommand: BuildState.add_axis,
    C.AllocBuffer: BuildState.add_buffer,
    C.MatchBuffer: BuildState.add_match,
    C.FuncAttr: BuildState.func_attr,
    **dict.fromkeys(_COMMANDS, BuildState.block_command),
}

_FRAMES: dict[type, Callable[[BuildState, Any], Callable[[], None]]] = {
    C.Frame: BuildState._open_frame,
    C.Loop: BuildState._open_loop,
    C.BlockFrame: BuildState._open_block,
    C.InitFrame: BuildState._open_init,
    C.IfFrame: BuildState._open_if,
    C.BranchFrame: BuildState._open_branch,
}
