"""Memory of the host through which words and arrays go to the device and back, without the host waiting for copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brickrt.runtime.cuda.driver.alignment import aligned_size
from brickrt.runtime.cuda.driver.protocol import Driver, Event, Stream

TURNS = 8  # sets of words that may be on their way
PIECE = 4 << 20  # bytes: while one piece of an array is copied by the device, the host copies the next


class PinnedWords:
    """Sends `count` words of 8 bytes, again and again; earlier ones may still be on their way."""

    def __init__(self, driver: Driver, count: int) -> None:
        self._driver, self._nbytes, self._turn = driver, 8 * count, 0
        stride = aligned_size(self._nbytes)
        self._pinned = driver.pinned(TURNS * stride, "addresses of arrays")
        starts = range(0, TURNS * stride, stride)
        self._words = [self._pinned.array[at : at + self._nbytes].view(np.uint64) for at in starts]
        self._addresses = [self._pinned.address + at for at in starts]
        self._sent: list[Event | None] = [None] * TURNS

    def send(self, address: int, words: Sequence[int], stream: Stream) -> None:
        """Writes the words at an address of the device."""
        k, self._turn = self._turn, (self._turn + 1) % TURNS
        sent = self._sent[k]
        if sent is None:
            sent = self._sent[k] = self._driver.event()
        else:
            sent.synchronize()
        self._words[k][:] = words
        self._driver.copy(address, self._addresses[k], self._nbytes, stream)
        sent.record(stream)


class StagedArray:
    """Memory for an array on the device, and pinned memory on the host that it is copied through."""

    def __init__(self, driver: Driver, nbytes: int, name: str) -> None:
        """`name` is that of the array, for errors."""
        self._driver, self.nbytes = driver, nbytes
        self._memory, self._pinned = driver.allocate(max(nbytes, 8), name), driver.pinned(nbytes, name)
        self.address = self._memory.address

    def upload(self, array: np.ndarray, stream: Stream) -> None:
        """Copies an array to the device, once the last copy has ended. It may be changed when the call returns."""
        flat = array.reshape(-1).view(np.uint8)
        for at in range(0, self.nbytes, PIECE):
            end = min(at + PIECE, self.nbytes)
            self._pinned.array[at:end] = flat[at:end]
            self._driver.copy(self.address + at, self._pinned.address + at, end - at, stream)

    def download(self, stream: Stream) -> None:
        """Begins a copy to the host; once the stream is there, `read` gives it."""
        if self.nbytes:
            self._driver.copy(self._pinned.address, self.address, self.nbytes, stream)

    def read(self, array: np.ndarray) -> None:
        """Fills an array with what was copied."""
        if self.nbytes:
            array.reshape(-1).view(np.uint8)[:] = self._pinned.array
