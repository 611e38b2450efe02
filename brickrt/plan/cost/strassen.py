"""Which matrix products and pointwise convolutions are computed by Strassen's scheme, and how they are cut into tasks.

One level multiplies an eighth less, adds up quarters of the first operand once per task and streams 7/4 of the weights:
it needs rows to pay for the weights and columns to pay for the sums. Two levels do all that twice. Costs are
microseconds of one core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.cpu.strassen.sizes import chunks_of, fits, group_columns
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.types import Shape
from brickrt.plan.cost.roofline import multiply_us, stream_us
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.geometry.bricks import even_edges

LEVELS = {"strassen": 1, "strassen2": 2}  # by algorithm: how often everything is halved
SHARE = 0.95  # of the multiply-add peak, by any way to multiply
MARGIN = 0.98  # of the direct time that the scheme may take
UNTRIED = 0.95  # the same on processors with whole vectors, where the figures here were not measured
SUM = {1: 6.0, 2: 11.0}  # multiply-adds that take as long as the sums of one element; twice so many where they fill L2
OUTPUT = {1: 7.0, 2: 16.0}  # the same per element of the output and chunk of K: what is kept, restored and added
HIDDEN = 0.3  # share of shorter work that the longer does not hide
ASKED = 0.12  # the same of weights that are asked for far ahead
SPILT = 0.6  # the same of first factors that L2 does not hold
UNEVEN = 0.02  # of a task's time that cores wait for the last one
CONFLICT = 1.2  # times as long: rows a multiple of SETS apart, which the direct way reads in place, share few L1 lines
SETS = 4096  # bytes after which the sets of L1 repeat
WAYS = 8  # lines of a set; so many rows do not meet
KEPT = 0.25  # share of the shared cache in which a layer finds its input, and leaves its output
MOST_MEMORY = 0.25  # share of the memory that all constants may grow to


def growth(levels: int) -> float:
    """Factors over what they are sums of."""
    return (7 / 4) ** levels


def may_use(graph: Graph, node: Node, lanes: int, algorithm: str) -> bool:
    """Whether the algorithm computes a node, whose images are blocked."""
    op, kinds = node.op, [*graph.ins(node), graph.out(node)]
    return (
        isinstance(op, MatMul | Conv)
        and all(name in graph.constants for name in node.inputs[1 : 2 + op.bias])
        and all(kind.dtype == np.float32 for kind in (*kinds[:2], kinds[-1]))
        and fits(op, kinds[1].shape)
        and kinds[-1].size > 0
    )


def choose_product(graph: Graph, node: Node, device: DeviceSpec, constants: int) -> str | None:
    """The algorithm that takes least time for a product, cut as `strassen_brick` cuts it; None for the direct one."""
    names = [name for name in LEVELS if may_use(graph, node, device.lanes, name)]
    names = [name for name in names if constants * growth(LEVELS[name]) <= MOST_MEMORY * device.memory]
    times = {name: product_us(graph, node, device, name, constants) for name in names}
    best = min(times, key=times.__getitem__, default=None)
    margin = MARGIN if device.halves else UNTRIED
    if best is None or times[best] >= margin * product_us(graph, node, device, None, constants):
        return None
    return best


def product_us(graph: Graph, node: Node, device: DeviceSpec, algorithm: str | None, constants: int) -> float:
    """Modelled time of a product with constant weights, in a graph with so many bytes of constants."""
    if algorithm is not None:
        work = _Work.of(graph, node, device, algorithm, constants)
        return work.busy_us(work.brick(device.tasks_per_core * device.cores)) * device.cores
    out, weights = graph.out(node), graph.ins(node)[1]
    columns = out.shape[column_dim(node)]
    depth = weights.size // columns
    vectors = out.size // columns * depth * -(-columns // device.lanes)
    arithmetic = multiply_us(vectors, device, SHARE) * _conflict(graph, node)
    read = _far_us(out.size // columns * depth * 4, _moved(graph, node), device)
    return _together(arithmetic, stream_us(weights.nbytes, max(weights.nbytes, constants), device) + read, HIDDEN)


def column_dim(node: Node) -> int:
    """The dimension of the output that has a column per column of the weights."""
    return 1 if isinstance(node.op, Conv) else -1


def strassen_brick(graph: Graph, node: Node, device: DeviceSpec, algorithm: str, constants: int, most: int) -> Shape:
    """The brick of the output that gives up to `most` tasks, or few more."""
    return _Work.of(graph, node, device, algorithm, constants).brick(most)


@dataclass(frozen=True)
class _Work:
    """A product by so many levels, in a graph with `constants` bytes of constants: [batch…, M, K] × [K, N], or with
    `pixels` [images, K, sides…] × [K, N] gives [images, N, sides…]."""

    out: Shape
    pixels: bool
    depth: int
    levels: int
    constants: int
    moved: int  # bytes of the tensor that is read and of the output
    device: DeviceSpec

    @staticmethod
    def of(graph: Graph, node: Node, device: DeviceSpec, algorithm: str, constants: int) -> _Work:
        depth, pixels = graph.ins(node)[0].shape[column_dim(node)], isinstance(node.op, Conv)
        moved = _moved(graph, node)
        return _Work(graph.out(node).shape, pixels, depth, LEVELS[algorithm], constants, moved, device)

    @property
    def chunks(self) -> tuple[int, int]:
        """Of K: how many, and the elements of one."""
        return chunks_of(self.depth, self.device.lanes, self.levels)

    @property
    def unit(self) -> int:
        """Columns that register tiles are grouped in."""
        return group_columns(self.device.lanes, self.levels)

    def brick(self, most: int) -> Shape:
        """Of up to `most` pieces, or as many as leave a quarter of L2 for the first factors of each."""
        held = self.first_bytes(self.split(self.out)[1])
        return _best_brick(self, max(most, math.ceil(held / (self.device.l2 / 4))))

    def best_brick(self, most: int) -> Shape:
        def cost(brick: Shape) -> float:
            rounds = self.rounds(brick)
            waits = 1 + UNEVEN / rounds * (self.device.cores > 1)
            return self.busy_us(brick) * waits + rounds * self.device.task_overhead_us

        tries = product(*self.edges(most))
        return min((brick for brick in tries if math.prod(self.counts(brick)) < 2 * most), key=cost)

    def edges(self, most: int) -> list[list[int]]:
        """To try, per dimension. Rows of pixels stay whole."""
        units = [1] * len(self.out)
        units[1 if self.pixels else -1] = self.unit
        if self.pixels and len(self.out) > 3:
            units[-1] = self.out[-1]
        return [even_edges(extent, unit, most) for extent, unit in zip(self.out, units, strict=True)]

    def split(self, shape: Shape) -> tuple[int, int, int]:
        """Of a shape of the output, or counts along it: matrices, rows of each, columns."""
        if self.pixels:
            return shape[0], math.prod(shape[2:]), shape[1]
        return math.prod(shape[:-2]), shape[-2], shape[-1]

    def counts(self, brick: Shape) -> Shape:
        return tuple(-(-extent // edge) for extent, edge in zip(self.out, brick, strict=True))

    def rounds(self, brick: Shape) -> int:
        return -(-math.prod(self.counts(brick)) // self.device.cores)

    def busy_us(self, brick: Shape) -> float:
        """A core's share of the tasks. The weights of its columns come once from where all constants lie, for all cores
        that share them together."""
        *boxes, pieces = self.split(self.counts(brick))
        matrices, rows, columns = self.split(brick)
        cores, rounds = self.device.cores, self.rounds(brick)
        sweeps = rounds * matrices
        sharers = min(cores, math.prod(boxes))
        pieces = min(rounds, -(-pieces * sharers // cores))
        weights = math.prod(self.chunks) * columns * 4 * growth(self.levels)
        far, near = (stream_us(weights, held, self.device) for held in (max(weights, self.constants), weights))
        first = far / sharers + near * (1 - 1 / sharers)
        streamed = pieces * first + (sweeps - pieces) * near
        read = _far_us(sweeps * rows * self.depth * 4, self.moved, self.device)
        return _together(sweeps * self.matrix_us(rows, columns), streamed, ASKED) + read

    def matrix_us(self, rows: int, columns: int) -> float:
        """One matrix of a box: products of whole groups of tiles, sums, outputs."""
        device, depth, levels = self.device, math.prod(self.chunks), self.levels
        chunks, parts = self.chunks[0], 2**levels
        rows, groups = -(-rows // parts) * parts, -(-columns // self.unit)
        wide = groups * self.unit // device.lanes
        filled = 1 + min(1.0, self.first_bytes(rows) / device.l2)
        vectors = rows * depth * wide * (7 / 8) ** levels + rows * depth / device.lanes * SUM[levels] * filled
        vectors += rows * wide * chunks * OUTPUT[levels]
        spilt = max(0.0, 1 - device.l2 / self.held_bytes(rows, wide)) * self.first_bytes(rows) * chunks * groups
        return multiply_us(vectors, device, SHARE) + SPILT * stream_us(spilt, device.l2 + 1, device)

    def first_bytes(self, rows: int) -> float:
        """First factors of a chunk."""
        return 4 * rows * self.chunks[1] * growth(self.levels)

    def held_bytes(self, rows: int, wide: int) -> float:
        """What a chunk touches again and again: first factors, second ones in use and the next, and for so many vectors
        of columns the sums of earlier chunks."""
        second = self.first_bytes(self.unit) * 2 / 7 ** (self.levels - 1)
        earlier = 4 * rows * wide * self.device.lanes * (self.chunks[0] > 1)
        return self.first_bytes(rows) + second + earlier


@lru_cache(maxsize=512)
def _best_brick(work: _Work, most: int) -> Shape:
    return work.best_brick(most)


def _moved(graph: Graph, node: Node) -> int:
    return graph.ins(node)[0].nbytes + graph.out(node).nbytes


def _far_us(nbytes: float, moved: int, device: DeviceSpec) -> float:
    """Reading rows, if from memory: products overlap that, sums do not."""
    far = moved > KEPT * device.shared[1]
    return stream_us(nbytes, math.inf, device) if far else 0.0


def _conflict(graph: Graph, node: Node) -> float:
    kind = graph.ins(node)[0]
    if isinstance(node.op, Conv):
        return 1.0
    rows = kind.shape[-2] if kind.rank > 1 else 1
    return CONFLICT if kind.shape[-1] * 4 % SETS == 0 and rows > WAYS else 1.0


def _together(arithmetic: float, streamed: float, shown: float) -> float:
    return max(arithmetic, streamed) + shown * min(arithmetic, streamed)
