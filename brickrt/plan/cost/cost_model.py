"""The cost model: how long nodes take on a device by each strategy. It chooses between strategies, bricks and tasks.

Arithmetic and traffic overlap, though not fully: the longer counts whole, the shorter in part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from brickrt.graph.ir import Graph
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Transpose, View
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.product import Product
from brickrt.ops.operators.sampling.interp import Interp
from brickrt.ops.types import Shape
from brickrt.plan.cost.arithmetic import arithmetic_us, epilogue_us
from brickrt.plan.cost.constants import (
    FUSED_BLOCKS,
    FUSED_TASK_US,
    ROW_END,
    SPILT_MOVES,
    UNEVEN_BRICKS,
    UNEVEN_TILES,
    UNHIDDEN_SHARE,
)
from brickrt.plan.cost.conv_algorithms import (
    constant_bytes,
    keeps_algorithm,
    layer_us,
    tile_outputs,
    weight_growth,
    weights_again_us,
)
from brickrt.plan.cost.roofline import Amount, larger, overlapped_us
from brickrt.plan.cost.tile_products import TILES, TileWork, tiles_us
from brickrt.plan.cost.tile_times import TileTimes
from brickrt.plan.device.device_spec import DeviceSpec
from brickrt.plan.options import Precision
from brickrt.plan.structure import Structures

SPATIAL = (Conv, ConvTranspose, Pool, Interp)


@dataclass(frozen=True)
class NodeCost:
    """What is known of one node: bytes of its tensors and constants, and the time of its arithmetic on one core.

    `image` tells [batch, channels, spatial…] from batches of matrices: other dimensions of it are cut. `heavy` nodes
    are convolutions and products.
    """

    flops: int
    core_us: float
    in_bytes: int
    out_bytes: int
    const_bytes: int
    image: bool
    heavy: bool


@dataclass(frozen=True)
class BrickTrials:
    """A subgraph in several brick shapes of its output; arrays have one entry per shape.

    A brick is computed in `bands` bands of `rows` rows each. `elements` are those that all bricks together touch of
    each tensor, `held` the bytes that one band touches.
    """

    nodes: Sequence[int]  # ascending
    bricks: tuple[Shape, ...]
    bands: np.ndarray
    rows: np.ndarray
    elements: dict[str, np.ndarray]
    held: np.ndarray


class CostModel:
    """Models the time of nodes and subgraphs of one graph on one device, all in microseconds."""

    def __init__(
        self,
        graph: Graph,
        layouts: Mapping[str, str],
        device: DeviceSpec,
        algorithms: Mapping[int, str] | None = None,
        precision: Precision = "fp32",
    ) -> None:
        self.graph, self.layouts, self.device, self.precision = graph, layouts, device, precision
        self.algorithms = algorithms or {}
        self.constant_bytes = constant_bytes(graph)
        self.structures = Structures(graph, layouts)
        self._alone_us: dict[int, float] = {}  # of nodes that were asked for
        self._saved_known: dict[tuple[int, str], float] = {}  # by the kind of node
        self._again_known: dict[tuple[int, str], float] = {}  # the same
        self.counted: dict[Hashable, Any] = {}  # of subgraphs in bricks that were asked for (merging/propose_merges.py)
        self.tile_times: dict[Hashable, TileTimes] = {}  # those of boxes that were asked for (merging/fused_bricks.py)

    @cached_property
    def node_costs(self) -> list[NodeCost]:
        """What is known of each node, in order."""
        node_costs: list[NodeCost] = []
        for k in range(len(self.graph.nodes)):
            node_costs.append(self._node_cost(k, node_costs))
        return node_costs

    def structure(self, nodes: Sequence[int]) -> Hashable:
        """See `Structures.of`."""
        return self.structures.of(nodes)

    def _node_cost(self, k: int, before: Sequence[NodeCost]) -> NodeCost:
        graph, node, algorithm = self.graph, self.graph.nodes[k], self.algorithms.get(k)
        ins, out = graph.ins(node), graph.out(node)
        names = dict.fromkeys(node.inputs)
        constant = sum(graph.types[name].nbytes for name in names if name in graph.constants)
        image = isinstance(node.op, SPATIAL) or any(self.layouts[n] != "plain" for n in (*names, node.output))
        if not image and out.rank >= 3 and not isinstance(node.op, (MatMul, View, Transpose)):
            producers = [graph.producers[n] for n in names if n in graph.producers]
            image = any(before[p].image and graph.out(graph.nodes[p]).rank == out.rank for p in producers)
        return NodeCost(
            flops=node.op.flops(ins, out),
            core_us=self._core_us(k),
            in_bytes=sum(graph.types[name].nbytes for name in names) - constant,
            out_bytes=out.nbytes,
            const_bytes=int(constant * (weight_growth(node.op, algorithm, ins[1].dtype) if algorithm else 1)),
            image=image,
            heavy=isinstance(node.op, Product),
        )

    def _core_us(self, k: int) -> float:
        """Time of a node's arithmetic by its algorithm."""
        graph, node = self.graph, self.graph.nodes[k]
        if self.algorithms.get(k) == TILES:
            assert isinstance(node.op, Product)
            after = epilogue_us(graph.out(node).size, node.op.epilogue, self.device)
            return tiles_us(graph, node, self.device, self.constant_bytes) + after
        return arithmetic_us(graph, node, self.device, self.precision) * self._saved(k)

    def _saved(self, k: int) -> float:
        """Time of a node by its algorithm over that of the direct one; equal nodes are modelled once."""
        algorithm = self.algorithms.get(k)
        if algorithm is None:
            return 1.0
        kind = self.structures.kinds[k], algorithm
        if kind not in self._saved_known:
            graph, node = self.graph, self.graph.nodes[k]
            direct, other = (layer_us(graph, node, self.device, a, self.constant_bytes) for a in (None, algorithm))
            self._saved_known[kind] = other / direct
        return self._saved_known[kind]

    def resident_gbps(self, nbytes: float) -> float:
        """Bandwidth to tensors of so many bytes: of the shared cache if they stay there together, else of memory."""
        level, size = self.device.shared
        return self.device.bandwidth[level if nbytes <= self.device.cache_share * size else "memory"]

    @cached_property
    def _constants_gbps(self) -> float:
        return self.resident_gbps(sum(own.const_bytes for own in self.node_costs))

    def constants_us(self, nodes: Sequence[int]) -> float:
        """Time to read the constants once, which is the same for all strategies."""
        return sum(self.node_costs[k].const_bytes for k in nodes) / self._constants_gbps / 1e3

    def traffic_us(self, k: int) -> float:
        """Time to move the tensors of node `k` when it runs on its own."""
        moved = self.node_costs[k].in_bytes + self.node_costs[k].out_bytes
        return 0.0 if isinstance(self.graph.nodes[k].op, View) else moved / self.resident_gbps(moved) / 1e3

    def streams_both(self, k: int) -> bool:
        """Whether node `k` is a product of two computed tensors, as in attention: its sums are short and end in stores
        that nothing overlaps."""
        node = self.graph.nodes[k]
        return isinstance(node.op, MatMul) and node.inputs[1] not in self.graph.constants

    def layerwise_us(self, k: int) -> float:
        """Time of node `k` on its own, on all cores."""
        if k not in self._alone_us:
            self._alone_us[k] = self._layer_us(k)
        return self._alone_us[k]

    def _layer_us(self, k: int) -> float:
        device, own = self.device, self.node_costs[k]
        tasks = min(device.tasks_per_core * device.cores, max(1.0, own.core_us / device.min_task_us))
        compute, traffic = own.core_us / min(device.cores, tasks), self.traffic_us(k)
        overhead = math.ceil(tasks / device.cores) * device.task_overhead_us
        shown = 1.0 if self.streams_both(k) else UNHIDDEN_SHARE
        return overlapped_us(compute, traffic, shown) + overhead + self.constants_us([k])

    def padded_us(self, trials: BrickTrials) -> np.ndarray:
        """Times in padded bricks: intermediate results that do not fit a core's own cache go through the shared one."""
        device = self.device
        inner = self._padded_inner(trials.held + (self._constants(trials.nodes) if device.kind == "cpu" else 0))
        core_us = [self.recomputed_us(k, trials) for k in trials.nodes]
        band_us = len(trials.nodes) * device.call_overhead_us + UNHIDDEN_SHARE * self._constants_again_us(trials.nodes)
        return self._bricks_us(
            trials, core_us, trials.elements, inner, device.task_overhead_us + trials.bands * band_us
        )

    def _constants(self, nodes: Sequence[int]) -> int:
        return sum(self.node_costs[k].const_bytes for k in nodes)

    def _padded_inner(self, held: Amount) -> Amount:
        """Time per kB of results between the nodes of padded bricks that hold so many bytes each."""
        device = self.device
        spilt = larger(0.0, 1 - device.cache_share * device.l2 / larger(held, 1))
        return SPILT_MOVES * spilt / device.bandwidth[device.shared[0]] + (1 - spilt) / device.bandwidth["l2"]

    def _memoized_inner(self, nodes: Sequence[int]) -> float:
        """Time per kB of results between the nodes of memoized bricks."""
        level, size = self.device.shared
        inner_bytes = sum(self.node_costs[k].out_bytes for k in nodes[:-1])
        kept = 0.5 / self.device.bandwidth["memory"] if inner_bytes > self.device.cache_share * size else 0.0
        return 1 / self.device.bandwidth[level] + kept

    def least_us(self, nodes: Sequence[int], work_us: Callable[[float], float]) -> float:
        """The least time of nodes, ascending, merged on a CPU in bricks of any shape. `work_us` gives that of all
        cores' arithmetic and traffic, without halos, by the time per kB of what stays between nodes."""
        device = self.device
        work = work_us(min(self._padded_inner(self._constants(nodes)), self._memoized_inner(nodes)))
        task = device.task_overhead_us + len(nodes) * device.call_overhead_us
        task += UNHIDDEN_SHARE * self._constants_again_us(nodes)
        uneven = self._uneven(nodes)
        # x bricks a core take (work + x · task) · (1 + uneven / x), least where x² is uneven · work / task
        return work + uneven * task + 2 * math.sqrt(uneven * work * task) + self.constants_us(nodes)

    def _uneven(self, nodes: Sequence[int]) -> float:
        """Share of a brick's time that cores wait for the last one."""
        tiles = any(self.algorithms.get(k) == TILES for k in nodes)
        return 0.0 if self.device.cores == 1 else UNEVEN_TILES if tiles else UNEVEN_BRICKS

    def memoized_us(self, trials: BrickTrials) -> np.ndarray:
        """Times in memoized bricks: nothing is computed twice, intermediate results go through shared cache."""
        device, ones = self.device, np.ones(len(trials.bricks))
        shape = self.graph.out(self.graph.nodes[trials.nodes[-1]]).shape
        rows = np.array([brick[2] if len(shape) > 2 else 1 for brick in trials.bricks])
        core_us = [
            self.node_costs[k].core_us * self._tiled(k, trials, rows) + self._weights_again_us(k, trials, 1.0)
            for k in trials.nodes
        ]
        once = {name: np.minimum(elements, self.graph.types[name].size) for name, elements in trials.elements.items()}
        task_us = len(trials.nodes) * (device.task_overhead_us + device.call_overhead_us) * ones
        task_us += UNHIDDEN_SHARE * self._constants_again_us(trials.nodes)
        return self._bricks_us(trials, core_us, once, self._memoized_inner(trials.nodes) * ones, task_us)

    def fused_us(self, trials: BrickTrials, blocks: np.ndarray, tiles: Mapping[int, list[TileTimes]]) -> np.ndarray:
        """Times in bricks whose intermediate results stay in shared memory, so many `blocks` on a multiprocessor: work
        of one that waits is hidden behind another's. Each brick reads constants again, from L2. `tiles` has the times
        of a brick's products, by node."""
        device = self.device
        blocks = np.clip(blocks, 1, FUSED_BLOCKS)
        inner = np.full(len(trials.bricks), 1 / device.bandwidth["shared"])
        core_us = [self._fused_core_us(k, trials, tiles.get(k)) for k in trials.nodes]
        waits = sum((np.array([times.waits for times in each]) for each in tiles.values()), np.zeros(1))
        weights = sum((np.array([times.weights for times in each]) for each in tiles.values()), np.zeros(1))
        task_us = (FUSED_TASK_US + len(trials.nodes) * device.call_overhead_us + waits) / blocks
        constants = weights + sum(self.node_costs[k].const_bytes for k in trials.nodes if k not in tiles)
        task_us = task_us + constants * device.cores / device.bandwidth["l2"] / 1e3
        shown = np.where(blocks > 1, UNHIDDEN_SHARE, 1.0)
        return self._bricks_us(trials, core_us, trials.elements, inner, task_us, shown)

    def _fused_core_us(self, k: int, trials: BrickTrials, tiles: list[TileTimes] | None) -> np.ndarray:
        """Arithmetic of node `k` in all fused bricks on one core, products by the times of their tiles."""
        if tiles is None:
            return self.recomputed_us(k, trials)
        node, size = self.graph.nodes[k], math.prod(self.graph.out(self.graph.nodes[trials.nodes[-1]]).shape)
        assert isinstance(node.op, Product)
        bricks = np.array([size / math.prod(brick) for brick in trials.bricks])
        after = [epilogue_us(n, node.op.epilogue, self.device) for n in trials.elements[node.output]]
        return bricks * [times.busy for times in tiles] + after

    def _constants_again_us(self, nodes: Sequence[int]) -> float:
        """Time to read all constants once more, from the shared cache where they exceed a core's own."""
        if self.device.kind != "cpu":
            return 0.0
        constants = self._constants(nodes)
        near = "l2" if constants <= self.device.cache_share * self.device.l2 else self.device.shared[0]
        return constants * self.device.cores / self.device.bandwidth[near] / 1e3

    def recomputed_us(self, k: int, trials: BrickTrials) -> np.ndarray:
        """Arithmetic of node `k` on one core when every brick computes all that it needs."""
        output = self.graph.nodes[k].output
        once = self.node_costs[k].core_us * trials.elements[output] / max(1, self.graph.types[output].size)
        return once * self._tiled(k, trials, trials.rows) + self._weights_again_us(k, trials, trials.bands)

    def _weights_again_us(self, k: int, trials: BrickTrials, boxes: np.ndarray | float) -> np.ndarray | float:
        """Time in which one core transforms the weights of node `k` again for each box of the bricks, which have so
        many each, but the first; where its kernel does that. A brick needs those of the output's channels it has."""
        node, name = self.graph.nodes[k], self.algorithms.get(k)
        if name is None:
            return 0.0
        kind = self.structures.kinds[k], name
        if kind not in self._again_known:
            self._again_known[kind] = weights_again_us(self.graph, node, self.device, name)
        us = self._again_known[kind]
        if not us:
            return 0.0
        shape = self.graph.out(self.graph.nodes[trials.nodes[-1]]).shape
        own = np.array([brick[1] / shape[1] for brick in trials.bricks]) if k == trials.nodes[-1] else 1.0
        return us * np.maximum(0.0, boxes * brick_counts(shape, trials.bricks) * own - 1)

    def _tiled(self, k: int, trials: BrickTrials, root_rows: np.ndarray) -> np.ndarray | float:
        """How many times slower node `k` is because so many rows of the output do not fill a Winograd kernel's tiles,
        because it is computed directly in bricks (`keeps_algorithm`), or because each brings a factor into tiles."""
        node, name = self.graph.nodes[k], self.algorithms.get(k)
        if name == TILES and self.streams_both(k):
            return self._brought_again(k, trials)
        if name is None or not isinstance(node.op, Conv):
            return 1.0
        if not keeps_algorithm(node, name):
            return 1 / self._saved(k)
        own, root = (self.graph.out(self.graph.nodes[n]).shape[2] for n in (k, trials.nodes[-1]))
        rows = np.maximum(1, root_rows * own / root)
        tile = tile_outputs(self.graph.nodes[k].op, self.algorithms[k], 2)
        return np.ceil(rows / tile) * tile / rows

    def _brought_again(self, k: int, trials: BrickTrials) -> np.ndarray:
        """How many times slower tiles compute a product of two computed matrices in the bands of bricks."""
        node, out = self.graph.nodes[k], self.graph.out(self.graph.nodes[k]).shape
        root = self.graph.out(self.graph.nodes[trials.nodes[-1]]).size
        bands = trials.bands * [root / math.prod(brick) for brick in trials.bricks]
        return TileWork.of(self.graph, node, self.device).slower(out, trials.elements[node.output] / bands / out[-1])

    def _bricks_us(
        self,
        trials: BrickTrials,
        core_us: Sequence[np.ndarray | float],
        elements: Mapping[str, np.ndarray],
        inner: np.ndarray,
        task_us: np.ndarray,
        shown: float | np.ndarray = UNHIDDEN_SHARE,
    ) -> np.ndarray:
        """Times of all bricks on all cores; `inner` is the time per kB of what stays between the nodes, `shown` as of
        `overlapped_us`."""
        graph, cores = self.graph, self.device.cores
        shape = graph.out(graph.nodes[trials.nodes[-1]]).shape
        bricks = brick_counts(shape, trials.bricks)
        rounds = np.ceil(bricks / cores) * cores / bricks
        rounds = rounds * (1 + self._uneven(trials.nodes) * cores / bricks)
        total, row_ends = bricks * task_us / cores, self._row_ends(trials, shape)
        for core, traffic in zip(core_us, self._traffic(trials, elements, inner)):
            core = core / cores
            total = total + (np.maximum(core, traffic) + shown * np.minimum(core, traffic)) * row_ends
        return total * rounds + self.constants_us(trials.nodes)

    def _traffic(self, trials: BrickTrials, elements: Mapping[str, np.ndarray], inner: np.ndarray) -> list[np.ndarray]:
        """Traffic of each node. Tensors from outside come once from where they lie, their halos from shared cache."""
        graph = self.graph
        root = graph.nodes[trials.nodes[-1]].output
        near = {graph.nodes[k].output for k in trials.nodes} - {root}
        outer = 1 / self.resident_gbps(sum(graph.types[name].nbytes for name in elements if name not in near))
        again = 1 / self.device.bandwidth[self.device.shared[0]]
        times = []
        for k in trials.nodes:
            us = np.zeros(len(trials.bricks))
            for name in dict.fromkeys((*graph.nodes[k].inputs, graph.nodes[k].output)):
                if name in elements:
                    kind = graph.types[name]
                    moved = elements[name] * (kind.dtype.itemsize / 1e3)
                    if name in near:
                        us += moved * inner
                    else:
                        once = np.minimum(moved, kind.nbytes / 1e3)
                        us += once * outer + (moved - once) * again
                        near.add(name)
            times.append(us)
        return times

    def _row_ends(self, trials: BrickTrials, shape: Shape) -> np.ndarray:
        """How many times slower work on an image is because its rows are cut; a GPU walks channels, not rows."""
        if self.device.kind == "cuda" or not self.node_costs[trials.nodes[-1]].image or len(shape) < 4:
            return np.ones(len(trials.bricks))
        return _cut_rows(shape[-1], trials.bricks)


@lru_cache(maxsize=64)
def brick_counts(shape: Shape, bricks: tuple[Shape, ...]) -> np.ndarray:
    """How many of each brick make up a tensor, in parts where the last are cut off; nobody may change it."""
    return _fixed([math.prod(shape) / math.prod(brick) for brick in bricks])


@lru_cache(maxsize=64)
def _cut_rows(extent: int, bricks: tuple[Shape, ...]) -> np.ndarray:
    """How many times slower work is on rows of these bricks than on whole ones."""
    widths = (brick[-1] if brick[-1] < extent else math.inf for brick in bricks)
    return _fixed([1 + ROW_END / (width + ROW_END) for width in widths])


def _fixed(values: Sequence[float]) -> np.ndarray:
    found = np.array(values)
    found.flags.writeable = False
    return found
