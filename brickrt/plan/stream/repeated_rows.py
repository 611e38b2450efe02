"""Whether bands of rows repeat, so that few programs do for all of an image, or how many are like none before."""

from __future__ import annotations

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.interp import Interp
from brickrt.ops.operators.move import Take
from brickrt.plan.stream.band_schedule import BandSchedule
from brickrt.plan.stream.equal_bands import equal_bands
from brickrt.plan.stream.row_axes import RowAxes

PERIOD = 64  # rows after which what is resized or taken repeats, where it does: factors are mostly powers of two
EDGE = 2  # bands at the end of a sample that need not be like those before them


def rows_repeat(graph: Graph, axes: RowAxes) -> bool:
    """Whether every swept row is computed as other rows are, by nodes that know where in the image a row lies. Resizes
    by a factor that is no simple one, and constants with rows, are not."""
    return all(_repeats(graph, node, axes) for node in graph.nodes if node.output in axes.axes)


def share_of_new_bands(schedule: BandSchedule) -> float:
    """The share of later bands that are like none before them, 0 to 1, by the second half of those that are planned."""
    like, half = equal_bands(schedule), (schedule.bands + schedule.ahead) // 2
    later = like[half : max(half + 1, len(like) - EDGE)]
    return float((later >= half).mean()) if len(later) > 1 else 0.0


def _repeats(graph: Graph, node: Node, axes: RowAxes) -> bool:
    axis = axes.of(node.output)
    if isinstance(node.op, Interp) and (taps := node.op.taps[axis]) is not None:
        return _periodic(taps.index_array, taps.weight_array)
    if isinstance(node.op, Take) and (table := node.op.tables[axis]) is not None:
        return _periodic(np.asarray(table, np.int64))
    rank = graph.out(node).rank
    constants = (graph.types[name].shape for name in node.inputs if name in graph.constants)
    rows = (shape[axis - rank] for shape in constants if len(shape) >= rank - axis)
    return not any(extent == graph.out(node).shape[axis] > 1 for extent in rows)


def _periodic(indices: np.ndarray, weights: np.ndarray | None = None) -> bool:
    """Whether two neighbouring periods in the middle read alike, with the same weights."""
    middle = max(0, len(indices) // 2 - PERIOD)
    first, second = (slice(middle + k * PERIOD, middle + (k + 1) * PERIOD) for k in (0, 1))
    if len(indices) < 2 * PERIOD:
        return True  # so few rows are few bands
    moved = np.asarray(indices[second], np.int64) - np.asarray(indices[first], np.int64)
    return bool((moved == moved.flat[0]).all()) and (weights is None or np.array_equal(weights[first], weights[second]))
