"""Products that tile registers compute (`ops/cpu/amx/`): which, and how long they take one core, as modelled."""

from __future__ import annotations

import math

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import Op
from brickrt.ops.cpu.amx.factors import FACTORS_OF, LANES
from brickrt.ops.cpu.amx.tile_registers import ROWS
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product_types import SUMS
from brickrt.plan.cost.roofline import read_us
from brickrt.plan.device.device_spec import DeviceSpec

TILES = "tiles"
"""The name of the algorithm."""
FLOAT32 = np.dtype(np.float32)
TILE_CYCLES = 16 * 1.25  # of two tiles' product, with what is not hidden of loading them
LINE_CYCLES = 16  # of a line of what is read, copied to the workspace
VECTOR_CYCLES = 8  # of a vector of sums, from registers to its epilogue
LEAST_ROWS = 8  # of matrices: fewer leave tiles half empty, and weights take as long to load as for sixteen
MOST_DIMS = 5
PART_GROWTH = {FLOAT32: 1.5}  # weights in bfloat16 parts over the weights, by type
VECTOR_UNITS = 2  # multiply-add units of processors that have tile registers


def tile_weight_growth(dtype: np.dtype) -> float:
    """How many times larger weights are as tiles read them."""
    return PART_GROWTH.get(dtype, 1.0)


def may_use_tiles(graph: Graph, node: Node, device: DeviceSpec, blocked: bool) -> bool:
    """Whether a kernel with tile registers computes a node; `blocked`: its images are."""
    op, ins, out = node.op, graph.ins(node), graph.out(node)
    if not device.tiles or not isinstance(op, Conv | MatMul) or (ins[0].dtype, ins[1].dtype) not in FACTORS_OF:
        return False
    if not all(name in graph.constants for name in node.inputs[1 : 2 + op.bias]) or not out.size:
        return False
    sums = SUMS if ins[0].dtype == np.uint8 else FLOAT32
    if op.bias and ins[2].dtype not in (sums, ins[0].dtype):
        return False
    if isinstance(op, Conv):
        return blocked and op.groups == op.gate_parts == 1 and out.rank <= MOST_DIMS
    return op.factors == 2 and ins[1].rank == 2 and out.shape[-2] >= LEAST_ROWS


def tiles_us(graph: Graph, node: Node, device: DeviceSpec, constants: int) -> float:
    """Modelled microseconds of one core without the epilogue, in a graph with so many bytes of constants."""
    op, (x, w, *_), out = node.op, graph.ins(node), graph.out(node)
    factors = FACTORS_OF[x.dtype, w.dtype]
    columns, depth = _columns(op, out.shape), _columns(op, x.shape)
    units, blocks = -(-depth // factors.unit), -(-columns // LANES)
    pixels = out.size // columns
    taps = math.prod(op.kernel) if isinstance(op, Conv) else 1
    slots = pixels * _overhang(op, out.shape)
    products = -(-slots // ROWS) * blocks * taps * units * len(factors.order) * TILE_CYCLES
    copied = x.size // depth * units * factors.parts * LINE_CYCLES
    finished = pixels * blocks * VECTOR_CYCLES
    arithmetic = (products + copied + finished) / _clock_mhz(device)
    weights = w.nbytes * tile_weight_growth(w.dtype)
    return max(arithmetic, read_us(weights, max(weights, constants), device))


def _columns(op: Op, shape: tuple[int, ...]) -> int:
    return shape[1] if isinstance(op, Conv) else shape[-1]


def _overhang(op: Op, shape: tuple[int, ...]) -> float:
    """Pixels of tiles for each output: they go on over the halo between rows."""
    if not isinstance(op, Conv) or len(shape) < 4:
        return 1.0
    return 1 + (op.kernel[-1] - 1) * op.dilations[-1] // op.strides[-1] / shape[-1]


def _clock_mhz(device: DeviceSpec) -> float:
    """Cycles in a microsecond, from the peak of multiply-adds."""
    return device.peak_gflops_per_core * 1e3 / (device.lanes * 2 * VECTOR_UNITS)
