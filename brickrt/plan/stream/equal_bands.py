"""Which bands of a pass do the same, but for a shift of rows: they share one task graph, whose bases move.

Bands are compared by numbers: of every node its rows, and the rows that it reads, counted from where the band begins in
each tensor. What depends on the row itself (tables of a Resize, constants that have rows, edges) counts too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operand import row_major
from brickrt.ops.operators.conv import Conv, ConvTranspose
from brickrt.ops.operators.gather_rows import GatherRows
from brickrt.ops.operators.map import Map
from brickrt.ops.operators.matmul import MatMul
from brickrt.ops.operators.move import Concat, Reorder, Take, Transpose, View
from brickrt.ops.operators.partial_reduce import Segmented
from brickrt.ops.operators.pool import Pool
from brickrt.ops.operators.reduce import Reduce
from brickrt.ops.operators.rowwise import Rowwise
from brickrt.ops.operators.sampling.deformed_columns import DeformedColumns
from brickrt.ops.operators.sampling.grid_sample import GridSample
from brickrt.ops.operators.sampling.interp import Interp
from brickrt.ops.types import Boxes, Shape
from brickrt.plan.stream.band_schedule import BandSchedule
from brickrt.plan.stream.row_axes import RowAxes

PERIOD = 64  # rows after which what is resized or taken repeats, where it does: factors are mostly powers of two
SPATIAL = 2  # the first axis of windows
EDGE = 2  # bands at the end of a sample that need not be like those before them

FACTORS = np.array(  # odd, of about as many ones as zeros
    [[0xBF58476D1CE4E5B9, 0x94D049BB133111EB], [0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53]], np.uint64
)
# regions that say all, without tables of rows
SAME_ROWS = (DeformedColumns, GatherRows, GridSample, Interp, Map, MatMul, Reduce, Reorder, Take)


@dataclass(frozen=True)
class _ReadBoxes:
    """A read with all its boxes."""

    k: int
    i: int
    boxes: Boxes
    region: Boxes


def equal_bands(schedule: BandSchedule) -> np.ndarray:
    """The number of the first band that each band is like, int64 [bands]; its own for a band unlike those before."""
    first = {name: rows.lo for name, rows in schedule.rows.items()}
    for read in schedule.reads:  # what is not stored begins where its box does
        output = schedule.graph.nodes[read.k].output
        if output not in first:
            first[output] = read.boxes.lo[:, schedule.axes.of(output)]
    sums = _Digests(schedule.bands)
    for column in _stored(schedule):
        sums.add(column)
    for read in schedule.reads:
        for column in _read(schedule, _ReadBoxes(read.k, read.i, read.boxes, read.region), first):
            sums.add(column)
    _, bands, which = np.unique(sums.words, axis=0, return_index=True, return_inverse=True)
    return bands[which.reshape(-1)].astype(np.int64)


class _Digests:
    """A digest of each band's numbers, uint64 [bands, 2]: the numbers themselves, of a deep network's thousands of
    bands, would take gigabytes. Each number is mixed in by multiplications (Steele, Lea and Flood, "Fast splittable
    pseudorandom number generators", OOPSLA 2014), so that two bands' digests agree by chance once in 2**128."""

    def __init__(self, bands: int) -> None:
        self.words = np.zeros((bands, 2), np.uint64)

    def add(self, column: np.ndarray) -> None:
        """Adds a number for each band, int64 [bands], unless all have the same."""
        if not bool((column != column[:1]).any()):
            return
        added = np.ascontiguousarray(column, np.int64).view(np.uint64)
        for word, (first, second) in zip(self.words.T, FACTORS, strict=True):
            word ^= added
            word *= first
            word ^= word >> np.uint64(30)
            word *= second
            word ^= word >> np.uint64(27)


def row_repeats(graph: Graph, node: Node, axes: RowAxes) -> bool:
    """Whether a node computes every swept row as it does others, wherever in the image these lie. Resizes by a factor
    that is no simple one, and operators with constants that have rows, do not."""
    return node.output not in axes.axes or _repeats(graph, node, axes)


def share_of_new_bands(schedule: BandSchedule, whole: bool) -> float:
    """The share of bands that are like none before them, 0 to 1: of all bands, where the schedule is `whole`, or of
    later ones, by the second half of those that are planned."""
    like, after = equal_bands(schedule), schedule.bands - schedule.ahead
    if whole:
        new = int(np.count_nonzero(like == np.arange(schedule.bands))) - schedule.ahead - 2 * EDGE
        return 1.0 if 2 * new > after else max(0, new) / max(1, after)
    half = schedule.ahead + after // 2
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


def _stored(schedule: BandSchedule) -> Iterator[np.ndarray]:
    """The rows of every stored tensor that are computed, held and kept, and whether they reach an edge."""
    for name, rows in schedule.rows.items():
        extent = schedule.graph.types[name].shape[schedule.axes.of(name)]
        yield rows.hi - rows.lo
        yield rows.lo - rows.keep
        yield rows.hi - rows.kept_after
        yield (rows.lo == 0) * 2 + (rows.hi == extent)
        if _made_of_constants(schedule.graph, name):
            yield rows.lo


def _read(schedule: BandSchedule, read: _ReadBoxes, first: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The numbers of one input of a node; `first` has the row of each tensor that its numbers count from, [bands]. What
    a resident tensor is does not move: its rows count from 0."""
    if read.k in schedule.chained:
        return _chained(schedule, read)
    graph, node = schedule.graph, schedule.graph.nodes[read.k]
    name, out_axis = node.inputs[read.i], schedule.axes.of(node.output)
    axis = schedule.axes.of(name)
    out_lo, out_hi = read.boxes.lo[:, out_axis], read.boxes.hi[:, out_axis]
    edges = (out_lo == 0) * 2 + (out_hi == graph.out(node).shape[out_axis])
    columns = [out_lo - first[node.output], out_hi - first[node.output], edges]
    if _has_constant_rows(graph, node, read.boxes):
        columns.append(out_lo)
    before = first.get(name, np.zeros_like(out_lo))
    regions = _region(read.region, axis, before)
    if read.region.rank > axis:
        regions += _by_row(graph, read, axis, out_axis, before)
        if _made_of_constants(graph, name):
            regions.append(read.region.lo[:, axis])
    idle, none = read.boxes.empty, read.region.empty
    columns += [np.where(none, -1, column) for column in regions]
    return [np.where(idle, -1, column).astype(np.int64) for column in columns]


def _chained(schedule: BandSchedule, read: _ReadBoxes) -> list[np.ndarray]:
    """The numbers of a node of a chain of reshapes: extents, where elements lie in rows that are not read whole, and
    the ends of tensors that are stored."""
    graph = schedule.graph
    node = graph.nodes[read.k]
    shapes = graph.ins(node)[0].shape, graph.out(node).shape
    columns = [*read.boxes.extents.T, *read.region.extents.T]
    if isinstance(node.op, View):
        columns.append(_skipped_elements(read, *shapes))
    if _has_constant_rows(graph, node, read.boxes):
        columns += list(read.boxes.lo.T)
    for name, boxes in ((node.inputs[0], read.region), (node.output, read.boxes)):
        if name in schedule.rows:
            columns += _region(boxes, schedule.axes.of(name), schedule.rows[name].lo)
        if _made_of_constants(graph, name):
            columns += list(boxes.lo.T)
    return [np.where(read.boxes.empty, -1, column).astype(np.int64) for column in columns]


def _skipped_elements(read: _ReadBoxes, before: Shape, after: Shape) -> np.ndarray:
    """How many elements of what a reshape reads lie before the first one that it writes, [bands]."""
    strides = [np.asarray(row_major(shape), np.int64) for shape in (before, after)]
    return read.boxes.lo @ strides[1] - read.region.lo @ strides[0]


def _region(region: Boxes, axis: int, before: np.ndarray) -> list[np.ndarray]:
    """The ends of regions along all axes, rows from `before` on."""
    columns = []
    for k in range(region.rank):
        start = before if k == axis else 0
        columns += [region.lo[:, k] - start, region.hi[:, k] - start]
    return columns


def _has_constant_rows(graph: Graph, node: Node, boxes: Boxes) -> bool:
    """Whether a node reads other elements of a constant in other bands."""
    constants = [i for i, name in enumerate(node.inputs) if name in graph.constants]
    if not constants:
        return False
    some = boxes.take(np.flatnonzero(boxes.volumes))
    regions = (node.op.region(i, some, graph.ins(node), graph.out(node)) for i in constants)
    return any(bool((region.lo != region.lo[:1]).any()) for region in regions)


def _made_of_constants(graph: Graph, name: str) -> bool:
    """Whether a tensor is made of constants alone, of which no read tells: constants too large to be folded."""
    k = graph.producers.get(name)
    return k is not None and all(source in graph.constants for source in graph.nodes[k].inputs)


def _by_row(graph: Graph, read: _ReadBoxes, axis: int, out_axis: int, before: np.ndarray) -> list[np.ndarray]:
    """Numbers for operators of which the regions do not tell where in them an output row lies: because they end at the
    edges of a tensor, or because rows are not alike. Rows of the input lie along `axis`."""
    node = graph.nodes[read.k]
    op, lo, hi = node.op, read.boxes.lo[:, out_axis], read.boxes.hi[:, out_axis]
    if isinstance(op, View):
        return [_skipped_elements(read, graph.ins(node)[0].shape, graph.out(node).shape)]
    if isinstance(op, (Conv, ConvTranspose, Pool)):
        if axis < SPATIAL:
            return []  # images of a batch, each of which makes its own
        step = op.strides[axis - SPATIAL]
        return [] if read.i else [lo - step * before if isinstance(op, ConvTranspose) else step * lo - before]
    if isinstance(op, Interp) and (taps := op.taps[axis]) is not None:
        return [_digests(taps.index_array, lo, hi, before), _digests(taps.weight_array, lo, hi)]
    if isinstance(op, Take) and (table := op.tables[axis]) is not None:
        return [_digests(np.asarray(table, np.int64), lo, hi, before)]
    if isinstance(op, (Concat, Rowwise)):
        return [lo - before]
    if isinstance(op, Segmented):  # bands along the segments' axis may begin between the results of one
        return [lo % op.results] if read.boxes.rank == out_axis + 1 else []
    exact = isinstance(op, SAME_ROWS) or (isinstance(op, Transpose) and op.perm[out_axis] == axis)
    return [] if exact else [lo]


def _digests(rows: np.ndarray, lo: np.ndarray, hi: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
    """A number for the rows [lo, hi) of a table in each band; indices are counted from `before`, but for negative
    ones."""
    found = []
    for band, (a, b) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True)):
        part = rows[a:b]
        if before is not None:
            part = np.where(part < 0, np.iinfo(np.int64).min, part - before[band])
        found.append(hashlib.blake2b(part.tobytes(), digest_size=8).digest())
    return np.frombuffer(b"".join(found), np.int64)
