"""A block's part of an output: what it writes of it, and nothing beyond."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from brickrt.ops.types import Shape
from brickrt.plan.stream.stream_plan import AXIS
from brickrt.runtime.cluster.record_folder import WrittenBox
from brickrt.runtime.files.tensors import TensorSink
from brickrt.runtime.stream.recorder import written_checksum


class OwnedRows:
    """Writes the rows [lo, hi) of what it is given to a sink, and keeps checksums of it. `ask` is called before."""

    def __init__(self, name: str, sink: TensorSink, rows: tuple[int, int] | None, ask: Callable[[], None]) -> None:
        self.name, self.sink, self.rows, self.ask = name, sink, rows, ask
        self.boxes: list[WrittenBox] = []

    def write(self, lo: Shape, array: np.ndarray) -> None:
        """See `Sink`. Without rows it takes all."""
        if self.rows is not None:
            lo, array = rows_within(lo, array, self.rows, AXIS)
            if not array.size:
                return
        self.ask()
        self.sink.write(lo, array)
        checksum, itemsize = written_checksum(self.sink, lo, array), self.sink.sink.dtype.itemsize
        self.boxes.append(WrittenBox(self.name, lo, array.shape, checksum, itemsize))


def rows_within(lo: Shape, array: np.ndarray, rows: tuple[int, int], axis: int) -> tuple[Shape, np.ndarray]:
    """The part of a box that begins at `lo` in the rows [first, end) along an axis: where it begins, its elements."""
    first, end = (min(max(row - lo[axis], 0), array.shape[axis]) for row in rows)
    part = array[(slice(None),) * axis + (slice(first, end),)]
    return (*lo[:axis], lo[axis] + first, *lo[axis + 1 :]), part


class NoRows:
    """Takes what a block is not asked for, and leaves it."""

    def write(self, lo: Shape, array: np.ndarray) -> None:
        """See `Sink`."""
