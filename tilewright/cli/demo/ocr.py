"""Reading printed text with three networks: what happens before, between and after them. numpy and Pillow only.

Detection gives the probability that a pixel is text; connected regions of it become boxes. Direction says whether a cropped
line stands on its head; recognition gives per column the probability of each character, decoded greedily (CTC).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Line", "boxes_of", "decode", "read_page"]

Network = Callable[[NDArray[np.float32]], NDArray[np.float32]]
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Line:
    """A line of text, how sure the network is (0..1), and its box (left, top, right, bottom) in pixels."""

    text: str
    score: float
    box: tuple[int, int, int, int]


def read_page(
    page: Image, detect: Network, direction: Network, recognise: Network, characters: Sequence[str]
) -> list[Line]:
    """The lines of `page` (height, width, 3; uint8, RGB), top to bottom."""
    height, width = page.shape[0] // 32 * 32, page.shape[1] // 32 * 32
    probability = detect(_normalise(_resize(page, width, height)))[0, 0]
    scale = (page.shape[1] / width, page.shape[0] / height)
    lines: list[Line] = []
    for left, top, right, bottom in boxes_of(probability):
        box = (int(left * scale[0]), int(top * scale[1]), int(right * scale[0]), int(bottom * scale[1]))
        crop = page[box[1] : box[3], box[0] : box[2]]
        if _upside_down(crop, direction):
            crop = crop[::-1, ::-1]
        text_width = max(16, round(48 * crop.shape[1] / crop.shape[0]))
        text, score = decode(recognise(_normalise(_resize(crop, text_width, 48)))[0], characters)
        if text:
            lines.append(Line(text, score, box))
    return sorted(lines, key=lambda line: (line.box[1], line.box[0]))


def _resize(image: Image, width: int, height: int) -> Image:
    from PIL import Image as Pillow

    if image.shape[:2] == (height, width):
        return image
    return np.asarray(Pillow.fromarray(np.ascontiguousarray(image)).resize((width, height), Pillow.Resampling.BILINEAR))


def _normalise(image: Image) -> NDArray[np.float32]:
    """uint8 RGB (h, w, 3) to float32 BGR (1, 3, h, w) in -1..1, as the networks were trained."""
    x = image[:, :, ::-1].astype(np.float32) / 127.5 - 1.0
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None])


def _upside_down(crop: Image, direction: Network) -> bool:
    width = min(192, max(1, round(48 * crop.shape[1] / crop.shape[0])))
    x = np.zeros((1, 3, 48, 192), np.float32)
    x[:, :, :, :width] = _normalise(_resize(crop, width, 48))
    upright, turned = direction(x)[0]
    return bool(turned > upright and turned > 0.9)


def boxes_of(probability: NDArray[Any], threshold: float = 0.3, sure: float = 0.5) -> list[tuple[int, int, int, int]]:
    """Boxes (left, top, right, bottom) around connected regions above `threshold` whose mean is above `sure`.

    The network marks the core of a line; a box is grown by 1.6 area / perimeter (the "unclip" of the DB detector, Liao et al. 2020).
    """
    height, width = probability.shape
    out: list[tuple[int, int, int, int]] = []
    for runs in _regions(probability > threshold):
        left, right = min(r[1] for r in runs), max(r[2] for r in runs)
        top, bottom = min(r[0] for r in runs), max(r[0] for r in runs) + 1
        if bottom - top < 3 or probability[top:bottom, left:right].mean() < sure:
            continue
        grow = 1.6 * (right - left) * (bottom - top) / (2 * (right - left + bottom - top))
        out.append(
            (
                max(0, round(left - grow)),
                max(0, round(top - grow)),
                min(width, round(right + grow)),
                min(height, round(bottom + grow)),
            )
        )
    return out


def _regions(mask: NDArray[np.bool_]) -> list[list[tuple[int, int, int]]]:
    """Connected regions as lists of runs (row, start, stop), by union-find over the runs of neighbouring rows."""
    runs: list[tuple[int, int, int]] = []
    parent: list[int] = []

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    above: list[int] = []
    for y, row in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate(([False], row, [False])).astype(np.int8)))
        here: list[int] = []
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            index = len(runs)
            runs.append((y, int(start), int(stop)))
            parent.append(index)
            here.append(index)
            for other in above:
                if runs[other][1] < stop and start < runs[other][2]:
                    parent[root(index)] = root(other)
        above = here
    groups: dict[int, list[tuple[int, int, int]]] = {}
    for i, run in enumerate(runs):
        groups.setdefault(root(i), []).append(run)
    return list(groups.values())


def decode(probabilities: NDArray[Any], characters: Sequence[str]) -> tuple[str, float]:
    """Greedy CTC: the best class of each column, repeats merged, blanks (class 0) dropped; and the mean probability."""
    best = probabilities.argmax(axis=1)
    keep = (best != 0) & np.concatenate(([True], best[1:] != best[:-1]))
    if not keep.any():
        return "", 0.0
    text = "".join([characters[int(i) - 1] for i in best[keep]])
    return text, float(probabilities.max(axis=1)[keep].mean())
