"""Images read at points that the network computes: kernels on CPUs, the host elsewhere."""

from __future__ import annotations

from typing import cast

import numpy as np

from brickrt.graph.builder import Builder, OnnxNode, builds
from brickrt.graph.errors import Unsupported
from brickrt.ops.definitions.sampled_points import FORMER_NAMES
from brickrt.ops.operators.sampling.grid_sample import MOST_AXES, GridSample, Mode, Padding, has_kernel_size

FLOAT32 = np.dtype(np.float32)


@builds("GridSample")
def grid_sample(b: Builder, node: OnnxNode) -> str:
    """float32 images of two or three axes."""
    x, grid = map(b.type, node.inputs)
    mode = node.attrs.get("mode", "linear")
    op = GridSample(
        cast(Mode, FORMER_NAMES.get(mode, mode)),
        cast(Padding, node.attrs.get("padding_mode", "zeros")),
        bool(node.attrs.get("align_corners", 0)),
    )
    sized = 3 < x.rank <= 2 + MOST_AXES and has_kernel_size(x.shape[2:])
    if not b.cpu_operators or {x.dtype, grid.dtype} != {FLOAT32} or not sized:
        raise Unsupported("images at points have kernels on CPUs, in float32, for two or three axes")
    return b.emit(op, *node.inputs)
