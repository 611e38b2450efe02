"""Decides by the cost model whether a candidate subgraph should run merged, how much of it, and in which bricks.

All brick shapes are tried at once, on the brick in the middle of the output; the best is then computed from all bricks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from brickrt.ops.types import Boxes, Shape
from brickrt.plan.cost.cost_model import BrickTrials, CostModel, brick_counts
from brickrt.plan.cost.tile_times import TileTimes
from brickrt.plan.geometry.bricks import BrickGrid, brick_count
from brickrt.plan.geometry.halo import growth, middle_boxes, middle_demand, needed_boxes, totals
from brickrt.plan.geometry.row_bands import BandSweep, band_bytes, middle_bands
from brickrt.plan.merging.brick_shapes import candidates, cut_of, parallelism, swept_candidates, why_whole
from brickrt.plan.merging.fused_bricks import (
    blocks_with,
    fused_bytes,
    fused_candidates,
    fused_tiles,
    largest_box,
    only_fused,
)
from brickrt.plan.merging.merge_bounds import MergeBounds, merge_bounds
from brickrt.plan.options import SubgraphStrategy

Cutting = tuple[Shape, Shape]
"""A brick shape of an output, and the band of a brick that is computed at a time."""


@dataclass(frozen=True)
class Proposal:
    """To run the first `nodes` nodes of a candidate with this strategy and brick, a `band` of it at a time. `why` gives
    the reason in words and numbers; `held` the bytes that a band touches, where they are known."""

    strategy: SubgraphStrategy
    brick: Shape
    band: Shape
    nodes: int
    why: str = ""
    held: int | None = None


@dataclass(frozen=True)
class Timing:
    """Per brick shape: modelled times by strategy, those of fused bricks infinite where shared memory has no room for
    them, the growth Δ of arithmetic by halos, and whether a brick fits fast memory."""

    cost: CostModel
    trials: BrickTrials
    shared: np.ndarray  # bytes that a brick takes in shared memory (`fused_bytes`), infinite where it does not fit
    tiles: Mapping[int, list[TileTimes]]  # of a fused brick's products, by node
    delta: np.ndarray
    fits: np.ndarray

    @cached_property
    def padded_us(self) -> np.ndarray:
        """Times in padded bricks."""
        return self.cost.padded_us(self.trials)

    @cached_property
    def memoized_us(self) -> np.ndarray:
        """Times in memoized bricks."""
        return self.cost.memoized_us(self.trials)

    @cached_property
    def fused_us(self) -> np.ndarray:
        """Times in fused bricks."""
        room = np.isfinite(self.shared)
        if not room.any():
            return np.full(len(self.delta), math.inf)
        blocks = blocks_with(self.cost.device, self.shared)
        return np.where(room, self.cost.fused_us(self.trials, blocks, self.tiles), math.inf)

    def chosen(self, delta_limit: float) -> tuple[np.ndarray, list[SubgraphStrategy]]:
        """Times of padded bricks where Δ is within the limit, else of memoized ones, or of fused ones where these are
        faster; and which of them."""
        over = self.delta > delta_limit
        if over.all() or not over.any():
            by_delta = self.memoized_us if over.all() else self.padded_us
        else:
            by_delta = np.where(over, self.memoized_us, self.padded_us)
        root = self.trials.nodes[-1]
        alone = [self.cost.device.kind == "cuda" and only_fused(self.cost, root, brick) for brick in self.trials.bricks]
        us = np.where(self.fits & ~np.array(alone), by_delta, math.inf)
        fused = self.fused_us < us
        names: list[SubgraphStrategy] = ["memoized" if most else "padded" for most in over]
        return np.minimum(us, self.fused_us), ["fused" if f else how for f, how in zip(fused, names)]

    def us(self, strategy: SubgraphStrategy) -> np.ndarray:
        """The times of one of the strategies that merge."""
        return self.fused_us if strategy == "fused" else self.memoized_us if strategy == "memoized" else self.padded_us


def propose(cost: CostModel, order: Sequence[int], edge: int | None) -> Proposal | str:
    """Finds the merge that saves most time against running layerwise, or says in words why there is none.

    `order` is a candidate subgraph, output first; `edge` fixes the brick's edge, None leaves it to the cost model.
    """
    whole = why_whole(cost, order[0])
    if whole:
        return whole
    bounds = merge_bounds(cost, order)
    if hopeless := bounds.hopeless(cost.device.margin):
        return hopeless
    tries = _bricks_to_try(cost, order[0], edge)
    if not tries:
        return "too few bricks for the device"
    best = _search(cost, order, tries, bounds)
    if best is None:
        return f"no brick of {len(order)} layers fits the core's cache"
    return _confirm(cost, order, best)


def _bricks_to_try(cost: CostModel, root: int, edge: int | None) -> list[Cutting]:
    """The edge asked for; on a GPU those that leave enough parallelism, ρ ≥ Bⁿ (BrickDL §3.3); else all candidates.

    BrickDL's other rule, ρ ≤ τ, is left out on a GPU: large images would need bricks that do not fit its cache. The
    cost model counts tasks, and decides. Bricks for shared memory are tried beside them.
    """
    shape, cut = cost.graph.out(cost.graph.nodes[root]).shape, cut_of(cost, root)
    if edge is not None:
        bricks = [cut.brick(shape, edge)]
    elif cost.device.kind == "cuda":
        edges = cost.device.edges if cost.node_costs[root].image else cost.device.row_edges
        enough = (e for e in edges if parallelism(cost, root, e) >= e ** len(cut.axes))
        bricks = list(dict.fromkeys([*(cut.brick(shape, e) for e in enough), *fused_candidates(cost, root)]))
    else:
        return [*((brick, brick) for brick in candidates(cost, root)), *swept_candidates(cost, root)]
    return [(brick, brick) for brick in bricks]


def _layerwise_us(cost: CostModel, nodes: Sequence[int]) -> float:
    return sum(cost.layerwise_us(k) for k in nodes)


def _search(cost: CostModel, order: Sequence[int], tries: list[Cutting], bounds: MergeBounds) -> Proposal | None:
    """The number of nodes and the bricks that save most; on a tie the smaller subgraph. Where a merge may take longer
    than layers do, that which stays farthest below what it may take. What by `bounds` cannot save more is left out."""
    root, limit = cost.graph.nodes[order[0]], cost.device.delta_limit
    allowed = max(1.0, 1 - cost.device.margin)
    shape, bricks, bands = cost.graph.out(root).shape, tuple(brick for brick, _ in tries), _bands(tries)
    demand = middle_demand(cost.graph, order[0], bricks)
    swept = _middle_sweep(cost, order[0], tries)
    rows = _rows(cost, order[0], tries)
    counts = brick_counts(shape, bricks)
    demand.join(order[0])
    swept.join(order[0])
    best, saved, elements, before = None, -math.inf, dict[str, np.ndarray](), dict[str, Boxes]()
    for n in range(2, bounds.worth(allowed, 0.0) + 1):
        demand.join(order[n - 1])
        swept.join(order[n - 1])
        if bounds.gain(n, allowed) <= max(0.0, saved):
            continue
        elements = {
            name: elements[name] if demand.needed[name] is before.get(name) else boxes.volumes * counts
            for name, boxes in demand.needed.items()
        }
        before = dict(demand.needed)
        trials = BrickTrials(sorted(order[:n]), bricks, bands, rows, elements, band_bytes(swept))
        us, strategies = _time(cost, trials, demand.needed).chosen(limit)
        gain = allowed * _layerwise_us(cost, order[:n]) - us
        at = int(np.argmax(gain))
        if gain[at] > saved:
            best, saved = Proposal(strategies[at], *tries[at], n, held=int(trials.held[at])), float(gain[at])
        if n >= bounds.worth(allowed, saved):
            break
    return best


def _middle_sweep(cost: CostModel, root: int, tries: Sequence[Cutting]) -> BandSweep:
    """Two bands in the middle of the middle brick, for each cutting of the output of node `root`."""
    graph, output = cost.graph, cost.graph.nodes[root].output
    cut = cut_of(cost, root)
    boxes = middle_boxes(graph.types[output].shape, [brick for brick, _ in tries]).clip(graph.types[output].shape)
    bands = _rows(cost, root, tries)
    return BandSweep(graph, output, middle_bands(boxes, bands, cut.axes[0]), 2, cut.axes[0], cost.structures.taken)


def _rows(cost: CostModel, root: int, tries: Sequence[Cutting]) -> np.ndarray:
    """Rows of a band, per cutting."""
    axis = cut_of(cost, root).axes[0]
    return np.array([band[axis] for _, band in tries], np.int64)


def _bands(tries: Sequence[Cutting]) -> np.ndarray:
    """Bands of a brick, per cutting."""
    return np.array([brick_count(brick, band) for brick, band in tries])


def _confirm(cost: CostModel, order: Sequence[int], found: Proposal) -> Proposal | str:
    """The proposal with its exact figures, or why it does not save enough."""
    nodes, limit = order[: found.nodes], cost.device.delta_limit
    needed, timing = counted(cost, nodes, found)
    strategy = found.strategy
    if strategy != "fused":
        strategy = "memoized" if timing.delta[0] > limit else "padded"
    alone, us, delta = _layerwise_us(cost, nodes), float(timing.us(strategy)[0]), float(timing.delta[0])
    brick = "×".join(map(str, found.brick))
    swept = f" by {'×'.join(map(str, found.band))}" if found.band != found.brick else ""
    figures = f"{len(nodes)} nodes in bricks {brick}{swept} at {us:.0f} µs, layerwise {alone:.0f} µs (Δ={delta:.1%})"
    if us > (1 - cost.device.margin) * alone:
        return f"merging is not modelled faster: {figures}"
    if strategy == "fused":
        held = float(fused_bytes(cost, nodes, {name: largest_box(boxes) for name, boxes in needed.items()})[0])
        figures = f"{figures}, {held / 1024:.0f} KiB in shared memory"
    if strategy == "memoized" and found.band != found.brick:
        return Proposal(strategy, found.brick, found.brick, len(nodes), figures)
    return replace(found, strategy=strategy, why=figures)


def counted(cost: CostModel, nodes: Sequence[int], proposal: Proposal) -> tuple[dict[str, Boxes], Timing]:
    """The boxes of every tensor that bricks need, of bricks that stand for all, and the exact figures of a subgraph.
    What is asked for again, as when a proposal is taken, is not counted again."""
    ascending = tuple(sorted(nodes))
    key = ascending, proposal.brick, proposal.band
    if key not in cost.counted:
        shape = cost.graph.out(cost.graph.nodes[ascending[-1]]).shape
        boxes, times = BrickGrid(shape, proposal.brick).sample()
        needed = needed_boxes(cost.graph, ascending, boxes)
        cost.counted[key] = needed, _exact_timing(cost, ascending, proposal, needed, times)
    return cost.counted[key]


def _exact_timing(
    cost: CostModel, nodes: Sequence[int], proposal: Proposal, needed: dict[str, Boxes], times: np.ndarray
) -> Timing:
    """Modelled times of a subgraph in one brick shape, [1]; `needed` holds the boxes of bricks that stand for all, each
    for so many `times`."""
    cutting = proposal.brick, proposal.band
    held = footprint_bytes(cost, nodes, cutting) if proposal.held is None else np.array([proposal.held])
    rows = _rows(cost, max(nodes), [cutting])
    trials = BrickTrials(nodes, (cutting[0],), _bands([cutting]), rows, totals(needed, times), held)
    return _time(cost, trials, {name: largest_box(boxes) for name, boxes in needed.items()})


def footprint_bytes(cost: CostModel, nodes: Sequence[int], cutting: Cutting) -> np.ndarray:
    """Bytes that a band of a brick touches, [1]."""
    backwards = sorted(nodes, reverse=True)
    swept = _middle_sweep(cost, backwards[0], [cutting])
    for k in backwards:
        swept.join(k)
    return band_bytes(swept)


def _time(cost: CostModel, trials: BrickTrials, needed: Mapping[str, Boxes]) -> Timing:
    """The times of bricks that need these boxes of every tensor."""
    device = cost.device
    shared = fused_bytes(cost, trials.nodes, needed)
    tiles = fused_tiles(cost, trials.nodes, needed, shared) if np.isfinite(shared).any() else {}
    delta = growth(cost.graph, trials.nodes, trials.elements, [cost.node_costs[k].flops for k in trials.nodes])
    fits = trials.held <= device.brick_bytes
    return Timing(cost, trials, shared, tiles, delta, fits)
