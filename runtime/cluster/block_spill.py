"""A block's part of a spilled tensor: what it writes of it, and what it reads of all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from brickrt.ops.types import Shape
from brickrt.plan.stream.band_schedule import BandSchedule
from brickrt.runtime.cluster.blocks import Block
from brickrt.runtime.cluster.owned_rows import rows_within
from brickrt.runtime.cluster.record_folder import WrittenBox
from brickrt.runtime.files.identity import checksum
from brickrt.runtime.files.scratch import ScratchFile


class BlockSpill:
    """Writes the rows that a block's own bands compute of a tensor, and keeps checksums of them: of bands that run on
    for whole chunks, the next block does. `ask` is called before."""

    def __init__(
        self, name: str, file: ScratchFile, schedule: BandSchedule | None, block: Block, ask: Callable[[], None]
    ) -> None:
        """`schedule` is that of the block's sweep where it writes the tensor."""
        self.name, self.file, self.ask = name, file, ask
        self.axis, self.rows = 0, (0, 0)
        if schedule is not None:
            rows = schedule.rows[name]
            self.axis = schedule.axes.of(name)
            self.rows = int(rows.lo[block.wanted]), int(rows.hi[block.end - 1])
        self.boxes: list[WrittenBox] = []

    def write(self, lo: Shape, array: np.ndarray) -> None:
        """See `Spill`."""
        lo, array = rows_within(lo, array, self.rows, self.axis)
        if not array.size:
            return
        self.ask()
        self.file.write(lo, array)
        self.boxes.append(WrittenBox(self.name, lo, array.shape, checksum(array), 1))

    def read(self, lo: Shape, out: np.ndarray) -> None:
        """See `Spill`."""
        self.file.read(lo, out)

    def release(self) -> None:
        """Other blocks read the tensor too: it stays until the run has ended."""
