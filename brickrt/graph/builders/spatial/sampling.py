"""Images read at points that the network computes: kernels on CPUs, the host elsewhere."""

from __future__ import annotations

from typing import cast

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.builders.common import convert, wide
from brickrt.graph.errors import Unsupported
from brickrt.ops.definitions.sampled_points import FORMER_NAMES
from brickrt.ops.operators.sampling.grid_sample import FLOAT32, MOST_AXES, GridSample, Mode, Padding, has_kernel_size

FLOAT64 = np.dtype(np.float64)
FLOATS = FLOAT32, np.dtype(np.float16)
"""Types of images that are read at points by kernels."""


@builds("GridSample")
def grid_sample(b: Builder, node: OnnxNode) -> str:
    """float32 and float16 images of two or three axes. Points are found in float32; those of float64 choose the nearest
    pixel by more digits than that has, and are left to the host."""
    x, grid = map(b.type, node.inputs)
    mode = node.attrs.get("mode", "linear")
    op = GridSample(
        cast(Mode, FORMER_NAMES.get(mode, mode)),
        cast(Padding, node.attrs.get("padding_mode", "zeros")),
        bool(node.attrs.get("align_corners", 0)),
    )
    sized = 3 < x.rank <= 2 + MOST_AXES and has_kernel_size(x.shape[2:])
    found = grid.dtype in FLOATS or (grid.dtype == FLOAT64 and op.mode != "nearest")
    if not b.cpu_operators or x.dtype not in FLOATS or not found or not sized:
        raise Unsupported("images at points have kernels on CPUs, in float32 and float16, for two or three axes")
    points = convert(b, node.inputs[1], FLOAT32)
    return convert(b, b.emit(op, wide(b, node.inputs[0]), points), x.dtype)
