"""Which algorithm computes a layer: direct, Winograd's in tiles of 2, 4 or 6 outputs an edge for convolutions, or
Strassen's scheme for matrix products and pointwise convolutions (`strassen.py`).

F(4×4, 3×3) multiplies 4 times less often and F(4, 7) 2.8 times, but they transform, round a little more (a few 1e-6 of
the largest output) and stream up to 4 times the weights: they need enough tiles to pay for that. A direct convolution
leaves out the taps that fall on padding, which small images have many of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import Op
from brickrt.ops.cpu.winograd.axes import Axes, Axis, axes_of, fits
from brickrt.ops.cpu.winograd.sizes import choose_sizes
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Shape
from brickrt.plan.cost.roofline import compute_us, read_us
from brickrt.plan.cost.strassen import LEVELS, choose_product, growth, product_us
from brickrt.plan.device.device_spec import DeviceSpec

EDGES = {f"winograd{m}": m for m in (6, 5, 4, 3, 2)}  # outputs of a tile along each dimension that is tiled

DIRECT_SHARE, PRODUCT_SHARE = 0.8, 0.9  # of the multiply-add peak
TRANSFORM_FLOPS, TRANSFORM_BYTES = 10.0, 6.0  # per element of V and of M: additions at half the peak, traffic in L2
STRIDED_READS = 2.0  # times that for inputs a stride apart, which tiles hardly share
GATHERED, GATHERED_CHANNELS = 3.0, 4  # times that for single elements, of inputs of so few channels
STRIDED_HELD = 1.5  # of L2: what all residues of a group of tiles may take
MARGIN, STRIDED_MARGIN = 0.85, 0.72  # of the direct time that another algorithm may take


def choose_algorithms(graph: Graph, layouts: Mapping[str, str], device: DeviceSpec, exact: bool) -> dict[int, str]:
    """Node index → a name of `EDGES` or of `LEVELS`, for layers that are not computed directly."""
    if exact or device.kind != "cpu":
        return {}
    chosen, constants = {}, constant_bytes(graph)
    for k, node in enumerate(graph.nodes):
        if _may_transform(graph, layouts, node):
            name = _fastest(graph, node, device, constants, layouts[node.inputs[0]] == "blocked")
            if name != "direct":
                chosen[k] = name
        elif isinstance(node.op, MatMul) or (isinstance(node.op, Conv) and _is_blocked(layouts, node)):
            scheme = choose_product(graph, node, device, constants)
            if scheme is not None:
                chosen[k] = scheme
    return chosen


def weight_growth(op: Op, algorithm: str | None) -> float:
    """Transformed weights over weights."""
    if algorithm in LEVELS:
        return growth(LEVELS[algorithm])
    if algorithm is None:
        return 1.0
    assert isinstance(op, Conv)
    return axes_of(op, (1,) * len(op.kernel), EDGES[algorithm]).growth


def keeps_algorithm(node: Node, algorithm: str) -> bool:
    """Whether a node keeps its algorithm in bricks of several layers: those have few pixels for Strassen's scheme."""
    return not (isinstance(node.op, Conv) and algorithm in LEVELS)


def tile_outputs(op: Op, algorithm: str | None, dim: int) -> int:
    """Outputs along a dimension that are computed together."""
    if algorithm not in EDGES:
        return 1
    assert isinstance(op, Conv)
    return next(a.m * a.phases for a in axes_of(op, (1,) * len(op.kernel), EDGES[algorithm]) if a.dim == dim)


def constant_bytes(graph: Graph) -> int:
    """Of all weights: what does not fit the shared cache comes from memory in every run."""
    return sum(graph.types[name].nbytes for name in graph.constants)


def layer_us(graph: Graph, node: Node, device: DeviceSpec, algorithm: str | None, constants: int = 0) -> float:
    """Modelled microseconds of one core for a node that has algorithms to choose from."""
    windows = isinstance(node.op, Conv) and math.prod(node.op.kernel) > 1
    return (conv_us if windows else product_us)(graph, node, device, algorithm, constants)


def conv_us(graph: Graph, node: Node, device: DeviceSpec, algorithm: str | None, constants: int = 0) -> float:
    """Modelled microseconds of one core for an ungrouped convolution, in a graph with so many bytes of constants."""
    op, x, out = node.op, graph.ins(node)[0].shape, graph.out(node).shape
    assert isinstance(op, Conv)
    if algorithm in (None, "direct"):
        return _direct_us(op, x, out, device, constants)
    axes = axes_of(op, x[2:], EDGES[str(algorithm)])
    return winograd_us(axes, x[1], out, device, CoreShare(1, 1, constants))


def _direct_us(op: Conv, x: Shape, out: Shape, device: DeviceSpec, constants: int) -> float:
    sides = zip(out[2:], x[2:], op.kernel, op.strides, op.dilations, op.pads, strict=True)
    taps = [_live_taps(*side) for side in sides]
    products = out[0] * math.prod(int(t.sum()) for t in taps) * x[1] * -(-out[1] // device.lanes)
    weights = math.prod(int(np.count_nonzero(t)) for t in taps) * x[1] * out[1] * 4
    return max(compute_us(products, device, DIRECT_SHARE), read_us(weights, max(weights, constants), device))


@dataclass(frozen=True)
class CoreShare:
    """What a core has of a layer: so many equal boxes, in so many different pieces of the output's channels, of a
    graph with `constants` bytes of constants."""

    boxes: int
    pieces: int
    constants: int


def winograd_us(axes: Axes, channels: int, box: Shape, device: DeviceSpec, share: CoreShare) -> float:
    """Modelled microseconds of one core for its boxes of the output, from `channels` channels of the input.

    The weights of each piece of channels come once from where all constants lie, then from where those of a box do.
    """
    swept = axes.swept
    depth, *sides = (1 if axis.dim is None else box[axis.dim] for axis in axes)
    blocks_in, blocks = (-(-count // device.lanes) for count in (channels, box[1]))
    extents = zip(axes[1:], sides, strict=True)
    tiles = box[0] * math.prod(int(axis.tiles(np.array(extent))) for axis, extent in extents)
    panel = swept.r * channels * blocks * device.lanes * 4
    sizes = choose_sizes(tiles, depth, min(2, blocks), device.registers, axes.planes * axes.residues * panel)
    padded = -(-tiles // sizes.t) * sizes.t
    taps = _taps_per_output(swept)
    products = padded * depth * taps * axes.products * channels * blocks
    sweeps = share.boxes * -(-tiles // sizes.group) * -(-depth // sizes.run)
    live = axes.products * panel * taps / swept.r
    again, first = (read_us(live, nbytes, device) for nbytes in (live, max(live, share.constants)))
    planes_in = min(swept.extent, (depth - 1) * swept.stride + swept.reach)
    vectors = _vectors_read(axes, channels, blocks_in, device.lanes)
    moved = tiles * axes.planes * (planes_in * vectors + depth * blocks) * device.lanes
    held = sizes.group * axes.planes * axes.residues * min(swept.reach, planes_in) * blocks_in * device.lanes * 4
    near = axes.residues == 1 or held <= STRIDED_HELD * device.l2
    arithmetic = share.boxes * compute_us(products, device, PRODUCT_SHARE)
    streamed = share.pieces * first + (sweeps - share.pieces) * again
    return max(arithmetic, streamed) + share.boxes * _transform_us(moved, device, near)


def _vectors_read(axes: Axes, channels: int, blocks: int, lanes: int) -> float:
    """Vectors of a plane of the input that a place of a tile takes as long as."""
    if axes.residues == 1:
        return blocks
    if channels <= GATHERED_CHANNELS:
        each = axes.residues * channels
        return -(-each // lanes) + GATHERED * each / lanes
    return STRIDED_READS * axes.residues * blocks


def _transform_us(elements: float, device: DeviceSpec, near: bool) -> float:
    level = "l2" if near else device.shared[0]
    gbps = device.bandwidth_at(level, device.cores) / device.cores
    return elements * (TRANSFORM_FLOPS / device.peak_gflops_per_core + TRANSFORM_BYTES / gbps) / 1e3


def _taps_per_output(axis: Axis) -> float:
    """Of a swept axis, those that fall on the tensor; as if it were padded to its own extent."""
    outputs = (axis.extent - 1) // axis.stride + 1
    return _live_taps(outputs, axis.extent, axis.r, axis.stride, axis.dilation, axis.pad).sum() / outputs


def _live_taps(outputs: int, extent: int, kernel: int, stride: int, dilation: int, pad: int) -> np.ndarray:
    """Per tap of a dimension, how many outputs find it on the tensor."""
    at = np.arange(outputs)[:, None] * stride - pad + np.arange(kernel) * dilation
    return ((at >= 0) & (at < extent)).sum(axis=0)


def _is_blocked(layouts: Mapping[str, str], node: Node) -> bool:
    return layouts[node.inputs[0]] == layouts[node.output] == "blocked"


def _may_transform(graph: Graph, layouts: Mapping[str, str], node: Node) -> bool:
    op = node.op
    return (
        isinstance(op, Conv)
        and any(fits(op, edge) for edge in EDGES.values())
        and graph.out(node).dtype == np.float32
        and layouts[node.output] == "blocked"
        and (layouts[node.inputs[0]] == "blocked" or max(op.strides) > 1)  # few channels share a vector with residues
        and all(name in graph.constants for name in node.inputs[1 : 2 + op.bias])
        and math.prod(graph.out(node).shape) > 0
    )


def _fastest(graph: Graph, node: Node, device: DeviceSpec, constants: int, blocked: bool) -> str:
    op = node.op
    assert isinstance(op, Conv)
    direct = conv_us(graph, node, device, "direct", constants)
    names = [name for name, edge in EDGES.items() if fits(op, edge)]
    times = {name: conv_us(graph, node, device, name, constants) for name in names}
    best = min(times, key=times.__getitem__)
    strided = blocked and axes_of(op, graph.ins(node)[0].shape[2:], EDGES[best]).residues > 1
    margin = STRIDED_MARGIN if strided else MARGIN
    return best if times[best] < margin * direct else "direct"
