"""Reading images at the points of a grid: ONNX's reference visits every element in Python."""

from __future__ import annotations

from typing import Any

from brickrt.graph.host.host_operator import HostOperator, evaluates, register
from brickrt.graph.host.node_arrays import shape_of, size_of
from brickrt.graph.host.operators.sampled_points import sampled
from brickrt.ops.definitions.sampled_points import sampled_in_numpy

register(HostOperator(elements=None, temporaries=16), "AffineGrid")


@evaluates(
    HostOperator(lambda arrays, at: size_of([*shape_of(arrays)[:2], *shape_of(arrays, 1)[1:-1]]), temporaries=16),
    "GridSample",
)
def _grid_sample(x, grid, mode="linear", padding_mode="zeros", align_corners=0, **_: Any):
    """The image at the points of a grid."""
    found = sampled(x, grid, mode, padding_mode, bool(align_corners))
    return (sampled_in_numpy(x, grid, mode, padding_mode, bool(align_corners)) if found is None else found,)
