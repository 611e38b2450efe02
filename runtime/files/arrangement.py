"""Which axis of a file is which axis of the model's tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brickrt.runtime.files.boxes import CHANNELS, Extents

Wanted = tuple[int | None, ...]


@dataclass(frozen=True)
class Arrangement:
    """For each axis of the file the axis of the tensor, None for axes of 1 that the tensor lacks. The other axes of the
    tensor are 1."""

    rank: int
    axes: tuple[int | None, ...]

    def tensor_shape(self, shape: Extents) -> Extents:
        """The tensor's extents for the file's."""
        found = [1] * self.rank
        for axis, extent in zip(self.axes, shape):
            if axis is not None:
                found[axis] = extent
        return tuple(found)

    def file_shape(self, shape: Extents) -> Extents:
        """The file's extents for the tensor's."""
        return tuple(1 if axis is None else shape[axis] for axis in self.axes)

    def file_lo(self, lo: Extents) -> Extents:
        """Where a box begins in the file."""
        return tuple(0 if axis is None else lo[axis] for axis in self.axes)

    def file_axis(self, axis: int) -> int:
        """The file's axis for one of the tensor; the first where the file lacks it, as it is 1."""
        return self.axes.index(axis) if axis in self.axes else 0

    def in_file_order(self, array: np.ndarray) -> np.ndarray:
        """A box of the tensor as a view in the file's order of axes."""
        here = [axis for axis in self.axes if axis is not None]
        index = tuple(slice(None) if axis in here else 0 for axis in range(self.rank))
        left = sorted(here)
        view = array[index].transpose([left.index(axis) for axis in here])
        for place, axis in enumerate(self.axes):
            if axis is None:
                view = np.expand_dims(view, place)
        return view


def as_model_takes(shape: Extents, wanted: Wanted) -> Arrangement | None:
    """How a file's axes become those of the model's input: as they are with axes of 1 in front, with channels moved
    from last to second, or after axes of 1 were left out. None where nothing fits."""
    every = tuple(range(len(shape)))
    longer = tuple(axis for axis in every if shape[axis] != 1)
    kept = [every, longer]
    for here in kept:
        for moved in _orders(tuple(shape[axis] for axis in here), wanted):
            axes = tuple(moved[here.index(axis)] if axis in here else None for axis in every)
            found = Arrangement(len(wanted), axes)
            if all(want in (None, extent) for want, extent in zip(wanted, found.tensor_shape(shape))):
                return found
    return None


def _orders(shape: Extents, wanted: Wanted) -> list[tuple[int, ...]]:
    """The axes of the tensor that a file's may be, in the order in which they are tried."""
    rank, front = len(wanted), len(wanted) - len(shape)
    if front < 0:
        return []
    plain = tuple(range(front, rank))
    if rank < 4 or len(shape) not in (rank - 1, rank):
        return [plain]
    channels_last = (*range(rank - len(shape), 1), *range(2, rank), 1)
    last, first = shape[-1], shape[1 - rank]
    open_ended = wanted[1] is None and wanted[-1] is None
    return (
        [channels_last, plain] if open_ended and last in CHANNELS and first not in CHANNELS else [plain, channels_last]
    )


def channel_axis(wanted: Wanted) -> int:
    """The axis of channels in a model's input: the last where only that can be, else 1; 0 of inputs with one axis."""
    last, rank = len(wanted) - 1, len(wanted)
    if rank >= 3 and wanted[last] in CHANNELS and wanted[1 if rank > 3 else 0] not in CHANNELS:
        return last
    return min(1 if rank > 3 else 0, last)


def as_it_is(shape: Extents) -> Arrangement:
    """An output in a file that has its axes."""
    return Arrangement(len(shape), tuple(range(len(shape))))


def as_volume(shape: Extents) -> Arrangement:
    """An output as NIfTI has it, where it is of one image or volume: [x, y, z, channels]."""
    plain = as_it_is(shape)
    if plain.rank not in (4, 5) or shape[0] != 1:
        return plain
    return Arrangement(plain.rank, plain.axes[2:] if shape[1] == 1 else (*plain.axes[2:], 1))


def as_pages(shape: Extents) -> Arrangement:
    """An output as TIFF has it, where it is of one image or volume: [height, width, channels] of up to 4 channels, else
    a page for each channel; of volumes a page for each slice."""
    most = {4: 4, 5: 1}.get(len(shape))
    if most is None or shape[0] != 1 or shape[1] <= most:
        return as_volume(shape)
    return Arrangement(len(shape), as_it_is(shape).axes[1:])
