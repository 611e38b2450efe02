"""Resize on the host, by the positions and weights that kernels have.

ONNX's reference takes the neighbour of a neighbour where rounding puts a position just below an element: of 28 elements
that become 68, one is off by a whole element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx.reference.ops.op_resize import Resize as ReferenceResize

from brickrt.graph.builders.spatial.resize import resize_attributes, resized_axes
from brickrt.graph.builders.spatial.resize_taps import AxisResize, axis_taps, nearest_table, outside
from brickrt.graph.host.host_operator import Attributes, HostOperator, evaluates, register
from brickrt.graph.host.node_arrays import Arrays, input_at, integers, shape_of, size_of
from brickrt.graph.onnx_import.protobuf import onnx_node
from brickrt.ops.operators.sampling.interp import AxisTaps


def _elements(arrays: Arrays, at: Attributes) -> int:
    shape, sizes = list(shape_of(arrays)), integers(input_at(arrays, 3))
    axes = at.get("axes", range(len(shape)))
    if sizes:
        scales = [size / shape[axis] for size, axis in zip(sizes, axes, strict=True)]
    else:
        scales = at["scales"] if "scales" in at else np.asarray(arrays[2 if len(arrays) > 2 else 1]).tolist()
    if at.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        scales = [max(scales)] * len(scales)
    for scale, axis in zip(scales, axes, strict=True):
        shape[axis] = math.ceil(shape[axis] * scale)
    return size_of(shape)


RESIZED = HostOperator(_elements, temporaries=8)
register(RESIZED, "Upsample")


@evaluates(RESIZED, "Resize")
class Resize(ReferenceResize):
    """Since opset 11, of tensors that are not empty; else as the reference has it."""

    def _run(self, X, roi=None, scales=None, sizes=None, *others: Any, **options: Any):
        node = onnx_node(self.onnx_node, self.run_params["opsets"], "Resize")
        crop, factors, extents = ([] if v is None else np.ravel(v).tolist() for v in (roi, scales, sizes))
        if node.version < 11 or 0 in X.shape or 0 in extents:
            return super()._run(X, roi, scales, sizes, *others, **options)
        attrs = resize_attributes(node)
        axes = resized_axes(attrs, X.shape, crop, factors, extents)
        if any(a.size < 1 for a in axes):
            return super()._run(X, roi, scales, sizes, *others, **options)
        return (resized(X, axes, attrs),)


def resized(x: np.ndarray, axes: Sequence[AxisResize], attrs: Mapping[str, Any]) -> np.ndarray:
    """A tensor with these axes resized, of which some of each is left."""
    transform = attrs["coordinate_transformation_mode"]
    axes, dtype = [a for a in axes if not a.trivial(transform)], x.dtype
    if attrs["mode"] == "nearest":
        for a in axes:
            x = x.take(nearest_table(a, transform, attrs["nearest_mode"]), a.axis)
    else:
        y = x.astype(np.float64)
        for a in axes:
            y = _weighted(y, axis_taps(a, transform, dict(attrs)), a.axis)
        x = _of_type(y, dtype)
    for a in axes if transform == "tf_crop_and_resize" else ():
        hole = outside(a).reshape(-1, *(1,) * (x.ndim - 1 - a.axis))
        x = np.where(hole, np.asarray(attrs["extrapolation_value"], dtype), x)
    return x


def _weighted(x: np.ndarray, taps: AxisTaps, axis: int) -> np.ndarray:
    """Sums over an axis, tap by tap."""
    indices, weights = taps.index_array, taps.weight_array
    column = (-1, *(1,) * (x.ndim - 1 - axis))
    total = x.take(indices[:, 0], axis) * weights[:, 0].reshape(column)
    for k in range(1, taps.count):
        total += x.take(indices[:, k], axis) * weights[:, k].reshape(column)
    return total


def _of_type(y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Integers are rounded and saturated."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        y = np.clip(np.rint(y), limits.min, limits.max)
    return y.astype(dtype)
