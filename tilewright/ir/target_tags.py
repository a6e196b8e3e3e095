"""Names of well-known machines that stand for a whole target: `Target("nvidia/geforce-rtx-3070")`.

NVIDIA's GPUs by compute capability (as NVIDIA's own tables give it); shared memory of a block is what a kernel gets without asking.
"""

from __future__ import annotations

from typing import Any

__all__ = ["TAGS"]

_NVIDIA = {
    "sm_50": "geforce-gtx-750 geforce-gtx-750-ti geforce-940m geforce-gtx-960m tesla-m10",
    "sm_52": "geforce-gtx-960 geforce-gtx-970 geforce-gtx-980 geforce-gtx-980-ti geforce-gtx-titan-x tesla-m40 tesla-m60",
    "sm_53": "jetson-nano tegra-x1 jetson-tx1",
    "sm_60": "tesla-p100 quadro-gp100",
    "sm_61": "geforce-gtx-1050 geforce-gtx-1050-ti geforce-gtx-1060 geforce-gtx-1070 geforce-gtx-1070-ti geforce-gtx-1080 "
    "geforce-gtx-1080-ti nvidia-titan-x nvidia-titan-xp tesla-p4 tesla-p40",
    "sm_62": "jetson-tx2",
    "sm_70": "tesla-v100 nvidia-titan-v quadro-gv100",
    "sm_72": "jetson-agx-xavier jetson-xavier-nx",
    "sm_75": "geforce-gtx-1650 geforce-gtx-1650-ti geforce-gtx-1660 geforce-gtx-1660-ti geforce-rtx-2060 geforce-rtx-2070 "
    "geforce-rtx-2080 geforce-rtx-2080-ti nvidia-titan-rtx nvidia-t4 tesla-t4 quadro-rtx-4000 quadro-rtx-5000 quadro-rtx-6000 "
    "quadro-rtx-8000",
    "sm_80": "nvidia-a100 nvidia-a30",
    "sm_86": "geforce-rtx-3050 geforce-rtx-3060 geforce-rtx-3060-ti geforce-rtx-3070 geforce-rtx-3070-ti geforce-rtx-3080 "
    "geforce-rtx-3080-ti geforce-rtx-3090 geforce-rtx-3090-ti nvidia-a10 nvidia-a10g nvidia-a16 nvidia-a40 nvidia-a2 rtx-a4000 rtx-a5000 "
    "rtx-a6000",
    "sm_87": "jetson-agx-orin-32gb jetson-agx-orin-64gb jetson-orin-nano jetson-orin-nx",
    "sm_89": "geforce-rtx-4060 geforce-rtx-4060-ti geforce-rtx-4070 geforce-rtx-4070-ti geforce-rtx-4080 geforce-rtx-4090 nvidia-l4 "
    "nvidia-l40 nvidia-l40s rtx-6000-ada",
    "sm_90": "nvidia-h100 nvidia-h200 nvidia-gh200",
    "sm_100": "nvidia-b100 nvidia-b200",
    "sm_120": "geforce-rtx-5070 geforce-rtx-5070-ti geforce-rtx-5080 geforce-rtx-5090",
}
_L2 = {"nvidia-a100": 41943040, "nvidia-h100": 52428800, "geforce-rtx-4090": 75497472}
_FEW_REGISTERS = ("jetson-nano", "tegra-x1", "jetson-tx1", "jetson-tx2")


def _nvidia(name: str, arch: str) -> dict[str, Any]:
    table: dict[str, Any] = {
        "kind": "cuda",
        "arch": arch,
        "max_shared_memory_per_block": 49152,
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": 32768 if name in _FEW_REGISTERS else 65536,
    }
    if name in _L2:
        table["l2_cache_size_bytes"] = _L2[name]
    if name.startswith("jetson-") and arch in ("sm_72", "sm_87"):
        cores = 6 if "nano" in name or name.endswith("-nx") else 8 if arch == "sm_72" or "32gb" in name else 12
        cpu = "carmel" if arch == "sm_72" else "cortex-a78"
        table["host"] = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": cpu, "num-cores": cores}
    return table


def _arm(
    mcpu: str, cores: int, features: tuple[str, ...] = ("+neon",), triple: str = "aarch64-linux-gnu"
) -> dict[str, Any]:
    return {
        "kind": "llvm",
        "mtriple": triple,
        "mcpu": mcpu,
        "mattr": list(features),
        "num-cores": cores,
        "keys": ["arm_cpu", "cpu"],
    }


def _apple(cpu: str) -> dict[str, Any]:
    host = {"kind": "llvm", "mtriple": "arm64-apple-macos", "mcpu": cpu, "keys": ["arm_cpu", "cpu"]}
    limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 32768, "thread_warp_size": 32}
    return {"kind": "metal", **limits, "host": host}


def _aws(kind: str, cpu: str, sizes: dict[str, int]) -> dict[str, dict[str, Any]]:
    return {
        f"aws/cpu/{kind}.{size}": {"kind": "llvm", "keys": ["x86", "cpu"], "mcpu": cpu, "num-cores": n}
        for size, n in sizes.items()
    }


TAGS: dict[str, dict[str, Any]] = {
    **{f"nvidia/{name}": _nvidia(name, arch) for arch, names in _NVIDIA.items() for name in names.split()},
    "raspberry-pi/4b-aarch64": _arm("cortex-a72", 4),
    "raspberry-pi/4b-32bit": _arm("cortex-a72", 4, triple="armv8l-linux-gnueabihf"),
    "raspberry-pi/3b-aarch64": _arm("cortex-a53", 4),
    "raspberry-pi/5-aarch64": _arm("cortex-a76", 4),
    **{f"apple/m{i}-gpu": _apple(f"apple-m{i}") for i in (1, 2)},
    "apple/m1-gpu-restricted": {**_apple("apple-m1"), "max_threads_per_block": 256},
    "qcom/adreno-opencl": {"kind": "opencl", "device": "adreno", "keys": ["adreno", "opencl", "gpu"]},
    "qcom/adreno-vulkan": {"kind": "vulkan", "device": "adreno", "keys": ["adreno", "vulkan", "gpu"]},
    **_aws("c5", "skylake-avx512", {"large": 1, "xlarge": 2, "2xlarge": 4, "4xlarge": 8, "9xlarge": 18}),
    **_aws("c5", "cascadelake", {"12xlarge": 24, "18xlarge": 36, "24xlarge": 48}),
}
"""What each name stands for, as a table that `Target` takes."""
