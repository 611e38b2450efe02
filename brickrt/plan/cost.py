"""What running nodes costs on a device, as modelled: the figures that choose between strategies.

A layer takes as long as the slower of its arithmetic and its traffic. Efficiencies are shares of the multiply-add peak
that kernels reach; only ratios between strategies depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.base import Op
from brickrt.ops.conv import Conv, ConvTranspose
from brickrt.ops.expr import Apply, Expr, walk
from brickrt.ops.interp import Interp
from brickrt.ops.map import Map
from brickrt.ops.matmul import MatMul
from brickrt.ops.move import Concat, Reorder, Take, Transpose, View
from brickrt.ops.pool import Pool
from brickrt.ops.reduce import Reduce
from brickrt.plan.device import DeviceSpec

HEAVY = (Conv, ConvTranspose, MatMul)
SPATIAL = (Conv, ConvTranspose, Pool, Interp)
_TRIGONOMETRIC = frozenset({"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"})
_SLOW = _TRIGONOMETRIC | {"exp", "log", "tanh", "erf", "sigmoid", "pow", "mod", "fmod"}
_DIVISIONS = frozenset({"div", "sqrt", "reciprocal"})
_ELEMENTWISE = 0.25  # one vector operation a cycle, where the peak counts two units of two
_MOVES = 4.0  # vector operations per element of operators that only move
NARROW = 1.1  # bricks cut across rows lose that much to short rows and gathered halos


@dataclass(frozen=True)
class Facts:
    """One node: bytes of its tensors and constants, and the time of its arithmetic on one core.

    `image` tells [batch, channels, spatial…] from batches of matrices: what is cut differs.
    """

    flops: int
    core_us: float
    in_bytes: int
    out_bytes: int
    const_bytes: int
    image: bool
    heavy: bool


@dataclass(frozen=True)
class Merge:
    """A merged subgraph to be costed; arrays have one entry per candidate brick."""

    core_us: np.ndarray  # arithmetic on one core, recomputation included
    inner_bytes: np.ndarray  # written and read between its nodes, recomputation included
    read_bytes: np.ndarray  # of tensors from outside, halos included
    outer_bytes: float  # tensors from outside and the output, once
    bricks: np.ndarray


class Model:
    """Costs of the nodes of one graph on one device."""

    def __init__(self, graph: Graph, layouts: Mapping[str, str], device: DeviceSpec) -> None:
        self.graph, self.layouts, self.device = graph, layouts, device

    @cached_property
    def facts(self) -> list[Facts]:
        """Per node, in order."""
        facts: list[Facts] = []
        for node in self.graph.nodes:
            facts.append(self._facts(node, facts))
        return facts

    def _facts(self, node: Node, before: Sequence[Facts]) -> Facts:
        graph = self.graph
        ins, out = graph.ins(node), graph.out(node)
        names = dict.fromkeys(node.inputs)
        constant = sum(graph.types[name].nbytes for name in names if name in graph.constants)
        image = isinstance(node.op, SPATIAL) or any(self.layouts[n] == "blocked" for n in (*names, node.output))
        if not image and out.rank >= 3 and not isinstance(node.op, (MatMul, View, Transpose)):
            producers = [graph.producers[n] for n in names if n in graph.producers]
            image = any(before[p].image and graph.out(graph.nodes[p]).rank == out.rank for p in producers)
        return Facts(
            flops=node.op.flops(ins, out),
            core_us=self._core_us(node),
            in_bytes=sum(graph.types[name].nbytes for name in names) - constant,
            out_bytes=out.nbytes,
            const_bytes=constant,
            image=image,
            heavy=isinstance(node.op, HEAVY),
        )

    def _core_us(self, node: Node) -> float:
        ins, out = self.graph.ins(node), self.graph.out(node)
        per_us = self.device.peak_gflops_per_core * 1e3
        op = node.op
        elementwise = per_us * _ELEMENTWISE
        if isinstance(op, Conv | ConvTranspose | MatMul):
            return op.flops(ins, out) / (per_us * _efficiency(op, ins[1].shape, self.device.lanes)) + (
                out.size * expr_cost(op.epilogue) / elementwise
            )
        if isinstance(op, Map):
            return out.size * expr_cost(op.expr) / elementwise
        if isinstance(op, Reduce):
            return (ins[0].size * (1 + expr_cost(op.pre)) + out.size * expr_cost(op.post)) / elementwise
        if isinstance(op, View):
            return 0.0
        if isinstance(op, Take | Concat | Transpose | Reorder):
            return out.size * _MOVES / elementwise
        return op.flops(ins, out) / elementwise

    def resident_gbps(self, nbytes: float) -> float:
        """Bandwidth to tensors of so many bytes together: shared cache if they stay there, else memory."""
        level, size = self.device.shared
        return self.device.bandwidth[level if nbytes <= self.device.cache_share * size else "memory"]

    @cached_property
    def _constants_gbps(self) -> float:
        return self.resident_gbps(sum(fact.const_bytes for fact in self.facts))

    def constants_us(self, nodes: Sequence[int]) -> float:
        """Reading the constants once: the same whatever the strategy."""
        return sum(self.facts[k].const_bytes for k in nodes) / self._constants_gbps / 1e3

    def traffic_us(self, k: int) -> float:
        """Moving the tensors of node `k` when it runs on its own."""
        moved = self.facts[k].in_bytes + self.facts[k].out_bytes
        return 0.0 if isinstance(self.graph.nodes[k].op, View) else moved / self.resident_gbps(moved) / 1e3

    def layerwise_us(self, k: int) -> float:
        """Node `k` on its own, on all cores."""
        device, fact = self.device, self.facts[k]
        tasks = min(device.tasks_per_core * device.cores, max(1.0, fact.core_us / device.min_task_us))
        compute = fact.core_us / min(device.cores, tasks)
        overhead = math.ceil(tasks / device.cores) * device.task_overhead_us
        return max(compute, self.traffic_us(k)) + overhead + self.constants_us([k])

    def padded_us(self, nodes: Sequence[int], merge: Merge) -> np.ndarray:
        """`nodes` as padded bricks whose intermediate results stay in the core's own cache."""
        device = self.device
        compute = np.maximum(merge.core_us / device.cores, merge.inner_bytes / device.bandwidth["l2"] / 1e3)
        task_us = device.task_overhead_us + len(nodes) * device.call_overhead_us
        return self._bricks_us(nodes, merge, compute, self._outer_us(merge), merge.bricks * task_us)

    def memoized_us(self, nodes: Sequence[int], merge: Merge) -> np.ndarray:
        """`nodes` as memoized bricks: nothing twice, intermediate results through shared cache, and kept."""
        device = self.device
        core_us = sum(self.facts[k].core_us for k in nodes)
        inner = sum(self.facts[k].out_bytes for k in nodes[:-1])
        level, size = device.shared
        kept = inner / device.bandwidth["memory"] if inner > device.cache_share * size else 0.0
        traffic = self._outer_us(merge) + (2 * inner / device.bandwidth[level] + kept) / 1e3
        task_us = len(nodes) * (device.task_overhead_us + device.call_overhead_us)
        compute = np.full_like(merge.core_us, core_us / device.cores)
        return self._bricks_us(nodes, merge, compute, traffic, merge.bricks * task_us)

    def _outer_us(self, merge: Merge) -> np.ndarray:
        """Tensors from outside once, and halos again from shared cache."""
        again = np.maximum(merge.read_bytes - merge.outer_bytes, 0)
        once = merge.outer_bytes / self.resident_gbps(merge.outer_bytes)
        return (once + again / self.device.bandwidth[self.device.shared[0]]) / 1e3

    def _bricks_us(
        self, nodes: Sequence[int], merge: Merge, compute: np.ndarray, traffic: np.ndarray, overhead: np.ndarray
    ) -> np.ndarray:
        cores = self.device.cores
        rounds = np.ceil(merge.bricks / cores) * cores / merge.bricks
        return (np.maximum(compute, traffic) + overhead / cores) * rounds + self.constants_us(nodes)


def expr_cost(expr: Expr | None) -> float:
    """Vector operations per element."""
    if expr is None:
        return 0.0
    return sum(
        15.0 if e.fn in _SLOW else 4.0 if e.fn in _DIVISIONS else 1.0 for e in walk(expr) if isinstance(e, Apply)
    )


def _efficiency(op: Op, weights: Sequence[int], lanes: int) -> float:
    if isinstance(op, MatMul):
        return 0.6
    if isinstance(op, ConvTranspose):
        return 0.4
    if isinstance(op, Conv) and op.groups > 1:
        return 0.2 if weights[1] < lanes else 0.6
    return 0.75 if weights[1] > 4 else 0.4
