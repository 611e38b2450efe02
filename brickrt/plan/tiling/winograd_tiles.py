"""Cuts a Winograd layer into tasks.

Every piece of channels transforms the input anew; every piece of rows reads all weights anew; and both leave tiles that
are not full. So all cuts are modelled, and the fastest is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

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
    graph, node = cost.graph, cost.graph.nodes[k]
    op, out = node.op, graph.out(node).shape
    assert isinstance(op, Conv)
    axes = known_axes(op, graph.ins(node)[0].shape[2:], EDGES[cost.algorithms[k]])
    bricks = np.array(list(product(*_edges(axes, out, cost.device, 2 * most - 1))), np.int64)
    counts = -(-np.array(out) // bricks)
    few = counts.prod(axis=1) < 2 * most
    us, tasks = _busiest_us(cost, k, axes, bricks[few], counts[few]), counts[few].prod(axis=1)
    return tuple(bricks[few][np.lexsort((tasks, us))[0]].tolist())


def _busiest_us(cost: CostModel, k: int, axes: Axes, bricks: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Times of the core that has most, [n], of bricks [n, rank] that are so many along each dimension."""
    graph, node, device = cost.graph, cost.graph.nodes[k], cost.device
    constants = max(cost.constant_bytes, cost.node_costs[k].const_bytes)
    tasks = counts.prod(axis=1)
    rounds = -(-tasks // device.cores)
    pieces = np.minimum(rounds, -(-counts[:, 1] // device.cores))  # cores have channels of their own, while there are
    shorter, last = _shorter(axes, graph.out(node).shape, bricks, counts, device.cores)
    both = np.concatenate([np.arange(len(bricks)), shorter])
    share = core_share(graph, node, device, cost.algorithms[k], rounds[both], pieces[both], constants)
    times = winograd_us(axes, graph.ins(node)[0].shape[1], np.concatenate([bricks, last]).T, device, share)
    us = times[: len(bricks)]
    us[shorter] += (times[len(bricks) :] - us[shorter]) / rounds[shorter]
    return us * (1 + UNEVEN_WINOGRAD / rounds * (device.cores > 1))


def _shorter(
    axes: Axes, out: Shape, bricks: np.ndarray, counts: np.ndarray, cores: int
) -> tuple[np.ndarray, np.ndarray]:
    """Which bricks leave the last rows to bricks with fewer of them, one or more for each core that has most bricks;
    and these."""
    rows = axes.down.dim
    if rows is None or axes.down.m == 1:
        return np.zeros(0, np.int64), bricks[:0]
    tasks, over = counts.prod(axis=1), out[rows] % bricks[:, rows]
    found = np.flatnonzero((over > 0) & (tasks // counts[:, rows] >= (tasks - 1) % cores + 1))
    last = bricks[found]
    last[:, rows] = over[found]
    return found, last


def _edges(axes: Axes, out: Sequence[int], device: DeviceSpec, most: int) -> Iterator[list[int]]:
    """Edges to try, per dimension of the output: images, pairs of channel blocks, planes, whole tiles of rows."""
    units = [1, 2 * device.lanes, *out[2:]]
    for axis in axes[:2]:
        if axis.dim is not None:
            units[axis.dim] = axis.m * axis.phases
    return (even_edges(extent, unit, most) for extent, unit in zip(out, units, strict=True))
