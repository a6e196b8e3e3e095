"""What a kernel may use on its device, checked: threads, shared memory, memory scopes."""

from __future__ import annotations

from tilewright.arith.expr import IntImm
from tilewright.ir.node import walk
from tilewright.tir import ir as t
from tilewright.tir.transform.gpu.common import DeviceError, launch, limits_of, target_of
from tilewright.tir.transform.gpu.split_host_device import bytes_of
from tilewright.tir.transform.gpu.thread_sync import scope_of

__all__ = ["check_kernel"]


def check_kernel(kernel: t.PrimFunc) -> None:
    """Raise TW0570 (too many threads in a block), TW0571 (too much shared memory), TW0572 (local memory of a size that is not
    a constant) for a kernel in flat form."""
    limits = limits_of(target_of(kernel))
    name = str(kernel.attrs.get("global_symbol", ""))
    target = kernel.attrs.get("target")
    threads: dict[str, int] = {}
    shared = 0
    for n in walk(kernel.body):
        if isinstance(n, t.AttrStmt):
            axis = launch(n)
            if axis is not None and axis.tag.startswith("threadIdx") and isinstance(axis.extent, IntImm):
                threads[axis.tag] = axis.extent.value
        elif isinstance(n, t.Allocate):
            scope = scope_of(n.buffer_var)
            size = bytes_of(n.dtype)
            for x in n.extents:
                if not isinstance(x, IntImm):
                    if scope == "shared.dyn":
                        size = 0
                        break
                    raise DeviceError.at(
                        "TW0572",
                        f"kernel {name!r} allocates {n.buffer_var.name!r} in {scope} memory with the size {x}, which is not "
                        "a constant",
                        hint="compute the buffer at a loop inside the threads, so that one thread needs a constant part",
                    )
                size *= x.value
            if scope.startswith("shared"):
                shared += size
    total = 1
    for count in threads.values():
        total *= count
    if total > limits.threads:
        counts = ", ".join(f"{k}={v}" for k, v in sorted(threads.items()))
        raise DeviceError.at(
            "TW0570",
            f"kernel {name!r} has {total} threads in a block ({counts}); {target} allows {limits.threads}",
            hint="split the bound loops with smaller factors, or say what the device allows: -max_num_threads=N",
        )
    if shared > limits.shared_bytes:
        raise DeviceError.at(
            "TW0571",
            f"kernel {name!r} uses {shared} bytes of shared memory in a block; {target} allows {limits.shared_bytes}",
            hint="use smaller tiles, or say what the device allows: -max_shared_memory_per_block=N",
        )
