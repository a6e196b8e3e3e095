"""The GPU passes, under the names people know; one pass a file."""

from tilewright.tir.transform.gpu.annotate_device_regions import AnnotateDeviceRegions
from tilewright.tir.transform.gpu.default_gpu_schedule import DefaultGPUSchedule
from tilewright.tir.transform.gpu.infer_fragment import InferFragment
from tilewright.tir.transform.gpu.inject_permuted_layout import InjectPermutedLayout
from tilewright.tir.transform.gpu.inject_ptx_async_copy import InjectPTXAsyncCopy
from tilewright.tir.transform.gpu.inject_ptx_ldg32 import InjectPTXLDG32
from tilewright.tir.transform.gpu.inject_software_pipeline import InjectSoftwarePipeline
from tilewright.tir.transform.gpu.inject_virtual_thread import InjectVirtualThread
from tilewright.tir.transform.gpu.lift_thread_binding import LiftThreadBinding
from tilewright.tir.transform.gpu.lower_auto_copy import LowerAutoCopy
from tilewright.tir.transform.gpu.lower_cross_thread_reduction import LowerCrossThreadReduction
from tilewright.tir.transform.gpu.lower_device_kernel_launch import LowerDeviceKernelLaunch
from tilewright.tir.transform.gpu.lower_device_storage_access_info import LowerDeviceStorageAccessInfo
from tilewright.tir.transform.gpu.lower_thread_allreduce import LowerThreadAllreduce
from tilewright.tir.transform.gpu.lower_warp_memory import LowerWarpMemory
from tilewright.tir.transform.gpu.manifest_shared_memory_local_stage import ManifestSharedMemoryLocalStage
from tilewright.tir.transform.gpu.merge_shared_memory import (
    MergeDynamicSharedMemoryAllocations,
    MergeSharedMemoryAllocations,
)
from tilewright.tir.transform.gpu.split_host_device import SplitHostDevice
from tilewright.tir.transform.gpu.thread_sync import ThreadSync
from tilewright.tir.transform.gpu.transform_mma_buffer_layout import TransformMmaBufferLayout
from tilewright.tir.transform.gpu.unify_thread_binding import UnifyThreadBinding

__all__ = [
    "AnnotateDeviceRegions",
    "DefaultGPUSchedule",
    "InferFragment",
    "InjectPTXAsyncCopy",
    "InjectPermutedLayout",
    "InjectPTXLDG32",
    "InjectSoftwarePipeline",
    "InjectVirtualThread",
    "LiftThreadBinding",
    "LowerAutoCopy",
    "LowerCrossThreadReduction",
    "LowerDeviceKernelLaunch",
    "LowerDeviceStorageAccessInfo",
    "LowerThreadAllreduce",
    "LowerWarpMemory",
    "ManifestSharedMemoryLocalStage",
    "MergeDynamicSharedMemoryAllocations",
    "MergeSharedMemoryAllocations",
    "SplitHostDevice",
    "ThreadSync",
    "TransformMmaBufferLayout",
    "UnifyThreadBinding",
]
