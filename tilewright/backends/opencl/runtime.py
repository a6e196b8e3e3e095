"""OpenCL devices through pyopencl: memory, programs, launches. One context and one in-order queue a device."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.runtime.device_api import DeviceApi
from tilewright.support.diagnostics import CompileError

__all__ = ["API", "OpenCLApi", "available"]


class _Opened:
    """A device in use."""

    def __init__(self, cl: Any, device: Any) -> None:
        self.device = device
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)


class OpenCLApi(DeviceApi):
    """All devices of all platforms, GPUs first."""

    kind = "opencl"

    def __init__(self) -> None:
        self._opened: dict[int, _Opened] = {}
        self._memory: dict[int, Any] = {}

    @cached_property
    def _cl(self) -> Any:
        return importlib.import_module("pyopencl")

    @cached_property
    def _state(self) -> tuple[str | None, list[Any]]:
        if importlib.util.find_spec("pyopencl") is None:
            return "the package pyopencl is not installed (pip install 'tilewright[opencl]')", []
        try:
            found = [d for p in self._cl.get_platforms() for d in p.get_devices()]
        except Exception as e:
            return f"OpenCL has no platform here ({e}): install a driver, or pocl-opencl-icd for the CPU", []
        found.sort(key=lambda d: not d.type & self._cl.device_type.GPU)
        return (None, found) if found else ("OpenCL has platforms, but no device", [])

    def reason(self) -> str | None:
        """Why there is no device."""
        return self._state[0]

    def count(self) -> int:
        """How many devices there are."""
        return len(self._state[1])

    def attributes(self, index: int) -> dict[str, Any]:
        """What OpenCL tells of the device."""
        d = self._state[1][index]
        return {
            "max_threads_per_block": d.max_work_group_size,
            "warp_size": 1,
            "max_shared_memory_per_block": d.local_mem_size,
            "compute_version": d.version.split()[1],
            "device_name": d.name,
            "max_clock_rate": d.max_clock_frequency * 1000,
            "multi_processor_count": d.max_compute_units,
            "max_thread_dimensions": list(d.max_work_item_sizes),
            "driver_version": d.driver_version,
            "total_global_memory": d.global_mem_size,
        }

    def extensions(self, index: int) -> frozenset[str]:
        """The extensions that the device has."""
        return frozenset(str(self._state[1][index].extensions).split())

    def open(self, index: int) -> _Opened:
        """Context and queue of a device."""
        found = self._opened.get(index)
        if found is None:
            found = self._opened[index] = _Opened(self._cl, self._state[1][index])
        return found

    # ---- memory

    def allocate(self, index: int, size: int) -> int:
        """A buffer of OpenCL; its handle is its address."""
        buffer = self._cl.Buffer(self.open(index).context, self._cl.mem_flags.READ_WRITE, size)
        self._memory[buffer.int_ptr] = buffer
        return int(buffer.int_ptr)

    def free(self, handle: int) -> None:
        """Release a buffer."""
        self._memory.pop(handle, None)

    def memory(self, handle: int, what: str) -> Any:
        """The buffer of a handle. Raises ValueError where it is none of ours."""
        found = self._memory.get(handle)
        if found is None:
            raise ValueError(
                f"{what} is no memory of an OpenCL device: make the array with tvm.nd.array(x, tvm.opencl(0))"
            )
        return found

    def upload(self, index: int, handle: int, data: Any) -> None:
        """From the host."""
        self._cl.enqueue_copy(self.open(index).queue, self.memory(handle, "the target"), data)

    def download(self, index: int, handle: int, out: Any) -> None:
        """To the host."""
        self._cl.enqueue_copy(self.open(index).queue, out, self.memory(handle, "the source"))

    def copy(self, index: int, source: int, target: int, size: int) -> None:
        """Within the device."""
        a, b = self.memory(source, "the source"), self.memory(target, "the target")
        self._cl.enqueue_copy(self.open(index).queue, b, a, byte_count=size)

    def sync(self, index: int) -> None:
        """Wait for the queue."""
        self.open(index).queue.finish()

    # ---- programs

    def program(self, index: int, source: str) -> Any:
        """A built program. Raises CompileError TW0671 with the driver's words."""
        try:
            return self._cl.Program(self.open(index).context, source).build(options=["-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt"])  # fmt: skip
        except Exception as e:
            try:
                return self._cl.Program(self.open(index).context, source).build(options=["-cl-std=CL1.2"])
            except Exception:
                raise CompileError.at(
                    "TW0671", f"the OpenCL compiler refused the source: {str(e)[:2000]}", hint="get_source() shows it"
                ) from e

    def launch(
        self, index: int, kernel: Any, dtypes: Sequence[str], args: Sequence[Any], grid: Sequence[int], block: Sequence[int],
        shared: int,
    ) -> None:  # fmt: skip
        """Start a kernel: `grid` work groups of `block` items."""
        for i, (dtype, a) in enumerate(zip(dtypes, args)):
            if dtype == "handle":
                kernel.set_arg(i, self.memory(a, f"argument {i} of the kernel {kernel.function_name}"))
            else:
                kernel.set_arg(i, np.array(a, np.uint8 if dt.is_bool(dtype) else dt.to_numpy(dtype)))
        if shared:
            kernel.set_arg(len(dtypes), self._cl.LocalMemory(shared))
        sizes = [g * b for g, b in zip(grid, block)]
        if all(sizes):
            self._cl.enqueue_nd_range_kernel(self.open(index).queue, kernel, sizes, list(block))


API = OpenCLApi()
"""The one run time of this process."""


def available() -> str | None:
    """Why OpenCL programs cannot run here."""
    return API.reason()
