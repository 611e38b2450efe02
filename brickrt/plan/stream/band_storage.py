"""Where a sweep stores its tensors: for good, for the rows of a few bands, or for one band alone.

    whole     a resident tensor, all of it
    collected the same of a swept tensor, which bands write
    ring      rows of several bands behind one another; when the buffer is full, those still held move to its front,
              without being copied where they are whole pages of memory
    saved     in the arena while a band runs; the rows for the next band are saved at its end, and restored
    arena     while a band runs

Rings begin elsewhere in each band, so their bases move. Rows of the arena are at the same place in every band.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from brickrt.ops.types import Shape, TensorType
from brickrt.plan.layout import Layout
from brickrt.plan.plan import Plan
from brickrt.plan.stream.band_schedule import BandSchedule
from brickrt.plan.stream.rows.swept_rows import Columns, SweptRows
from brickrt.plan.stream.units.whole_tensors import WholeTensors

Kind = Literal["whole", "collected", "ring", "saved", "arena"]
FILE_BANDS = 2  # bands after which a ring that is read or written meanwhile is full: its rows move in every second one
RING_ALIGNMENT = 4096  # bytes: a page
LARGE_SAVED_SHARE, SMALL_SAVED_SHARE = 1.0, 0.25
"""Shares of a band's rows: tensors of which more is kept lie in rings, others are saved."""


def stored_bytes(kind: TensorType, extents: Iterable[int], layout: Layout, lanes: int) -> int:
    """Bytes of storage of these extents; channels of a blocked tensor are filled up to whole blocks."""
    stored = [int(e) for e in extents]
    if layout == "blocked":
        stored[1] = -(-stored[1] // lanes) * lanes
    return math.prod(stored) * kind.dtype.itemsize


def stored_shape(kind: TensorType, extents: Shape, layout: Layout, lanes: int) -> Shape:
    """The shape of storage of these extents as bytes: channels of a blocked tensor in blocks, and an axis for the bytes
    of an element, or of a block's."""
    if layout != "blocked":
        return (*extents, kind.dtype.itemsize)
    return (extents[0], -(-extents[1] // lanes), *extents[2:], lanes * kind.dtype.itemsize)


@dataclass(frozen=True)
class TensorStorage:
    """How a tensor is stored: `extents` of its storage, `first` the index of the storage's first element but for rows.
    `kept` are the rows of what is saved of it. `starts` [bands] is the first row of the storage in each band, where it
    differs or bands write to it."""

    kind: Kind
    extents: Shape
    first: Shape
    kept: int = 0
    starts: np.ndarray | None = None


@dataclass(frozen=True)
class BandStorage:
    """The storage of a sweep. `persistent` has the names and bytes of what outlives a band, in order, those first that
    all sweeps hold `whole`; the saved rows of a tensor T are "T:kept"."""

    tensors: dict[str, TensorStorage]
    persistent: dict[str, int]
    whole: WholeTensors


def kept_name(name: str) -> str:
    """The name of the saved rows of a tensor."""
    return f"{name}:kept"


def common_extents(schedules: Sequence[BandSchedule]) -> dict[str, Shape]:
    """Per tensor extents across its rows that fit each of several strips: they share kernels, which know strides."""
    found: dict[str, np.ndarray] = {}
    for schedule in schedules:
        for name, box in schedule.across.items():
            found[name] = np.maximum(found.get(name, 0), box.extents[0])
    return {name: tuple(extents.tolist()) for name, extents in found.items()}


def persistent_offsets(storage: BandStorage) -> tuple[dict[str, int], int]:
    """Where each persistent tensor begins in their memory, and the bytes of all."""
    found, end = dict[str, int](), _to_pages(storage.whole.nbytes)
    for name, nbytes in storage.persistent.items():
        if name in storage.whole.offsets:
            found[name] = storage.whole.offsets[name]
            continue
        found[name] = end
        end += _to_pages(nbytes)
    return found, end


def _to_pages(nbytes: int) -> int:
    return -(-nbytes // RING_ALIGNMENT) * RING_ALIGNMENT


def store_pass(
    plan: Plan,
    schedule: BandSchedule,
    whole: WholeTensors,
    common: Mapping[str, Shape],
    columns: Columns,
    saved: float = SMALL_SAVED_SHARE,
) -> BandStorage:
    """Storage for all tensors of a sweep; `whole` are those that every sweep holds whole, and `common` the extents of
    the others across their rows; `columns` keep numbers by band. A tensor whose kept rows are at most the share `saved`
    of a band's is saved: that takes time to copy them twice, and often less memory than a ring."""
    graph = plan.graph
    tensors = {name: _whole(graph.types[name], schedule.rows.get(name)) for name in whole.sizes}
    persistent = dict(whole.sizes)
    for name, rows in schedule.rows.items():
        if name in whole.sizes:
            continue
        layout, lanes, axis = plan.layouts[name], plan.device.lanes, schedule.axes.of(name)
        row = math.prod(stored_shape(graph.types[name], common[name], layout, lanes)[axis + 1 :])
        found = tensors[name] = _stored(name, rows, schedule, common[name], row, saved)
        if found.starts is not None:
            found = tensors[name] = replace(found, starts=columns.whole(found.starts))
        if found.kind == "ring":
            persistent[name] = stored_bytes(graph.types[name], found.extents, layout, lanes)
        elif found.kind == "saved":
            extents = with_extent(found.extents, axis, found.kept)
            persistent[kept_name(name)] = stored_bytes(graph.types[name], extents, layout, lanes)
    return BandStorage(tensors, persistent, whole)


def _whole(kind: TensorType, rows: SweptRows | None) -> TensorStorage:
    """All of a tensor; `rows` are those that bands compute of it."""
    if rows is None:
        return TensorStorage("whole", kind.shape, ())
    return TensorStorage("collected", kind.shape, (0,) * kind.rank, starts=np.zeros_like(rows.lo))


def _stored(
    name: str, rows: SweptRows, schedule: BandSchedule, extents: Shape, row_bytes: int, saved: float
) -> TensorStorage:
    """What comes from files is read a band ahead, what goes to files is written a band behind."""
    axis, is_read, is_written = schedule.axes.of(name), name in schedule.sources, name in schedule.sinks
    first = tuple(schedule.across[name].lo[0].tolist())
    if not (is_read or is_written or rows.kept > saved * rows.fresh):
        kind: Kind = "saved" if rows.kept else "arena"
        return TensorStorage(kind, with_extent(extents, axis, rows.window), first, rows.kept)
    keep, held, hi = rows.keep, rows.keep, rows.hi
    if is_read:
        hi = np.concatenate([hi[1:], hi[-1:]])
    if is_written:
        held = np.minimum(keep, np.concatenate([rows.lo[:1], rows.lo[:-1]]))
    most = int((hi - held).max(initial=0))
    if is_read or is_written:
        most += (FILE_BANDS - 1) * rows.fresh
    most = _whole_pages(most, row_bytes)
    return TensorStorage("ring", with_extent(extents, axis, most), first, starts=ring_starts(keep, hi, most))


def _whole_pages(rows: int, row_bytes: int) -> int:
    """So many rows or a few more that are whole pages, so that they can move without being copied."""
    step = RING_ALIGNMENT // math.gcd(RING_ALIGNMENT, max(1, row_bytes))
    more = -(-rows // step) * step
    return more if more <= rows + rows // 4 else rows


def ring_starts(keep: np.ndarray, hi: np.ndarray, rows: int) -> np.ndarray:
    """The first row of a ring of `rows` rows in each band, in which [keep, hi) are held, [bands]."""
    follows = np.searchsorted(hi, keep + rows, side="right").tolist()  # the band for which a ring that is new is full
    band, moves, bands = 0, [0], len(keep)
    while True:
        full = follows[band]
        band = full if full > band else band + 1  # far quicker than `max`, over all tensors of a deep network
        if band >= bands:
            break
        moves.append(band)
    return np.repeat(keep[moves], np.diff([*moves, len(keep)]))


def with_extent(extents: Shape, axis: int, rows: int) -> Shape:
    """Extents with other rows."""
    return (*extents[:axis], max(1, int(rows)), *extents[axis + 1 :])


def storage_origin(stored: TensorStorage, axis: int, row: int) -> Shape:
    """The index of the first element of storage that begins at a row."""
    return (*stored.first[:axis], int(row), *stored.first[axis + 1 :])
