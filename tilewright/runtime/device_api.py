"""Devices other than the CPU: what a backend's run time gives, and how their arrays come to be.

A backend names its DeviceApi in its manifest. Memory of a device is known by a handle (a nonzero number that fits a pointer);
a tensor holds it as its data pointer, so it passes through the FFI as any tensor does and only the device's API looks at it.
"""

from __future__ import annotations

from typing import Any

from tilewright.support.diagnostics import CompileError
from tilewright.support.lazy import resolve

__all__ = ["DEVICE_KINDS", "DeviceApi", "api_of", "describe", "required_api"]

DEVICE_KINDS: dict[int, str] = {
    2: "cuda",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    10: "rocm",
    15: "webgpu",
    16: "hexagon",
}
"""Names of DLPack's device types, without the CPU."""


class DeviceApi:
    """What the run time of a kind of device offers. `index`: which of the devices."""

    kind = ""

    def reason(self) -> str | None:
        """Why there is no such device here; None where there is one."""
        return None

    def count(self) -> int:
        """How many devices of the kind there are."""
        raise NotImplementedError

    def attributes(self, index: int) -> dict[str, Any]:
        """`max_threads_per_block`, `warp_size`, `max_shared_memory_per_block`, `device_name`, ..."""
        raise NotImplementedError

    def allocate(self, index: int, size: int) -> int:
        """A handle of `size` bytes of memory."""
        raise NotImplementedError

    def free(self, handle: int) -> None:
        """Give memory back."""
        raise NotImplementedError

    def upload(self, index: int, handle: int, data: Any) -> None:
        """Copy bytes (a contiguous buffer) from the host."""
        raise NotImplementedError

    def download(self, index: int, handle: int, out: Any) -> None:
        """Copy bytes to the host, into a contiguous buffer."""
        raise NotImplementedError

    def copy(self, index: int, source: int, target: int, size: int) -> None:
        """Copy between two pieces of memory of one device."""
        raise NotImplementedError

    def sync(self, index: int) -> None:
        """Wait for all work."""


def api_of(device_type: int) -> DeviceApi | None:
    """The run time of a kind of device; None where this package has none."""
    kind = DEVICE_KINDS.get(device_type)
    found: DeviceApi | None = resolve("backends.device")(kind) if kind is not None else None
    return found


def required_api(device_type: int, index: int) -> DeviceApi:
    """The same. Raises CompileError TW0670 that says why there is no such device."""
    api = api_of(device_type)
    kind = DEVICE_KINDS.get(device_type, f"type {device_type}")
    if api is None:
        raise CompileError.at(
            "TW0670", f"there is no device {kind}({index}): this package has no run time for it", hint="use tvm.cpu()"
        )
    reason = api.reason()
    if reason is None and index >= api.count():
        reason = f"this machine has {api.count()} of the kind"
    if reason is not None:
        raise CompileError.at("TW0670", f"there is no device {kind}({index}): {reason}", hint="use tvm.cpu()")
    return api


def describe(device: Any) -> dict[str, Any]:
    """The target of a device (a device object, or its name) as a table. Raises CompileError TW0670 where there is none."""
    from tilewright.runtime.ndarray import device as make

    where = make(device) if isinstance(device, str) else device
    if where.device_type == 1:
        return {"kind": "llvm"}
    known = required_api(where.device_type, where.device_id).attributes(where.device_id)
    table: dict[str, Any] = {"kind": DEVICE_KINDS[where.device_type], "max_num_threads": known["max_threads_per_block"]}
    for option, attribute in (
        ("max_threads_per_block", "max_threads_per_block"),
        ("max_shared_memory_per_block", "max_shared_memory_per_block"),
        ("thread_warp_size", "warp_size"),
        ("l2_cache_size_bytes", "l2_cache_size_bytes"),
    ):
        if known.get(attribute) is not None:
            table[option] = int(known[attribute])
    if table["kind"] == "cuda":
        version = str(known["compute_version"]).replace(".", "")
        table["arch"] = f"sm_{version}{'a' if int(version) >= 90 else ''}"
    return table
