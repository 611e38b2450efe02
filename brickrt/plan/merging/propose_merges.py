"""Whether a candidate subgraph should run merged, how much of it, and in which bricks: by the cost model.

All candidate bricks are tried at once, on the brick in the middle of the output; the winner is then checked exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brickrt.ops.operators.move import Take
from brickrt.ops.types import Boxes, Shape
from brickrt.plan.cost.cost_model import BrickTrials, CostModel
from brickrt.plan.geometry.bricks import BrickGrid
from brickrt.plan.geometry.halo import Demand, growth, middle_boxes, needed_boxes, totals
from brickrt.plan.geometry.row_bands import BandSweep, band_bytes, middle_bands
from brickrt.plan.merging.brick_shapes import candidates, cut_of, parallelism, swept_candidates, why_whole

Cutting = tuple[Shape, Shape]  # bricks of an output, and the band of them that is computed at a time


@dataclass(frozen=True)
class Proposal:
    """Run the first `nodes` nodes of a candidate with this strategy and brick, a `band` of it at a time; `why` in
    words and numbers."""

    strategy: str
    brick: Shape
    band: Shape
    nodes: int
    why: str = ""


@dataclass(frozen=True)
class Timing:
    """Modelled times per brick shape, the growth Δ, and whether fast memory holds a brick."""

    padded_us: np.ndarray
    memoized_us: np.ndarray
    delta: np.ndarray
    fits: np.ndarray

    def chosen_us(self, delta_limit: float) -> np.ndarray:
        """Of padded bricks where Δ allows them, else of memoized ones."""
        return np.where(self.delta > delta_limit, self.memoized_us, self.padded_us)


def propose(model: CostModel, order: Sequence[int], edge: int | None) -> Proposal | str:
    """The merge that saves most time against layerwise, or in words why there is none.

    `order` is a candidate subgraph, output first; `edge` fixes the brick's edge, None leaves it to the model.
    """
    whole = why_whole(model, order[0])
    if whole:
        return whole
    hopeless = _hopeless(model, order)
    if hopeless:
        return hopeless
    tries = _bricks_to_try(model, order[0], edge)
    if not tries:
        return "too few bricks for the device"
    best = _search(model, order, tries)
    if best is None:
        return f"no brick of {len(order)} layers fits the core's cache"
    return _confirm(model, order, best)


def _bricks_to_try(model: CostModel, root: int, edge: int | None) -> list[Cutting]:
    """On a GPU edges that leave enough parallelism: ρ ≥ Bⁿ (BrickDL §3.3). Of images too large for ρ ≤ τ in bricks that
    fit its cache, that rule would merge nothing: the model, which counts tasks, decides."""
    shape, cut = model.graph.out(model.graph.nodes[root]).shape, cut_of(model, root)
    if edge is not None:
        bricks = [cut.brick(shape, edge)]
    elif model.device.kind == "cuda":
        edges = model.device.edges if model.facts[root].image else model.device.row_edges
        enough = (e for e in edges if parallelism(model, root, e) >= e ** len(cut.axes))
        bricks = [cut.brick(shape, e) for e in enough]
    else:
        return [*((brick, brick) for brick in candidates(model, root)), *swept_candidates(model, root)]
    return [(brick, brick) for brick in bricks]


def _layerwise_us(model: CostModel, nodes: Sequence[int]) -> float:
    return sum(model.layerwise_us(k) for k in nodes)


def _hopeless(model: CostModel, order: Sequence[int]) -> str | None:
    """Why no merge can pay even without halos: arithmetic takes as long as layers do."""
    compute = alone = 0.0
    for n, k in enumerate(order, 1):
        compute += model.facts[k].core_us / model.device.cores
        alone += model.layerwise_us(k) - model.constants_us([k])
        if n > 1 and compute < (1 - model.device.margin) * alone:
            return None
    return f"bound by arithmetic ({compute:.0f} of {alone:.0f} µs for {len(order)} layers), merging saves nothing"


def _search(model: CostModel, order: Sequence[int], tries: list[Cutting]) -> Proposal | None:
    """The best of all first nodes and bricks, by what it saves; on a tie the smaller subgraph."""
    root, limit = model.graph.nodes[order[0]], model.device.delta_limit
    shape, bricks = model.graph.out(root).shape, [brick for brick, _ in tries]
    demand = Demand(model.graph, root.output, middle_boxes(shape, bricks))
    swept = _middle_sweep(model, order[0], tries)
    rows = _rows(model, order[0], tries)
    counts = np.array([math.prod(shape) / math.prod(brick) for brick in bricks])
    demand.join(order[0])
    swept.join(order[0])
    best, saved = None, -math.inf
    for n in range(2, len(order) + 1):
        demand.join(order[n - 1])
        swept.join(order[n - 1])
        elements = {name: boxes.volumes * counts for name, boxes in demand.needed.items()}
        trial = BrickTrials(sorted(order[:n]), bricks, _bands(tries), rows, elements, band_bytes(swept))
        timing = _time(model, trial)
        gain = np.where(timing.fits, _layerwise_us(model, order[:n]) - timing.chosen_us(limit), -math.inf)
        at = int(np.argmax(gain))
        if gain[at] > saved:
            strategy = "memoized" if timing.delta[at] > limit else "padded"
            best, saved = Proposal(strategy, *tries[at], n), float(gain[at])
    return best


def _middle_sweep(model: CostModel, root: int, tries: Sequence[Cutting]) -> BandSweep:
    """The sweep of the middle of the middle brick, for each cutting of the output of node `root`."""
    graph, output = model.graph, model.graph.nodes[root].output
    cut = cut_of(model, root)
    boxes = middle_boxes(graph.types[output].shape, [brick for brick, _ in tries]).clip(graph.types[output].shape)
    bands = _rows(model, root, tries)
    parts = {node.output for node in graph.nodes if isinstance(node.op, Take)}
    return BandSweep(graph, output, middle_bands(boxes, bands, cut.axes[0]), 2, cut.axes[0], parts)


def _rows(model: CostModel, root: int, tries: Sequence[Cutting]) -> np.ndarray:
    """Rows of each band."""
    axis = cut_of(model, root).axes[0]
    return np.array([band[axis] for _, band in tries], np.int64)


def _bands(tries: Sequence[Cutting]) -> np.ndarray:
    """Bands per brick."""
    return np.array([math.prod(-(-a // b) for a, b in zip(brick, band, strict=True)) for brick, band in tries])


def _confirm(model: CostModel, order: Sequence[int], found: Proposal) -> Proposal | str:
    """The proposal with its exact figures, or why it does not save enough."""
    nodes, limit = order[: found.nodes], model.device.delta_limit
    shape = model.graph.out(model.graph.nodes[order[0]]).shape
    needed = needed_boxes(model.graph, nodes, BrickGrid(shape, found.brick).boxes())
    timing = exact_timing(model, nodes, (found.brick, found.band), needed)
    alone, us, delta = _layerwise_us(model, nodes), float(timing.chosen_us(limit)[0]), float(timing.delta[0])
    brick = "×".join(map(str, found.brick))
    swept = f" by {'×'.join(map(str, found.band))}" if found.band != found.brick else ""
    figures = f"{len(nodes)} nodes in bricks {brick}{swept} at {us:.0f} µs, layerwise {alone:.0f} µs (Δ={delta:.1%})"
    if us > (1 - model.device.margin) * alone:
        return f"merging is not modelled faster: {figures}"
    if delta > limit:
        return Proposal("memoized", found.brick, found.brick, len(nodes), figures)
    return Proposal("padded", found.brick, found.band, len(nodes), figures)


def exact_timing(model: CostModel, nodes: Sequence[int], cutting: Cutting, needed: dict[str, Boxes]) -> Timing:
    """Modelled times of a subgraph in one brick shape; `needed` holds the boxes of all its bricks."""
    held = held_bytes(model, nodes, cutting)
    rows = _rows(model, max(nodes), [cutting])
    return _time(model, BrickTrials(sorted(nodes), [cutting[0]], _bands([cutting]), rows, totals(needed), held))


def held_bytes(model: CostModel, nodes: Sequence[int], cutting: Cutting) -> np.ndarray:
    """Bytes that a band of a brick touches, [1]."""
    backwards = sorted(nodes, reverse=True)
    swept = _middle_sweep(model, backwards[0], [cutting])
    for k in backwards:
        swept.join(k)
    return band_bytes(swept)


def _time(model: CostModel, trial: BrickTrials) -> Timing:
    device = model.device
    delta = growth(model.graph, trial.nodes, trial.elements, [model.facts[k].flops for k in trial.nodes])
    fits = trial.held <= device.brick_bytes
    return Timing(model.padded_us(trial), model.memoized_us(trial), delta, fits)
