"""Chooses the algorithm of a layer: direct, Winograd's in tiles of 2 to 6 outputs an edge for convolutions, or
Strassen's scheme for matrix products and pointwise convolutions (`strassen.py`).

Winograd's F(4×4, 3×3) multiplies 4 times less often and F(4, 7) 2.8 times. But they transform, round otherwise (by a
few 1e-6 of the largest output) and read up to 4 times the weights: they need enough tiles to make up for that. A direct
convolution leaves out the taps that fall on padding, which small images have many of.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import ml_dtypes
import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import Op
from brickrt.ops.cpu.winograd.axes import fits, known_axes
from brickrt.ops.cpu.winograd.integers.limits import EDGE as INTEGER_EDGE
from brickrt.ops.cpu.winograd.sizes import ALL_HELD_BYTES, HELD_BYTES, transforms_once
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import TensorType
from brickrt.plan.cost.arithmetic import product_only_us
from brickrt.plan.cost.constants import (
    DIRECT_SHARE,
    NARROW_MARGIN,
    NARROW_STRIDED_MARGIN,
    STRIDED_MARGIN,
    WINOGRAD_MARGIN,
)
from brickrt.plan.cost.integer_winograd import INTEGER_WINOGRAD, may_transform_integers, transforms_integers
from brickrt.plan.cost.roofline import compute_us, products_at_a_time, read_us
from brickrt.plan.cost.strassen import (
    F32_BYTES,
    HELD,
    LEVELS,
    RAW,
    choose_product,
    keeps_weights,
    possible_schemes,
    product_us,
    stored_growth,
)
from brickrt.plan.cost.tile_products import (
    TILES,
    may_use_tiles,
    most_share,
    tile_weight_growth,
    tiles_us,
)
from brickrt.plan.cost.winograd_times import CoreShare, live_taps, transforms_us, winograd_us
from brickrt.plan.device.device_spec import DeviceSpec

DIRECT = "direct"
FLOAT32, FLOAT16, BFLOAT16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
PAIRS = "-paired"  # ends the names of Winograd's algorithms with paired channels
WAYS = "", RAW, HELD + RAW, PAIRS, PAIRS + RAW
EDGES = {f"winograd{m}{way}": m for way in WAYS for m in (6, 5, 4, 3, 2)} | {
    INTEGER_WINOGRAD: INTEGER_EDGE
}  # outputs of a tile along each dimension

EXACT_ALGORITHMS = (TILES, INTEGER_WINOGRAD)  # that sum as direct kernels do, or without rounding


def choose_algorithms(graph: Graph, layouts: Mapping[str, str], device: DeviceSpec, exact: bool) -> dict[int, str]:
    """Names the algorithm (of `EDGES` or `LEVELS`, or `TILES`) by node index, for layers that are not computed
    directly. Tiles sum as direct kernels do, and integers are exact, so these are there where results are to be `exact`
    as well."""
    if device.kind != "cpu":
        return {}
    known: dict[Hashable, str | None] = {}  # of equal layers, of which networks have many
    chosen, constants = {}, constant_bytes(graph)
    for k, node in enumerate(graph.nodes):
        names = (*node.inputs, node.output)
        integers = transforms_integers(graph, layouts, node, device)
        kind = node.op, integers, tuple((graph.types[n], layouts[n], n in graph.constants) for n in names)
        if kind not in known:
            if integers:
                known[kind] = _faster(graph, node, device, constants, [INTEGER_WINOGRAD], blocked=True)
            else:
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
    share = most_share(node.inputs[1] in graph.constants, graph.ins(node)[0].dtype)
    return TILES if tiles_us(graph, node, device, constants) <= share * other else vectors


def _by_vectors(graph: Graph, layouts: Mapping[str, str], device: DeviceSpec, node: Node, constants: int) -> str | None:
    """The algorithm of one node that vector registers compute fastest."""
    if _may_transform(graph, layouts, node):
        names = _transforms(graph, node, device)
        return _faster(graph, node, device, constants, names, layouts[node.inputs[0]] == "blocked")
    return choose_product(graph, node, device, constants) if _is_product(layouts, node) else None


def possible_algorithms(
    graph: Graph, layouts: Mapping[str, str], device: DeviceSpec, k: int, constants: int
) -> list[str]:
    """The algorithms that compute node `k` beside the direct one, in a graph with so many bytes of constants."""
    node = graph.nodes[k]
    if device.kind != "cpu":
        return []
    tiles = [TILES] if may_use_tiles(graph, node, device, _is_blocked(layouts, node)) else []
    if may_transform_integers(graph, layouts, node, device):
        return [*tiles, INTEGER_WINOGRAD]
    if _may_transform(graph, layouts, node):
        assert isinstance(node.op, Conv)
        return tiles + _transforms(graph, node, device)
    return tiles + (possible_schemes(graph, node, device, constants) if _is_product(layouts, node) else [])


def weight_growth(op: Op, algorithm: str | None, dtype: np.dtype = FLOAT32) -> float:
    """How many times larger weights of a type are as an algorithm reads them."""
    if algorithm == TILES:
        return tile_weight_growth(op, dtype)
    if algorithm in LEVELS:
        return stored_growth(algorithm)
    if algorithm is None or keeps_weights(algorithm):
        return 1.0
    assert isinstance(op, Conv)
    return known_axes(op, (1,) * len(op.kernel), EDGES[algorithm]).growth


def added_bytes(op: Op, algorithm: str, weights: TensorType) -> int:
    """Bytes of memory that an algorithm's weights take beside the weights themselves; those of tiles are in their
    place, and integers stay as they are."""
    if algorithm == INTEGER_WINOGRAD:
        return 0
    growth = weight_growth(op, algorithm, weights.dtype)
    return int(weights.nbytes * (growth - 1) if algorithm == TILES else F32_BYTES * weights.size * growth)


def core_share(
    graph: Graph, node: Node, device: DeviceSpec, algorithm: str, boxes: int, pieces: int, constants: int
) -> CoreShare:
    """What a core computes of a convolution by one of Winograd's algorithms."""
    if not keeps_weights(algorithm):
        return CoreShare(boxes, pieces, constants, paired=pairs(algorithm))
    weights = graph.ins(node)[1]
    assert isinstance(node.op, Conv)
    axes = known_axes(node.op, graph.ins(node)[0].shape[2:], EDGES[algorithm])
    paired, integers, held = pairs(algorithm), algorithm == INTEGER_WINOGRAD, holds(algorithm)
    nbytes = int(F32_BYTES * weights.size * axes.growth)
    once = paired or held or (not integers and transforms_once(nbytes, device.paces_weights))
    return CoreShare(boxes, pieces, constants, weights.dtype.itemsize, once, held, paired, integers)


def weights_again_us(graph: Graph, node: Node, device: DeviceSpec, algorithm: str) -> float:
    """Modelled microseconds in which a core transforms all weights of a convolution once more, where a float kernel
    does so while it runs; 0 where they are stored transformed."""
    floats = keeps_weights(algorithm) and algorithm in EDGES and algorithm != INTEGER_WINOGRAD
    if not (floats and isinstance(node.op, Conv)):
        return 0.0
    axes = known_axes(node.op, graph.ins(node)[0].shape[2:], EDGES[algorithm])
    share = core_share(graph, node, device, algorithm, 1, 1, 0)
    return transforms_us(axes, graph.ins(node)[0].shape[1], graph.out(node).shape[1], device, share)


def keeps_algorithm(node: Node, algorithm: str) -> bool:
    """Whether a node keeps its algorithm in bricks of several layers: those have few pixels for Strassen's scheme."""
    return not (isinstance(node.op, Conv) and algorithm in LEVELS)


def pairs(algorithm: str) -> bool:
    """Whether one of Winograd's algorithms has paired channels."""
    return algorithm.removesuffix(RAW).endswith(PAIRS)


def holds(algorithm: str) -> bool:
    """Whether a worker transforms weights once for all boxes of a layer that it computes one after the other."""
    return algorithm.endswith(HELD + RAW)


def held_bytes(op: Op, algorithm: str, weights: TensorType) -> int:
    """Bytes of held weights, in the scratch of each worker."""
    if not holds(algorithm):
        return 0
    assert isinstance(op, Conv)
    return int(F32_BYTES * weights.size * known_axes(op, (1,) * len(op.kernel), EDGES[algorithm]).growth)


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
    share = core_share(graph, node, device, str(algorithm), 1, 1, constants)
    others = (device.cores - 1) * transforms_us(axes, x[1], out[1], device, share) if share.held else 0.0
    return winograd_us(axes, x[1], out, device, share) + others


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


def _is_blocked(layouts: Mapping[str, str], node: Node) -> bool:
    return layouts[node.inputs[0]] == layouts[node.output] == "blocked"


def _is_product(layouts: Mapping[str, str], node: Node) -> bool:
    return isinstance(node.op, MatMul) or (isinstance(node.op, Conv) and _is_blocked(layouts, node))


def _may_transform(graph: Graph, layouts: Mapping[str, str], node: Node) -> bool:
    op = node.op
    return (
        isinstance(op, Conv)
        and _computes_float32(graph, node)
        and layouts[node.output] == "blocked"
        and (layouts[node.inputs[0]] == "blocked" or max(op.strides) > 1)  # few channels share a vector with residues
        and all(name in graph.constants for name in node.inputs[1 : 2 + op.bias])
        and math.prod(graph.out(node).shape) > 0
        and bool(_fitting_edges(op))
    )


def _fitting_edges(op: Conv) -> set[int]:
    """The edges of tiles in which a convolution can be transformed."""
    return {edge for edge in set(EDGES.values()) if fits(op, edge)}


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
    edges = _fitting_edges(op)
    names = [name for name, edge in EDGES.items() if name != INTEGER_WINOGRAD and edge in edges]
    strided = any(s > 1 and r > 1 for s, r in zip(op.strides, op.kernel, strict=True))
    wide = device.pairs and graph.ins(node)[0].shape[1] >= 3 * device.lanes
    names = [name for name in names if wide or not pairs(name)]
    if kernel.dtype == FLOAT16:
        fitting = [name for name in names if keeps_weights(name) and _has_room(graph, node, device, name)]
        return [] if strided else fitting
    stored = strided or device.paces_weights  # there, weights that are transformed meanwhile are never the fastest
    names = [name for name in names if not (keeps_weights(name) and (stored or pairs(name) or holds(name)))]
    return [name for name in names if not (strided and pairs(name))]


def _has_room(graph: Graph, node: Node, device: DeviceSpec, algorithm: str) -> bool:
    """Whether a worker has room for what an algorithm must have of all weights at once."""
    weights = graph.ins(node)[1]
    assert isinstance(node.op, Conv)
    axes = known_axes(node.op, graph.ins(node)[0].shape[2:], EDGES[algorithm])
    nbytes = int(F32_BYTES * weights.size * axes.growth)
    if holds(algorithm):
        return nbytes <= min(HELD_BYTES, ALL_HELD_BYTES // device.cores)
    return not pairs(algorithm) or transforms_once(nbytes, device.paces_weights)


def _faster(
    graph: Graph, node: Node, device: DeviceSpec, constants: int, names: Sequence[str], blocked: bool
) -> str | None:
    """The fastest of some of Winograd's algorithms, None where direct computation is as fast."""
    op = node.op
    assert isinstance(op, Conv)
    direct = conv_us(graph, node, device, DIRECT, constants)
    times = {name: conv_us(graph, node, device, name, constants) for name in names}
    if not times:
        return None
    # where all wait for weights, those with paired channels: other sizes of the network have these weights as well
    best = min(times, key=lambda name: (times[name], not pairs(name)))
    strided = blocked and known_axes(op, graph.ins(node)[0].shape[2:], EDGES[best]).residues > 1
    margins = (NARROW_MARGIN, NARROW_STRIDED_MARGIN) if device.narrow else (WINOGRAD_MARGIN, STRIDED_MARGIN)
    return best if times[best] < margins[strided] * direct else None
