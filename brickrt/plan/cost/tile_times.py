"""How long products of fused bricks take a multiprocessor, tile by tile: boxes may fill few tiles, or small ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from brickrt.graph.ir import Graph, Node
from brickrt.ops.cuda.kernel import Precision, make_kernel
from brickrt.ops.cuda.operand import dense
from brickrt.ops.cuda.products.conv import ProductConv
from brickrt.ops.cuda.products.conv_transpose import TransposedConv
from brickrt.ops.cuda.products.matmul import MatMulKernel
from brickrt.ops.types import Shape
from brickrt.plan.cost.arithmetic import product_gflops
from brickrt.plan.cost.constants import L2_US, NEAR_US, NEAR_WEIGHTS, TILE_SHARE
from brickrt.plan.device.device_spec import DeviceSpec

TILED = ProductConv | TransposedConv | MatMulKernel


@dataclass(frozen=True)
class TileTimes:
    """Microseconds of a block for a box: `busy` ones, in which tensor cores or shared memory have work, and those in
    which it waits for weights, and another block may work. `weights` are the bytes of these that come from the L2
    cache."""

    busy: float
    waits: float
    weights: float


@dataclass(frozen=True)
class FirstFactor:
    """Where the first factor of a product lies: in shared memory or not, where it may be read in place. Device
    functions have `most` bytes of shared memory."""

    shared: bool
    in_place: bool
    most: int


def tile_times(
    graph: Graph,
    layouts: Mapping[str, str],
    node: Node,
    box: Shape,
    factor: FirstFactor,
    device: DeviceSpec,
    precision: Precision,
) -> TileTimes:
    """The times of a box of these extents of a product's output."""
    first, *rest = [dense(graph.types[name], layouts[name]) for name in node.inputs]
    operands = replace(first, shared=factor.in_place), *rest
    constant = [name in graph.constants for name in node.inputs]
    out = dense(graph.types[node.output], layouts[node.output])
    kernel = make_kernel(node.op, operands, out, constant, precision, box, factor.most)
    assert isinstance(kernel, TILED)
    weights = (
        constant[1] * graph.types[node.inputs[1]].nbytes * kernel.products * kernel.product[1] / kernel.all_columns
    )
    return _times(kernel, factor.shared, device, weights)


def _times(kernel: TILED, copied: bool, device: DeviceSpec, weights: float) -> TileTimes:
    """Those of all tiles. So many bytes of weights are read for each row of them, unless they stay near."""
    core, (rows, columns, depth), near = kernel.core, kernel.product, weights <= NEAR_WEIGHTS
    tile, shared = core.tile, device.bandwidth["shared"] / device.cores * 1e3  # bytes a microsecond
    peak = TILE_SHARE * 1e3 * product_gflops(kernel.op, core.dtype, device, kernel.precision)
    down = -(-rows // tile.m)
    tiles = kernel.products * down * -(-columns // tile.n)
    rounds, words = -(-depth // (tile.k * core.per_word)), tile.k * core.per_word
    each = max(2 * tile.m * tile.n * words / peak, core.round_bytes(copied) / shared)
    latency, ahead = NEAR_US if near else L2_US, core.buffers - 1
    late = max(0, rounds - ahead) * max(0.0, latency / ahead - each)
    busy, waits = tiles * (rounds * each + core.sum_bytes / shared), tiles * (latency + late)
    return TileTimes(busy, waits, weights * (1 if near else down))
