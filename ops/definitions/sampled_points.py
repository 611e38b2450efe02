"""Images read between their pixels, in NumPy's own loops. Where points lie is found in float32, as the grid has it, so
that all who read images choose the same pixels; values have the type of the images, at least float32."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

Taps = tuple[np.ndarray, np.ndarray]
"""Indices and weights [points, taps] along one axis; what lies outside has weight 0."""

FORMER_NAMES = {"bilinear": "linear", "bicubic": "cubic"}
"""Modes before opset 20, with their names since."""
SHARPNESS = -0.75  # of cubic interpolation
FARTHEST_PIXEL = 1 << 22
"""Pixels beyond which a float32 does not tell places between pixels."""
AT_ONCE = 1 << 18  # elements that stay in a cache


def sampled_in_numpy(x: np.ndarray, grid: np.ndarray, mode: str, padding: str, align: bool) -> np.ndarray:
    """x [images, channels, …], at the points of `grid` [images, …, axes], innermost axis first."""
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    if not x.size or not out.size:
        return out
    together = max(1, AT_ONCE * len(x) // max(1, x.size, out.size))  # many small images, or a large one
    for first in range(0, len(x), together):
        some = slice(first, first + together)
        axes = []
        for extent, at in zip(x.shape[2:], grid[some].reshape(-1, grid.shape[-1]).T[::-1], strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                pixel = (at + 1) / 2 * (extent - 1) if align else ((at + 1) * extent - 1) / 2
            axes.append(point_taps(pixel, extent, mode, padding, 0.0 if align else 0.5))
        points = read_between(x[some], axes).reshape(len(x[some]), -1, x.shape[1])
        out[some] = np.moveaxis(points, 1, 2).reshape(out[some].shape)
    return out


def point_taps(at: np.ndarray, extent: int, mode: str, padding: str, margin: float) -> Taps:
    """Between which pixels of an axis positions lie; the image is reflected `margin` beyond its last ones."""
    mode = FORMER_NAMES.get(mode, mode)
    low, high = -margin, extent - 1 + margin
    at = np.where(np.isnan(at), at.dtype.type(0), at)
    at = np.rint(at) if mode == "nearest" else at
    if padding == "reflection":
        at = np.clip(at, -FARTHEST_PIXEL, FARTHEST_PIXEL)
    if mode == "cubic":
        pass  # only pixels are brought back into the image, as PyTorch and ONNX Runtime do it
    elif padding == "border":
        at = np.clip(at, 0, extent - 1)
    elif padding == "reflection":
        at = _reflected(at, low, high)
    if padding != "reflection":
        at = np.clip(at, -3, extent + 2)  # beyond, all is the same
    first = np.floor(at)
    if mode == "nearest":
        steps, weights = np.arange(1), np.ones((len(at), 1), at.dtype)
    elif mode == "linear":
        steps, weights = np.arange(2), np.stack([first + 1 - at, at - first], 1)
    else:
        steps = np.arange(-1, 3)
        weights = _cubic((at - first)[:, None] - steps)
    indices = first[:, None] + steps
    if padding == "reflection":
        indices = _reflected(indices, low, high)
    elif padding == "zeros":
        weights = weights * ((indices >= 0) & (indices < extent))
    return np.clip(indices, 0, extent - 1).astype(np.int64), weights


def _reflected(at: np.ndarray, low: float, high: float) -> np.ndarray:
    """Positions folded back and forth into [low, high]."""
    span = high - low
    if span <= 0:
        return np.full_like(at, low)
    with np.errstate(invalid="ignore"):
        inside = np.mod(at - low, 2 * span)
    folded = low + np.minimum(inside, 2 * span - inside)
    return np.where((at >= low) & (at <= high), at, folded)


def _cubic(distance: np.ndarray) -> np.ndarray:
    """Weights of pixels by their distance (Keys 1981)."""
    d, a = np.abs(distance), SHARPNESS
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    return np.where(d <= 1, near, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a)


def read_between(images: np.ndarray, axes: Sequence[Taps]) -> np.ndarray:
    """Images [count, channels, …] at points whose taps along each axis are given, as many for each image:
    [count · points, channels]."""
    count, channels = images.shape[:2]
    pixels = np.moveaxis(images.reshape(count, channels, -1), 1, 2).reshape(-1, channels)
    number = np.repeat(np.arange(count), len(axes[0][0]) // max(1, count))
    total = np.zeros((len(number), channels), np.result_type(images.dtype, np.float32))
    for choice in product(*(range(indices.shape[1]) for indices, _ in axes)):
        taps = [i[:, k] for (i, _), k in zip(axes, choice, strict=True)]
        at = np.ravel_multi_index([number, *taps], (count, *images.shape[2:]))
        weight = np.prod([w[:, k] for (_, w), k in zip(axes, choice, strict=True)], axis=0)
        total += pixels[at] * weight[:, None].astype(total.dtype)
    return total
