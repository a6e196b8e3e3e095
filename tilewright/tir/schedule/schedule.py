"""`Schedule`: a program and the steps that rearrange it, under the names of the field.

    sch = tvm.tir.Schedule(mod)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 16])
    sch.reorder(i, j0, k, j1); sch.vectorize(j1)
    sch.mod.show()

Every step keeps the meaning of the program or raises ScheduleError and changes nothing. The primitives are functions in
`primitives/`; they become methods of this class by `@primitive`. Where a block is wanted its name will do.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tilewright.arith.analyzer import simplify
from tilewright.arith.expr import IntImm, PrimExpr, Var
from tilewright.ir.module import IRModule
from tilewright.ir.op import GlobalVar
from tilewright.ir.rewrite import free_vars, substitute
from tilewright.tir.ir import Block, For, PrimFunc
from tilewright.tir.schedule import checks
from tilewright.tir.schedule import primitives as _primitives  # fills the registry
from tilewright.tir.schedule.errors import LEVELS, ScheduleError, UnknownHandleError, fail
from tilewright.tir.schedule.instruction import Instruction, InstructionKind, handles
from tilewright.tir.schedule.registry import PRIMITIVES, Primitive
from tilewright.tir.schedule.resolve import named_buffer, resolve_blocks
from tilewright.tir.schedule.sref import ScheduleState, StmtSRef
from tilewright.tir.schedule.state import BlockRV, LoopRV
from tilewright.tir.schedule.trace import Trace

__all__ = ["Schedule"]

assert _primitives

_UNCOVERED = ("unsafe_hide_buffer_access", "annotate_buffer_access", "cache_index")
"""Steps after which declared regions may fall short on purpose."""


class Schedule:
    """A module under transformation; see the head of the file.

    `mod` is an IRModule or a PrimFunc. `seed` seeds the sampling primitives. `debug_mask` ("all", "verify-srefs",
    "verify-cached-flags", "none" or a number) verifies the program after each step. `error_render_level`: "detail" shows the
    program in errors, "fast" the reason only, "none" the code only. `enable_check=False` takes steps for granted that the
    compiler cannot prove (`disable_predication` and the like are left to primitives). `sch.mod` is the program as it is
    now, `sch.trace` what was done.
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc | Mapping[Any, Any],
        *,
        seed: int | None = None,
        debug_mask: str | int = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
    ) -> None:
        if error_render_level not in LEVELS:
            raise fail("TW0424", f"{error_render_level!r} is no level of errors", choices=LEVELS)
        self._level = error_render_level
        try:
            self._state = ScheduleState(mod, debug_mask=debug_mask, enable_check=enable_check)
        except ScheduleError as error:
            error.level = error_render_level
            raise
        self._trace = Trace()
        self._random = random.Random(None if seed is None or seed < 0 else seed)
        self._removed: set[Any] = set()
        self._well_formed = bool(self._state.debug_mask & 1) and checks.well_formed(self.mod)
        self._exempt = checks.short_regions(self._state) if self._state.debug_mask & 2 else set[str]()

    # ---- looking -------------------------------------------------------------------------------------------------------

    @property
    def mod(self) -> IRModule:
        """The program as it is now."""
        return self._state.mod

    @property
    def state(self) -> ScheduleState:
        """The program with handles of its statements."""
        return self._state

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return self._trace

    @property
    def func_working_on(self) -> GlobalVar | None:
        """The function that `get_block` looks in; None where it is not said."""
        return self.mod.get_global_var(self._state.func_name) if self._state.func_name else None

    def work_on(self, func_name: str) -> None:
        """Let `get_block` look in another function. Raises ScheduleError TW0401 where it is none of the loop IR."""
        self._state.func(func_name)
        self._state.func_name = func_name

    def get(self, rand_var_or_sref: Any) -> Any:
        """The block or loop that a handle stands for now, or the value of a sampled number or of an expression of such.

        Raises ScheduleError TW0402 or TW0403 (an IndexError too) where it stands for nothing.
        """
        rv = rand_var_or_sref
        try:
            if isinstance(rv, StmtSRef):
                return rv.stmt
            self._known(rv)
            if isinstance(rv, BlockRV):
                return self._state.block(rv).block
            if isinstance(rv, LoopRV):
                return self._state.loop(rv)
        except ScheduleError as error:
            error.level = self._level
            raise
        if isinstance(rv, PrimExpr):
            return self._number(rv)
        return rv

    __getitem__ = get

    def _number(self, e: PrimExpr) -> Any:
        values = self._state.values
        missing = [v for v in free_vars(e) if v not in values]
        if missing and isinstance(e, Var):
            raise fail("TW0403", f"{e.name!r} was not sampled in this schedule", kind=UnknownHandleError)
        known = simplify(substitute(e, {v: IntImm(v.dtype, values[v]) for v in free_vars(e) if v in values}))
        return known.value if isinstance(known, IntImm) else known

    def _known(self, rv: Any) -> None:
        if rv in self._removed:
            raise fail("TW0403", f"the handle {rv!r} was removed", kind=UnknownHandleError)

    def get_sref(self, rand_var_or_stmt: Any) -> StmtSRef | None:
        """A handle of a block or loop that stays good as long as it exists: of an RV, or of a statement of the program."""
        if isinstance(rand_var_or_stmt, (BlockRV, LoopRV)):
            self.get(rand_var_or_stmt)
            return self._state.sref(rand_var_or_stmt)
        if isinstance(rand_var_or_stmt, (Block, For)):
            return self._state.get_sref(rand_var_or_stmt)
        raise TypeError(f"get_sref takes a block or loop, not {type(rand_var_or_stmt).__name__}")

    def remove_rv(self, rand_var: Any) -> None:
        """Forget a handle: nothing may be asked of it from now on."""
        self._removed.add(rand_var)
        self._state.values.pop(rand_var, None)

    def show(self, *args: Any, **options: Any) -> None:
        """Print the program and the trace."""
        self.mod.show(*args, **options)
        self.trace.show()

    def copy(self) -> Schedule:
        """An independent schedule in the same state; handles are good for both."""
        new = object.__new__(Schedule)
        new.__dict__.update(self.__dict__)
        new._state, new._trace = self._state.copy(), Trace(self._trace.insts, self._trace.decisions)
        new._random = random.Random(self._random.getrandbits(64))
        new._removed, new._exempt = set(self._removed), set(self._exempt)
        return new

    def fork_seed(self) -> int:
        """A seed for another schedule."""
        return self._random.randrange(1, 2**31 - 1)

    def seed(self, seed: int) -> None:
        """Seed the sampling primitives; -1: by chance."""
        self._random = random.Random(None if seed < 0 else seed)

    def enter_postproc(self) -> None:
        """Say in the trace that what follows is post-processing."""
        self._trace.append(Instruction(InstructionKind.of("enter_postproc"), [], [], []))

    # ---- doing ---------------------------------------------------------------------------------------------------------

    def _run(self, p: Primitive, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a primitive and record the step; where it fails the program is as it was."""
        try:
            bound = p.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{p.name}: {error}; it is {p.name}{p.signature}") from None
        bound.apply_defaults()
        arguments = bound.arguments
        state = self._state
        try:
            resolve_blocks(self, p, arguments)
            for rv in handles(list(arguments.values())):
                self._known(rv)
            if "buffer" in arguments and p.prepare is None:
                named_buffer(state, arguments)
        except ScheduleError as error:
            error.level = self._level
            raise
        saved = state.save() if p.changes else None
        try:
            if p.prepare is not None:
                p.prepare(state, arguments)
            extra = {"rng": self._random} if p.name.startswith("sample_") else {}
            result = p.function(state, *bound.args, **{**bound.kwargs, **extra})
            if p.changes and state.debug_mask:
                self._verify(p)
        except BaseException as error:
            if saved is not None:
                state.restore(saved)
            if isinstance(error, ScheduleError):
                error.level = self._level
            raise
        self._record(p, arguments, result)
        return result

    def _verify(self, p: Primitive) -> None:
        if p.name in _UNCOVERED:
            self._exempt |= checks.short_regions(self._state)
        if self._state.debug_mask & 1:
            checks.verify_handles(self._state)
            if self._well_formed:
                checks.verify_form(self._state)
        if self._state.debug_mask & 2:
            checks.verify_cover(self._state, self._exempt)

    def _record(self, p: Primitive, arguments: dict[str, Any], result: Any) -> None:
        if p.name == "get_block":
            arguments["func_name"] = result.func
        decision = None
        if p.name.startswith("sample_"):
            decision = self._state.decision
        self._trace.append(Instruction.of_call(p.name, arguments, handles(result)), decision)


def _attach(p: Primitive) -> None:
    def method(self: Schedule, *args: Any, **kwargs: Any) -> Any:
        return self._run(p, args, kwargs)

    method.__name__ = p.name
    method.__doc__ = p.function.__doc__
    method.__signature__ = p.signature  # pyright: ignore[reportFunctionMemberAccess]
    setattr(Schedule, p.name, method)


for _p in PRIMITIVES.values():
    _attach(_p)
