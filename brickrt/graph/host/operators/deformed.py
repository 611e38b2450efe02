"""Convolutions whose taps lie at offsets of their own (DeformConv): what all taps read of an image becomes columns of a
matrix, some of them at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brickrt.graph.host.host_operator import Attributes, HostOperator, evaluates
from brickrt.graph.host.node_arrays import FLOAT, Arrays
from brickrt.graph.host.operators.channels_last import whole
from brickrt.graph.host.operators.of_reference.windows import conv_products
from brickrt.graph.host.operators.sampled_points import readable
from brickrt.ops.definitions.sampled_points import point_taps, read_between

BLOCK = 1 << 22
"""Elements of a block of columns, or as many as an image has: a product of many columns waits for threads once."""
POINT = 256
"""Bytes for each point that NumPy reads an image at: between which pixels it lies, and their weights."""
Reader = Callable[[np.ndarray], np.ndarray]
"""Gives what parts of an image [parts, channels, …] have at points [parts, points, axes]: [parts, channels, points]."""


def _bytes(arrays: Arrays, at: Attributes, made: int, usual: float) -> float:
    """An image turned, where the taps of all outputs lie, and a block of columns with what is between."""
    x, weights, offsets = (np.asarray(v) for v in arrays[:3])
    image = x.size // max(1, len(x))
    outputs = len(offsets) * len(weights) * math.prod(offsets.shape[2:])
    columns = max(BLOCK, image, x.shape[1] * math.prod(weights.shape[2:]))
    columns = min(columns, x.shape[1] * math.prod(weights.shape[2:]) * math.prod(offsets.shape[2:]))
    wide = max(4, x.itemsize)
    points = columns // x.shape[1] * max(1, at.get("offset_group", 1))
    turned = image // x.shape[-1] // x.shape[1] * whole(x.shape[-1]) * whole(x.shape[1]) * 4
    placed = 2 * FLOAT * offsets.size // max(1, len(offsets))
    return wide * (3 * outputs + 3 * columns + weights.size) + POINT * points + max(turned, x.itemsize * image) + placed


@evaluates(HostOperator(elements=None, products=conv_products, working_bytes=_bytes), "DeformConv")
def _deform_conv(x, w, offset, bias=None, mask=None, group=1, offset_group=1, **windows: Any):
    """A convolution whose taps lie at offsets of their own, each with a factor."""
    kernel, space = w.shape[2:], offset.shape[2:]
    rank, count, taps, outputs = len(kernel), len(x), math.prod(kernel), math.prod(space)
    dtype = np.result_type(x.dtype, np.float32)
    start = _window_positions(kernel, space, windows)
    moved = offset.reshape(count, offset_group, taps, rank, outputs)
    factors = None if mask is None else mask.reshape(count, offset_group, 1, taps, outputs)
    weights = w.reshape(group, len(w) // group, -1).astype(dtype)
    out = np.empty((count, group, len(w) // group, outputs), x.dtype)
    for n, image in enumerate(x):
        read = _reader(image.reshape(offset_group, -1, *image.shape[1:]), taps * outputs)
        step = max(1, max(BLOCK, image.size) // max(1, len(image) * taps))
        for first in range(0, outputs, step):
            some = slice(first, first + step)
            at = start[..., some] + np.moveaxis(moved[n, ..., some], 2, 0)
            columns = read(_points(at)).reshape(offset_group, -1, *at.shape[2:])
            if factors is not None:
                columns = columns * factors[n, ..., some]
            out[n, ..., some] = weights @ columns.reshape(group, weights.shape[-1], -1)
    out = out.reshape(count, len(w), *space)
    return (out if bias is None else out + bias.reshape(-1, *(1,) * rank),)


def _window_positions(kernel: Sequence[int], space: Sequence[int], windows: dict[str, Any]) -> np.ndarray:
    """Where each tap of a window lies for each output: float32 [dimension, 1, taps, outputs]."""
    rank = len(kernel)
    strides, dilations = (windows[name] or [1] * rank for name in ("strides", "dilations"))
    pads = windows["pads"] or [0] * rank
    found = np.empty((rank, *kernel, *space), np.float32)
    for axis in range(rank):
        taps, outputs = np.arange(kernel[axis]) * dilations[axis], np.arange(space[axis]) * strides[axis] - pads[axis]
        shape = [1] * 2 * rank
        shape[axis], shape[rank + axis] = len(taps), len(outputs)
        found[axis] = (taps[:, None] + outputs).reshape(shape)
    return found.reshape(rank, 1, math.prod(kernel), math.prod(space))


def _points(at: np.ndarray) -> np.ndarray:
    """Positions [dimension, parts, taps, outputs] as points, the last dimension first: [parts, points, dimensions]."""
    return np.stack([*at[::-1]], -1).reshape(at.shape[1], -1, len(at))


def _reader(image: np.ndarray, points: int) -> Reader:
    """Reads parts of an image at so many points in all, in compiled code or in NumPy; outside of it there are zeros."""
    compiled = readable(image, points, "linear", "zeros", None)
    if compiled is not None:
        return lambda at: compiled.at(at.astype(np.float32, copy=False))

    def read(at: np.ndarray) -> np.ndarray:
        places = zip(at.reshape(-1, at.shape[-1]).T[::-1], image.shape[2:], strict=True)
        axes = [point_taps(place, extent, "linear", "zeros", 0.0) for place, extent in places]
        return read_between(image, axes).reshape(*at.shape[:2], -1).swapaxes(1, 2)

    return read
