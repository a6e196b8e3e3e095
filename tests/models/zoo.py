"""The model pool: real networks from installed packages and seeded exports, with inputs to try them on.

Nothing here imports the packages that carry the models: their files are found by `find_spec`. A model whose package is
not installed says so by `missing()`, and its tests are skipped.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Inputs = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Model:
    """A model of the pool.

    load: gives a path or an onnx.ModelProto. cases: sample inputs, several where the model's shapes are dynamic: one
    compiled artifact serves them all. shapes: what has to be fixed at import, if anything. heavy: takes long to run.
    """

    name: str
    load: Callable[[], Any]
    cases: Callable[[], list[Inputs]]
    package: str = "onnx"
    file: str | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    heavy: bool = False

    def missing(self) -> str | None:
        """Why the model cannot be had here, or None."""
        if importlib.util.find_spec(self.package) is None:
            return f"needs the package {self.package}"
        if self.file is not None and not (package_folder(self.package) / self.file).exists():
            return f"{self.package} has no {self.file}"
        return None


def package_folder(package: str) -> Path:
    """Where an installed package lies, found without importing it."""
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    assert places, package
    return Path(next(iter(places)))


def _rng(name: str) -> np.random.Generator:
    return np.random.default_rng(sum(map(ord, name)))


def image(*shape: int, seed: int = 0) -> NDArray[Any]:
    """A smooth random picture (normalised colours): networks meet no white noise in practice."""
    rng = np.random.default_rng(seed)
    b, c, h, w = shape
    small = rng.standard_normal((b, c, max(h // 8, 1) + 2, max(w // 8, 1) + 2), dtype=np.float32)
    big = small.repeat(8, axis=2).repeat(8, axis=3)[:, :, :h, :w]
    noise = rng.standard_normal((b, c, h, w), dtype=np.float32)
    return np.ascontiguousarray((big[:, :, :h, :w] * 0.8 + noise * 0.3).astype(np.float32))


def page(*shape: int, seed: int = 0) -> NDArray[Any]:
    """Pictures of printed text, as the OCR models take them: black on white, colours from -1 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    batch, _, h, w = shape
    out = np.empty(shape, np.float32)
    for i in range(batch):
        picture = Image.new("L", (w, h), 255)
        for row in range(max(h // 48, 1)):
            text = ("Tilewright compiles models", "Sphinx of black quartz", "0123456789 judge my vow")[
                (seed + i + row) % 3
            ]
            ImageDraw.Draw(picture).text((4, 8 + 48 * row), text, 0, ImageFont.load_default(size=24))
        out[i] = np.asarray(picture, np.float32) / 127.5 - 1.0
    return out


# ---- the light models of the onnx wheel ------------------------------------------------------------------------------


def _weight(rng: np.random.Generator, role: tuple[str, int], shape: tuple[int, ...]) -> NDArray[Any]:
    """Values for a weight by the operand it is: activations neither die nor explode."""
    op, operand = role
    if op in ("Conv", "Gemm") and operand == 1:
        fan = int(np.prod(shape[1:])) if op == "Conv" else shape[-1]
        bound = np.sqrt(6.0 / fan) if op == "Conv" else np.sqrt(3.0 / fan)
        return (rng.random(shape, dtype=np.float32) * 2 - 1) * np.float32(bound)
    if (op == "BatchNormalization" and operand in (1, 4)) or op == "Mul":
        return rng.uniform(0.6, 1.2, shape).astype(np.float32)
    return rng.normal(0.0, 0.1, shape).astype(np.float32)


def light(name: str) -> Callable[[], Any]:
    """The path of a light model with seeded weights in the place of its constants, made now if it is not there yet."""

    def load() -> Path:
        import onnx

        from tests.models.export import folder

        path = folder() / f"light-{name}.onnx"
        if not path.exists():
            model = onnx.load(str(package_folder("onnx") / f"backend/test/data/light/light_{name}.onnx"))
            fill(model, name)
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_bytes(model.SerializeToString())
            os.replace(partial, path)
        return path

    return load


def fill(model: Any, name: str) -> None:
    """Replace ConstantOfShape nodes and float initialisers by seeded values; scale the last layer by one run of it."""
    from onnx import numpy_helper

    graph, rng = model.graph, _rng(name)
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.data_type == 7}
    sizes = {n.output[0]: tuple(shapes[n.input[0]]) for n in graph.node if n.op_type == "ConstantOfShape"}
    sizes |= {t.name: tuple(t.dims) for t in graph.initializer if t.data_type == 1}
    views = {n.input[0]: n.output[0] for n in graph.node if n.op_type == "Unsqueeze"}
    roles = {i: (n.op_type, k) for n in graph.node for k, i in enumerate(n.input)}
    weights = {w: _weight(rng, roles[views.get(w, w)], shape) for w, shape in sizes.items() if views.get(w, w) in roles}
    kept = [t.name for t in graph.initializer if t.data_type == 7 and roles[t.name][0] == "Reshape"]
    _keep(graph.node, [n.op_type != "ConstantOfShape" for n in graph.node])
    _keep(graph.input, ["data" in i.name and i.name not in weights for i in graph.input])
    _keep(graph.initializer, [t.name in kept for t in graph.initializer])
    last = next(n for n in reversed(graph.node) if n.op_type in ("Conv", "Gemm"))
    first = len(graph.initializer)
    graph.initializer.extend(numpy_helper.from_array(a, k) for k, a in weights.items())
    logits = _peek(model, last.output[0], {graph.input[0].name: image(1, 3, 224, 224)})
    for w in (i for i in last.input if i in weights):
        scaled = weights[w] / np.float32(logits.std() / 2.0)
        graph.initializer[first + list(weights).index(w)].CopyFrom(numpy_helper.from_array(scaled, w))


def _keep(items: Any, keep: list[bool]) -> None:
    for i in reversed(range(len(items))):
        if not keep[i]:
            del items[i]


def _peek(model: Any, name: str, feeds: Inputs) -> NDArray[Any]:
    """The value of a tensor inside a model, by onnxruntime."""
    import onnx

    outputs = list(model.graph.output)
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, None))
    try:
        return reference(model, feeds, [name])[0]
    finally:
        del model.graph.output[len(outputs) :]


# ---- onnxruntime ------------------------------------------------------------------------------------------------------


def session(model: Any, threads: int = 2) -> Any:
    """An onnxruntime session of a path or a ModelProto."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    source = str(model) if isinstance(model, (str, Path)) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def reference(model: Any, feeds: Inputs, outputs: list[str] | None = None) -> list[NDArray[Any]]:
    """What onnxruntime makes of the inputs."""
    return session(model).run(outputs, feeds)


def difference(got: NDArray[Any], want: NDArray[Any]) -> float:
    """The largest difference relative to the output's scale; 0 or inf for integers, inf where a nan is not one in both."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if want.dtype.kind not in "f":
        return 0.0 if np.array_equal(got, want) else float("inf")
    if want.size == 0:
        return 0.0
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return float("inf")
    gap = np.nanmax(np.abs(got.astype(np.float64) - want.astype(np.float64)))
    return float(gap / max(float(np.nanmax(np.abs(want))), 1e-30))


# ---- the pool ---------------------------------------------------------------------------------------------------------

LIGHT = {
    "resnet50": "gpu_0/data_0", "densenet121": "data_0", "squeezenet": "data_0", "shufflenet": "gpu_0/data_0",
    "inception_v1": "data_0", "inception_v2": "data_0", "vgg19": "data_0", "bvlc_alexnet": "data_0",
    "zfnet512": "gpu_0/data_0",
}  # fmt: skip


def _packaged(name: str, package: str, file: str, cases: Callable[[], list[Inputs]], **more: Any) -> Model:
    return Model(name, lambda: package_folder(package) / file, cases, package, file, **more)


def _exported(name: str, cases: Callable[[], list[Inputs]], **more: Any) -> Model:
    def load() -> Any:
        from tests.models.export import exported

        return exported(name)

    return Model(name, load, cases, "torch", **more)


def _images(name: str, *shapes: tuple[int, ...]) -> Callable[[], list[Inputs]]:
    return lambda: [{name: image(*s, seed=i)} for i, s in enumerate(shapes)]


def _pages(*shapes: tuple[int, ...]) -> Callable[[], list[Inputs]]:
    return lambda: [{"x": page(*s, seed=i)} for i, s in enumerate(shapes)]


def _encoder_cases() -> list[Inputs]:
    rng, cases = _rng("encoder"), []
    for batch, length in ((1, 8), (2, 37), (1, 128)):
        mask = np.ones((batch, length), np.int64)
        mask[-1, length // 2 + 1 :] = 0
        cases.append({
            "input_ids": rng.integers(0, 30522, (batch, length)),
            "attention_mask": mask,
            "token_type_ids": rng.integers(0, 2, (batch, length)),
        })  # fmt: skip
    return cases


def _prefill_cases() -> list[Inputs]:
    rng = _rng("prefill")
    return [{"input_ids": rng.integers(0, 50257, shape)} for shape in ((1, 8), (2, 33))]


def _decode_cases() -> list[Inputs]:
    rng = _rng("decode")
    return [
        {
            "input_ids": rng.integers(0, 50257, (b, 1)),
            "past": rng.standard_normal((12, 2, b, 12, past, 64), dtype=np.float32),
        }
        for b, past in ((1, 16), (2, 33))
    ]


def _silero_cases() -> list[Inputs]:
    rng = _rng("silero")
    wave = np.sin(np.arange(576) / 9.0)[None] * 0.3 + rng.normal(0, 0.05, (1, 576))
    state = rng.normal(0, 0.3, (2, 1, 128))
    return [
        {"input": wave.astype(np.float32), "state": s.astype(np.float32), "sr": np.array(16000, np.int64)}
        for s in (np.zeros_like(state), state)
    ]


def _magika_cases() -> list[Inputs]:
    rng = _rng("magika")
    text = np.frombuffer((b"def f(x):\n    return x + 1\n" * 80)[:2048], np.uint8).astype(np.int32)
    return [{"bytes": text[None]}, {"bytes": rng.integers(0, 257, (3, 2048)).astype(np.int32)}]


_V4 = "rapidocr_onnxruntime"
_SILERO = {"input": (1, 576), "state": (2, 1, 128), "sr": ()}

POOL: list[Model] = [
    *(
        Model(name, light(name), _images(data, (1, 3, 224, 224)), heavy=name in ("vgg19", "densenet121"))
        for name, data in LIGHT.items()
    ),
    _packaged("ppocr-v4-det", _V4, "models/ch_PP-OCRv4_det_infer.onnx", _pages((1, 3, 96, 160), (1, 3, 64, 64))),
    _packaged(
        "ppocr-v4-cls", _V4, "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", _pages((1, 3, 48, 192), (2, 3, 48, 192))
    ),
    _packaged("ppocr-v4-rec", _V4, "models/ch_PP-OCRv4_rec_infer.onnx", _pages((1, 3, 48, 96), (2, 3, 48, 160))),
    _packaged("ppocr-v6-det", "rapidocr", "models/PP-OCRv6_det_small.onnx", _pages((1, 3, 64, 96), (1, 3, 96, 64))),
    _packaged("ppocr-v6-rec", "rapidocr", "models/PP-OCRv6_rec_small.onnx", _pages((1, 3, 48, 96), (2, 3, 48, 160))),
    _packaged("magika", "magika", "models/standard_v3_3/model.onnx", _magika_cases),
    _packaged("silero-vad", "silero_vad", "data/silero_vad_16k_op15.onnx", _silero_cases, shapes=_SILERO),
    _exported("mobilenetv2", _images("image", (1, 3, 224, 224), (2, 3, 224, 224))),
    _exported("minilm", _encoder_cases),
    _exported("bert", lambda: _encoder_cases()[:2], heavy=True),
    _exported("gpt2-prefill", _prefill_cases, heavy=True),
    _exported("gpt2-decode", _decode_cases, heavy=True),
]

BY_NAME = {m.name: m for m in POOL}
