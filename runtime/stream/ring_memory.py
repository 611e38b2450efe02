"""The memory that outlives a band: rings, saved rows and whole tensors, side by side in one allocation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import Executor
from itertools import pairwise

import numpy as np

from brickrt.ops.types import Shape
from brickrt.plan.geometry.row_bands import with_rows
from brickrt.plan.plan import Plan
from brickrt.plan.stream.band_storage import persistent_offsets, stored_shape
from brickrt.plan.stream.stream_plan import Sweep
from brickrt.runtime.cpu.page_moves import PAGE, PageMover, may_move

MOST_PLANES = 1024  # of a ring whose pages move: each may become a mapping of its own, of which a process has 65,530


class SweepMemory:
    """The persistent tensors of one sweep in `memory`, an array of bytes."""

    def __init__(self, plan: Plan, one: Sweep, memory: np.ndarray) -> None:
        self.plan, self.axes, self.schedule, self.storage = plan, one.schedule.axes, one.schedule, one.storage
        self.at: dict[str, np.ndarray] = {}
        self.memory, self.pages = memory, PageMover()
        self.start, _ = persistent_offsets(one.storage)
        for name, nbytes in one.storage.persistent.items():
            self.at[name] = memory[self.start[name] : self.start[name] + nbytes]

    def bases(self, band: int) -> list[np.ndarray]:
        """Arrays that begin where a band's records count from: of a ring, at its first new row. That may be behind its
        last; they are not cut there, as NumPy has empty arrays begin anywhere."""
        found = []
        for name, start in self.start.items():
            stored = self.storage.tensors.get(name)
            if stored is not None and stored.starts is not None:
                start += self.row_at(name, band) * self.row_bytes(name)
            found.append(self.memory[start:])
        return found

    def row_at(self, name: str, band: int) -> int:
        """Where in its ring the first new row of a band lies."""
        starts = self.storage.tensors[name].starts
        assert starts is not None
        return int(self.schedule.rows[name].lo[band] - starts[band])

    def row_bytes(self, name: str) -> int:
        """Bytes from one row to the next."""
        return self.planes(name).shape[2]

    def planes(self, name: str) -> np.ndarray:
        """A ring as bytes [planes, rows, bytes of a row]."""
        extents, axis = self.storage.tensors[name].extents, self.axes.of(name)
        kind, layout = self.plan.graph.types[name], self.plan.layouts[name]
        stored = stored_shape(kind, extents, layout, self.plan.device.lanes)
        return self.at[name].reshape(math.prod(stored[:axis]), stored[axis], math.prod(stored[axis + 1 :]))

    def rows(self, name: str, band: int, lo: int, hi: int) -> np.ndarray:
        """The rows [lo, hi) of a plain ring, as an array of the tensor's type, while a band runs."""
        stored, kind, axis = self.storage.tensors[name], self.plan.graph.types[name], self.axes.of(name)
        assert stored.starts is not None
        across, first = self.schedule.across[name], np.asarray(stored.first, np.int64)
        first[axis] = stored.starts[band]
        whole = self.at[name].view(kind.dtype).reshape(stored.extents)
        return whole[with_rows(across, np.array(lo), np.array(hi), axis).slices(0, first.tolist())]

    def stored_rows(self, name: str, band: int, lo: int, hi: int) -> tuple[Shape, np.ndarray]:
        """The rows [lo, hi) of a ring as they are stored, while a band runs: where they begin in the whole tensor, and
        an array of bytes. Both have the tensor's axes, channels of a blocked tensor in blocks, and one for the bytes of
        an element or of a block's."""
        stored, layout, axis = self.storage.tensors[name], self.plan.layouts[name], self.axes.of(name)
        assert stored.starts is not None
        lanes = self.plan.device.lanes if layout == "blocked" else 1
        box = with_rows(self.schedule.across[name], np.array(lo), np.array(hi), axis)
        first, begin, end = (list(map(int, at)) for at in (stored.first, box.lo[0], box.hi[0]))
        first[axis] = int(stored.starts[band])
        extents = list(stored.extents)
        for at in (first, begin, end, extents) if lanes > 1 else ():
            at[1] = -(-at[1] // lanes)
        cut = tuple(slice(a - o, b - o) for a, b, o in zip(begin, end, first, strict=True))
        element = lanes * self.plan.graph.types[name].dtype.itemsize
        return (*begin, 0), self.at[name].reshape(*extents, element)[cut]

    def is_collected(self, name: str) -> bool:
        """Whether bands write a tensor that is held whole."""
        return self.storage.tensors[name].kind == "collected"

    def collected_rows(self, name: str, band: int) -> np.ndarray:
        """What a band writes of a collected tensor, as bytes [planes, rows, bytes of a row]."""
        rows = self.schedule.rows[name]
        return self.planes(name)[:, int(rows.lo[band]) : int(rows.hi[band])]

    def moving(self, band: int) -> Iterable[str]:
        """The rings whose rows move to the front before a band."""
        for name, stored in self.storage.tensors.items():
            if stored.starts is not None and band and stored.starts[band] != stored.starts[band - 1]:
                yield name

    def leaves_alone(self, name: str, band: int) -> bool:
        """Whether neither moving rows to the front before a band nor the band itself touches what the band before has
        computed, where that is not moved: it may still be written."""
        rows, starts = self.schedule.rows[name], self.storage.tensors[name].starts
        assert starts is not None
        return bool(rows.hi[band] - starts[band] <= rows.lo[band - 1] - starts[band - 1])

    def move(self, name: str, band: int, pool: Executor, parts: int, hi: int, copied: bool = False) -> None:
        """Moves the rows up to `hi` that the band still holds to the front of their ring. They stay where they were as
        well if they must be `copied`."""
        starts, planes = self.storage.tensors[name].starts, self.planes(name)
        assert starts is not None
        first, shift = int(starts[band]), int(starts[band] - starts[band - 1])
        count = hi - first
        if count <= 0:
            return
        if not copied and self._move_pages(planes, shift, count):
            return
        edges = np.linspace(0, len(planes), min(parts, len(planes)) + 1).astype(int)
        jobs = [pool.submit(_shift, planes[a:b], shift, count) for a, b in pairwise(edges)]
        for job in jobs:
            job.result()

    def _move_pages(self, planes: np.ndarray, shift: int, count: int) -> bool:
        """The same without copying; False where planes are no whole pages. Rows behind the last one move along, up to
        where a page ends."""
        number, extent, row = planes.shape
        at, stride = int(planes.ctypes.data), extent * row
        if number > MOST_PLANES or not may_move(at, stride, shift * row) or not self.pages.has_room(shift * row):
            return False
        moved = min(-(-count * row // PAGE) * PAGE, stride - shift * row)
        for plane in range(number):
            self.pages.shift_down(at + plane * stride, shift * row, moved)
        return True


def _shift(planes: np.ndarray, shift: int, count: int) -> None:
    """Moves `count` rows forward by `shift`, in pieces that do not overlap."""
    for done in range(0, count, shift):
        n = min(shift, count - done)
        planes[:, done : done + n] = planes[:, done + shift : done + shift + n]
