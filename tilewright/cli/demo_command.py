"""`tilewright demo`"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.cli.bench_command import interleave
from tilewright.cli.demo.ocr import Line, read_page
from tilewright.cli.models import compile_model, onnxruntime_session, relative_difference
from tilewright.cli.output import Output, format_time
from tilewright.support.diagnostics import CompileError

MODELS = {
    "detection": "ch_PP-OCRv4_det_infer.onnx",
    "direction": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "recognition": "ch_PP-OCRv4_rec_infer.onnx",
}
GET_MODELS = "pip install --no-deps --ignore-requires-python rapidocr-onnxruntime==1.4.4"


class Recorded:
    """A network as a function of one array; keeps the largest input it was given, to measure with."""

    def __init__(self, run: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        self.run = run
        self.seen: NDArray[Any] | None = None

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        if self.seen is None or x.size > self.seen.size:
            self.seen = x
        return self.run(x)


def find_models() -> dict[str, str]:
    """The three networks' files. Raises CompileError that says how to get them."""
    spec = find_spec("rapidocr_onnxruntime")
    if spec is None or spec.origin is None:
        raise CompileError.at("TW0801", "the demo's networks are not installed", hint=GET_MODELS)
    folder = Path(spec.origin).parent / "models"
    return {name: str(folder / file) for name, file in MODELS.items()}


def load_image(path: str | None) -> NDArray[np.uint8]:
    """A picture as (height, width, 3) RGB."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise CompileError.at("TW0801", "reading a picture needs Pillow", hint="pip install pillow") from None
    try:
        with Image.open(path or Path(__file__).parent / "demo" / "page.png") as image:
            return np.asarray(image.convert("RGB"))
    except UnidentifiedImageError:
        raise ValueError(f"{path} is not a picture that Pillow can read") from None


def characters_of(model: str) -> list[str]:
    """The character table that the recognition network carries in its metadata."""
    import onnx

    loaded = onnx.load(model, load_external_data=False)
    text = next(p.value for p in loaded.metadata_props if p.key == "character")
    return [*text.splitlines(), " "]


def run(args: Any, output: Output) -> int:
    """Compile, read, compare, measure."""
    page = load_image(args.image)
    files = find_models()
    networks: dict[str, Recorded] = {}
    executables: dict[str, Any] = {}
    for name, file in files.items():
        executables[name] = exe = compile_model(args, output, file)
        networks[name] = Recorded(exe)
        output.note(_compiled(name, exe.stats))
    start = time.perf_counter()
    characters = characters_of(files["recognition"])
    lines = read_page(page, networks["detection"], networks["direction"], networks["recognition"], characters)
    seconds = time.perf_counter() - start
    output.say(f"\nRead {len(lines)} lines in {format_time(seconds)}:", style="bold")
    for line in lines:
        output.say(f"  {line.text}")
    rows = _measure(args, files, networks, executables)
    output.say()
    peer = find_spec("onnxruntime") is not None
    headers = ["network", "compile", "from cache", "latency"] + (["onnxruntime", "ratio", "difference"] if peer else [])
    output.table(headers, [_cells(r) for r in rows])
    cached, total = sum(r["kernels_cached"] for r in rows), sum(r["kernels"] for r in rows)
    output.say(
        f"{cached} of {total} kernels came from the cache"
        + (": run it again to see the cache at work." if cached < total else ".")
    )
    if not peer:
        output.say("onnxruntime is not installed; with it, this table compares (pip install onnxruntime).")
    output.result({"lines": [_json(line) for line in lines], "networks": rows})
    bad = [r for r in rows if r.get("difference", 0.0) > 1e-4]
    return 1 if bad else 0


def _compiled(name: str, stats: dict[str, Any]) -> str:
    how = (
        "all from the cache"
        if stats["kernels_cached"] == stats["kernels"]
        else f"{stats['kernels_cached']} from the cache"
    )
    return f"compiled {name}: {stats['kernels']} kernels ({how}) in {format_time(stats['compile_seconds'])}"


def _json(line: Line) -> dict[str, Any]:
    return {"text": line.text, "score": line.score, "box": list(line.box)}


def _measure(
    args: Any, files: dict[str, str], networks: dict[str, Recorded], executables: dict[str, Any]
) -> list[dict[str, Any]]:
    from tilewright.runtime.threads import get_num_threads

    rows: list[dict[str, Any]] = []
    for name, network in networks.items():
        stats = executables[name].stats
        row: dict[str, Any] = {"name": name, **{k: stats[k] for k in ("compile_seconds", "kernels", "kernels_cached")}}
        rows.append(row)
        x = network.seen
        if x is None:
            continue
        runs: dict[str, Callable[[], Any]] = {"ours": lambda f=network.run, x=x: f(x)}
        if find_spec("onnxruntime") is not None:
            session = onnxruntime_session(files[name], args.threads or get_num_threads())
            feed = {session.get_inputs()[0].name: x}
            runs["theirs"] = lambda s=session, feed=feed: s.run(None, feed)[0]
            row["difference"] = relative_difference(np.asarray(network.run(x)), runs["theirs"]())
        best = {k: min(t) for k, t in interleave(runs, 1.0).items()}
        row["latency"] = best["ours"]
        if "theirs" in best:
            row["onnxruntime"], row["ratio"] = best["theirs"], best["ours"] / best["theirs"]
    return rows


def _cells(r: dict[str, Any]) -> list[str]:
    cells = [r["name"], format_time(r["compile_seconds"]), f"{r['kernels_cached']}/{r['kernels']}"]
    cells.append(format_time(r["latency"]) if "latency" in r else "-")
    if "ratio" in r:
        cells += [format_time(r["onnxruntime"]), f"{r['ratio']:.2f}", f"{r['difference']:.1e}"]
    return cells
