"""The ONNX standard's own node tests: each is imported and evaluated, or refused with a code; none gives a wrong answer."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from tests.frontend.onnx_tools import assert_same, imported
from tilewright.support.diagnostics import CompileError

REFUSALS = {"TW0304", "TW0308", "TW0309", "TW0312", "TW0314", "TW0316"}
"""Codes that say what is not supported. Any other error is a fault of the importer."""

DIFFERENT = {
    "test_l2normalization_axis_0",  # a vector of zeros: 0 / 0 where the reference says 0
    "test_resize_downsample_scales_linear_align_corners",  # onnxruntime takes whole sizes, as tilewright does
    "test_resize_downsample_scales_cubic_align_corners",
    "test_einsum_batch_matmul_bfloat16",
    "test_einsum_sum_bfloat16",  # numpy, which evaluates here, has no such einsum
    "test_reduce_max_empty_set",
    "test_reduce_min_empty_set",
    "test_reduce_log_sum_exp_empty_set",  # nor an extreme of nothing
}


def fixed(model: Any, feeds: dict[str, Any], keep: int = 1) -> Any:
    """The model with all inputs but the first as initialisers: axes and shapes have to be known."""
    made = type(model)()
    made.CopyFrom(model)
    for i in list(made.graph.input)[keep:]:
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(feeds[i.name]), i.name))
    del made.graph.input[keep:]
    return made


def outcome(case: Any) -> str:
    """`ok`, a code, or what is wrong."""
    inputs, outputs = case.data_sets[0]
    feeds = dict(zip([i.name for i in case.model.graph.input], inputs))
    if any(not isinstance(v, (np.ndarray, np.generic)) for v in [*inputs, *outputs]):
        return "skipped"
    narrow = any(str(np.asarray(v).dtype) in ("float16", "bfloat16") for v in outputs)
    for model in (case.model, lambda: fixed(case.model, feeds), lambda: fixed(case.model, feeds, 0)):
        try:
            chosen = model() if callable(model) else model
            got = imported(chosen, feeds)
            if narrow:
                got, outputs = [np.asarray(g, np.float32) for g in got], [np.asarray(o, np.float32) for o in outputs]
            assert_same(got, [np.asarray(o) for o in outputs], 2e-2 if narrow else 1e-4)
            return "ok"
        except CompileError as error:
            code = error.diagnostics[0].code
            if code != "TW0312":
                return code if code in REFUSALS else str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "TW0312"


@pytest.mark.slow
def test_node_cases() -> None:
    """No case goes wrong, and most of those of supported operators pass."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [c for c in load_model_tests(kind="node") if c.model is not None and c.data_sets]
        found = {c.name: outcome(c) for c in cases if c.name not in DIFFERENT}
    counts = Counter(found.values())
    wrong = {k: v[:300] for k, v in found.items() if v not in REFUSALS | {"ok", "skipped"}}
    assert not wrong, f"{wrong}\n{counts}"
    assert counts["ok"] > 900, counts
