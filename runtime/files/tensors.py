"""Files as the model's inputs and outputs: axes rearranged, types converted."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError, InputError
from brickrt.runtime.files.arrangement import Arrangement, Wanted, as_it_is, as_model_takes, channel_axis
from brickrt.runtime.files.boxes import PIECE_BYTES, Extents, added, check_box, pieces, slices
from brickrt.runtime.files.converted import as_kind, check_convertible, read_converted, write_converted
from brickrt.runtime.files.formats.box_files import BoxSink, BoxSource
from brickrt.runtime.files.formats.file_formats import format_of
from brickrt.runtime.files.sink import create_sink
from brickrt.runtime.files.source import by_rows

_WHILE_CONVERTING = 6 * PIECE_BYTES


def unit_scale(dtype: np.dtype) -> float:
    """What brings whole numbers of this type to at most 1: 1/255 for uint8; 1 for others."""
    return 1 / np.iinfo(dtype).max if dtype.kind in "iu" else 1.0


def is_scaled(dtype: np.dtype) -> bool:
    """Whether an input of this type takes scaled values: floats."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


class TensorSource:
    """A `BoxSource` with the axes and the type of the model's input."""

    def __init__(
        self, source: BoxSource, arrangement: Arrangement, dtype: np.dtype, scale: float | None, shift: _Shift
    ) -> None:
        self.source, self._arrangement, self.dtype = source, arrangement, dtype
        self._scale, self._shift = scale, shift
        self.shape = arrangement.tensor_shape(source.shape)
        self.name = source.name
        self.chunks = None if source.chunks is None else arrangement.tensor_shape(source.chunks)
        self._axis = min(2, len(self.shape) - 1)
        self.axis = self._axis

    @property
    def axis(self) -> int:
        """The tensor's axis along which boxes follow each other."""
        return self._axis

    @axis.setter
    def axis(self, axis: int) -> None:
        """Says along which axis boxes will follow each other."""
        self._axis = axis
        self.source.axis = self._arrangement.file_axis(axis)

    @property
    def as_it_is(self) -> bool:
        """Whether values are neither scaled nor converted."""
        return self._scale is None and not self._shift.given and self.dtype == self.source.dtype

    @property
    def buffer_bytes(self) -> int:
        """What the source holds, and a piece that is converted."""
        return self.source.buffer_bytes + (0 if self.as_it_is else _WHILE_CONVERTING)

    def copy_if_scattered(self, scratch: Path | None = None) -> None:
        """Where rows along `axis` are scattered over the file, as those of NIfTI are along x, reads from a row-major
        copy in `scratch`, by default the folder for temporary files, from now on."""
        self.source = by_rows(self.source, scratch=scratch)

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, out)
        view, begin = self._arrangement.in_file_order(out), self._arrangement.file_lo(lo)
        if self.as_it_is:
            self.source.read(begin, view)
        elif self._shift.given and self.dtype.itemsize < 4:
            self._read_small(lo, out)
        else:
            read_converted(self.source.read, self.source.dtype, self._scaled, begin, view)
            self._shift.apply(lo, out)

    def _read_small(self, lo: Extents, out: np.ndarray) -> None:
        """Floats of 16 bits are shifted in float32."""
        whole = TensorSource(self.source, self._arrangement, np.dtype(np.float32), self._scale, self._shift)
        for offset, extents in pieces(out.shape, 4):
            piece = np.empty(extents, np.float32)
            whole.read(added(lo, offset), piece)
            out[slices(offset, extents)] = as_kind(self.name, piece, self.dtype)

    def _scaled(self, stored: np.ndarray) -> np.ndarray:
        scaled = stored if self._scale is None else stored.astype(np.float32) * np.float32(self._scale)
        return as_kind(self.name, scaled, self.dtype)

    def identity(self) -> str:
        """The source's."""
        return self.source.identity()

    def close(self) -> None:
        """Closes the source."""
        self.source.close()


class _Shift:
    """Subtracts a mean and divides by a standard deviation, of each channel, and cuts off at bounds."""

    def __init__(
        self,
        mean: tuple[float, ...] | None,
        std: tuple[float, ...] | None,
        bounds: tuple[float, float] | None,
        axis: int,
    ) -> None:
        self._mean, self._std, self._bounds, self._axis = mean, std, bounds, axis
        self.given = mean is not None or std is not None or bounds is not None

    def check(self, name: str, shape: Extents) -> None:
        channels = shape[self._axis]
        for what, values in (("mean", self._mean), ("std", self._std)):
            if values is not None and len(values) not in (1, channels):
                raise InputError(
                    f"{name}: {what} has {len(values)} numbers for {channels} channels: give 1 or {channels}"
                )

    def apply(self, lo: Extents, out: np.ndarray) -> None:
        """In place, for a box that begins at `lo`, and without memory of its own."""
        if self._mean is not None:
            out -= self._along_channels(self._mean, lo, out)
        if self._std is not None:
            out /= self._along_channels(self._std, lo, out)
        if self._bounds is not None:
            np.clip(out, *self._bounds, out=out)

    def _along_channels(self, values: tuple[float, ...], lo: Extents, out: np.ndarray) -> np.ndarray:
        first = lo[self._axis] if len(values) > 1 else 0
        here = np.asarray(values, np.float32)[first : first + out.shape[self._axis]]
        return here.reshape([-1 if axis == self._axis else 1 for axis in range(out.ndim)])


def as_tensor(
    source: BoxSource,
    shape: Wanted,
    dtype: Any,
    *,
    scale: float | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    bounds: tuple[float, float] | None = None,
) -> TensorSource:
    """The source as the model's input of `shape`, with None for open dimensions.

    Axes of 1 are added in front, or left out; channels that are last become axis 1 where the shape says so. Values
    become (value × scale − mean) / std in float32, as for images on the command line, where one of them is given,
    and are cut off at `bounds`. Closing it closes the source. Raises InputError for shapes that do not fit."""
    kind = np.dtype(dtype)
    arrangement = as_model_takes(source.shape, shape)
    wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
    if arrangement is None:
        raise InputError(
            f"{source.name}: has the shape {list(source.shape)}, the model takes [{wanted}]: cut or convert it"
        )
    shift = _Shift(mean, std, bounds, channel_axis(shape))
    if scale is not None or shift.given:
        if not is_scaled(kind):
            raise InputError(
                f"{source.name}: the model takes {kind}, which is not scaled: leave scale, mean and std out"
            )
        shift.check(source.name, arrangement.tensor_shape(source.shape))
    else:
        check_convertible(source.name, source.dtype, kind)
    return TensorSource(source, arrangement, kind, scale, shift)


class TensorSink:
    """A `BoxSink` with the axes and the type of the model's output."""

    def __init__(self, sink: BoxSink, arrangement: Arrangement, shape: Extents, dtype: np.dtype, scale: float | None):
        self.sink, self._arrangement, self._scale = sink, arrangement, scale
        self.shape, self.dtype, self.name = shape, dtype, sink.name
        self.chunks = None if sink.chunks is None else arrangement.tensor_shape(sink.chunks)
        found = arrangement.axes[sink.axis]
        self.axis = 0 if found is None else found
        self.row_unit, self.resumed = sink.row_unit, sink.resumed

    @property
    def buffer_bytes(self) -> int:
        """What the sink holds, and a piece that is converted."""
        return self.sink.buffer_bytes + (0 if self.as_it_is else _WHILE_CONVERTING)

    @property
    def as_it_is(self) -> bool:
        """Whether values are neither scaled nor converted."""
        return self._scale is None and self.dtype == self.sink.dtype

    def write(self, lo: Extents, array: np.ndarray) -> None:
        """Writes the box that begins at `lo`."""
        check_box(self.name, self.shape, self.dtype, lo, array)
        view, begin = self._arrangement.in_file_order(array), self._arrangement.file_lo(lo)
        if self.as_it_is:
            self.sink.write(begin, view)
        else:
            write_converted(self.sink.write, self.sink.dtype, self._converted, begin, view)

    def _converted(self, values: np.ndarray) -> np.ndarray:
        scaled = values if self._scale is None else values * self.dtype.type(self._scale)
        kind = self.sink.dtype
        if kind.kind not in "iu" or self.dtype.kind not in "f":
            return scaled
        bounds = np.iinfo(kind)
        rounded = np.rint(np.nan_to_num(scaled, nan=0.0, posinf=bounds.max, neginf=bounds.min))
        # the largest whole number may have no float of its own, and the next one would wrap around
        return np.clip(rounded.astype(np.float64), bounds.min, np.nextafter(float(bounds.max) + 1, 0)).astype(kind)

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out`, of the file's type, with what was written."""
        check_box(self.name, self.shape, self.sink.dtype, lo, out)
        self.sink.read(self._arrangement.file_lo(lo), self._arrangement.in_file_order(out))

    def sync(self) -> None:
        """Returns when everything written so far is on the disk."""
        self.sink.sync()

    def close(self) -> None:
        """Makes the file durable and gives it its name."""
        self.sink.close()

    def abandon(self, keep: bool = False) -> None:
        """Removes the file, or with `keep` leaves it for a run that resumes."""
        self.sink.abandon(keep)


def check_named(kind: str, names: Collection[str], files: Collection[str]) -> None:
    """Raises BrickError unless each of a model's `names`, of the kind "inputs" or "outputs", has a file, and nothing
    else has."""
    if set(names) != set(files):
        raise BrickError(f"the model's {kind} are {', '.join(names)}: give a file for each")


def if_float(dtype: np.dtype, stored: str | None, scale: float | None) -> tuple[str | None, float | None]:
    """`stored` and `scale` of an output of `dtype`, where both are said for all outputs of a model: of floats alone."""
    return (stored, scale) if dtype.kind == "f" else (None, None)


def as_file(
    path: str | Path,
    shape: Extents,
    dtype: Any,
    *,
    stored: Any = None,
    scale: float | None = None,
    axis: int = 2,
    resume: bool = False,
    chunks: Extents | None = None,
    like: BoxSource | None = None,
    remark: str = "",
) -> TensorSink:
    """A new file for the model's output of `shape` and `dtype`, which takes boxes of it.

    Its axes are laid out as the format has them: see `FileFormat.arrange`. With a whole type `stored`, such as uint8,
    floats are multiplied with `scale`, rounded to the nearest even and clipped; NaN becomes 0. `chunks` and `axis`
    count the output's axes; other parameters are those of `create_sink`. Raises BrickError."""
    kind = np.dtype(dtype)
    kept = kind if stored is None else np.dtype(stored)
    if kind.kind == "f" and kept.kind not in "fiu":
        raise BrickError(f"{path}: {kind} cannot be stored as {kept}: give another type")
    if kind.kind != "f" and scale is not None:
        raise BrickError(f"{path}: {kind} is stored as it is: leave the scale out")
    if kept != kind and kind.kind != "f" and not np.can_cast(kind, kept):
        raise BrickError(f"{path}: {kind} does not fit into {kept}: give a larger type")
    found = format_of(path)
    arrangement = (found.arrange if found else as_it_is)(shape)
    like = like.source if isinstance(like, TensorSource) else like
    sink = create_sink(
        path,
        arrangement.file_shape(shape),
        kept,
        axis=arrangement.file_axis(axis),
        resume=resume,
        chunks=None if chunks is None else arrangement.file_shape(chunks),
        like=like,
        remark=remark,
    )
    return TensorSink(sink, arrangement, shape, kind, scale)
