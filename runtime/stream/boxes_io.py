"""Arrays as sources and sinks of boxes."""

from __future__ import annotations

import numpy as np


class ArraySource:
    """Reads an array, or anything that is cut by slices."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def read(self, lo: tuple[int, ...], out: np.ndarray) -> None:
        """See `Source`."""
        out[...] = self.array[tuple(slice(a, a + n) for a, n in zip(lo, out.shape, strict=True))]


class ArraySink:
    """Writes to an array, or anything that is set by slices."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def write(self, lo: tuple[int, ...], array: np.ndarray) -> None:
        """See `Sink`."""
        self.array[tuple(slice(a, a + n) for a, n in zip(lo, array.shape, strict=True))] = array
