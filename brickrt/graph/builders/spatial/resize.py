"""Resize and Upsample: tables of positions for nearest, weighted taps for linear and cubic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, elementwise, normal_axis, optional, take, wide
from brickrt.graph.builders.scalar import F32, F64, FLOATS, like, maximum, minimum, rounded
from brickrt.graph.builders.spatial.resize_taps import AxisResize, axis_taps, nearest_table, outside
from brickrt.graph.errors import Unsupported
from brickrt.ops.expr import Expr, cast
from brickrt.ops.operators.sampling.interp import AxisTaps, Interp
from brickrt.ops.types import Shape


@builds("Upsample")
def upsample(b: Builder, node: OnnxNode) -> str:
    """Resize by scales, with the coordinates of old versions."""
    return _simple(
        b, node, node.attrs["scales"] if "scales" in node.attrs else b.value(node.inputs[1]).reshape(-1).tolist()
    )


@builds("Resize")
def resize(b: Builder, node: OnnxNode) -> str:
    """Resize to sizes or by scales. Opset 10 has only scales; all that came later is attributes with defaults."""
    if node.version < 11:
        return _simple(b, node, b.value(node.inputs[1]).reshape(-1).tolist())
    shape = b.type(node.inputs[0]).shape
    if 0 in shape:
        raise Unsupported("Resize of an empty tensor")
    attrs = resize_attributes(node)
    roi, scales, sizes = (_list(b, optional(node, k)) for k in (1, 2, 3))
    return _resized(b, node.inputs[0], resized_axes(attrs, shape, roi, scales, sizes), attrs)


def resize_attributes(node: OnnxNode) -> dict[str, Any]:
    """The attributes of a Resize node since opset 11, with their defaults."""
    return {
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_floor",
        "cubic_coeff_a": -0.75,
        "extrapolation_value": 0.0,
        "mode": "nearest",
        **node.attrs,
    }


def _simple(b: Builder, node: OnnxNode, scales: Sequence[float]) -> str:
    """Upsample, and Resize of opset 10: positions are x / scale, and nearest rounds toward what is kept whole."""
    x = node.inputs[0]
    axes = [_scaled(axis, extent, s) for axis, (extent, s) in enumerate(zip(b.type(x).shape, scales, strict=True))]
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "simple", **node.attrs}
    return _resized(b, x, axes, attrs)


def _resized(b: Builder, x: str, axes: list[AxisResize], attrs: dict) -> str:
    mode, transform = attrs.get("mode", "nearest"), attrs["coordinate_transformation_mode"]
    for a in axes:
        if a.size < 1 or not 0 < a.scale < math.inf:
            raise ValueError(f"axis {a.axis} of {a.extent} cannot become {a.size}, {a.scale} times as long")
    sizes = {a.axis: a.size for a in axes}
    b.check_tables([sizes.get(k, extent) for k, extent in enumerate(b.type(x).shape)], b.type(x).dtype)
    axes = [a for a in axes if not a.trivial(transform)]
    fill = attrs.get("extrapolation_value", 0.0)
    holes = {a.axis: outside(a) for a in axes} if transform == "tf_crop_and_resize" else {}
    if mode == "nearest":
        tables = {a.axis: nearest_table(a, transform, attrs["nearest_mode"]) for a in axes}
    else:
        taps = {a.axis: axis_taps(a, transform, attrs) for a in axes}
        x = _interpolated(b, x, taps)
        tables = {a.axis: np.arange(a.size) for a in axes if a.axis in holes}
    for axis, hole in holes.items():
        tables[axis] = np.where(hole, -1, tables[axis])
    return take(b, x, {axis: t.tolist() for axis, t in tables.items()}, np.asarray(fill, b.type(x).dtype).item())


def _interpolated(b: Builder, x: str, taps: dict[int, AxisTaps]) -> str:
    """Weighted sums in floating point; integers are rounded and saturated."""
    t = b.type(x)
    if not taps:
        return x
    real = F32 if t.dtype.itemsize < 4 else F64
    source = wide(b, x) if t.dtype in FLOATS else convert(b, x, real)
    y = b.emit(Interp(tuple(taps.get(k) for k in range(t.rank))), source)
    if t.dtype in FLOATS:
        return convert(b, y, t.dtype)
    return elementwise(b, lambda v: saturated(rounded(v), t.dtype), y)


def saturated(x: Expr, dtype: np.dtype) -> Expr:
    """Within the range of an integer type, and of that type."""
    limits = np.iinfo(dtype)
    return cast(minimum(maximum(x, like(x, limits.min)), like(x, limits.max)), dtype)


def resized_axes(
    attrs: Mapping[str, Any], shape: Shape, roi: list[float], scales: list[float], sizes: list[int]
) -> list[AxisResize]:
    """The axes of a tensor that are resized, by `scales` where `sizes` is empty."""
    axes = [normal_axis(axis, len(shape)) for axis in attrs.get("axes") or range(len(shape))]
    if not sizes:
        resized = [_scaled(axis, shape[axis], s) for axis, s in zip(axes, scales, strict=True)]
    else:
        resized = _sized(axes, shape, sizes, attrs.get("keep_aspect_ratio_policy", "stretch"))
    if attrs["coordinate_transformation_mode"] != "tf_crop_and_resize":
        return resized
    spans = zip(roi[: len(axes)], roi[len(axes) :], strict=True)
    return [replace(a, roi=span) for a, span in zip(resized, spans, strict=True)]


def _list(b: Builder, name: str) -> list:
    return b.value(name).reshape(-1).tolist() if name else []


def _scaled(axis: int, extent: int, scale: float) -> AxisResize:
    """An axis by its scale; the new extent is computed in float32, as ONNX infers shapes."""
    if not 0 < scale < math.inf:
        raise ValueError(f"a scale of {scale} along axis {axis}")
    return AxisResize(axis, extent, math.floor(np.float32(extent) * np.float32(scale)), float(scale))


def _sized(axes: list[int], shape: tuple[int, ...], sizes: list[int], policy: str) -> list[AxisResize]:
    ratios = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    if policy == "stretch":
        return [AxisResize(k, shape[k], size, ratio) for k, size, ratio in zip(axes, sizes, ratios, strict=True)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [AxisResize(k, shape[k], int(ratio * shape[k] + 0.5), ratio) for k in axes]
