"""One allocation for all that a program keeps on the device: tables, constants, arena, scratch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from brickrt.runtime.cuda.driver.alignment import aligned_size
from brickrt.runtime.cuda.driver.device_errors import in_mib
from brickrt.runtime.cuda.driver.protocol import Driver, Stream

NAMED_SECTIONS = 4  # the largest, that an error tells of


class AllocationSections:
    """Named sections of one allocation, each at a multiple of 256 bytes."""

    def __init__(self, driver: Driver, sizes: Mapping[str, int]) -> None:
        """Allocates sections of these sizes, in bytes."""
        self._driver, self._at, self._sizes, total = driver, {}, sizes, 0
        for name, nbytes in sizes.items():
            self._at[name] = total
            total += aligned_size(max(nbytes, 8))
        self._held = driver.allocate(total, _purpose(sizes))
        self.nbytes = total

    def __getitem__(self, name: str) -> int:
        """The address at which a section begins."""
        return self._held.address + self._at[name]

    def fill(self, name: str, array: np.ndarray, stream: Stream, offset: int = 0) -> None:
        """Writes an array into a section, from `offset` bytes on."""
        if array.nbytes:
            self._driver.upload(self[name] + offset, np.ascontiguousarray(array), stream)

    def clear(self, name: str, stream: Stream) -> None:
        """Writes zeros into a section."""
        self.fill(name, np.zeros(self._sizes[name], np.uint8), stream)


def _purpose(sizes: Mapping[str, int]) -> str:
    """What the memory is for, in one line."""
    largest = sorted(sizes, key=lambda name: -sizes[name])[:NAMED_SECTIONS]
    return f"a program ({', '.join(f'{name} {in_mib(sizes[name])}' for name in largest if sizes[name])})"
