"""What memory the operators of this package take for their outputs and beside them, where that is known exactly: others
count as many arrays as `temporary_bytes` says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from brickrt.graph.host.operators.channels_last import whole
from brickrt.graph.host.operators.deformed import BLOCK
from brickrt.graph.host.operators.order.greatest_elements import AT_ONCE
from brickrt.graph.host.operators.regions import region_bytes
from brickrt.graph.host.work import attributes, temporary_bytes

Arrays = Sequence[np.ndarray | None]
PLACE = FLOAT = 8  # bytes of a position, and of the widest float
ORDERED = 40
"""Bytes for each element of rows that are put in order: a copy, its words or places, and what is made of these."""

POINT = 256
"""Bytes for each point that NumPy reads an image at: between which pixels it lies, and their weights."""


def working_bytes(node: onnx.NodeProto, arrays: Arrays, made: int, read: int) -> float:
    """Bytes of the outputs, of which the first has `made`, and of what the node computes on its way there from so many
    that it reads."""
    known = _KNOWN.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if known is not None and arrays and arrays[0] is not None:
        try:
            needed = known(arrays, attributes(node), made)
            return temporary_bytes(node, arrays, made, read) if needed is None else needed
        except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
            pass  # running the node says what is wrong in better words
    return temporary_bytes(node, arrays, made, read)


def _top_k(arrays: Arrays, at: dict[str, Any], made: int) -> float:
    x = np.asarray(arrays[0])
    axis = at.get("axis", -1)
    count = int(np.asarray(arrays[1] if len(arrays) > 1 else at["k"]).reshape(-1)[0])
    outputs = x.size // max(1, x.shape[axis]) * count * (x.itemsize + PLACE)
    turned = axis % x.ndim != x.ndim - 1
    return outputs * (1 + turned) + x.nbytes * turned + ORDERED * min(x.size, max(AT_ONCE, x.shape[axis]))


def _rois(arrays: Arrays, at: dict[str, Any], made: int) -> float:
    """RoiAlign."""
    x, rois = (np.asarray(v) for v in arrays[:2])
    bins = at.get("output_height", 1), at.get("output_width", 1)
    return made + region_bytes(x, rois, bins, at.get("spatial_scale", 1.0), at.get("sampling_ratio", 0))


def _matmul(arrays: Arrays, at: dict[str, Any], made: int) -> float | None:
    """Integers and their product as floats, and the product as the widest integers."""
    a, b = (np.asarray(x) for x in arrays)
    if a.dtype.kind not in "iu":
        return None
    return FLOAT * (a.size + b.size) + made // a.itemsize * (FLOAT + PLACE + a.itemsize)


def _deformed(arrays: Arrays, at: dict[str, Any], made: int) -> float:
    """DeformConv: an image turned, where the taps of all outputs lie, and a block of columns with what is between."""
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


_KNOWN: dict[str, Callable[[Arrays, dict[str, Any], int], float | None]] = {
    "TopK": _top_k,
    "RoiAlign": _rois,
    "MatMul": _matmul,
    "DeformConv": _deformed,
}
