"""What the commands share: compile with progress, make inputs, run a peer, compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.cli.output import Output
from tilewright.ir import dtype as dt
from tilewright.ir.target import Target

__all__ = ["compile_model", "load", "make_inputs", "onnxruntime_session", "relative_difference"]


def compile_model(args: Any, output: Output, model: Any = None) -> Any:
    """The executable of `args.model`, with a progress bar."""
    from tilewright.driver.build import compile as compile_

    if getattr(args, "threads", None):
        from tilewright.runtime.threads import set_num_threads

        set_num_threads(args.threads)
    model = args.model if model is None else model
    with output.progress(Path(str(model)).name) as progress:
        return compile_(
            model,
            target=Target(getattr(args, "target", "llvm")),
            shapes=dict(getattr(args, "shape", ())),
            dump_ir=getattr(args, "dump_ir", None),
            progress=progress,
        )


def load(args: Any, output: Output) -> Any:
    """An executable from a model or from a compiled artifact."""
    if Path(args.model).suffix in (".tw", ".so", ".dylib", ".dll"):
        from tilewright.runtime.executable import load as load_artifact

        if args.threads:
            from tilewright.runtime.threads import set_num_threads

            set_num_threads(args.threads)
        return load_artifact(args.model)
    return compile_model(args, output)


def make_inputs(
    signature: Any, given: Sequence[tuple[str, str]], shapes: Mapping[str, Sequence[int]], seed: int
) -> dict[str, NDArray[Any]]:
    """An array for every input: from files where given, random otherwise. Raises ValueError that names the input."""
    sources = dict(given)
    names = [p.name for p in signature.inputs]
    for name in sources:
        if name not in names:
            raise ValueError(f"the model has no input {name!r}; its inputs: {', '.join(names)}")
    rng = np.random.default_rng(seed)
    dims: dict[str, int] = {}
    return {p.name: _array(p, sources.get(p.name, "random"), shapes.get(p.name), rng, dims) for p in signature.inputs}


def _array(
    param: Any, source: str, shape: Sequence[int] | None, rng: np.random.Generator, dims: dict[str, int]
) -> NDArray[Any]:
    if source != "random":
        return _load_array(param.name, source)
    concrete = list(shape) if shape else [_dimension(d, dims) for d in param.shape or ()]
    return random_array(concrete, param.dtype, rng)


def _dimension(d: Any, dims: dict[str, int]) -> int:
    """A size for a dimension: unknown ones are 1; the same name gets the same size."""
    return int(d) if isinstance(d, int) or str(d).isdigit() else dims.setdefault(str(d), 1)


def random_array(shape: Sequence[int], dtype: str, rng: np.random.Generator) -> NDArray[Any]:
    """Normal numbers for floats, 0 and 1 for bools and integers (safe as indices)."""
    if dt.is_float(dtype):
        return rng.standard_normal(shape).astype(dt.to_numpy(dtype))
    return rng.integers(0, 2, shape).astype(dt.to_numpy(dtype))


def _load_array(name: str, source: str) -> NDArray[Any]:
    path = Path(source)
    if not path.exists():
        raise ValueError(f"input {name}: no file {source}")
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    if name in loaded.files:
        return loaded[name]
    if len(loaded.files) == 1:
        return loaded[loaded.files[0]]
    raise ValueError(f"input {name}: {source} holds {', '.join(loaded.files)}, none of that name")


def onnxruntime_session(model: str, threads: int | None = None) -> Any:
    """A session of the peer. Raises ImportError that says how to get it."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise ImportError("onnxruntime is not installed: pip install onnxruntime") from None
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if threads:
        options.intra_op_num_threads = threads
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def relative_difference(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """The largest difference over the largest magnitude; for integers 0 when equal, else inf."""
    if ours.shape != theirs.shape:
        raise ValueError(f"the outputs have shapes {ours.shape} and {theirs.shape}")
    if not np.issubdtype(theirs.dtype, np.floating):
        return 0.0 if np.array_equal(ours, theirs) else float("inf")
    if theirs.size == 0:
        return 0.0
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if np.array_equal(a, b, equal_nan=True):
        return 0.0
    return float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30))
