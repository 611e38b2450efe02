"""Cuts a Winograd layer into tasks.

Every piece of channels transforms the input anew; every piece of rows reads all weights anew; and both leave tiles that
are not full. So all cuts are modelled, and the fastest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from brickrt.ops.cpu.winograd.axes import Axes, known_axes
from brickrt.ops.operators.conv import Conv
from brickrt.ops.types import Shape
from brickrt.plan.cost.constants import UNEVEN_WINOGRAD
from brickrt.plan.cost.conv_algorithms import EDGES, core_share
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.cost.winograd_times import winograd_us
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.geometry.bricks import even_edges


def winograd_brick(cost: CostModel, k: int, most: int) -> Shape:
    """The brick of the output of node `k` that makes up to `most` tasks, or few more."""
    graph, node, device = cost.graph, cost.graph.nodes[k], cost.device
    op, x, out = node.op, graph.ins(node)[0].shape, graph.out(node).shape
    assert isinstance(op, Conv)
    axes = known_axes(op, x[2:], EDGES[cost.algorithms[k]])
    constants = max(cost.constant_bytes, cost.node_costs[k].const_bytes)
    rows = axes.down.dim or 0

    def pieces_of(brick: Shape) -> list[int]:
        return [-(-e // b) for e, b in zip(out, brick, strict=True)]

    def last_brick(brick: Shape) -> Shape | None:
        """The one with the last rows, where these are fewer."""
        over = out[rows] % brick[rows] if axes.down.m > 1 else 0
        return (*brick[:rows], over, *brick[rows + 1 :]) if over else None

    def modelled(brick: Shape) -> tuple[float, int]:
        """Time of the core that has most, and the number of tasks."""
        counts = pieces_of(brick)
        tasks = math.prod(counts)
        rounds = -(-tasks // device.cores)
        pieces = min(rounds, -(-counts[1] // device.cores))  # cores have channels of their own, as far as there are
        share = core_share(graph, node, cost.algorithms[k], rounds, pieces, constants)
        us = winograd_us(axes, x[1], brick, device, share)
        busiest = tasks % device.cores or device.cores  # cores that have as many tasks as any
        if (last := last_brick(brick)) and tasks // counts[rows] >= busiest:  # of which each has one with fewer rows
            us += (winograd_us(axes, x[1], last, device, share) - us) / rounds
        return us * (1 + UNEVEN_WINOGRAD / rounds * (device.cores > 1)), tasks

    bricks = product(*_edges(axes, out, device, 2 * most - 1))
    return min((brick for brick in bricks if math.prod(pieces_of(brick)) < 2 * most), key=modelled)


def _edges(axes: Axes, out: Sequence[int], device: DeviceSpec, most: int) -> Iterator[list[int]]:
    """Edges to try, per dimension of the output: images, pairs of channel blocks, planes, whole tiles of rows."""
    units = [1, 2 * device.lanes, *out[2:]]
    for axis in axes[:2]:
        if axis.dim is not None:
            units[axis.dim] = axis.m * axis.phases
    return (even_edges(extent, unit, most) for extent, unit in zip(out, units, strict=True))
