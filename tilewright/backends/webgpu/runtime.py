"""WebGPU devices through the package `wgpu`: buffers, shaders, dispatches."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import sys
import tempfile
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.runtime.device_api import DeviceApi
from tilewright.support.diagnostics import CompileError

__all__ = ["API", "WebGpuApi", "available"]


class WebGpuApi(DeviceApi):
    """The adapter that the system prefers."""

    kind = "webgpu"

    def __init__(self) -> None:
        self._memory: dict[int, Any] = {}
        self._numbers = itertools.count(1)

    @cached_property
    def _wgpu(self) -> Any:
        if sys.platform.startswith("linux"):  # Mesa complains on standard error without it
            os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
        return importlib.import_module("wgpu")

    @cached_property
    def _state(self) -> tuple[str | None, Any]:
        if importlib.util.find_spec("wgpu") is None:
            return "the package wgpu is not installed (pip install 'tilewright[webgpu]')", None
        try:
            return None, self._wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        except Exception as e:
            return f"no GPU is there ({e}); Mesa's lavapipe (mesa-vulkan-drivers) makes one of the CPU", None

    def reason(self) -> str | None:
        """Why there is no device."""
        return self._state[0]

    def count(self) -> int:
        """One, or none."""
        return int(self._state[1] is not None)

    @cached_property
    def device(self) -> Any:
        """The device in use; with float16 where the adapter has it."""
        adapter = self._state[1]
        features = [f for f in ("shader-f16",) if f in adapter.features]
        return adapter.request_device_sync(required_features=features)

    def attributes(self, index: int) -> dict[str, Any]:
        """What the device allows."""
        limits = self.device.limits
        return {
            "max_threads_per_block": limits["max-compute-invocations-per-workgroup"],
            "warp_size": 1,
            "max_shared_memory_per_block": limits["max-compute-workgroup-storage-size"],
            "device_name": self._state[1].info["device"],
            "max_thread_dimensions": [limits[f"max-compute-workgroup-size-{a}"] for a in "xyz"],
        }

    # ---- memory

    def allocate(self, index: int, size: int) -> int:
        """A buffer; its handle is a number of ours."""
        use = self._wgpu.BufferUsage
        buffer = self.device.create_buffer(size=(size + 3) // 4 * 4, usage=use.STORAGE | use.COPY_SRC | use.COPY_DST)
        handle = next(self._numbers)
        self._memory[handle] = buffer
        return handle

    def free(self, handle: int) -> None:
        """Release a buffer."""
        self._memory.pop(handle, None)

    def memory(self, handle: int, what: str) -> Any:
        """The buffer of a handle. Raises ValueError where it is none of ours."""
        found = self._memory.get(handle)
        if found is None:
            raise ValueError(
                f"{what} is no memory of a WebGPU device: make the array with tvm.nd.array(x, tvm.webgpu(0))"
            )
        return found

    def upload(self, index: int, handle: int, data: Any) -> None:
        """From the host; in words of four bytes."""
        padded = np.zeros((data.nbytes + 3) // 4 * 4, np.uint8)
        padded[: data.nbytes] = data
        self.device.queue.write_buffer(self.memory(handle, "the target"), 0, padded)

    def download(self, index: int, handle: int, out: Any) -> None:
        """To the host."""
        raw = np.frombuffer(self.device.queue.read_buffer(self.memory(handle, "the source")), np.uint8)
        out[...] = raw[: out.nbytes]

    def copy(self, index: int, source: int, target: int, size: int) -> None:
        """Within the device."""
        encoder = self.device.create_command_encoder()
        a, b = self.memory(source, "the source"), self.memory(target, "the target")
        encoder.copy_buffer_to_buffer(a, 0, b, 0, (size + 3) // 4 * 4)
        self.device.queue.submit([encoder.finish()])

    def sync(self, index: int) -> None:
        """Wait for the queue: read something back."""
        use = self._wgpu.BufferUsage
        probe = self.device.create_buffer(size=4, usage=use.COPY_SRC | use.COPY_DST)
        self.device.queue.read_buffer(probe)

    # ---- programs

    def pipeline(self, source: str, name: str) -> Any:
        """A kernel that can be dispatched. Raises CompileError TW0671 with the driver's words."""
        try:
            shader = self.device.create_shader_module(code=source)
            return self.device.create_compute_pipeline(layout="auto", compute={"module": shader, "entry_point": name})
        except Exception as e:
            raise CompileError.at(
                "TW0671", f"the WGSL compiler refused kernel {name}: {str(e)[:2000]}", hint="get_source() shows it"
            ) from e

    def launch(
        self, pipeline: Any, dtypes: Sequence[str], args: Sequence[Any], grid: Sequence[int], used: Sequence[bool]
    ) -> None:
        """Dispatch `grid` work groups. `used`: the bindings that the shader touches; others are not part of its layout."""
        resources: list[Any] = []
        for i, (d, a) in enumerate(zip(dtypes, args)):
            if d == "handle":
                buffer = self.memory(a, f"argument {i} of the kernel")
                resources.append({"buffer": buffer, "offset": 0, "size": buffer.size})
        scalars = [
            np.array(a, np.uint32 if dt.is_bool(d) else dt.to_numpy(d)).tobytes().ljust(4, b"\0")
            for d, a in zip(dtypes, args)
            if d != "handle"
        ]
        if scalars:
            raw = b"".join(scalars)
            raw = raw.ljust((len(raw) + 15) // 16 * 16, b"\0")
            buffer = self.device.create_buffer_with_data(data=raw, usage=self._wgpu.BufferUsage.UNIFORM)
            resources.append({"buffer": buffer, "offset": 0, "size": len(raw)})
        entries = [{"binding": i, "resource": r} for i, r in enumerate(resources) if used[i]]
        group = self.device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
        encoder = self.device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(*grid)
        compute.end()
        self.device.queue.submit([encoder.finish()])


API = WebGpuApi()
"""The one run time of this process."""


def available() -> str | None:
    """Why WGSL cannot run here."""
    return API.reason()
