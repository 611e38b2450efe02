"""Along which axis of each tensor the rows of the image lie that a sweep goes down.

Reshapes and transposes move them, as around an attention over all positions of an image:

    x [N, C, H, W] ─ view ─ [N, C, H·W] ─ transpose ─ [N, H·W, C] ─ product ─ … ─ view ─ y [N, C, H, W]
             2                      2                      1                              2

A row of H·W is a pixel: bands of a few rows of the image are bands of as many rows times W of what is flattened.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.conv import Conv
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Take, Transpose, View
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.operators.sampling.deformed_columns import ReadsPoints
from brickrt.ops.types import Boxes
from brickrt.plan.stream.rows.rolled_rows import NO_ROLLS, Rolls, find_rolls

CHANNELS = 1  # their axis
MANY_ROWS = 32  # of a tensor with fewer, all rows are simply kept
SPREAD_BYTES = 2**18  # a tensor that is computed of resident ones is resident too if it has no more than so many,
SPREAD = 4  # or no more than so many times those that it is computed of


@dataclass(frozen=True)
class RowAxes:
    """The row axis of each swept tensor; `usual` is that of images whose channels come before their rows."""

    usual: int
    axes: Mapping[str, int]
    rolls: Rolls = NO_ROLLS

    def of(self, name: str) -> int:
        """The axis of a tensor's rows; of one that is not swept the usual one."""
        return self.axes.get(name, self.usual)

    def needs_all(self, graph: Graph, node: Node, i: int) -> bool:
        """Whether a row of the output needs all of the many rows of the swept input `i`."""
        out = self.axes.get(node.output)
        if node.inputs[i] in self.rolls.ends:
            return True
        return out is None or _needs_all_rows(graph, node, i, self.of(node.inputs[i]), out)


def find_row_axes(graph: Graph, usual: int, blocked: Collection[str] = ()) -> RowAxes:
    """Goes down the graph from the inputs that have rows. A tensor has no axis where it is computed of what has none,
    unless it has many rows, where it needs all rows of all that it is computed of, or where its rows would be channels
    that are stored in blocks (`blocked` tensors)."""
    axes = {name: axis for name in graph.inputs if (axis := _input_axis(graph, name, usual)) is not None}
    for node in graph.nodes:
        moved = [_moved(graph, node, i, axes[name], usual) for i, name in enumerate(node.inputs) if name in axes]
        found = list(dict.fromkeys(axis for axis in moved if axis is not None))
        axis = min(found, key=lambda one: _normed(graph, node.output, one)) if len(found) > 1 else (*found, None)[0]
        if axis is None and (_spreads(graph, node, usual) or (moved and _has_points(graph, node, usual))):
            axis = usual
        if axis is not None and (axis != CHANNELS or node.output not in blocked):
            axes[node.output] = axis
    return RowAxes(usual, axes, find_rolls(graph, axes))


def row_reach(graph: Graph, axes: RowAxes, tall: int) -> int:
    """Rows of `tall` between an output row and the first that it depends on, about: what windows along the usual axis
    add up to on the longest way."""
    found: dict[str, float] = {}
    usual = axes.usual
    for node in graph.nodes:
        if node.output not in axes.axes:
            continue
        own = 0.0
        if isinstance(node.op, Conv | Pool) and axes.of(node.output) == usual:
            share = tall / max(1, graph.ins(node)[0].shape[usual])
            own = (node.op.kernel[usual - 2] - 1) * node.op.dilations[usual - 2] / 2 * share
        found[node.output] = max((found.get(name, 0.0) for name in node.inputs), default=0.0) + own
    return int(max(found.values(), default=0.0))


def _normed(graph: Graph, name: str, axis: int) -> bool:
    """Whether a tensor is normed along an axis, as scores are along their keys, where its rows better lie along another
    one."""
    readers = [graph.nodes[k] for k in graph.consumers.get(name, ())]
    over = any(isinstance(node.op, Rowwise | Reduce) and axis in node.op.axes for node in readers)
    same = (node for node in readers if isinstance(node.op, Map) and graph.out(node).shape == graph.types[name].shape)
    return over or any(_normed(graph, node.output, axis) for node in same)


def _input_axis(graph: Graph, name: str, usual: int) -> int | None:
    """The axis of an input's rows, as what reads it tells, or what is computed of it element by element: the one before
    the usual where it is transposed as what has its channels last, the one behind it where frames of a video are taken
    out or become a batch. None for what has no rows."""
    shape, readers = graph.types[name].shape, [graph.nodes[k] for k in graph.consumers.get(name, ())]
    while readers and all(isinstance(node.op, Map) for node in readers):
        readers = [graph.nodes[k] for node in readers for k in graph.consumers.get(node.output, ())]
    turned = [node.op.perm for node in readers if isinstance(node.op, Transpose)]
    last = bool(turned) and all(perm == _channels_first(len(shape)) for perm in turned)
    axis = usual - 1 if last else usual + 1 if _has_frames(graph, name, usual) else usual
    return axis if len(shape) > axis and shape[axis] > 1 else None


def _has_frames(graph: Graph, name: str, usual: int) -> bool:
    """Whether all that reads an input [N, frames, C, rows, …] takes its leading axes together, or drops some of them,
    where it does not compute it element by element or take parts of it."""
    if graph.types[name].rank <= usual + 1:
        return False
    same, found = [name], list[Node]()
    for one in same:  # which grows
        for node in (graph.nodes[k] for k in graph.consumers.get(one, ())):
            if not isinstance(node.op, Map | Take):
                found.append(node)
            elif node.output not in same:
                same.append(node.output)
    return bool(found) and all(_joins_frames(graph, node, usual) for node in found)


def _joins_frames(graph: Graph, node: Node, usual: int) -> bool:
    """Whether a node reshapes rows along the axis behind the usual one to rows along that."""
    lower = isinstance(node.op, View) and usual < graph.out(node).rank < graph.types[node.inputs[0]].rank
    return lower and _keeps_rows(graph, node, 0, usual + 1, usual) and not _keeps_rows(graph, node, 0, usual, usual)


def _channels_first(rank: int) -> tuple[int, ...]:
    """The permutation of [N, rows, …, C] to [N, C, rows, …]."""
    return (0, rank - 1, *range(1, rank - 1)) if rank > 3 else ()


def _moved(graph: Graph, node: Node, i: int, axis: int, usual: int) -> int | None:
    """The axis of the output's rows where those of input `i` lie along `axis`; None where a row needs all of them."""
    out = graph.out(node)
    others = [other for other in dict.fromkeys((usual, *range(out.rank))) if other != axis]
    moves = isinstance(node.op, View | Transpose | MatMul | ReadsPoints)
    if moves or (isinstance(node.op, Reduce) and not node.op.keepdims):
        candidates = [other for other in (axis, *others) if other < out.rank]
        found = next((other for other in candidates if _keeps_rows(graph, node, i, axis, other)), None)
        if found is not None or not isinstance(node.op, Transpose | MatMul):
            return found
    same = axis + out.rank - graph.types[node.inputs[i]].rank if isinstance(node.op, Map) else axis
    return None if _needs_all_rows(graph, node, i, axis, same) else same


def _keeps_rows(graph: Graph, node: Node, i: int, axis: int, other: int) -> bool:
    """Whether rows of input `i` along an axis stay together, and in order, as rows of the output along another one."""
    kind, out = graph.types[node.inputs[i]], graph.out(node)
    before, after = kind.shape[axis], out.shape[other]
    if min(before, after) < 2:
        return False
    rows = Boxes.whole(out.shape)
    at = np.array([0, after // 2, after - 1])
    rows = Boxes(np.repeat(rows.lo, 3, axis=0), np.repeat(rows.hi, 3, axis=0))
    rows.lo[:, other], rows.hi[:, other] = at, at + 1
    read = node.op.region(i, rows, graph.ins(node), out)
    lo, hi = read.lo[:, axis], read.hi[:, axis]
    few = int((hi - lo).max()) <= min(-(-before // after), before - 1)
    return few and bool((np.diff(lo) >= 0).all()) and int(lo[0]) == 0 and int(hi[-1]) == before


def _needs_all_rows(graph: Graph, node: Node, i: int, axis: int, out_axis: int) -> bool:
    """Whether a row of the output needs all of the many rows of input `i`."""
    kind, out = graph.types[node.inputs[i]], graph.out(node)
    if node.inputs[i] in graph.constants or kind.rank <= axis or kind.shape[axis] == 1:
        return False
    over_rows = isinstance(node.op, (Reduce, Rowwise)) and axis in node.op.axes
    if out.rank <= out_axis or out.shape[out_axis] == 1 or over_rows:
        return True
    row = Boxes.whole(out.shape)
    row.hi[:, out_axis] = 1
    region = node.op.region(i, row, graph.ins(node), out)
    return kind.shape[axis] >= MANY_ROWS and int(region.extents[0, axis]) == kind.shape[axis]


def _has_points(graph: Graph, node: Node, axis: int) -> bool:
    """Whether a node reads rows at points of its own: these have rows whatever they read."""
    return isinstance(node.op, ReadsPoints) and graph.out(node).shape[axis] > 1


def _spreads(graph: Graph, node: Node, axis: int) -> bool:
    """Whether a node makes many rows of little, as a pooled pixel is spread over the image: those are swept again."""
    read = sum(graph.types[name].nbytes for name in node.inputs if name not in graph.constants)
    out = graph.out(node)
    many = out.rank > axis and out.shape[axis] >= MANY_ROWS and not isinstance(node.op, View)
    return many and out.nbytes > max(SPREAD * read, SPREAD_BYTES)
