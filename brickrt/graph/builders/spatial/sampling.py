"""Images read at points that the network computes: kernels on CPUs, the host elsewhere."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.errors import Unsupported
from brickrt.ops.operators.sampling.grid_sample import LARGEST_PLANE, MOST_AXES, GridSample, Mode, Padding

FORMER_NAMES: dict[str, Mode] = {"bilinear": "linear", "bicubic": "cubic"}
"""Modes before opset 20."""
FLOAT32 = np.dtype(np.float32)


@builds("GridSample")
def grid_sample(b: Builder, node: OnnxNode) -> str:
    """float32 images of two or three axes."""
    x, grid = map(b.type, node.inputs)
    mode = node.attrs.get("mode", "linear")
    op = GridSample(
        FORMER_NAMES.get(mode, cast(Mode, mode)),
        cast(Padding, node.attrs.get("padding_mode", "zeros")),
        bool(node.attrs.get("align_corners", 0)),
    )
    planes = 2 < x.rank <= 2 + MOST_AXES and 0 < math.prod(x.shape[2:]) <= LARGEST_PLANE
    if not b.cpu_operators or {x.dtype, grid.dtype} != {FLOAT32} or not planes or x.rank == 3:
        raise Unsupported("images at points have kernels on CPUs, in float32, for two or three axes")
    return b.emit(op, *node.inputs)
