"""Files as sources and sinks of boxes, which count what is read and written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brickrt.runtime.files.boxes import pieces, slices
from brickrt.runtime.files.tensors import TensorSink, TensorSource


@dataclass
class Traffic:
    """Bytes of a run, as the files' types have them, and elements of outputs that are NaN or infinite, before they are
    converted to these."""

    read: int = 0
    written: int = 0
    nonfinite: int = 0


class CountedSource:
    """A source whose reads are counted."""

    def __init__(self, source: TensorSource, traffic: Traffic) -> None:
        self.source, self.traffic = source, traffic
        self.itemsize = source.source.dtype.itemsize

    def read(self, lo: tuple[int, ...], out: np.ndarray) -> None:
        """See `Source`."""
        self.source.read(lo, out)
        self.traffic.read += out.size * self.itemsize


class CountedSink:
    """A sink whose writes are counted."""

    def __init__(self, sink: TensorSink, traffic: Traffic) -> None:
        self.sink, self.traffic = sink, traffic
        self.itemsize = sink.sink.dtype.itemsize

    def write(self, lo: tuple[int, ...], array: np.ndarray) -> None:
        """See `Sink`."""
        self.sink.write(lo, array)
        self.traffic.written += array.size * self.itemsize
        self.traffic.nonfinite += nonfinite(array)


def nonfinite(array: np.ndarray) -> int:
    """How many elements are NaN or infinite, counted while the cache has a piece."""
    if array.dtype.kind != "f":
        return 0
    parts = (array[slices(*piece)] for piece in pieces(array.shape, array.itemsize))
    return sum(part.size - int(np.count_nonzero(np.isfinite(part))) for part in parts)
