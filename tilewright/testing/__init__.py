"""Helpers of tests, under their known names."""

from tilewright.testing.utils import (
    assert_allclose,
    device_enabled,
    enabled_targets,
    fixture,
    main,
    parameter,
    parameters,
    parametrize_targets,
    requires_llvm,
    requires_package,
    skip_if_32bit,
)
