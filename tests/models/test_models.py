"""Every model of the pool, compiled, against onnxruntime: one artifact a model, for all its cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.models.zoo import BY_NAME, POOL, Inputs, Model, difference, session

TOLERANCE = 1e-4
EVALUATED = ("silero-vad", "magika", "ppocr-v4-cls", "mobilenetv2")
"""Models whose imported graph is also run by the numpy references: a fault there is the importer's."""


def need(model: Model) -> Any:
    """The model's path; skips the test where its package is missing."""
    why = model.missing()
    if why:
        pytest.skip(why)
    return model.load()


def check(got: Any, want: Any, names: list[str]) -> None:
    """Every output within the tolerance, relative to its scale."""
    outputs = list(got) if isinstance(got, (tuple, list)) else [got]
    assert len(outputs) == len(want)
    gaps = {n: difference(np.asarray(g), w) for n, g, w in zip(names, outputs, want)}
    assert max(gaps.values()) <= TOLERANCE, gaps


def shapes(case: Inputs) -> dict[str, tuple[int, ...]]:
    return {k: v.shape for k, v in case.items()}


@pytest.mark.parametrize("name", [m.name for m in POOL])
def test_compiled(name: str) -> None:
    """Native code gives onnxruntime's answers, for every case with one compiled artifact."""
    import tilewright as tw

    model = BY_NAME[name]
    path = need(model)
    reference = session(path)
    names = [o.name for o in reference.get_outputs()]
    executable = tw.compile(path, shapes=model.shapes or None)
    for case in model.cases():
        check(executable(**case), reference.run(None, case), names)


@pytest.mark.parametrize("name", EVALUATED)
def test_imported(name: str) -> None:
    """The imported graph means what onnxruntime computes, by the operators' numpy references."""
    from tilewright.frontend.onnx import from_onnx
    from tilewright.relax.evaluate import evaluate

    model = BY_NAME[name]
    path = need(model)
    reference = session(path)
    module = from_onnx(path, shape_dict=model.shapes)
    case = model.cases()[-1]
    got = evaluate(module, *(case[i] for i in module.attrs["input_names"]))
    check(got, reference.run(None, case), [o.name for o in reference.get_outputs()])


def test_a_decoder_continues_where_it_stopped() -> None:
    """Prefill, then tokens one by one with the cache: the logits are those of a longer prefill."""
    import tilewright as tw

    prefill = tw.compile(need(BY_NAME["gpt2-prefill"]))
    decode = tw.compile(need(BY_NAME["gpt2-decode"]))
    ids = np.random.default_rng(3).integers(0, 50257, (1, 12))
    _, cache = prefill(ids[:, :9])
    for t in range(9, 12):
        logits, cache = decode(ids[:, t : t + 1], cache)
    want, _ = prefill(ids)
    assert difference(np.asarray(logits)[:, 0], np.asarray(want)[:, -1]) <= TOLERANCE
