"""Which matrix products are computed by Strassen's scheme, and how they are cut into tasks.

It multiplies an eighth less, adds up quarters of the first operand once per task and streams 7/4 of the weights: it
needs rows to pay for the weights and columns to pay for the sums. Costs are microseconds of one core.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.cpu.strassen import chunks_of, fits, group_columns
from brickrt.ops.matmul import MatMul
from brickrt.ops.types import Shape
from brickrt.plan.bricks import even_edges
from brickrt.plan.device import DeviceSpec
from brickrt.plan.speeds import multiply_us, stream_us

STRASSEN = "strassen"
GROWTH = 7 / 4  # factors that are stored, over weights
SHARE = 0.95  # of the multiply-add peak, by either way to multiply
MARGIN = 0.98  # of the direct time that the scheme may take
SUM = 5.0  # multiply-adds that take as long as the sums of one element, per sweep over the columns
OUTPUT = 6.0  # the same per element of the output and chunk of K: what is kept, restored and added
HIDDEN = 0.3  # share of shorter work that the longer does not hide
AGAIN = 3.0  # times the modelled stream: weights swept again, which push a box's rows out of L2
UNEVEN = 0.05  # of a task's time that cores wait for the last one


def may_use(graph: Graph, node: Node, lanes: int) -> bool:
    op, kinds = node.op, [*graph.ins(node), graph.out(node)]
    return (
        isinstance(op, MatMul)
        and all(name in graph.constants for name in node.inputs[1 : 2 + op.bias])
        and all(kind.dtype == np.float32 for kind in (*kinds[:2], kinds[-1]))
        and fits(op, kinds[0].shape, kinds[1].shape, lanes)
        and kinds[-1].size > 0
    )


def pays(graph: Graph, node: Node, device: DeviceSpec, constants: int) -> bool:
    """Whether a layer cut as `strassen_brick` cuts it takes less time than multiplied directly."""
    return product_us(graph, node, device, STRASSEN, constants) < MARGIN * product_us(
        graph, node, device, None, constants
    )


def product_us(graph: Graph, node: Node, device: DeviceSpec, algorithm: str | None, constants: int) -> float:
    """Modelled time of a product with constant weights, in a graph with so many bytes of constants."""
    if algorithm == STRASSEN:
        brick = strassen_brick(graph, node, device, constants, device.tasks_per_core * device.cores)
        return _busy_us(graph.out(node).shape, brick, graph.ins(node)[0].shape[-1], device, constants) * device.cores
    a, b = (kind.shape for kind in graph.ins(node)[:2])
    vectors = math.prod(a) * -(-b[1] // device.lanes)
    weights = math.prod(b) * 4
    return _together(multiply_us(vectors, device, SHARE), stream_us(weights, max(weights, constants), device))


def strassen_brick(graph: Graph, node: Node, device: DeviceSpec, constants: int, most: int) -> Shape:
    """The brick of the output that gives up to `most` tasks, or few more."""
    depth, out = graph.ins(node)[0].shape[-1], graph.out(node).shape
    units = [1] * (len(out) - 1) + [group_columns(device.lanes)]
    edges = [even_edges(extent, unit, most) for extent, unit in zip(out, units, strict=True)]

    def cost(brick: Shape) -> float:
        rounds = -(-math.prod(_counts(out, brick)) // device.cores)
        busy = _busy_us(out, brick, depth, device, constants)
        return busy * (1 + UNEVEN / rounds * (device.cores > 1)) + rounds * device.task_overhead_us

    return min((brick for brick in product(*edges) if math.prod(_counts(out, brick)) < 2 * most), key=cost)


def _busy_us(out: Shape, brick: Shape, depth: int, device: DeviceSpec, constants: int) -> float:
    """A core's share of the tasks. The weights of its columns come once from where all constants lie."""
    rounds = -(-math.prod(_counts(out, brick)) // device.cores)
    sweeps = rounds * math.prod(brick[:-2])
    pieces = min(rounds, -(-_counts(out, brick)[-1] // device.cores))
    weights = depth * brick[-1] * 4 * GROWTH
    first, again = (stream_us(weights, held, device) for held in (max(weights, constants), weights))
    arithmetic = sweeps * _matrix_us(brick[-2], depth, brick[-1], device)
    return _together(arithmetic, pieces * first + (sweeps - pieces) * again * AGAIN)


def _matrix_us(rows: int, depth: int, columns: int, device: DeviceSpec) -> float:
    """One matrix of a box: products of whole pairs of tiles, sums, outputs."""
    lanes, unit = device.lanes, group_columns(device.lanes)
    chunks = chunks_of(depth, lanes)
    rows, wide = rows + rows % 2, -(-columns // unit) * unit // lanes
    vectors = rows * depth * wide * 7 / 8 + rows * depth / lanes * SUM + rows * wide * chunks * OUTPUT
    held = 4 * depth // chunks * (2 * rows + 2 * GROWTH * unit)  # first factors, second ones in use and the next
    spilt = 4 * GROWTH * rows * depth * -(-columns // unit) * (held > device.l2)
    return multiply_us(vectors, device, SHARE) + HIDDEN * stream_us(spilt, device.l2 + 1, device)


def _together(arithmetic: float, streamed: float) -> float:
    return max(arithmetic, streamed) + HIDDEN * min(arithmetic, streamed)


def _counts(out: Sequence[int], brick: Sequence[int]) -> list[int]:
    return [-(-extent // edge) for extent, edge in zip(out, brick, strict=True)]
