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
            first, end = (min(max(row - lo[AXIS], 0), array.shape[AXIS]) for row in self.rows)
            if first >= end:
                return
            array = array[(slice(None),) * AXIS + (slice(first, end),)]
            lo = (*lo[:AXIS], lo[AXIS] + first, *lo[AXIS + 1 :])
        self.ask()
        self.sink.write(lo, array)
        checksum, itemsize = written_checksum(self.sink, lo, array), self.sink.sink.dtype.itemsize
        self.boxes.append(WrittenBox(self.name, lo, array.shape, checksum, itemsize))


class NoRows:
    """Takes what a block is not asked for, and leaves it."""

    def write(self, lo: Shape, array: np.ndarray) -> None:
        """See `Sink`."""
