"""Where the elements of a resized axis come from, and how much each counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from brickrt.graph.errors import Unsupported
from brickrt.ops.operators.sampling.interp import AxisTaps


@dataclass(frozen=True)
class AxisResize:
    """An axis of `extent` elements that becomes one of `size`; `roi` is the part read, from 0 to 1."""

    axis: int
    extent: int
    size: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)

    def trivial(self, transform: str) -> bool:
        """Whether the axis stays as it is."""
        cropped = transform == "tf_crop_and_resize" and self.roi != (0.0, 1.0)
        return self.size == self.extent and math.isclose(self.scale, 1.0) and not cropped


def originals(a: AxisResize, transform: str, dtype: type[np.floating]) -> np.ndarray:
    """The position in the input of every output element, computed in `dtype`."""
    x, scale, length = np.arange(a.size, dtype=dtype), dtype(a.scale), dtype(a.scale * a.extent)
    last, half = dtype(a.extent - 1), dtype(0.5)
    if transform == "asymmetric":
        return x / scale
    if transform == "align_corners":
        return np.zeros_like(x) if length == 1 else x * last / (length - 1)
    if transform == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if transform == "tf_crop_and_resize":
        return _crop_positions(a, x, last)
    if transform == "pytorch_half_pixel" and a.size <= 1:
        return np.zeros_like(x)
    if transform == "half_pixel_symmetric":
        return dtype(a.extent / 2) * (1 - a.size / length) + (x + half) / scale - half
    if transform in ("half_pixel", "pytorch_half_pixel"):
        return (x + half) / scale - half
    raise Unsupported(f"Resize with coordinates '{transform}'")


def _crop_positions(a: AxisResize, x: np.ndarray, last: np.floating) -> np.ndarray:
    start, end = (x.dtype.type(v) for v in a.roi)
    if a.size <= 1:
        return np.full_like(x, (start + end) * last / 2)
    return start * last + x * (end - start) * last / x.dtype.type(a.size - 1)


def outside(a: AxisResize) -> np.ndarray:
    """Which elements of a cropped axis lie outside the input."""
    x = originals(a, "tf_crop_and_resize", np.float64)
    return (x < 0) | (x > a.extent - 1)


def nearest_table(a: AxisResize, transform: str, rounding: str) -> np.ndarray:
    """The element that each output element is. In float32, as other runtimes do: positions may just miss an integer."""
    x = originals(a, transform, np.float32)
    if rounding == "simple":
        rounding = "ceil" if a.scale < 1 else "floor"
    if rounding == "round_prefer_floor":
        index = np.ceil(x - np.float32(0.5))
    elif rounding == "round_prefer_ceil":
        index = np.floor(x + np.float32(0.5))
    else:
        index = np.ceil(x) if rounding == "ceil" else np.floor(x)
    return np.clip(index, 0, a.extent - 1).astype(np.int64)


def axis_taps(a: AxisResize, transform: str, attrs: dict) -> AxisTaps:
    """Linear or cubic weights; with `antialias`, the kernel is as wide as the input elements of an output element."""
    support = {"linear": 1, "cubic": 2}.get(attrs["mode"])
    if support is None:
        raise Unsupported(f"Resize in mode '{attrs['mode']}'")
    shrink = min(a.scale, 1.0) if attrs.get("antialias", 0) else 1.0
    x = originals(a, transform, np.float64)[:, None]
    reach = math.ceil(support / shrink)
    index = np.ceil(x) - reach + np.arange(2 * reach)
    distance = np.abs(index - x) * shrink
    weights = _cubic(distance, attrs["cubic_coeff_a"]) if support == 2 else np.maximum(1 - distance, 0)
    if attrs.get("exclude_outside", 0):
        weights = np.where((index < 0) | (index >= a.extent), 0, weights)
    total = weights.sum(axis=1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    index = np.clip(index, 0, a.extent - 1).astype(np.int64)
    return AxisTaps(index, weights)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
