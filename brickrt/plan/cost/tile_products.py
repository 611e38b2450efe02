"""Products that tile registers compute (`ops/cpu/amx/`): which, and how long they take one core, as modelled."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import Op
from brickrt.ops.cpu.amx.sizes import (
    AREA_BYTES,
    FACTORS_OF,
    HALVES,
    LANES,
    PLANE_PIXELS,
    ROW_BYTES,
    ROWS,
    WORD,
    Factors,
    factors_of,
    is_spread,
    joins_taps,
)
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.product_types import SUMS
from brickrt.ops.types import Shape
from brickrt.plan.cost.roofline import read_us
from brickrt.plan.device.device_spec import DeviceSpec

TILES = "tiles"
"""The name of the algorithm."""
FLOAT16, FLOAT32 = np.dtype(np.float16), np.dtype(np.float32)
LEAST_CYCLES = 16  # of two tiles' product
TILE_CYCLES = LEAST_CYCLES * 1.3  # of two tiles' product, with what is not hidden of loading them
LINE_CYCLES = 5  # of a line of what is read, copied to the workspace
VECTOR_CYCLES = 2  # of a vector of sums, from registers to its epilogue
BROUGHT_CYCLES = {FLOAT32: 8, FLOAT16: 2}
"""Of a line of a second factor that is brought into tiles while a kernel runs, by its type; of others OTHER_CYCLES."""
OTHER_CYCLES = 4
HALVES_SHARE = 1.2
"""Times as long as products take else, of windows by float16 weights."""
LEAST_ROWS = 8  # of matrices: fewer leave tiles half empty, and weights take as long to load as for sixteen
CONSTANT_TIME_SHARE, COMPUTED_TIME_SHARE = 0.65, 0.5
"""Shares of the time of vector registers that products of float32 are modelled to take at most, by constants and of two
computed matrices: measured, those that are modelled longer are no faster. While another user of a shared core is at
work, products in tiles take 4.5 times as long, in vectors 1.4 times."""
LEAST_COMPUTED_EXTENT = 16  # rows, and elements of K, of products of two computed matrices
GROUP_OUTPUTS = 32 * 32  # whose sums are in registers at a time
MOST_DIMS, VOLUME_DIMS = 5, 3
TILE_BLOCKS = 2  # vectors of output channels of a tile
PART_GROWTH = {FLOAT32: 1.5}  # weights in bfloat16 parts over the weights, by type
VECTOR_UNITS = 2  # multiply-add units of processors that have tile registers


def tile_ratio(kind: Factors) -> float:
    """How many times more products of elements of a type tiles add than vectors of float32, at their peaks."""
    return ROWS * LANES * kind.unit / len(kind.order) / LEAST_CYCLES / (VECTOR_UNITS * LANES)


def tile_weight_growth(op: Op, dtype: np.dtype) -> float:
    """How many times larger weights are as tiles read them."""
    return 1.0 if getattr(op, "halves", False) else PART_GROWTH.get(dtype, 1.0)


def most_share(constant: bool, dtype: np.dtype) -> float:
    """The share of the time of vector registers that a product is modelled to take at most, by a constant or not."""
    if dtype != FLOAT32:
        return 1.0
    return CONSTANT_TIME_SHARE if constant else COMPUTED_TIME_SHARE


def may_use_tiles(graph: Graph, node: Node, device: DeviceSpec, blocked: bool) -> bool:
    """Whether a kernel with tile registers computes a node; `blocked`: its images are."""
    op, ins, out = node.op, graph.ins(node), graph.out(node)
    if not device.tiles or not isinstance(op, Product) or (ins[0].dtype, ins[1].dtype) not in FACTORS_OF:
        return False
    constant = node.inputs[1] in graph.constants
    if not all(name in graph.constants for name in node.inputs[2 : 2 + op.bias]) or not out.size:
        return False
    sums = SUMS if ins[0].dtype == np.uint8 else FLOAT32
    if op.bias and ins[2].dtype not in (sums, ins[0].dtype):
        return False
    if isinstance(op, Conv | ConvTranspose):
        spread = isinstance(op, Conv) or is_spread(op)
        return constant and blocked and spread and op.groups == op.gate_parts == 1 and out.rank <= MOST_DIMS
    if not constant:
        return op.factors == 2 and min(out.shape[-2], ins[0].shape[-1]) >= LEAST_COMPUTED_EXTENT
    return op.factors == 2 and ins[1].rank == 2 and out.shape[-2] >= LEAST_ROWS


def tiles_us(graph: Graph, node: Node, device: DeviceSpec, constants: int) -> float:
    """Modelled microseconds of one core without the epilogue, in a graph with so many bytes of constants."""
    work = TileWork.of(graph, node, device)
    weights: float = graph.ins(node)[1].nbytes
    if node.inputs[1] in graph.constants:
        weights *= tile_weight_growth(node.op, graph.ins(node)[1].dtype)
    else:
        constants = 0
    return max(work.box_us(graph.out(node).shape), read_us(weights, max(weights, constants), device))


def tile_steps(graph: Graph, node: Node) -> float:
    """About how many steps of groups of tiles a node takes: units of K of 32 pixels by 32 channels."""
    (x, w), matrix = graph.ins(node)[:2], isinstance(node.op, MatMul)
    assert isinstance(node.op, Product)
    multiplied = x.shape[-1] if matrix else math.prod(w.shape) // graph.out(node).shape[1]
    return graph.out(node).size * multiplied / (GROUP_OUTPUTS * factors_of(node.op, x.dtype, w.dtype).unit)


@dataclass(frozen=True)
class TileWork:
    """A product as tile registers compute it: `depth` channels of the input, or the columns of a matrix. A line of its
    second factor takes `brought` cycles where that is brought into tiles."""

    op: Product
    depth: int
    kind: Factors
    device: DeviceSpec
    brought: float = 0

    @staticmethod
    def of(graph: Graph, node: Node, device: DeviceSpec) -> TileWork:
        """That of a node for which `may_use_tiles` holds."""
        op, (x, w, *_) = node.op, graph.ins(node)
        assert isinstance(op, Product)
        brought = w.dtype == FLOAT16 or node.inputs[1] not in graph.constants
        cycles = BROUGHT_CYCLES.get(w.dtype, OTHER_CYCLES) if brought else 0
        return TileWork(op, x.shape[column_dim(op)], factors_of(op, x.dtype, w.dtype), device, cycles)

    @property
    def taps(self) -> int:
        """Pixels of the window; rows of it where those of a row are summed together."""
        if not isinstance(self.op, Conv):
            return 1
        return math.prod(self.op.kernel[:-1] if self.joined else self.op.kernel)

    @property
    def joined(self) -> bool:
        """Whether few channels have all taps of a row summed together."""
        op = self.op
        return isinstance(op, Conv) and joins_taps(self.kind.dtype, self.depth, op.kernel, op.dilations)

    @property
    def units(self) -> int:
        """Rows of tiles that K takes."""
        depth = self.op.kernel[-1] * WORD if self.joined and isinstance(self.op, Conv) else self.depth
        return -(-depth // self.kind.unit)

    def weight_bytes(self, columns: int) -> int:
        """Bytes of the weights of so many columns."""
        taps = self.repeats if isinstance(self.op, ConvTranspose) else self.taps
        parts = 1 if self.brought else self.kind.weight_parts
        return taps * self.depth * columns * parts * self.kind.bytes

    @property
    def repeats(self) -> int:
        """Outputs of each channel that a pixel of the input has."""
        return math.prod(self.op.kernel) if isinstance(self.op, ConvTranspose) else 1

    def box_us(self, box: Shape) -> float:
        """Microseconds of a box of the output, which has so many images, channels and pixels."""
        columns = box[column_dim(self.op)]
        pixels = math.prod(box) // columns
        blocks = TILE_BLOCKS * -(-columns // (TILE_BLOCKS * LANES))
        matrix = isinstance(self.op, MatMul)
        planes = box[0] if len(box) < MOST_DIMS else pixels // math.prod(box[-2:])
        images = pixels // box[-2] if matrix else planes
        slots = images * _whole_tiles(pixels * self._overhang(box) / images)
        products = slots // ROWS * blocks * self.taps * self.units * len(self.kind.order) * TILE_CYCLES
        copied = pixels / self.repeats * self._read_again(box) * self.units * self.kind.parts * LINE_CYCLES
        chunks = images * math.ceil(pixels / images / self._chunk_pixels)
        brought = chunks * blocks * self.taps * self.units * ROWS * self.kind.weight_parts * self.brought
        halves = HALVES_SHARE if self.kind is HALVES and self.taps > 1 else 1.0
        return (halves * products + copied + brought + pixels * blocks * VECTOR_CYCLES) / _clock_mhz(self.device)

    def slower(self, out: Shape, rows: np.ndarray) -> np.ndarray:
        """How many times longer a matrix product takes in pieces of so many rows: each brings a computed second factor
        into tiles anew, and may leave tiles half empty."""
        whole, most = self.box_us(out) / out[-2], out[-2]
        pieces = [min(max(1, int(n)), most) for n in rows]
        return np.array([self.box_us((*out[:-2], n, out[-1])) / n / whole for n in pieces])

    @property
    def _chunk_pixels(self) -> int:
        """Pixels for which a second factor is brought into tiles once, about."""
        return max(PLANE_PIXELS, AREA_BYTES // (self.units * self.kind.parts * ROW_BYTES))

    def _overhang(self, box: Shape) -> float:
        """Pixels of tiles for each output: they go on over the halo between rows."""
        if not isinstance(self.op, Conv) or len(box) < 4:
            return 1.0
        return 1 + self._halo(-1) // self.op.strides[-1] / box[-1]

    def _read_again(self, box: Shape) -> float:
        """Pixels of the input for each output of a box."""
        if not isinstance(self.op, Conv):
            return 1.0
        sides = zip(box[2:], self.op.strides, range(len(box) - 2))
        read = [(extent * min(stride, self.op.kernel[d]) + self._halo(d)) / extent for extent, stride, d in sides]
        if len(read) == VOLUME_DIMS:  # each plane of outputs reads all planes of its window
            read[0] = self.op.kernel[0]
        return math.prod(read)

    def _halo(self, d: int) -> int:
        assert isinstance(self.op, Conv)
        return (self.op.kernel[d] - 1) * self.op.dilations[d]


def column_dim(op: Op) -> int:
    """The dimension of the output that columns of weights are."""
    return -1 if isinstance(op, MatMul) else 1


def _whole_tiles(pixels: float) -> int:
    """Pixels of whole tiles."""
    return ROWS * math.ceil(pixels / ROWS)


def _clock_mhz(device: DeviceSpec) -> float:
    """Cycles in a microsecond, from the peak of multiply-adds."""
    return device.peak_gflops_per_core * 1e3 / (device.lanes * 2 * VECTOR_UNITS)
