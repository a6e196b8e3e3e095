"""CUDA devices through the driver (package `cuda-bindings`): memory, modules, launches."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.runtime.device_api import DeviceApi
from tilewright.support.diagnostics import CompileError

__all__ = ["API", "CudaApi", "available"]


class CudaApi(DeviceApi):
    """The GPUs that the driver knows. Their primary contexts are used, so memory is shared with torch."""

    kind = "cuda"

    def __init__(self) -> None:
        self._contexts: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}

    @cached_property
    def _driver(self) -> Any:
        return importlib.import_module("cuda.bindings.driver")

    @cached_property
    def _state(self) -> tuple[str | None, int]:
        if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
            return "the package cuda-bindings is not installed (pip install 'tilewright[cuda]')", 0
        try:
            status, *_ = self._driver.cuInit(0)
        except Exception as e:  # the driver's library is missing
            return f"no GPU is there: {str(e) or 'the CUDA driver is not installed'}", 0
        if int(status):
            return f"no GPU is there: the CUDA driver says {status.name}", 0
        status, count = self._driver.cuDeviceGetCount()
        return (None, int(count)) if count else ("no GPU is there: the CUDA driver finds none", 0)

    def reason(self) -> str | None:
        """Why there is no device."""
        return self._state[0]

    def count(self) -> int:
        """How many GPUs there are."""
        return self._state[1]

    def _do(self, result: Any, what: str) -> Any:
        """The value of a call of the driver. Raises CompileError TW0677 with its words."""
        status, *values = result
        if int(status):
            raise CompileError.at(
                "TW0677", f"CUDA: {what} failed: {status.name}", hint="an error of an earlier kernel shows here too"
            )
        return values[0] if values else None

    def use(self, index: int) -> None:
        """Make the device the current one of this thread."""
        context = self._contexts.get(index)
        if context is None:
            device = self._do(self._driver.cuDeviceGet(index), "finding the device")
            context = self._contexts[index] = self._do(
                self._driver.cuDevicePrimaryCtxRetain(device), "opening the device"
            )
        self._do(self._driver.cuCtxSetCurrent(context), "choosing the device")

    def attributes(self, index: int) -> dict[str, Any]:
        """What the driver tells of a GPU."""
        self.use(index)
        device = self._do(self._driver.cuDeviceGet(index), "finding the device")
        names = self._driver.CUdevice_attribute

        def get(name: str) -> int:
            key = getattr(names, "CU_DEVICE_ATTRIBUTE_" + name)
            return int(self._do(self._driver.cuDeviceGetAttribute(key, device), f"asking for {name}"))

        name = self._do(self._driver.cuDeviceGetName(100, device), "asking for the name")
        return {
            "max_threads_per_block": get("MAX_THREADS_PER_BLOCK"),
            "warp_size": get("WARP_SIZE"),
            "max_shared_memory_per_block": get("MAX_SHARED_MEMORY_PER_BLOCK"),
            "compute_version": f"{get('COMPUTE_CAPABILITY_MAJOR')}.{get('COMPUTE_CAPABILITY_MINOR')}",
            "device_name": bytes(name).split(b"\0")[0].decode(),
            "max_clock_rate": get("CLOCK_RATE"),
            "multi_processor_count": get("MULTIPROCESSOR_COUNT"),
            "max_thread_dimensions": [get(f"MAX_BLOCK_DIM_{a}") for a in "XYZ"],
            "l2_cache_size_bytes": get("L2_CACHE_SIZE"),
            "total_global_memory": int(self._do(self._driver.cuDeviceTotalMem(device), "asking for the memory")),
        }

    # ---- memory

    def allocate(self, index: int, size: int) -> int:
        """Memory of the GPU; its handle is its address there."""
        self.use(index)
        return int(self._do(self._driver.cuMemAlloc(size), f"allocating {size} bytes"))

    def free(self, handle: int) -> None:
        """Give memory back."""
        self._driver.cuMemFree(handle)

    def upload(self, index: int, handle: int, data: Any) -> None:
        """From the host."""
        self.use(index)
        self._do(self._driver.cuMemcpyHtoD(handle, data.ctypes.data, data.nbytes), "copying to the device")

    def download(self, index: int, handle: int, out: Any) -> None:
        """To the host."""
        self.use(index)
        self._do(self._driver.cuMemcpyDtoH(out.ctypes.data, handle, out.nbytes), "copying from the device")

    def copy(self, index: int, source: int, target: int, size: int) -> None:
        """Within the device."""
        self.use(index)
        self._do(self._driver.cuMemcpyDtoD(target, source, size), "copying on the device")

    def sync(self, index: int) -> None:
        """Wait for all work."""
        self.use(index)
        self._do(self._driver.cuCtxSynchronize(), "a kernel")

    # ---- programs

    def load(self, index: int, image: bytes) -> Any:
        """A module of a cubin or PTX."""
        self.use(index)
        return self._do(self._driver.cuModuleLoadData(image), "loading the kernels")

    def function(self, module: Any, name: str) -> Any:
        """A kernel of a module."""
        return self._do(self._driver.cuModuleGetFunction(module, name.encode()), f"finding the kernel {name}")

    def launch(
        self, index: int, function: Any, dtypes: Sequence[str], args: Sequence[Any], grid: Sequence[int], block: Sequence[int],
        shared: int,
    ) -> None:  # fmt: skip
        """Start a kernel."""
        self.use(index)
        if shared > 48 * 1024:
            key = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._do(self._driver.cuFuncSetAttribute(function, key, shared), "asking for shared memory")
        values = [
            np.array(a, np.uint64 if d == "handle" else np.uint8 if dt.is_bool(d) else dt.to_numpy(d))
            for d, a in zip(dtypes, args)
        ]
        table = (ctypes.c_void_p * max(len(values), 1))(*(v.ctypes.data for v in values))
        if all(grid) and all(block):
            self._do(
                self._driver.cuLaunchKernel(function, *grid, *block, shared, 0, ctypes.addressof(table), 0),
                "starting the kernel",
            )


API = CudaApi()
"""The one run time of this process."""


def available() -> str | None:
    """Why CUDA programs cannot run here."""
    return API.reason()
