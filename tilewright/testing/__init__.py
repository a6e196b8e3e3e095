"""Helpers of tests, under their known names."""

from tilewright.testing.compare import (
    CompareBeforeAfter,
    assert_prim_expr_equal,
    check_bool_expr_is_true,
    check_int_constraints_trans_consistency,
    check_numerical_grads,
)
from tilewright.testing.targets import (
    DEFAULT_TEST_TARGETS,
    device_enabled,
    enabled_targets,
    exclude_targets,
    known_failing_targets,
    parametrize_targets,
    requires_cuda,
    requires_gpu,
    requires_llvm,
    requires_metal,
    requires_opencl,
    requires_vulkan,
    requires_webgpu,
)
from tilewright.testing.utils import (
    assert_allclose,
    fixture,
    main,
    parameter,
    parameters,
    requires_package,
    skip_if_32bit,
    skip_if_wheel_test,
    slow,
)
