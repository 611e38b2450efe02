"""Chooses the algorithm of a layer: direct, Winograd's in tiles of 2 to 6 outputs an edge for convolutions, or
Strassen's scheme for matrix products and pointwise convolutions (`strassen.py`).

Winograd's F(4×4, 3×3) multiplies 4 times less often and F(4, 7) 2.8 times. But they transform, round otherwise (by a
few 1e-6 of the largest output) and read up to 4 times the weights: they need enough tiles to make up for that. A direct
convolution leaves out the taps that fall on padding, which small images have many of.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import ml_dtypes
import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import Op
from brickrt.ops.cpu.winograd.axes import Axes, Axis, fits, known_axes
from brickrt.ops.cpu.winograd.sizes import PART_GROWTH, choose_sizes, choose_tiled_sizes, transforms_once
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Shape, TensorType
from brickrt.plan.cost.arithmetic import product_only_us
from brickrt.plan.cost.constants import (
    DIRECT_SHARE,
    GATHERED,
    GATHERED_CHANNELS,
    HELD,
    PAIRED_RAW_WEIGHT,
    PRODUCT_SHARE,
    RAW_SHARE,
    RAW_WEIGHT,
    STRIDED_MARGIN,
    STRIDED_READS,
    TILED_HELD,
    TILED_SHOWN,
    TRANSFORM_BYTES,
    TRANSFORM_FLOPS,
    WINOGRAD_MARGIN,
    WINOGRAD_PAIRS,
)
from brickrt.plan.cost.roofline import compute_us, overlapped_us, products_at_a_time, read_us
from brickrt.plan.cost.strassen import (
    F32_BYTES,
    LEVELS,
    RAW,
    choose_product,
    keeps_weights,
    possible_schemes,
    product_us,
    stored_growth,
)
from brickrt.plan.cost.tile_products import (
    COMPUTED_SHARE,
    TILES,
    may_use_tiles,
    tile_weight_growth,
    tiles_us,
    transformed_tiles_us,
)
from brickrt.plan.device.device_spec import DeviceSpec

DIRECT = "direct"
FLOAT32, FLOAT16, BFLOAT16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
PAIRS = "-paired"  # ends the names of Winograd's algorithms with paired channels
TILED = "-tiles"  # ends the names of those whose products tile registers add
EDGES = {
    f"winograd{m}{way}": m for way in ("", RAW, PAIRS, PAIRS + RAW, TILED) for m in (6, 5, 4, 3, 2)
}  # outputs of a tile along each dimension


def choose_algorithms(graph: Graph, layouts: Mapping[str, str], device: DeviceSpec, exact: bool) -> dict[int, str]:
    """Names the algorithm (of `EDGES` or `LEVELS`, or `TILES`) by node index, for layers that are not computed
    directly. Tiles sum as direct kernels do, so they do so where results are to be `exact` as well."""
    if device.kind != "cpu" or (exact and not device.tiles):
        return {}
    known: dict[Hashable, str | None] = {}  # of equal layers, of which networks have many
    chosen, constants = {}, constant_bytes(graph)
    for k, node in enumerate(graph.nodes):
        names = (*node.inputs, node.output)
        kind = node.op, tuple((graph.types[n], layouts[n], n in graph.constants) for n in names)
        if kind not in known:
            known[kind] = _algorithm(graph, layouts, device, node, constants, exact)
        if (name := known[kind]) is not None:
            chosen[k] = name
    return chosen


def _algorithm(
    graph: Graph, layouts: Mapping[str, str], device: DeviceSpec, node: Node, constants: int, exact: bool
) -> str | None:
    """The algorithm of one node, None where it is computed directly."""
    vectors = None if exact else _by_vectors(graph, layouts, device, node, constants)
    if not may_use_tiles(graph, node, device, _is_blocked(layouts, node)):
        return vectors
    other = layer_us(graph, node, device, vectors, constants)
    share = 1.0 if node.inputs[1] in graph.constants else COMPUTED_SHARE.get(graph.ins(node)[0].dtype, 1.0)
    return TILES if tiles_us(graph, node, device, constants) <= share * other else vectors


def _by_vectors(graph: Graph, layouts: Mapping[str, str], device: DeviceSpec, node: Node, constants: int) -> str | None:
    """The algorithm of one node that vector registers compute fastest."""
    if _may_transform(graph, layouts, node):
        name = _fastest(graph, node, device, constants, layouts[node.inputs[0]] == "blocked")
        return None if name == DIRECT else name
    return choose_product(graph, node, device, constants) if _is_product(layouts, node) else None


def possible_algorithms(
    graph: Graph, layouts: Mapping[str, str], device: DeviceSpec, k: int, constants: int
) -> list[str]:
    """The algorithms that compute node `k` beside the direct one, in a graph with so many bytes of constants."""
    node = graph.nodes[k]
    if device.kind != "cpu":
        return []
    tiles = [TILES] if may_use_tiles(graph, node, device, _is_blocked(layouts, node)) else []
    if _may_transform(graph, layouts, node):
        assert isinstance(node.op, Conv)
        return tiles + _transforms(graph, node, device)
    return tiles + (possible_schemes(graph, node, device, constants) if _is_product(layouts, node) else [])


def weight_growth(op: Op, algorithm: str | None, dtype: np.dtype = FLOAT32) -> float:
    """How many times larger weights of a type are as an algorithm reads them."""
    if algorithm == TILES:
        return tile_weight_growth(dtype)
    if algorithm in LEVELS:
        return stored_growth(algorithm)
    if algorithm is None or keeps_weights(algorithm):
        return 1.0
    assert isinstance(op, Conv)
    growth = known_axes(op, (1,) * len(op.kernel), EDGES[algorithm]).growth
    return growth * PART_GROWTH if tiled(algorithm) else growth


def added_bytes(op: Op, algorithm: str, weights: TensorType) -> int:
    """Bytes of memory that an algorithm's weights take beside the weights themselves; those of tiles are in their
    place."""
    growth = weight_growth(op, algorithm, weights.dtype)
    return int(weights.nbytes * (growth - 1) if algorithm == TILES else F32_BYTES * weights.size * growth)


def core_share(graph: Graph, node: Node, algorithm: str, boxes: int, pieces: int, constants: int) -> CoreShare:
    """What a core computes of a convolution by one of Winograd's algorithms."""
    if not keeps_weights(algorithm):
        return CoreShare(boxes, pieces, constants, paired=pairs(algorithm), tiled=tiled(algorithm))
    weights = graph.ins(node)[1]
    assert isinstance(node.op, Conv)
    axes = known_axes(node.op, graph.ins(node)[0].shape[2:], EDGES[algorithm])
    paired = pairs(algorithm)
    once = paired or transforms_once(int(F32_BYTES * weights.size * axes.growth))
    return CoreShare(boxes, pieces, constants, weights.dtype.itemsize, once, paired)


def keeps_algorithm(node: Node, algorithm: str) -> bool:
    """Whether a node keeps its algorithm in bricks of several layers: those have few pixels for Strassen's scheme."""
    return not (isinstance(node.op, Conv) and algorithm in LEVELS)


def pairs(algorithm: str) -> bool:
    """Whether one of Winograd's algorithms has paired channels."""
    return algorithm.removesuffix(RAW).endswith(PAIRS)


def tiled(algorithm: str) -> bool:
    """Whether tile registers add the products of one of Winograd's algorithms."""
    return algorithm.endswith(TILED)


def tile_outputs(op: Op, algorithm: str | None, dim: int) -> int:
    """Outputs along a dimension that an algorithm computes together."""
    if algorithm not in EDGES:
        return 1
    assert isinstance(op, Conv)
    return next(a.m * a.phases for a in known_axes(op, (1,) * len(op.kernel), EDGES[algorithm]) if a.dim == dim)


def constant_bytes(graph: Graph) -> int:
    """Bytes of all constants: what does not fit the shared cache comes from memory in every run."""
    return sum(graph.types[name].nbytes for name in graph.constants)


def layer_us(graph: Graph, node: Node, device: DeviceSpec, algorithm: str | None, constants: int = 0) -> float:
    """Modelled microseconds of one core for a node that has algorithms to choose from."""
    if algorithm == TILES:
        return tiles_us(graph, node, device, constants)
    if isinstance(node.op, ConvTranspose):
        return product_only_us(graph, node, device)
    windows = isinstance(node.op, Conv) and math.prod(node.op.kernel) > 1
    return (conv_us if windows else product_us)(graph, node, device, algorithm, constants)


def conv_us(graph: Graph, node: Node, device: DeviceSpec, algorithm: str | None, constants: int = 0) -> float:
    """Modelled microseconds of one core for an ungrouped convolution, in a graph with so many bytes of constants."""
    op, x, out = node.op, graph.ins(node)[0].shape, graph.out(node).shape
    assert isinstance(op, Conv)
    if algorithm in (None, DIRECT):
        return _direct_us(graph, node, device, constants, products_at_a_time(graph.ins(node)[0].dtype, device))
    axes = known_axes(op, x[2:], EDGES[str(algorithm)])
    return winograd_us(axes, x[1], out, device, core_share(graph, node, str(algorithm), 1, 1, constants))


def _direct_us(graph: Graph, node: Node, device: DeviceSpec, constants: int, at_a_time: int) -> float:
    op, x, out = node.op, graph.ins(node)[0].shape, graph.out(node).shape
    assert isinstance(op, Conv)
    sides = zip(out[2:], x[2:], op.kernel, op.strides, op.dilations, op.pads, strict=True)
    taps = [live_taps(*side) for side in sides]
    products = out[0] * math.prod(int(t.sum()) for t in taps) * x[1] * -(-out[1] // device.lanes)
    each = graph.ins(node)[1].dtype.itemsize
    weights = math.prod(int(np.count_nonzero(t)) for t in taps) * x[1] * out[1] * each
    arithmetic = compute_us(products / at_a_time, device, DIRECT_SHARE)
    return max(arithmetic, read_us(weights, max(weights, constants), device))


@dataclass(frozen=True)
class CoreShare:
    """What a core computes of a layer: so many equal boxes, in so many different pieces of the output's channels, of a
    graph with `constants` bytes of constants. `raw_bytes` are those of a weight that is transformed for each group of
    tiles, or `once` for each box, 0 where transformed weights are stored. The products are of `paired` channels, or
    added by tile registers if `tiled`."""

    boxes: int
    pieces: int
    constants: int
    raw_bytes: int = 0
    once: bool = False
    paired: bool = False
    tiled: bool = False


def winograd_us(axes: Axes, channels: int, box: Shape, device: DeviceSpec, share: CoreShare) -> float:
    """Modelled microseconds of one core for its boxes of the output, from `channels` channels of the input.

    The weights of each piece of channels come once from where all constants lie, then from where those of a box do.
    """
    swept = axes.swept
    depth, *sides = (1 if axis.dim is None else box[axis.dim] for axis in axes)
    blocks_in, blocks = (-(-count // device.lanes) for count in (channels, box[1]))
    tiles = box[0] * math.prod(axis.tiles(extent) for axis, extent in zip(axes[1:], sides, strict=True))
    panel, raw = swept.r * channels * blocks * device.lanes * 4, share.raw_bytes > 0 and not share.once
    ob, bytes_ = 1 if share.paired else min(2, blocks), axes.planes * axes.residues * panel
    if share.tiled:
        sizes, panel = choose_tiled_sizes(tiles, depth, bytes_), int(panel * PART_GROWTH)
    else:
        sizes = choose_sizes(tiles, depth, ob, device.registers, bytes_, raw, share.paired)
    taps = _taps_per_output(swept)
    register_tiles = axes.register_tiles(box[0], sides, sizes.t) * depth * taps
    sweeps = share.boxes * -(-tiles // sizes.group) * -(-depth // sizes.run)
    live = axes.products * panel * taps / swept.r
    stored = axes.down.r * axes.across.r * panel * share.raw_bytes / 4 or live
    live = stored if raw else live
    beside = sizes.group * sizes.run * axes.planes * (blocks_in + blocks) * device.lanes * 4
    kept = TILED_HELD * (live + beside) if device.tiles else live
    again, first = read_us(live, kept, device), read_us(stored, max(stored, share.constants), device)
    planes_in = min(swept.extent, (depth - 1) * swept.stride + swept.reach)
    vectors = _vectors_read(axes, channels, blocks_in, device.lanes)
    moved = tiles * axes.planes * (planes_in * vectors + depth * blocks) * device.lanes
    held = sizes.group * axes.planes * axes.residues * min(swept.reach, planes_in) * blocks_in * device.lanes * 4
    near = held <= HELD * device.l2
    arithmetic = share.boxes * _products_us(register_tiles, sizes.t, channels, blocks, device, share)
    if share.raw_bytes:
        made = share.boxes if share.once else sweeps
        each = PAIRED_RAW_WEIGHT if share.paired else RAW_WEIGHT
        arithmetic += compute_us(made * each * axes.planes * panel / 4 / device.lanes, device, 1.0)
    streamed = share.pieces * first + (sweeps - share.pieces) * again
    shown = TILED_SHOWN if share.tiled else 0.0
    return overlapped_us(arithmetic, streamed, shown) + share.boxes * _transform_us(moved, device, near)


def _products_us(
    register_tiles: float, most: int, channels: int, blocks: int, device: DeviceSpec, share: CoreShare
) -> float:
    """Microseconds of the products of a box, in register tiles of up to `most` tiles."""
    if share.tiled:
        return transformed_tiles_us(register_tiles, channels, blocks, device)
    products = most * register_tiles * channels * blocks
    if share.paired:  # of three blocks of channels two are multiplied at once
        products *= (1 - channels // device.lanes // 3 / -(-channels // device.lanes)) * WINOGRAD_PAIRS
    made_anew = share.raw_bytes > 0 and not share.once
    return compute_us(products, device, RAW_SHARE if made_anew else PRODUCT_SHARE)


def _vectors_read(axes: Axes, channels: int, blocks: int, lanes: int) -> float:
    """How many vectors of a plane of the input take as long to read as one place of a tile."""
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


@lru_cache(maxsize=1 << 10)
def _taps_per_output(axis: Axis) -> float:
    """Mean number of taps that fall on the tensor along a swept axis, were the output as long as the input."""
    if axis.dim is None:
        return 1.0
    outputs = (axis.extent - 1) // axis.stride + 1
    return live_taps(outputs, axis.extent, axis.r, axis.stride, axis.dilation, axis.pad).sum() / outputs


@lru_cache(maxsize=1 << 10)
def live_taps(outputs: int, extent: int, kernel: int, stride: int, dilation: int, pad: int) -> np.ndarray:
    """For each tap of a dimension, the number of outputs for which it falls on the tensor; nobody may change it."""
    at = np.arange(outputs)[:, None] * stride - pad + np.arange(kernel) * dilation
    found = ((at >= 0) & (at < extent)).sum(axis=0)
    found.flags.writeable = False
    return found


def _is_blocked(layouts: Mapping[str, str], node: Node) -> bool:
    return layouts[node.inputs[0]] == layouts[node.output] == "blocked"


def _is_product(layouts: Mapping[str, str], node: Node) -> bool:
    return isinstance(node.op, MatMul) or (isinstance(node.op, Conv) and _is_blocked(layouts, node))


def _may_transform(graph: Graph, layouts: Mapping[str, str], node: Node) -> bool:
    op = node.op
    return (
        isinstance(op, Conv)
        and any(fits(op, edge) for edge in EDGES.values())
        and _computes_float32(graph, node)
        and layouts[node.output] == "blocked"
        and (layouts[node.inputs[0]] == "blocked" or max(op.strides) > 1)  # few channels share a vector with residues
        and all(name in graph.constants for name in node.inputs[1 : 2 + op.bias])
        and math.prod(graph.out(node).shape) > 0
    )


def _computes_float32(graph: Graph, node: Node) -> bool:
    """Whether sums are float32, of factors of one type or by float16 weights, and all else is known to kernels."""
    first, second, *_ = graph.ins(node)
    alike = first.dtype == second.dtype or (first.dtype, second.dtype) == (FLOAT32, FLOAT16)
    biases = graph.ins(node)[2 : node.op.main] if isinstance(node.op, Conv) else []
    known = first.dtype in (FLOAT32, BFLOAT16) and graph.out(node).dtype in (FLOAT32, FLOAT16, BFLOAT16)
    return alike and known and all(b.dtype == FLOAT32 for b in biases)


def _transforms(graph: Graph, node: Node, device: DeviceSpec) -> list[str]:
    """Winograd's algorithms for a convolution: of narrow weights, and of strides, there are not all."""
    op, kernel = node.op, graph.ins(node)[1]
    assert isinstance(op, Conv)
    names = [name for name, edge in EDGES.items() if fits(op, edge)]
    strided = any(s > 1 and r > 1 for s, r in zip(op.strides, op.kernel, strict=True))
    wide = device.pairs and graph.ins(node)[0].shape[1] >= 3 * device.lanes
    whole = device.tiles and max(op.strides) == 1 and {each.dtype for each in graph.ins(node)[:2]} == {FLOAT32}
    names = [name for name in names if (wide or not pairs(name)) and (whole or not tiled(name))]
    if kernel.dtype == FLOAT16:
        return [] if strided else [name for name in names if keeps_weights(name) and _has_room(graph, node, name)]
    names = [name for name in names if not (keeps_weights(name) and pairs(name))]  # stored weights stand for them
    return [name for name in names if not (strided and (keeps_weights(name) or pairs(name)))]


def _has_room(graph: Graph, node: Node, algorithm: str) -> bool:
    """Whether a worker has room for what an algorithm must have of all weights at once."""
    weights = graph.ins(node)[1]
    assert isinstance(node.op, Conv)
    axes = known_axes(node.op, graph.ins(node)[0].shape[2:], EDGES[algorithm])
    return not pairs(algorithm) or transforms_once(int(F32_BYTES * weights.size * axes.growth))


def _fastest(graph: Graph, node: Node, device: DeviceSpec, constants: int, blocked: bool) -> str:
    op = node.op
    assert isinstance(op, Conv)
    direct = conv_us(graph, node, device, DIRECT, constants)
    times = {name: conv_us(graph, node, device, name, constants) for name in _transforms(graph, node, device)}
    if not times:
        return DIRECT
    best = min(times, key=times.__getitem__)
    strided = blocked and known_axes(op, graph.ins(node)[0].shape[2:], EDGES[best]).residues > 1
    margin = STRIDED_MARGIN if strided else WINOGRAD_MARGIN
    return best if times[best] < margin * direct else DIRECT
