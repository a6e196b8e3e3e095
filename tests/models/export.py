"""Makes the models that no package carries: exports of torch modules with seeded random weights.

    python tests/models/export.py [NAME ...]      into the folder that `folder()` names; never committed

mobilenetv2 (image classifier), minilm (encoder 6 x 384), bert (encoder 12 x 768), gpt2-prefill and gpt2-decode (decoder
12 x 768; the second takes one token and a cache of keys and values). Batch and sequence are dynamic.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSION = 1
"""Count up when a module below changes: exports are kept by this number."""


def folder() -> Path:
    """Where exports are kept: $TILEWRIGHT_TEST_MODELS, or a folder for temporary files."""
    given = os.environ.get("TILEWRIGHT_TEST_MODELS")
    path = Path(given) if given else Path(tempfile.gettempdir()) / f"tilewright-test-models-{VERSION}"
    path.mkdir(parents=True, exist_ok=True)
    return path


def mobilenet_v2(nn: Any) -> Any:
    """MobileNetV2 at width 1: inverted residuals of pointwise and depthwise convolutions."""

    def layer(i: int, o: int, k: int = 1, s: int = 1, groups: int = 1, act: bool = True) -> Any:
        parts = [nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
        return nn.Sequential(*parts, *([nn.ReLU6()] if act else []))

    class Block(nn.Module):
        def __init__(self, i: int, o: int, stride: int, expand: int) -> None:
            super().__init__()
            mid = i * expand
            first = [layer(i, mid)] if expand != 1 else []
            self.body = nn.Sequential(*first, layer(mid, mid, 3, stride, groups=mid), layer(mid, o, act=False))
            self.residual = stride == 1 and i == o

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.residual else self.body(x)

    table = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    blocks, width = [layer(3, 32, 3, 2)], 32
    for expand, out, count, stride in table:
        for i in range(count):
            blocks.append(Block(width, out, stride if i == 0 else 1, expand))
            width = out
    head = [layer(width, 1280), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000)]
    return nn.Sequential(*blocks, *head)


def transformer(torch: Any, layers: int, width: int, heads: int, vocabulary: int, positions: int, decoder: bool) -> Any:
    """An encoder as BERT's (post-norm, token types, padding mask) or a decoder as GPT-2's (pre-norm, causal, cache)."""
    nn, functional = torch.nn, torch.nn.functional
    size = width // heads

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def attend(self, x: Any, mask: Any, past: Any) -> tuple[Any, Any, Any]:
            b, t, _ = x.shape
            q, k, v = (p.reshape(b, t, heads, size).transpose(1, 2) for p in self.qkv(x).split(width, dim=2))
            if past is not None:
                k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
            scores = q @ k.transpose(2, 3) / math.sqrt(size) + mask
            mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, width)
            return self.out(mixed), k, v

        def forward(self, x: Any, mask: Any, past: Any = None) -> tuple[Any, Any, Any]:
            if decoder:
                a, k, v = self.attend(self.norm1(x), mask, past)
                x = x + a
                return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh")), k, v
            a, k, v = self.attend(x, mask, past)
            x = self.norm1(x + a)
            return self.norm2(x + self.down(functional.gelu(self.up(x)))), k, v

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
            self.types, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.pooler = nn.Linear(width, width)

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> tuple[Any, Any]:
            place = torch.arange(input_ids.shape[1])
            x = self.norm(self.words(input_ids) + self.places(place) + self.types(token_type_ids))
            mask = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
            for block in self.blocks:
                x, _, _ = block(x, mask)
            return x, torch.tanh(self.pooler(x[:, 0]))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm = nn.LayerNorm(width)

        def forward(self, input_ids: Any, past: Any = None) -> tuple[Any, Any]:
            t = input_ids.shape[1]
            start = 0 if past is None else past.shape[4]
            place = torch.arange(start, start + t)
            x = self.words(input_ids) + self.places(place)
            seen = torch.arange(start + t)[None, :] <= place[:, None]
            mask = torch.where(seen, 0.0, -10000.0)
            cache = []
            for i, block in enumerate(self.blocks):
                x, k, v = block(x, mask, None if past is None else past[i])
                cache.append(torch.stack([k, v]))
            return self.norm(x) @ self.words.weight.T, torch.stack(cache)

    return Decoder() if decoder else Encoder()


def _seeded(torch: Any, module: Any) -> Any:
    """Live activations: He-like weights, and batch statistics that are not the identity."""
    generator = torch.Generator().manual_seed(1)
    for m in module.modules():
        if isinstance(m, torch.nn.Conv2d):
            fan = m.weight[0].numel()
            torch.nn.init.normal_(m.weight, 0.0, math.sqrt(2.0 / fan), generator=generator)
        elif isinstance(m, torch.nn.Embedding):
            torch.nn.init.normal_(m.weight, 0.0, 0.02 if m.num_embeddings > 2 else 0.1, generator=generator)
        elif isinstance(m, torch.nn.Linear):
            torch.nn.init.normal_(m.weight, 0.0, 0.7 / math.sqrt(m.in_features), generator=generator)
            torch.nn.init.normal_(m.bias, 0.0, 0.05, generator=generator)
        elif isinstance(m, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(m.weight, 0.5, 1.0, generator=generator)
            torch.nn.init.normal_(m.bias, 0.0, 0.1, generator=generator)
            m.running_mean.normal_(0.0, 0.1, generator=generator)
            m.running_var.uniform_(0.5, 1.5, generator=generator)
    return module.eval()


def _mobilenet(torch: Any, path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    _export(torch, mobilenet_v2(torch.nn), (torch.randn(2, 3, 224, 224),), path, ["image"], ["logits"], ({0: batch},))


def _encoder(layers: int, width: int, heads: int) -> Callable[[Any, Path], None]:
    def export(torch: Any, path: Path) -> None:
        module = transformer(torch, layers, width, heads, 30522, 512, decoder=False)
        ids = torch.randint(0, 30522, (2, 16))
        dims = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("sequence", min=2, max=512)}
        names = ["input_ids", "attention_mask", "token_type_ids"]
        args = (ids, torch.ones_like(ids), torch.zeros_like(ids))
        _export(torch, module, args, path, names, ["hidden", "pooled"], (dims, dims, dims))

    return export


def _decoder(cached: bool, layers: int = 12, width: int = 768, heads: int = 12) -> Callable[[Any, Path], None]:
    def export(torch: Any, path: Path) -> None:
        module = transformer(torch, layers, width, heads, 50257, 1024, decoder=True)
        batch, past = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("past", min=2, max=1000)
        if cached:
            args = (torch.randint(0, 50257, (2, 1)), torch.randn(layers, 2, 2, heads, 9, width // heads))
            _export(
                torch, module, args, path, ["input_ids", "past"], ["logits", "cache"], ({0: batch}, {2: batch, 4: past})
            )
        else:
            dims = {0: batch, 1: torch.export.Dim("sequence", min=2, max=1000)}
            args = (torch.randint(0, 50257, (2, 9)),)
            _export(torch, module, args, path, ["input_ids"], ["logits", "cache"], (dims,))

    return export


def _export(torch: Any, module: Any, args: Any, path: Path, inputs: Any, outputs: Any, dims: Any) -> None:
    program = torch.onnx.export(
        _seeded(torch, module), args, dynamo=True, opset_version=18, input_names=inputs, output_names=outputs,
        dynamic_shapes=dims, verbose=False, optimize=True,
    )  # fmt: skip
    program.save(str(path), external_data=True)


EXPORTS: dict[str, Callable[[Any, Path], None]] = {
    "mobilenetv2": _mobilenet,
    "minilm": _encoder(6, 384, 12),
    "bert": _encoder(12, 768, 12),
    "gpt2-prefill": _decoder(cached=False),
    "gpt2-decode": _decoder(cached=True),
}


def exported(name: str) -> Path:
    """The path of a model, exported now if it is not there yet."""
    path = folder() / name / "model.onnx"
    if not path.exists():
        import torch

        torch.manual_seed(0)
        with tempfile.TemporaryDirectory(dir=folder()) as work:
            EXPORTS[name](torch, Path(work) / "model.onnx")
            path.parent.mkdir(exist_ok=True)
            for made in sorted(Path(work).iterdir(), key=lambda p: p.suffix == ".onnx"):
                os.replace(made, path.parent / made.name)  # the model comes last: it is there when all of it is
    return path


if __name__ == "__main__":
    for name in sys.argv[1:] or EXPORTS:
        print(exported(name))
