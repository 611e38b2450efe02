"""Padding and cropping, as tables of positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import integers, normal_axis, optional, take
from brickrt.graph.errors import Unsupported


@builds("Pad")
def pad(b: Builder, node: OnnxNode) -> str:
    """The tensor with each axis padded or cropped at both ends."""
    x, shape = node.inputs[0], b.type(node.inputs[0]).shape
    amounts = integers(b, node, 1, "pads") or []
    mode = node.attrs.get("mode", "constant")
    axes = integers(b, node, 3, "axes")
    axes = list(range(len(shape))) if axes is None else [normal_axis(axis, len(shape)) for axis in axes]
    sides = list(zip(axes, amounts[: len(axes)], amounts[len(axes) :], strict=True))
    if any(max(-lo, 0) + max(-hi, 0) > shape[k] for k, lo, hi in sides):
        raise ValueError(f"the pads {amounts} crop more than there is")
    grown = {k: shape[k] + lo + hi for k, lo, hi in sides}
    b.check_tables([grown.get(k, extent) for k, extent in enumerate(shape)], b.type(x).dtype)
    return take(b, x, {k: positions(shape[k], lo, hi, mode) for k, lo, hi in sides}, _fill(b, node))


def _fill(b: Builder, node: OnnxNode) -> float | int | bool:
    name = optional(node, 2)
    if name and b.type(name).size:
        return b.scalar(name).item()
    dtype = b.type(node.inputs[0]).dtype
    return np.asarray(node.attrs.get("value", 0)).astype(dtype).item()


def positions(extent: int, before: int, after: int, mode: str) -> Sequence[int]:
    """Where each element of a padded axis comes from, -1 for the fill; negative amounts crop, and crop first."""
    first, last = min(max(-before, 0), extent), extent - max(-after, 0)
    kept = max(last - first, 0)
    index = np.arange(-max(before, 0), kept + max(after, 0))
    if mode == "constant" or (kept == 0 and index.size == 0):
        return np.where((index >= 0) & (index < kept), index + first, -1).tolist()
    if kept == 0:
        raise ValueError(f"nothing to pad from in mode {mode}")
    return (first + _wrapped(index, kept, mode)).tolist()


def _wrapped(index: np.ndarray, extent: int, mode: str) -> np.ndarray:
    if mode == "edge":
        return np.clip(index, 0, extent - 1)
    if mode == "wrap":
        return index % extent
    if mode == "reflect":
        period = max(2 * (extent - 1), 1)
        folded = index % period
        return np.minimum(folded, period - folded) if extent > 1 else np.zeros_like(index)
    raise Unsupported(f"padding mode {mode}")


@builds("CenterCropPad")
def center_crop_pad(b: Builder, node: OnnxNode) -> str:
    """The tensor cropped or padded at both ends to given extents."""
    x, shape = node.inputs[0], b.type(node.inputs[0]).shape
    sizes = integers(b, node, 1, "shape") or []
    axes = [normal_axis(axis, len(shape)) for axis in node.attrs.get("axes") or range(len(shape))]
    if any(size < 0 for size in sizes):
        raise ValueError(f"the extents {sizes} are not all positive or 0")
    grown = dict(zip(axes, sizes, strict=True))
    b.check_tables([grown.get(k, extent) for k, extent in enumerate(shape)], b.type(x).dtype)
    return take(b, x, {k: _centered(shape[k], size) for k, size in grown.items()})


def _centered(extent: int, size: int) -> Sequence[int]:
    """The odd element is cropped from, or added to, the end."""
    before = (size - extent) // 2 if size >= extent else -((extent - size) // 2)
    return positions(extent, before, size - extent - before, "constant")
