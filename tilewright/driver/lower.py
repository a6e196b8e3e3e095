"""`tvm.lower`: the named passes in their order, from block form to flat form, for reading and for further passes.

`tvm.build` does not need it: it takes block form, and has a faster way of its own to machine code (`tir/lower/pipeline.py`). What
`lower` gives can be built too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.passes import Pass, PassContext
from tilewright.support.diagnostics import CompileError
from tilewright.tir.ir import PrimFunc

__all__ = ["lower", "lowering_passes"]

_BLOCKS = (
    "LowerCrossThreadReduction", "LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque",
    "LiftThreadBinding", "ManifestSharedMemoryLocalStage", "CompactBufferAllocation", "LowerAutoCopy", "UnifyThreadBinding",
    "LowerMatchBuffer", "Simplify", "InjectPermutedLayout", "InjectSoftwarePipeline", "TransformMmaBufferLayout",
    "LowerOpaqueBlock", "FlattenBuffer", "BF16ComputeLegalize",
)  # fmt: skip


def lowering_passes(simple_mode: bool = False) -> list[tuple[int, Pass]]:
    """(phase, pass) in order; the options of the PassContext choose. `simple_mode` leaves out what makes the result hard to read."""
    from tilewright.tir import transform as tr

    config = PassContext.current().config
    out: list[tuple[int, Pass]] = []

    def put(phase: int, name: str, *args: Any) -> None:
        make = getattr(tr, name, None)
        if make is not None:
            out.append((phase, make(*args)))

    for name in _BLOCKS:
        put(1, name)
    put(1, "NarrowDataType", 32)
    if not simple_mode:
        put(2, "LoopPartition")
    put(2, "VectorizeLoop", not config.get("tir.disable_vectorize", False))
    put(2, "InjectVirtualThread")
    put(2, "InjectDoubleBuffer")
    if not config.get("tir.disable_storage_rewrite", False):
        put(2, "StorageRewrite")
    put(2, "UnrollLoop")
    for name in ("RenormalizeSplitPattern", "Simplify", "RemoveNoOp", "RewriteUnsafeSelect", "HoistIfThenElse"):
        put(3, name)
    if config.get("tir.disable_assert", False):
        put(3, "SkipAssert")
    if not config.get("tir.disable_cse_tir", False):
        put(3, "CommonSubexprElimTIR", True, bool(config.get("tir.enable_equiv_terms_in_cse_tir", False)))
    if config.get("tir.instrument_bound_checkers", False):
        out.insert(0, (0, tr.InstrumentBoundCheckers()))
    return out


def lower(
    inp: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Mapping[Any, Any] | None = None,
    simple_mode: bool = False,
) -> IRModule:
    """The loop programs of `inp` in flat form, before code generation.

    inp: an IRModule, a PrimFunc, a Schedule of loop programs, or the list of tensors of a tensor expression (inputs, then outputs).
    name: what a function is called that comes without a module.
    simple_mode: leave loops whole where they could be cut at conditions.

    Passes of one's own go in by the option `tir.add_lower_pass`: pairs of a phase (0: before all, 1: after blocks are lowered, 2: after
    loops are, 3: last) and a pass. Raises TypeError for anything else, TW0537 for `binds`, which belong to schedules of tensors.
    """
    if binds is not None:
        raise CompileError.at(
            "TW0537", "lower: binds belong to schedules of tensor expressions, which there are none of here"
        )
    mod = _module_of(inp, args, name)
    passes = lowering_passes(simple_mode)
    extra = [(int(phase), p) for phase, p in PassContext.current().config.get("tir.add_lower_pass", ())]
    for p in _in_order(passes, extra):
        mod = p(mod)
    return mod


def _module_of(inp: Any, args: Sequence[Any] | None, name: str) -> IRModule:
    scheduled = getattr(inp, "mod", None)
    if isinstance(scheduled, IRModule):
        inp = scheduled
    if isinstance(inp, (list, tuple)):
        from tilewright.te import create_prim_func

        inp = create_prim_func(list(inp))  # pyright: ignore
    if isinstance(inp, PrimFunc):
        return IRModule.from_expr(inp.with_attr("global_symbol", name), name)
    if isinstance(inp, IRModule):
        return inp
    raise TypeError(f"lower takes an IRModule, a PrimFunc, a Schedule or a list of tensors, not {type(inp).__name__}")


def _in_order(passes: list[tuple[int, Pass]], extra: list[tuple[int, Pass]]) -> list[Pass]:
    """The passes with one's own at the end of their phases (phase 0 before all)."""
    out: list[Pass] = [p for phase, p in extra if phase == 0]
    for phase in (0, 1, 2, 3):
        out += [p for n, p in passes if n == phase]
        if phase:
            out += [p for n, p in extra if n == phase or (phase == 3 and n > 3)]
    return out
