"""Brick shapes: which dimensions are cut, how finely, and which shapes are worth trying."""

from __future__ import annotations

import math
from dataclasses import dataclass

from brickrt.ops.operators.move import View
from brickrt.ops.operators.partial_reduce import Segmented
from brickrt.ops.operators.recurrence import Recurrence
from brickrt.ops.operators.reduce import RunningSum
from brickrt.ops.operators.sampling.deformed_columns import ReadsPoints
from brickrt.ops.types import Shape
from brickrt.plan.cost.cost_model import CostModel
from brickrt.plan.merging.partition import is_global

CANDIDATE_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
CANDIDATE_EDGES = (16, 32, 64, 128)
CANDIDATE_WIDTHS = (64, 128)  # of shorter bricks whose rows are cut
CANDIDATE_BANDS = (1, 2, 4, 8)
SWEEPS_PER_CORE = (1, 2, 4)


@dataclass(frozen=True)
class Cut:
    """Which axes of a tensor are cut: bricks have edge 1 along `single`, one edge along `axes`, and else are whole."""

    single: tuple[int, ...]
    axes: tuple[int, ...]

    def brick(self, shape: Shape, edge: int) -> Shape:
        """The brick of a tensor of this shape with one edge along all axes that are cut."""
        return self.brick_along(shape, dict.fromkeys(self.axes, edge))

    def brick_along(self, shape: Shape, edges: dict[int, int]) -> Shape:
        """The brick with these edges by axis, none longer than the tensor; extents of 0 count as 1."""
        return tuple(
            [
                1 if axis in self.single else max(1, min(edges.get(axis, extent), extent))
                for axis, extent in enumerate(shape)
            ]
        )


def cut_of(cost: CostModel, k: int) -> Cut:
    """Cuts images in batch and space, never along channels; batches of matrices in batch and rows."""
    rank = cost.graph.out(cost.graph.nodes[k]).rank
    if cost.node_costs[k].image:
        return Cut((0,)[:rank], tuple(range(2, rank)))
    return Cut(tuple(range(rank - 2)), (rank - 2,) if rank >= 2 else ())


def brick_of(cost: CostModel, k: int, edge: int) -> Shape:
    """The brick of node `k`'s output with one edge along all axes that are cut."""
    return cut_of(cost, k).brick(cost.graph.out(cost.graph.nodes[k]).shape, edge)


def why_whole(cost: CostModel, k: int) -> str | None:
    """Says why the output of node `k` cannot be cut in bricks; None where it can."""
    node = cost.graph.nodes[k]
    shape = cost.graph.out(node).shape
    if isinstance(node.op, View):
        return "a view computes nothing"
    if isinstance(node.op, Segmented):
        return "its tasks are those that make what it reads, or slabs of rows"
    if isinstance(node.op, Recurrence):
        return "its states hang together along time"
    if isinstance(node.op, RunningSum):
        return "its rows are added in order"
    if isinstance(node.op, ReadsPoints):
        return "its points may lie anywhere in what it reads"
    if is_global(cost, k):
        return f"{node.op.name} over axes {_listed(getattr(node.op, 'axes', ()))} needs the whole tensor"
    cut = cut_of(cost, k)
    if not cut.axes or math.prod(shape) == 0 or math.prod(shape[axis] for axis in cut.axes) == 1:
        return f"nothing to cut in {_listed(shape, '×') or 'a scalar'}"
    return None


def parallelism(cost: CostModel, k: int, edge: int) -> float:
    """ρ = ∏Dᵢ/Bⁿ over the dimensions that are cut, times those with edge 1 (BrickDL §3.3)."""
    cut, shape = cut_of(cost, k), cost.graph.out(cost.graph.nodes[k]).shape
    spread = math.prod(shape[axis] for axis in cut.single + cut.axes)
    return spread / edge ** len(cut.axes)


def edge_by_rule(cost: CostModel, k: int) -> int:
    """The smallest edge with parallelism ρ ≤ τ; the largest edge where all exceed τ."""
    device = cost.device
    edges = device.edges if cost.node_costs[k].image else device.row_edges
    return next((edge for edge in edges if parallelism(cost, k, edge) <= device.tau), edges[-1])


def candidates(cost: CostModel, k: int) -> list[Shape]:
    """Bricks to try for the output of node `k`: those of whole rows first, then squares."""
    cut, shape = cut_of(cost, k), cost.graph.out(cost.graph.nodes[k]).shape
    heights = [*_below(shape[cut.axes[0]]), *_even(cost, shape, cut)]
    bricks = dict.fromkeys(cut.brick_along(shape, {cut.axes[0]: rows}) for rows in heights)
    if len(cut.axes) == 3:
        plane = cut.axes[:2]
        rows = _below(max(shape[axis] for axis in plane))
        bricks |= dict.fromkeys(cut.brick_along(shape, dict.fromkeys(plane, edge)) for edge in rows)
    if len(cut.axes) == 2:
        y, x = cut.axes
        pairs = ((rows, width) for width in CANDIDATE_WIDTHS for rows in CANDIDATE_ROWS if rows < width < shape[x])
        bricks |= dict.fromkeys(cut.brick_along(shape, {y: rows, x: width}) for rows, width in pairs)
    if len(cut.axes) > 1:
        bricks |= dict.fromkeys(cut.brick(shape, edge) for edge in CANDIDATE_EDGES)
    return list(bricks)


def swept_candidates(cost: CostModel, k: int) -> list[tuple[Shape, Shape]]:
    """Tall bricks of an image to try, one to a few per core, each with the bands that are computed at a time."""
    cut, shape = cut_of(cost, k), cost.graph.out(cost.graph.nodes[k]).shape
    if not cost.node_costs[k].image or not cut.axes:
        return []
    y, x = cut.axes[0], cut.axes[-1]
    widths = (shape[x], *(w for w in CANDIDATE_WIDTHS if w < shape[x] and x != y))
    heights = dict.fromkeys(-(-shape[y] // (n * cost.device.cores)) for n in SWEEPS_PER_CORE)
    found = []
    for width in widths:
        bands = [(rows, cut.brick_along(shape, {y: rows, x: width})) for rows in CANDIDATE_BANDS]
        for rows in heights:
            brick = cut.brick_along(shape, {y: rows, x: width})
            found += [(brick, band) for least, band in bands if least < rows]
    return found


def _even(cost: CostModel, shape: Shape, cut: Cut) -> list[int]:
    """Rows that give every core equally many bricks; all rows where the batch alone has a brick per core."""
    extent, cores = shape[cut.axes[0]], cost.device.cores
    outer = math.prod(shape[axis] for axis in cut.single)
    return [extent] * (outer >= cores) + [-(-extent // (n * cores)) for n in SWEEPS_PER_CORE]


def _below(extent: int) -> list[int]:
    return [rows for rows in CANDIDATE_ROWS if rows < extent] or [max(1, extent)]


def _listed(numbers: tuple[int, ...], separator: str = ", ") -> str:
    return separator.join(map(str, numbers))
