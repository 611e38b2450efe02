"""A grey picture where a model takes colours."""

from __future__ import annotations

import numpy as np

from brickrt.runtime.files.arrangement import Wanted, as_model_takes, channel_axis
from brickrt.runtime.files.boxes import Extents
from brickrt.runtime.files.formats.box_files import BoxSource

COLOURS = 3


class GreyAsColours:
    """A `BoxSource` of one channel as one of three alike, which are the last axis."""

    def __init__(self, grey: BoxSource) -> None:
        self.grey, self.name, self.dtype = grey, grey.name, grey.dtype
        self.shape = (*grey.shape, COLOURS)
        self.chunks = None if grey.chunks is None else (*grey.chunks, COLOURS)

    @property
    def axis(self) -> int:
        """The axis along which boxes follow each other."""
        return self.grey.axis

    @axis.setter
    def axis(self, axis: int) -> None:
        """Says along which axis boxes will follow each other; channels are read together."""
        self.grey.axis = min(axis, len(self.shape) - 2)

    @property
    def buffer_bytes(self) -> int:
        """What the grey source holds."""
        return self.grey.buffer_bytes

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with the box that begins at `lo`; its channels are read once."""
        self.grey.read(lo[:-1], out[..., 0])
        out[..., 1:] = out[..., :1]

    def identity(self) -> str:
        """The grey source's."""
        return self.grey.identity()

    def close(self) -> None:
        """Closes the grey source."""
        self.grey.close()


def in_colours(source: BoxSource, wanted: Wanted) -> BoxSource:
    """The source, or where the model takes three channels and it has one, the same in each of them."""
    if len(wanted) < 3 or wanted[channel_axis(wanted)] != COLOURS or as_model_takes(source.shape, wanted) is not None:
        return source
    return source if as_model_takes((*source.shape, COLOURS), wanted) is None else GreyAsColours(source)
