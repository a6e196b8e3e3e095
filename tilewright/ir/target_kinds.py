"""The kinds of targets and their options, as data; and how options are read from a command line."""

from __future__ import annotations

import json
import shlex
from difflib import get_close_matches
from typing import Any, NamedTuple

from tilewright.support.diagnostics import CompileError

__all__ = ["KINDS", "OPTIONS", "TargetKind", "option_value", "parse_command_line", "refuse"]


class TargetKind(NamedTuple):
    """A kind of target: its name, the device it runs on, its keys, and what its options are where nothing is said."""

    name: str
    device_type: str = "cpu"
    default_keys: tuple[str, ...] = ("cpu",)
    defaults: tuple[tuple[str, Any], ...] = ()

    @property
    def options(self) -> dict[str, str]:
        """The options there are, with the types of their values."""
        return dict(OPTIONS)

    def __str__(self) -> str:
        return self.name


def _gpu(name: str, **defaults: Any) -> TargetKind:
    return TargetKind(name, name, (name, "gpu"), tuple(defaults.items()))


KINDS: dict[str, TargetKind] = {
    "llvm": TargetKind("llvm"),
    "c": TargetKind("c"),
    "cuda": _gpu("cuda", arch="sm_75", max_num_threads=1024, thread_warp_size=32),
    "nvptx": TargetKind("nvptx", "cuda", ("cuda", "gpu"), (("max_num_threads", 1024), ("thread_warp_size", 32))),
    "opencl": _gpu("opencl", max_num_threads=256, thread_warp_size=1, max_threads_per_block=256, max_shared_memory_per_block=16384,
                   texture_spatial_limit=16384, texture_depth_limit=2048, max_function_args=128, image_base_address_alignment=64),
    "metal": _gpu("metal", max_num_threads=256, max_threads_per_block=256, max_shared_memory_per_block=32768, thread_warp_size=16,
                  max_function_args=31),
    "vulkan": _gpu("vulkan", max_num_threads=256, max_threads_per_block=256, thread_warp_size=1, supports_float32=1, supports_int32=1),
    "rocm": _gpu("rocm", max_num_threads=256, max_threads_per_block=256, max_shared_memory_per_block=65536, thread_warp_size=64),
    "webgpu": _gpu("webgpu", max_num_threads=256, thread_warp_size=1),
    "hexagon": TargetKind("hexagon", "hexagon", ("hexagon", "cpu")),
    "ext_dev": TargetKind("ext_dev", "ext_dev", ("ext_dev",)),
    "composite": TargetKind("composite", "cpu", ()),
}  # fmt: skip
"""The kinds of targets that can be named. Which of them have a backend, `tilewright targets` says."""

_WORDS = {
    "int": "num-cores opt-level max_num_threads thread_warp_size max_threads_per_block max_shared_memory_per_block max_function_args "
    "l1_bytes l2_bytes vector-width registers_per_block l2_cache_size_bytes texture_spatial_limit texture_depth_limit "
    "image_base_address_alignment vtcm-capacity max_block_size_x max_block_size_y max_block_size_z max_push_constants_size "
    "max_uniform_buffer_range max_storage_buffer_range max_per_stage_descriptor_storage_buffer max_shared_memory_per_block "
    "driver_version vulkan_api_version max_spirv_version target_device_type workspace-byte-alignment constants-byte-alignment "
    "max_num_threads_per_sm multi_processor_count",
    "bool": "system-lib link-params unpacked-api fast-math fast-math-ninf fast-math-contract fast-math-nnan fast-math-nsz "
    "fast-math-arcp fast-math-reassoc supports_subgroups supports_8bit_buffer supports_16bit_buffer supports_storage_buffer_storage_class "
    "supports_push_descriptor supports_dedicated_allocation supports_integer_dot_product supports_cooperative_matrix supports_float16 "
    "supports_float32 supports_float64 supports_int8 supports_int16 supports_int32 supports_int64",
    "list": "mattr keys libs cl-opt devices",
    "str": "mcpu mtriple mfloat-abi mabi march arch device model tag runtime executor interface-api jit device_name device_type "
    "driver_name vulkan_sdk from_device llvm-options mcpu_features ccbin",
    "target": "host",
}
OPTIONS: dict[str, str] = {name: kind for kind, names in _WORDS.items() for name in names.split()}
"""What each option takes: "int", "bool" (0 or 1), "list" of texts, "str", "target"."""


def refuse(message: str, hint: str | None = None) -> CompileError:
    """The error of a target that makes no sense."""
    return CompileError.at("TW0901", message, hint=hint)


def option_value(key: str, value: Any) -> Any:
    """The value of an option, of the option's type. Raises CompileError TW0901 for an unknown option or another type."""
    kind = "str" if key.startswith("feature.") else OPTIONS.get(key)
    if kind is None:
        close = get_close_matches(key, list(OPTIONS), 1)
        hint = f"did you mean -{close[0]}?" if close else f"known: {', '.join(sorted(OPTIONS)[:12])}, ..."
        raise refuse(f"a target has no option {key!r}", hint)
    if kind == "int":
        if isinstance(value, bool) or not (
            isinstance(value, int) or str(getattr(value, "value", value)).lstrip("-").isdigit()
        ):
            raise refuse(f"target option -{key} takes a number, not {value!r}")
        return int(getattr(value, "value", value))
    if kind == "bool":
        text = str(value).lower()
        if text not in ("0", "1", "true", "false"):
            raise refuse(f"target option -{key} takes true or false, not {value!r}")
        return int(text in ("1", "true"))
    if kind == "list":
        if isinstance(value, str):
            return [v for v in value.split(",") if v]
        if isinstance(value, dict) or not hasattr(value, "__iter__"):
            raise refuse(f"target option -{key} takes a list, not {value!r}")
        return [v if hasattr(v, "kind") or isinstance(v, dict) else str(v) for v in value]
    return value if kind == "target" else str(value)


def parse_command_line(text: str) -> tuple[str, dict[str, Any]]:
    """Kind (or tag) and options of `llvm -mcpu=znver3 ...`, or of JSON text."""
    if text.lstrip().startswith("{"):
        try:
            table: dict[str, Any] = json.loads(text)
        except ValueError as e:
            raise refuse(f"the target is no JSON: {e}") from None
        return str(table.pop("kind", table.pop("tag", ""))), table
    words = shlex.split(text)
    if not words:
        raise refuse("the target is empty", 'for this machine\'s CPU use "llvm"')
    options: dict[str, Any] = {}
    items = iter(words[1:])
    for word in items:
        if not word.startswith("-"):
            raise refuse(f"target option {word!r} does not begin with -", "-mcpu=NAME, -num-cores=N, ...")
        key, eq, value = word.lstrip("-").partition("=")
        options[key] = value if eq else next(items, "1")
    return words[0], options
