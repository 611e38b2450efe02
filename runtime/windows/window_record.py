"""The record of a run: rows of windows whose results are on the disk, in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product

import numpy as np

from brickrt.ops.types import Shape
from brickrt.runtime.files.journal import Journal, Key, verify
from brickrt.runtime.files.tensors import TensorSink
from brickrt.runtime.stream.recorder import written_checksum
from brickrt.runtime.windows.window_planning import PlannedWindows


class WindowRecord:
    """Units are (image, row of windows, output)."""

    def __init__(self, planned: PlannedWindows, journal: Journal, sinks: Mapping[str, TensorSink]) -> None:
        self.planned, self.journal, self.sinks = planned, journal, sinks
        self.numbers = {name: number for number, name in enumerate(sinks)}

    def finish(self, image: int, row: int, name: str, lo: Shape, made: np.ndarray) -> None:
        """Notes what has been written, once it is on the disk."""
        sink = self.sinks[name]
        sink.sync()
        self.journal.finish((image, row, self.numbers[name]), written_checksum(sink, lo, made))

    def begin(self) -> tuple[int, int]:
        """The first image and row of windows that is not finished; the number of images where all are. What was written
        is read again and compared."""
        for number, sink in enumerate(self.sinks.values()):
            verify(self.journal, sink, sink.sink.dtype, partial(self._box, number))
        units = product(range(self.planned.shape[0]), range(self.planned.layout.rows))
        left = (unit for unit in units if any((*unit, n) not in self.journal.finished for n in self.numbers.values()))
        return next(left, (self.planned.shape[0], 0))

    def _box(self, number: int, key: Key) -> tuple[Shape, Shape] | None:
        """Where a unit of the output of that number lies."""
        image, row, output = key
        if output != number:
            return None
        one = self.planned.outputs[tuple(self.sinks)[number]]
        front, extents = one.layout.front[0], one.written.shape
        begin, end = (min(max(n - front, 0), extents[2]) for n in one.layout.finished(row))
        return (image, 0, begin, *(0 for _ in extents[3:])), (1, extents[1], end - begin, *extents[3:])
