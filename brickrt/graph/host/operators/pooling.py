"""Maxima of windows and their positions, in NumPy's own loops.

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
from brickrt.graph.onnx_import.protobuf import onnx_node
from brickrt.ops.types import TensorType


class MaxPool(OpRun):
    """Maxima, and as second output their offsets in all of x; `storage_order` 1 counts by columns."""

    op_domain = ""

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
