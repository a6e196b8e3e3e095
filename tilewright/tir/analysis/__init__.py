"""Analyses of the loop IR: regions touched, work, lifetimes, unbound variables."""

from tilewright.tir.analysis.basic import (
    buffer_lifetimes,
    estimate_tir_flops,
    expr_deep_equal,
    has_side_effect,
    undefined_vars,
)  # fmt: skip
from tilewright.tir.analysis.checks import (
    OOBChecker,
    assert_pure_function,
    calculate_allocated_bytes,
    calculate_constant_bytes,
    calculate_workspace_bytes,
    find_anchor_block,
    get_vtcm_compaction_passes,
    is_pure_function,
    verify_memory,
)
from tilewright.tir.analysis.lca import detect_buffer_access_lca
from tilewright.tir.analysis.regions import (
    RegionUnion,
    accesses,
    detect_access,
    get_block_access_region,
    get_block_read_write_region,
    relax_range,
)  # fmt: skip
from tilewright.tir.analysis.ssa import verify_ssa
from tilewright.tir.analysis.verify_gpu_code import verify_gpu_code
from tilewright.tir.verify import verify_well_formed
