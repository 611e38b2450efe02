"""Which convolutions ask for weights that a later layer would wait for.

A layer with few rows, as a classifier behind a global pool, reads every weight once and computes next to nothing: it
takes as long as memory does. The convolutions before it hardly use memory. So the nearest of them ask for its weights
while they compute, slice by slice, and it finds them in the caches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from brickrt.ops.cpu.amx.sizes import ASKS
from brickrt.ops.cpu.kernel import Kernel
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.matmul import MatMul
from brickrt.plan.cost.roofline import compute_us
from brickrt.plan.cost.tile_products import TILES, tile_steps
from brickrt.plan.plan import Plan
from brickrt.runtime.lowering.task_graph import Steps, TaskGraph

PACES = (0, 1, 2, 4, 8, 16, 32, 64)  # bytes that may be asked for per channel that a register tile sweeps
TILE = 24  # vectors of a register tile, about
PREFETCHED_CACHE_SHARE = 0.25  # of the cache that all cores share, which may be filled ahead


@dataclass(frozen=True)
class PrefetchShare:
    """The part of a constant that a node should ask for, in bytes."""

    constant: str
    nbytes: float


@dataclass
class Slices:
    """What the steps of a node ask for: `column` is (base, byte offset) in their records, [n, 2], `sizes` in bytes."""

    node: int
    column: np.ndarray
    sizes: np.ndarray


@dataclass
class WeightPrefetch:
    """Lets steps ask for weights while their records are made; `fill` says where those are, once that is known."""

    tasks: TaskGraph
    slices: list[Slices] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shares = askers(self.tasks)  # by the node that asks
        self._made: dict[tuple[int, int], tuple[Sequence[Kernel], Sequence[Kernel]]] = {}  # by a list's identity

    def asking(
        self, steps: Steps, variants: Sequence[Kernel], which: np.ndarray
    ) -> tuple[Sequence[Kernel], np.ndarray | None]:
        """The kernels of a node's steps, which ask if they should and can, and how many bytes each step asks for."""
        share = self.shares.get(steps.node)
        if share is None or not all(v.can_prefetch_weights for v in variants):
            return variants, None
        if not share.nbytes:
            return self._at_pace(variants, 0), np.zeros(len(which), np.int64)
        channels = np.stack([v.swept_channels(steps.boxes) for v in variants])[which, np.arange(len(which))]
        least = share.nbytes / int(channels.sum())
        pace = next((p for p in PACES if p >= least), PACES[-1])
        return self._at_pace(variants, pace), channels * pace

    def _at_pace(self, variants: Sequence[Kernel], pace: int) -> Sequence[Kernel]:
        """Kernels that ask for so many bytes: the same ones for the same list, which is held meanwhile."""
        key = id(variants), pace
        if key not in self._made:
            self._made[key] = variants, [replace(v, prefetch_bytes=pace) for v in variants]
        return self._made[key][1]

    def note(self, node: int, column: np.ndarray, sizes: np.ndarray) -> None:
        """Keeps the records of steps that ask, which `fill` completes."""
        self.slices.append(Slices(node, column, sizes))

    def fill(self, where: Callable[[str], tuple[int, int]]) -> None:
        """Completes the records; `where` gives base and bytes of a constant. The last steps ask for its first bytes,
        which are read first. No step asks beyond its end."""
        ends: Counter[str] = Counter()
        for each in reversed(self.slices):
            name = self.shares[each.node].constant
            base, nbytes = where(name)
            starts = ends[name] + np.cumsum(each.sizes) - each.sizes
            each.column[:, 0], each.column[:, 1] = base, np.clip(starts, 0, np.maximum(nbytes - each.sizes, 0))
            ends[name] += int(each.sizes.sum())


def askers(tasks: TaskGraph) -> dict[int, PrefetchShare]:
    """What nodes should ask for, by node: those before one that waits for its weights, the nearest first. Where the
    model has other sizes, at which other nodes ask, these ask for 0 bytes: they have the same code at all sizes."""
    found = due_askers(tasks)
    return idle_askers(tasks) | found if tasks.open_sizes else found


def idle_askers(tasks: TaskGraph) -> dict[int, PrefetchShare]:
    """Nodes that may have something to ask for at some size: those before one with more weights than L2 holds."""
    plan, order = tasks.plan, [steps.node for steps in tasks.steps if len(steps.boxes)]
    graph, found, name = plan.graph, dict[int, PrefetchShare](), None
    readers = Counter(name for node in order for name in graph.nodes[node].inputs)
    for k in reversed(order):
        if name is not None and asked_bytes(plan, k):
            found[k] = PrefetchShare(name, 0.0)
        if isinstance(graph.nodes[k].op, Conv | MatMul):
            large = [n for n in large_constants(plan, k) if readers[n] == 1]
            name = large[0] if large else name
    return found


def due_askers(tasks: TaskGraph) -> dict[int, PrefetchShare]:
    """What nodes should ask for at this size, by node."""
    plan, order = tasks.plan, [steps.node for steps in tasks.steps if len(steps.boxes)]
    readers = Counter(name for node in order for name in plan.graph.nodes[node].inputs)
    found: dict[int, PrefetchShare] = {}
    budget = plan.device.shared[1] * PREFETCHED_CACHE_SHARE
    for at, node in enumerate(order):
        for name in (name for name in awaited(plan, node) if readers[name] == 1):
            left = min(plan.graph.types[name].nbytes, budget)
            for before in reversed(order[:at]):
                if left <= 0:
                    break
                if before not in found and (capacity := asked_bytes(plan, before)):
                    found[before] = PrefetchShare(name, min(left, capacity))
                    left -= capacity
    return found


def awaited(plan: Plan, k: int) -> list[str]:
    """Constants that take a node longer to read than it computes; those that fit in L2 are left out."""
    graph, device, node = plan.graph, plan.device, plan.graph.nodes[k]
    work = compute_us(graph.flops([node]) / (2 * device.lanes), device, 1.0)
    gbps = device.bandwidth_at("memory", device.cores) / device.cores
    return [name for name in large_constants(plan, k) if graph.types[name].nbytes / gbps / 1e3 > work]


def large_constants(plan: Plan, k: int) -> list[str]:
    """Constants of a node that L2 does not hold."""
    graph = plan.graph
    names = (name for name in dict.fromkeys(graph.nodes[k].inputs) if name in graph.constants)
    return [name for name in names if graph.types[name].nbytes > plan.device.l2]


def asked_bytes(plan: Plan, k: int) -> float:
    """About how many bytes a node can ask for while it computes; 0 for one that cannot."""
    node, graph = plan.graph.nodes[k], plan.graph
    if plan.algorithms.get(k) == TILES:
        return tile_steps(graph, node) * ASKS * PACES[-1]
    direct = isinstance(node.op, Conv) and node.op.groups == 1 and k not in plan.algorithms
    if not direct or plan.layouts[node.inputs[0]] != "blocked" or node.inputs[1] not in graph.constants:
        return 0.0
    return graph.flops([node]) / (2 * plan.device.lanes * TILE) * PACES[-1]
