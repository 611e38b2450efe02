"""Maxima of windows and of the bins of regions, their positions, and values put there, in NumPy's own loops.

ONNX's reference visits every element in Python, and where strides are 1 counts positions from each channel's first.
"""

from __future__ import annotations

import math
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from brickrt.graph.builders.spatial.pooling import pool_of
from brickrt.graph.host.host_operator import Attributes, HostOperator, evaluates
from brickrt.graph.host.node_arrays import Arrays, input_at, integers, shape_of, size_of
from brickrt.graph.host.operators.of_reference.windows import pool_elements, pool_sums, spread_extents
from brickrt.graph.host.operators.regions import region_elements
from brickrt.graph.onnx_import.protobuf import onnx_node
from brickrt.ops.types import TensorType


@evaluates(HostOperator(pool_elements, pool_sums), "MaxPool")
class MaxPool(OpRun):
    """Maxima, and as second output their offsets in all of x; `storage_order` 1 counts by columns."""

    def _run(self, x, storage_order=0, **_: Any):
        space = x.shape[2:]
        op = pool_of(onnx_node(self.onnx_node, self.run_params["opsets"], "MaxPool"), space, "max")
        out = op.infer([TensorType(x.shape, x.dtype)]).shape
        windows = zip(out[2:], op.kernel, op.strides, op.dilations, op.pads, strict=True)
        places = [np.arange(o)[:, None] * s - p + np.arange(k) * d for o, k, s, d, p in windows]
        sides = range(len(space))
        steps = [math.prod(space[:a] if storage_order else space[a + 1 :]) for a in sides]
        best, offset, seen = np.zeros(out, x.dtype), np.zeros(out, np.int64), np.zeros(out[2:], bool)
        for taps in product(*map(range, op.kernel)):
            at = [place[:, tap] for place, tap in zip(places, taps, strict=True)]
            inside = reduce(np.logical_and.outer, [(a >= 0) & (a < e) for a, e in zip(at, space, strict=True)])
            values = x[(..., *np.ix_(*[np.clip(a, 0, e - 1) for a, e in zip(at, space, strict=True)]))]
            better = inside & (~seen | (values > best))
            best = np.where(better, values, best)
            offset = np.where(better, reduce(np.add.outer, [a * step for a, step in zip(at, steps)]), offset)
            seen |= inside
        images = np.arange(math.prod(out[:2])).reshape(*out[:2], *(1,) * len(space))
        return (best, offset + images * math.prod(space))[: len(self.output)]


def _unpooled(arrays: Arrays, at: Attributes) -> int:
    given = integers(input_at(arrays, 2))
    return size_of(given or [*shape_of(arrays)[:2], *spread_extents(arrays, at, at["kernel_shape"])])


@evaluates(HostOperator(_unpooled), "MaxUnpool")
def _max_unpool(x, offsets, output_shape=None, kernel_shape=None, pads=None, strides=None):
    """Values at their offsets in a tensor of zeros, which is a corner of the output where its shape is given."""
    rank = len(kernel_shape)
    pads, strides = pads or [0] * 2 * rank, strides or [1] * rank
    windows = zip(x.shape[2:], kernel_shape, strides, pads[:rank], pads[rank:], strict=True)
    space = [(extent - 1) * step + size - before - after for extent, size, step, before, after in windows]
    shape = (*x.shape[:2], *space)
    found = np.zeros(shape, x.dtype)
    found.reshape(-1)[offsets.reshape(-1)] = x.reshape(-1)
    if output_shape is None or output_shape.tolist() == list(shape):
        return (found,)
    out = np.zeros(output_shape, x.dtype)
    out[tuple(map(slice, shape))] = found
    return (out,)


@evaluates(HostOperator(region_elements), "MaxRoiPool")
def _max_roi_pool(x, rois, pooled_shape=None, spatial_scale=1.0, **_: Any):
    """The maxima of the bins of regions."""
    out = np.zeros((len(rois), x.shape[1], *pooled_shape), x.dtype)
    places = rois[:, 1:] * rois.dtype.type(spatial_scale)
    ends = np.trunc(places + np.copysign(0.5, places)).astype(int).reshape(-1, 2, 2)[:, :, ::-1]
    bins = [_bins(ends[..., k], pooled_shape[k], x.shape[2 + k]) for k in (0, 1)]
    images = np.ascontiguousarray(np.moveaxis(x, 1, -1))  # maxima of many channels at a time
    for number, rows, columns, result in zip(rois[:, 0].astype(int).tolist(), *bins, out):
        _bin_maxima(images[number], rows, columns, np.moveaxis(result, 0, -1))
    return (out,)


def _bins(ends: np.ndarray, count: int, limit: int) -> list[list[list[int]]]:
    """The first index and the end of each of `count` bins of regions with these first and last indices [regions, 2],
    cut to the image."""
    start, extent = ends[:, :1], np.maximum(ends[:, 1:] - ends[:, :1] + 1, 1)
    size, steps = extent.astype(np.float32) / np.float32(count), np.arange(count + 1, dtype=np.float32)
    edges = np.stack([np.floor(steps[:-1] * size), np.ceil(steps[1:] * size)], 2).astype(int) + start[..., None]
    return np.clip(edges, 0, limit).tolist()


def _bin_maxima(image: np.ndarray, rows: list[list[int]], columns: list[list[int]], out: np.ndarray) -> None:
    """Writes the maxima of an image [height, width, channels] to `out` [bins down, bins across, channels]: those of the
    rows of each bin, then of the columns. Nothing is written for bins without pixels."""
    left, right = columns[0][0], max(columns[0][0], columns[-1][1])
    lines = np.zeros((len(rows), right - left, image.shape[-1]), image.dtype)
    for line, (top, bottom) in zip(lines, rows, strict=True):
        if top < bottom:
            image[top:bottom, left:right].max(0, out=line)
    for k, (first, end) in enumerate(columns):
        if first < end:
            out[:, k] = lines[:, first - left : end - left].max(1)
