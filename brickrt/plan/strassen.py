"""Which matrix products are computed by Strassen's scheme, and how they are cut into tasks.

One level multiplies an eighth less, adds up quarters of the first operand once per task and streams 7/4 of the weights:
it needs rows to pay for the weights and columns to pay for the sums. Two levels do all that twice. Costs are
microseconds of one core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.cpu.strassen import chunks_of, fits, group_columns
from brickrt.ops.matmul import MatMul
from brickrt.ops.types import Shape
from brickrt.plan.bricks import even_edges
from brickrt.plan.device import DeviceSpec
from brickrt.plan.speeds import multiply_us, stream_us

LEVELS = {"strassen": 1, "strassen2": 2}  # by algorithm: how often everything is halved
SHARE = 0.95  # of the multiply-add peak, by any way to multiply
MARGIN = 0.98  # of the direct time that the scheme may take
SUM = {1: 5.0, 2: 16.0}  # multiply-adds that take as long as the sums of one element, per sweep over the columns
OUTPUT = {1: 9.0, 2: 22.0}  # the same per element of the output and chunk of K: what is kept, restored and added
HIDDEN = 0.3  # share of shorter work that the longer does not hide
ASKED = 0.12  # the same of weights that are asked for far ahead
AGAIN = 3.0  # times the modelled stream: weights swept again, which push a box's rows out of L2
UNEVEN = 0.02  # of a task's time that cores wait for the last one
CONFLICT = {0: 1.2, 1: 1.1, 2: 1.0}  # by level: rows a multiple of SETS apart, read in place, share few lines of L1
SETS = 4096  # bytes after which the sets of L1 repeat
WAYS = 8  # lines of a set; so many rows do not meet
MOST_MEMORY = 0.25  # share of the memory that all constants may grow to


def growth(levels: int) -> float:
    """Factors over what they are sums of."""
    return (7 / 4) ** levels


def may_use(graph: Graph, node: Node, lanes: int, algorithm: str) -> bool:
    op, kinds = node.op, [*graph.ins(node), graph.out(node)]
    return (
        isinstance(op, MatMul)
        and all(name in graph.constants for name in node.inputs[1 : 2 + op.bias])
        and all(kind.dtype == np.float32 for kind in (*kinds[:2], kinds[-1]))
        and fits(op, kinds[0].shape, kinds[1].shape, lanes, LEVELS[algorithm])
        and kinds[-1].size > 0
    )


def choose_product(graph: Graph, node: Node, device: DeviceSpec, constants: int) -> str | None:
    """The algorithm that takes least time for a product, cut as `strassen_brick` cuts it; None for the direct one."""
    names = [name for name in LEVELS if may_use(graph, node, device.lanes, name)]
    names = [name for name in names if constants * growth(LEVELS[name]) <= MOST_MEMORY * device.memory]
    times = {name: product_us(graph, node, device, name, constants) for name in names}
    best = min(times, key=times.__getitem__, default=None)
    if best is None or times[best] >= MARGIN * product_us(graph, node, device, None, constants):
        return None
    return best


def product_us(graph: Graph, node: Node, device: DeviceSpec, algorithm: str | None, constants: int) -> float:
    """Modelled time of a product with constant weights, in a graph with so many bytes of constants."""
    if algorithm is not None:
        work = _Work.of(graph, node, device, algorithm, constants)
        return work.busy_us(work.brick(device.tasks_per_core * device.cores)) * device.cores
    a, b = (kind.shape for kind in graph.ins(node)[:2])
    vectors = math.prod(a) * -(-b[1] // device.lanes)
    weights = math.prod(b) * 4
    arithmetic = multiply_us(vectors, device, SHARE) * _conflict(a[-2] if len(a) > 1 else 1, a[-1], 0)
    return _together(arithmetic, stream_us(weights, max(weights, constants), device), HIDDEN)


def strassen_brick(graph: Graph, node: Node, device: DeviceSpec, algorithm: str, constants: int, most: int) -> Shape:
    """The brick of the output that gives up to `most` tasks, or few more."""
    return _Work.of(graph, node, device, algorithm, constants).brick(most)


@dataclass(frozen=True)
class _Work:
    """A product [batch…, M, K] × [K, N] by so many levels, in a graph with `constants` bytes of constants."""

    out: Shape
    depth: int
    levels: int
    constants: int
    device: DeviceSpec

    @staticmethod
    def of(graph: Graph, node: Node, device: DeviceSpec, algorithm: str, constants: int) -> _Work:
        depth = graph.ins(node)[0].shape[-1]
        return _Work(graph.out(node).shape, depth, LEVELS[algorithm], constants, device)

    @property
    def unit(self) -> int:
        """Columns that register tiles are grouped in."""
        return group_columns(self.device.lanes, self.levels)

    def brick(self, most: int) -> Shape:
        units = [1] * (len(self.out) - 1) + [self.unit]
        edges = [even_edges(extent, unit, most) for extent, unit in zip(self.out, units, strict=True)]

        def cost(brick: Shape) -> float:
            rounds = self.rounds(brick)
            waits = 1 + UNEVEN / rounds * (self.device.cores > 1)
            return self.busy_us(brick) * waits + rounds * self.device.task_overhead_us

        return min((brick for brick in product(*edges) if math.prod(self.counts(brick)) < 2 * most), key=cost)

    def counts(self, brick: Shape) -> list[int]:
        return [-(-extent // edge) for extent, edge in zip(self.out, brick, strict=True)]

    def rounds(self, brick: Shape) -> int:
        return -(-math.prod(self.counts(brick)) // self.device.cores)

    def busy_us(self, brick: Shape) -> float:
        """A core's share of the tasks. The weights of its columns come once from where all constants lie, for all cores
        that share them together."""
        *rows, columns = self.counts(brick)
        cores, rounds = self.device.cores, self.rounds(brick)
        sweeps = rounds * math.prod(brick[:-2])
        sharers = min(cores, math.prod(rows))
        pieces = min(rounds, -(-columns * sharers // cores))
        weights = self.depth * brick[-1] * 4 * growth(self.levels)
        far, near = (stream_us(weights, held, self.device) for held in (max(weights, self.constants), weights))
        first = far / sharers + near * (1 - 1 / sharers)
        streamed = pieces * first + (sweeps - pieces) * near * AGAIN
        return _together(sweeps * self.matrix_us(brick), streamed, ASKED)

    def matrix_us(self, brick: Shape) -> float:
        """One matrix of a box: products of whole groups of tiles, sums, outputs."""
        device, depth, levels = self.device, self.depth, self.levels
        chunks, parts = chunks_of(depth, device.lanes, levels), 2**levels
        rows, groups = -(-brick[-2] // parts) * parts, -(-brick[-1] // self.unit)
        wide = groups * self.unit // device.lanes
        vectors = (
            rows * depth * wide * (7 / 8) ** levels * _conflict(rows, depth, levels)
            + rows * depth / device.lanes * SUM[levels]
        )
        vectors += rows * wide * chunks * OUTPUT[levels]
        spilt = self.first_bytes(rows) * chunks * groups * (self.held_bytes(rows) > device.l2)
        return multiply_us(vectors, device, SHARE) + HIDDEN * stream_us(spilt, device.l2 + 1, device)

    def first_bytes(self, rows: int) -> float:
        """First factors of a chunk."""
        return 4 * rows * self.depth / chunks_of(self.depth, self.device.lanes, self.levels) * growth(self.levels)

    def held_bytes(self, rows: int) -> float:
        """What a chunk touches again and again: first factors, second ones in use and the next."""
        second = self.first_bytes(self.unit) * 2 / 7 ** (self.levels - 1)
        return self.first_bytes(rows) * (8 / 7 if self.levels == 1 else 1) + second


def _conflict(rows: int, depth: int, levels: int) -> float:
    return CONFLICT[levels] if depth * 4 % SETS == 0 and rows > WAYS else 1.0


def _together(arithmetic: float, streamed: float, shown: float) -> float:
    return max(arithmetic, streamed) + shown * min(arithmetic, streamed)
