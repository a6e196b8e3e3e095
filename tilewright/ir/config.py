"""The options that a PassContext takes, by key: what each is, and a check that says what is wrong with one.

A value is of a plain type, or a group of fields, given as a mapping (`{"tir.UnrollLoop": {"auto_max_step": 16}}`). A backend or a
pass of a third party adds its own with `register_config`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from tilewright.support.diagnostics import CompileError, Diagnostic

__all__ = ["CONFIG", "ConfigError", "check_config", "list_configs", "register_config"]


class ConfigError(CompileError, AttributeError):
    """An option that does not exist, or whose value does not fit; an AttributeError, as programs of this field expect."""


CONFIG: dict[str, Any] = {
    "ir.debug": bool,
    "ir.enable_si_builder": bool,
    "testing.immutable_module": bool,
    "tir.HoistExpression": {"hoisted_conditionals": int, "hoisted_let_bindings": int},
    "tir.HoistIfThenElse": {"support_block_scope_hoisting": bool},
    "tir.InjectDoubleBuffer": {"split_loop": int},
    "tir.LoopPartition": {
        "partition_const_loop": bool, "no_unroll_loop_with_extent_one": bool,
        "unroll_loop_with_partition_hint_no_interval": bool,
    },
    "tir.ReduceBranchingThroughOvercompute": {"use_dataflow_analysis": bool},
    "tir.RemoveNoOp": {"use_dataflow_analysis": bool, "max_simplification_steps": int},
    "tir.Simplify": {
        "transitively_prove_inequalities": bool, "propagate_knowns_to_prove_conditional": bool,
        "propagate_knowns_to_simplify_expressions": bool, "convert_boolean_to_and_of_ors": bool,
        "apply_constraints_to_boolean_branches": bool,
    },
    "tir.UnrollLoop": {
        "auto_max_step": int, "auto_max_depth": int, "auto_max_extent": int, "explicit_unroll": bool,
        "unroll_local_access": bool,
    },
    "tir.add_lower_pass": list,
    "tir.debug_keep_trivial_loop": bool,
    "tir.detect_global_barrier": bool,
    "tir.disable_assert": bool,
    "tir.disable_cse_tir": bool,
    "tir.disable_storage_rewrite": bool,
    "tir.disable_vectorize": bool,
    "tir.enable_buffer_level_predication": bool,
    "tir.enable_debug": bool,
    "tir.enable_equiv_terms_in_cse_tir": bool,
    "tir.instrument_bound_checkers": bool,
    "tir.is_entry_func": bool,
    "tir.merge_static_smem": bool,
    "tir.noalias": bool,
    "tir.ptx_ldg32": bool,
    "tir.reset_start_id": bool,
    "tir.use_async_copy": bool,
    "tir.vtcm_capacity": int,
    "relax.FuseOps.max_depth": int,
    "relax.backend.use_cuda_graph": bool,
    "relax.transform.apply_legalize_ops": bool,
}  # fmt: skip
"""Every option: a type, or the fields of a group with their types."""


def register_config(key: str, kind: Any) -> None:
    """Let PassContext take the option `key`; `kind` is a type, or a mapping of field names to types."""
    CONFIG[key] = kind


def list_configs() -> dict[str, dict[str, str]]:
    """The options that there are, with their types."""
    return {k: {"type": "group" if isinstance(v, dict) else v.__name__} for k, v in sorted(CONFIG.items())}


def check_config(config: Mapping[str, Any]) -> None:
    """Raise ConfigError (TW0535) for an option that does not exist or a value that does not fit."""
    for key, value in config.items():
        kind = CONFIG.get(key)
        if kind is None:
            raise _unknown("configuration option", key, list(CONFIG))
        if isinstance(kind, dict):
            _check_group(key, value, kind)
        else:
            _check_value(key, value, kind)


def _check_group(key: str, value: Any, fields: dict[str, type]) -> None:
    if not isinstance(value, Mapping):
        if not any(hasattr(value, f) for f in fields):
            raise ConfigError.at("TW0535", f"{key} takes a mapping of {', '.join(fields)}, not {type(value).__name__}")
        return
    table: Mapping[str, Any] = value
    for field, x in table.items():
        if field not in fields:
            raise _unknown(f"field of {key}", field, list(fields))
        _check_value(f"{key}.{field}", x, fields[field])


def _check_value(key: str, value: Any, kind: type) -> None:
    fits = isinstance(value, (list, tuple)) if kind is list else hasattr(value, "__index__") or isinstance(value, kind)
    if not fits:
        raise ConfigError.at("TW0535", f"the option {key} is of type {kind.__name__}, not {type(value).__name__}")


def _unknown(what: str, name: str, known: list[str]) -> ConfigError:
    near = difflib.get_close_matches(name, known, 4, 0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(sorted(known))}"
    return ConfigError(Diagnostic("TW0535", f"there is no {what} {name!r}", hint=hint))
