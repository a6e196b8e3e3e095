"""`tvm.transform`: passes, contexts and instruments under the field's names."""

from tilewright.ir.passes import (
    DumpIR,
    Pass,
    PassContext,
    PassInfo,
    PassInstrument,
    PassTimingInstrument,
    PrintAfter,
    Sequential,
    module_pass,
)  # fmt: skip

__all__ = [
    "DumpIR", "Pass", "PassContext", "PassInfo", "PassInstrument", "PassTimingInstrument", "PrintAfter", "Sequential", "module_pass",
]  # fmt: skip
