"""Bounds what merging can save before any brick is tried: no halos, all cores busy, intermediate results in the nearest
cache that can hold them. Searches leave out what could not save enough even so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from brickrt.ops.operators.chains.pixel_chain import PixelChain
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Reorder, Take
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.cost.roofline import overlapped_us

ROUNDING = 1e-6  # of a time: what sums in another order may differ by


@dataclass(frozen=True)
class MergeBounds:
    """Times of the first n nodes of a candidate, at index n - 1: layerwise, and the least that they take merged."""

    alone: Sequence[float]
    merged: Sequence[float]

    def hopeless(self, margin: float) -> str | None:
        """Says why no merge can save a share of the time, `margin`; None where one may."""
        pairs = list(zip(self.alone, self.merged))[1:]
        if any(merged <= (1 - margin) * alone for alone, merged in pairs):
            return None
        alone, merged = min(pairs, key=lambda pair: pair[1] / max(pair[0], ROUNDING))
        return f"merging saves too little even without halos: {merged:.0f} of {alone:.0f} µs"

    def gain(self, n: int, allowed: float) -> float:
        """The most that the first `n` nodes save against `allowed` times their time layerwise."""
        return allowed * self.alone[n - 1] - self.merged[n - 1]

    def worth(self, allowed: float, saved: float) -> int:
        """The largest number of nodes that may save more than `saved`, 0 where none does."""
        return next((n for n in range(len(self.alone), 1, -1) if self.gain(n, allowed) > saved), 0)


def merge_bounds(cost: CostModel, order: Sequence[int]) -> MergeBounds:
    """Bounds for a candidate subgraph, output first."""
    counted, alone = _Counted(cost), list(accumulate(cost.layerwise_us(k) for k in order))
    counted.join(order[0])
    merged = alone[:1]
    for k in order[1:]:
        counted.join(k)
        merged.append(counted.least_us() * (1 - ROUNDING))
    return MergeBounds(alone, merged)


class _Counted:
    """The least time of nodes that join one by one. A tensor comes once from where it lies, or else from a cache; a
    share of it may be all that a reader needs, and its writer computes. On a GPU only arithmetic counts."""

    def __init__(self, cost: CostModel) -> None:
        self.cost, self.nodes = cost, list[int]()
        self.core_us = dict[int, float]()
        self.moved = dict[int, list[tuple[str, float]]]()  # kB of the tensors of each node whose traffic counts
        self.made, self.bytes = set[str](), dict[str, int]()
        self.share = 1.0  # of what further nodes compute that is needed

    def join(self, k: int) -> None:
        """Adds a node, all of whose readers are there."""
        graph, node = self.cost.graph, self.cost.graph.nodes[k]
        if self.nodes:
            self.made.add(node.output)
        self.nodes = sorted([*self.nodes, k])
        self.core_us[k] = self.cost.node_costs[k].core_us * self.share
        names = [n for n in dict.fromkeys((*node.inputs, node.output)) if n not in graph.constants]
        self.bytes |= {name: graph.types[name].nbytes for name in names}
        written, self.share = self.share, self.share * _share_read(self.cost, k)
        shares = (self.share if name in node.inputs else written for name in names)
        kilobytes = [self.bytes[name] / 1e3 * share for name, share in zip(names, shares)]
        self.moved[k] = list(zip(names, kilobytes)) if self.cost.device.kind == "cpu" else []

    def least_us(self) -> float:
        """The least time of the nodes so far."""
        if self.cost.device.kind == "cpu":
            return self.cost.least_us(self.nodes, self.work_us)
        return self.work_us(0.0) + self.cost.constants_us(self.nodes)

    def work_us(self, inner: float) -> float:
        """Arithmetic and traffic of all cores; `inner` is the time per kB of what stays between the nodes."""
        cost, near, total = self.cost, set(self.made), 0.0
        outer = 1 / cost.resident_gbps(sum(size for name, size in self.bytes.items() if name not in near))
        for k in self.nodes:
            traffic = 0.0
            for name, kilobytes in self.moved[k]:
                traffic += kilobytes * (inner if name in near else outer)
                near.add(name)
            total += overlapped_us(self.core_us[k] / cost.device.cores, traffic)
        return total


def _share_read(cost: CostModel, k: int) -> float:
    """The least share of its inputs that bricks of node `k`'s output read between them."""
    node = cost.graph.nodes[k]
    op, outputs = node.op, cost.graph.out(node).shape
    if isinstance(op, Conv | Pool | Take):
        inputs = cost.graph.ins(node)[0].shape
        if isinstance(op, Take):
            read = [extent if table is None else len({*table} - {-1}) for table, extent in zip(op.tables, outputs)]
        else:
            read = [*inputs[:2], *(e * step for e, step in zip(outputs[2:], map(min, op.strides, op.kernel)))]
        return math.prod(min(1.0, some / max(1, whole)) for some, whole in zip(read, inputs, strict=True))
    channels = isinstance(op, Concat) and op.axis == 1 and cost.node_costs[k].image
    return float(channels or isinstance(op, ConvTranspose | Map | MatMul | PixelChain | Reduce | Reorder | Rowwise))
