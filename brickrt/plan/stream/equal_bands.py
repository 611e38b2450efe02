"""Which bands of a pass do the same, but for a shift of rows: they share one task graph, whose bases move.

Bands are compared by numbers: of every node its rows, and the rows that it reads, counted from where the band begins in
each tensor. What depends on the row itself (tables of a Resize, constants that have rows, edges) counts too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from brickrt.graph.ir import Graph, Node
from brickrt.ops.operators.conv import ConvTranspose
from brickrt.ops.operators.interp import Interp
from brickrt.ops.operators.move import Concat, Take, Transpose, View
from brickrt.ops.types import Boxes
from brickrt.plan.stream.band_schedule import BandSchedule, Read


def equal_bands(schedule: BandSchedule) -> np.ndarray:
    """The number of the first band that each band is like, int64 [bands]; its own for a band unlike those before."""
    columns = [*_stored(schedule)]
    for read in schedule.reads:
        columns += _read(schedule, read)
    table = np.stack(columns, axis=1) if columns else np.zeros((schedule.bands, 1), np.int64)
    _, first, which = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return first[which.reshape(-1)].astype(np.int64)


def _stored(schedule: BandSchedule) -> Iterator[np.ndarray]:
    """Of every stored tensor the rows computed, held and kept, and whether they reach an edge."""
    for name, rows in schedule.rows.items():
        extent = schedule.graph.types[name].shape[schedule.axis]
        yield rows.hi - rows.lo
        yield rows.lo - rows.keep
        yield rows.hi - rows.kept_after
        yield (rows.lo == 0) * 2 + (rows.hi == extent)


def _read(schedule: BandSchedule, read: Read) -> list[np.ndarray]:
    """The numbers of one input of a node."""
    graph, axis = schedule.graph, schedule.axis
    node = graph.nodes[read.k]
    idle = read.boxes.volumes == 0
    out_lo, out_hi = read.boxes.lo[:, axis], read.boxes.hi[:, axis]
    anchor = schedule.rows[node.output].lo if node.output in schedule.rows else out_lo
    columns = [out_lo - anchor, out_hi - anchor, (out_lo == 0) * 2 + (out_hi == graph.out(node).shape[axis])]
    name = node.inputs[read.i]
    if read.region.rank > axis:
        before = schedule.rows[name].lo if name in schedule.rows else read.region.lo[:, axis]
        columns += [read.region.lo[:, axis] - before, read.region.hi[:, axis] - before]
        columns += _by_row(graph, node, axis, read.boxes, before)
        if name not in schedule.rows and not _inside(schedule, name) and graph.types[name].shape[axis] > 1:
            columns.append(out_lo)  # a resident tensor, which does not move
    if _has_constant_rows(graph, node, read.boxes):
        columns.append(out_lo)
    return [np.where(idle, -1, column).astype(np.int64) for column in columns]


def _inside(schedule: BandSchedule, name: str) -> bool:
    """Whether a tensor is computed by a node of the pass."""
    return any(schedule.graph.nodes[read.k].output == name for read in schedule.reads)


def _has_constant_rows(graph: Graph, node: Node, boxes: Boxes) -> bool:
    """Whether a node reads other elements of a constant in other bands."""
    some = boxes.take(np.flatnonzero(boxes.volumes))
    constants = [i for i, name in enumerate(node.inputs) if name in graph.constants]
    regions = (node.op.region(i, some, graph.ins(node), graph.out(node)) for i in constants)
    return any(bool((region.lo != region.lo[:1]).any()) for region in regions)


def _by_row(graph: Graph, node: Node, axis: int, boxes: Boxes, before: np.ndarray) -> list[np.ndarray]:
    """Numbers for operators that do not treat all rows alike."""
    op, lo, hi = node.op, boxes.lo[:, axis], boxes.hi[:, axis]
    if isinstance(op, ConvTranspose):
        return [lo - op.strides[axis - 2] * before]
    if isinstance(op, Interp) and op.taps[axis] is not None:
        indices, weights = op.taps[axis].index_array, op.taps[axis].weight_array
        return [_digests(indices, lo, hi, before), _digests(weights, lo, hi)]
    if isinstance(op, Take) and op.tables[axis] is not None:
        return [_digests(np.asarray(op.tables[axis], np.int64), lo, hi, before)]
    if isinstance(op, View) or (isinstance(op, Concat) and op.axis == axis):
        return [lo]
    return [lo] if isinstance(op, Transpose) and op.perm[axis] != axis else []


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
