"""Targets by the names of kinds and of processors: `tvm.target.cuda(arch="sm_80")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.target import Target

__all__ = [
    "adreno",
    "arm_cpu",
    "bifrost",
    "cuda",
    "intel_graphics",
    "mali",
    "metal",
    "opencl",
    "riscv_cpu",
    "rocm",
    "vulkan",
]


def _options(options: Any) -> str:
    if options is None:
        return ""
    return " " + (options if isinstance(options, str) else " ".join(options))


def cuda(model: str = "unknown", arch: str | None = None, options: Any = None) -> Target:
    """A CUDA GPU. `arch`: `sm_80`, or a list of (major, minor) in text; `options`: further ones as text."""
    where = f" -arch={arch}" if arch else ""
    return Target(f"cuda -model={model}{where}{_options(options)}")


def rocm(model: str = "unknown", options: Any = None) -> Target:
    """A GPU of AMD's."""
    return Target(f"rocm -model={model}{_options(options)}")


def _kind(name: str, text: str) -> Callable[..., Target]:
    def make(options: Any = None) -> Target:
        return Target(f"{name}{_options(options)}")

    make.__doc__ = text
    return make


opencl = _kind("opencl", "A device of OpenCL.")
metal = _kind("metal", "A GPU of Apple's.")
vulkan = _kind("vulkan", "A device of Vulkan.")
intel_graphics = _kind(
    "opencl -device=intel_graphics -model=unknown -thread_warp_size=16", "A GPU of Intel's, by OpenCL."
)


def _opencl_of(device: str) -> Callable[..., Target]:
    def make(model: str = "unknown", options: Any = None) -> Target:
        return Target(f"opencl -device={device} -model={model}{_options(options)}")

    make.__doc__ = f"A GPU of the family {device}, by OpenCL."
    return make


mali, bifrost, adreno = _opencl_of("mali"), _opencl_of("bifrost"), _opencl_of("adreno")

_ARM = {
    "pixel2": "-mtriple=arm64-linux-android -mattr=+neon",
    "mate10": "-mtriple=arm64-linux-android -mattr=+neon",
    "rasp3b": "-mtriple=armv7l-linux-gnueabihf -mattr=+neon",
    "rasp4b": "-mtriple=armv8l-linux-gnueabihf -mattr=+neon -mcpu=cortex-a72",
    "rasp4b64": "-mtriple=aarch64-linux-gnu -mattr=+neon -mcpu=cortex-a72",
    "rk3399": "-mtriple=aarch64-linux-gnu -mattr=+neon",
    "pynq": "-mtriple=armv7a-linux-eabi -mattr=+neon",
    "ultra96": "-mtriple=aarch64-linux-gnu -mattr=+neon",
    "jetson-agx-xavier": "-mtriple=aarch64-linux-gnu",
}


def arm_cpu(model: str = "unknown", options: Any = None) -> Target:
    """An ARM CPU; boards that are known by name get their triple."""
    return Target(f"llvm -device=arm_cpu -model={model} {_ARM.get(model, '')}{_options(options)}")


_RISCV = {
    "sifive-e31": "-mtriple=riscv32-unknown-linux-gnu -mcpu=sifive-e31 -mabi=ilp32",
    "sifive-e76": "-mtriple=riscv32-unknown-linux-gnu -mcpu=sifive-e76 -mabi=ilp32",
    "sifive-u54": "-mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-u54 -mabi=lp64d",
    "sifive-u74": "-mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-u74 -mabi=lp64d",
}


def riscv_cpu(model: str = "sifive-u54", options: Any = None) -> Target:
    """A RISC-V CPU by the name of its core; ValueError for one that is not known here."""
    if model not in _RISCV:
        raise ValueError(f"no RISC-V core {model!r} is known; known: {', '.join(_RISCV)}")
    return Target(f"llvm -keys=arm_cpu,cpu -device=arm_cpu -model={model} {_RISCV[model]}{_options(options)}")
