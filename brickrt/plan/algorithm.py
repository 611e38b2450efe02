"""Which algorithm computes a convolution: direct, or Winograd's F(4×4, 3×3) or F(2×2, 3×3).

Winograd multiplies 4 or 2.25 times less often, but transforms, rounds a little more (a few 1e-6 of the largest output)
and streams 4 or 1.8 times the weights: it needs enough tiles to pay for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.conv import Conv
from brickrt.plan.device import DeviceSpec

DIRECT_SHARE, PRODUCT_SHARE = 0.75, 0.85  # of the multiply-add peak
TRANSFORM_CYCLES = 2.2  # per vector of V and of M
MARGIN = 0.85  # of the direct time that another algorithm may take
MOST_TILES = 14  # of a register tile


def choose_algorithms(graph: Graph, layouts: Mapping[str, str], device: DeviceSpec, exact: bool) -> dict[int, str]:
    """Node index → "winograd4" or "winograd2", for convolutions that are not computed directly."""
    if exact or device.kind != "cpu":
        return {}
    chosen = {}
    for k, node in enumerate(graph.nodes):
        if _winograd_fits(graph, layouts, node):
            name = _fastest(graph, node, device)
            if name != "direct":
                chosen[k] = name
    return chosen


def weight_growth(algorithm: str | None) -> float:
    """Transformed weights over weights."""
    return {"winograd4": 36 / 9, "winograd2": 16 / 9}.get(algorithm or "", 1.0)


def conv_cycles(graph: Graph, node: Node, device: DeviceSpec, algorithm: str | None) -> float:
    """Modelled cycles of one core for a convolution with 3×3 windows."""
    (n, c, *_), (_, k, h, w) = graph.ins(node)[0].shape, graph.out(node).shape
    lanes = device.lanes
    blocks = -(-k // lanes)
    if algorithm in (None, "direct"):
        return n * h * w * c * 9 * blocks / (2 * DIRECT_SHARE)
    m = int(str(algorithm)[-1])
    planes, tiles = (m + 2) ** 2, n * -(-h // m) * -(-w // m)
    size = min(range(MOST_TILES, 3, -1), key=lambda t: (-(-tiles // t) * t, -t))
    products = -(-tiles // size) * size * planes * c * blocks / (2 * PRODUCT_SHARE)
    weights = planes * c * k * 4
    sweeps = -(-tiles // (size * (1 if weights <= device.l2 else 3)))
    stream = weights * sweeps / _bytes_per_cycle(weights, device)
    return max(products, stream) + tiles * planes * TRANSFORM_CYCLES * (-(-c // lanes) + blocks)


def _bytes_per_cycle(nbytes: int, device: DeviceSpec) -> float:
    """What one core streams from the level that holds so many bytes."""
    if nbytes <= device.l2:
        return 20.0
    return 8.0 if nbytes <= device.l3 // 2 else 4.0


def _winograd_fits(graph: Graph, layouts: Mapping[str, str], node: Node) -> bool:
    op = node.op
    return (
        isinstance(op, Conv)
        and op.kernel == (3, 3)
        and {*op.strides, *op.dilations, op.groups} == {1}
        and graph.out(node).dtype == np.float32
        and layouts[node.inputs[0]] == layouts[node.output] == "blocked"
        and node.inputs[1] in graph.constants
        and math.prod(graph.out(node).shape) > 0
    )


def _fastest(graph: Graph, node: Node, device: DeviceSpec) -> str:
    direct = conv_cycles(graph, node, device, "direct")
    times = {name: conv_cycles(graph, node, device, name) for name in ("winograd4", "winograd2")}
    best = min(times, key=times.__getitem__)
    return best if times[best] < MARGIN * direct else "direct"
