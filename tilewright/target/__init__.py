"""`tvm.target`: targets under the field's names."""

from tilewright.ir.target import KINDS, Target, TargetKind, list_tags
from tilewright.target import codegen
from tilewright.target.generic_func import (
    GenericFunc,
    generic_func,
    get_native_generic_func,
    override_native_generic_func,
)
from tilewright.target.named import (
    adreno,
    arm_cpu,
    bifrost,
    cuda,
    intel_graphics,
    mali,
    metal,
    opencl,
    riscv_cpu,
    rocm,
    vulkan,
)

__all__ = [
    "KINDS", "GenericFunc", "Target", "TargetKind", "adreno", "arm_cpu", "bifrost", "codegen", "cuda", "generic_func",
    "get_native_generic_func", "intel_graphics", "list_tags", "mali", "metal", "opencl", "override_native_generic_func", "riscv_cpu",
    "rocm", "vulkan",
]  # fmt: skip
