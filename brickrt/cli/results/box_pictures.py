"""Pictures as results of runs in bands and windows: these write values to a `.npy` file beside the picture, of which it
is made row by row in the end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from brickrt.cli.inputs.presets import Preprocessing
from brickrt.cli.requests import ResultRequest
from brickrt.cli.results.pictures import (
    PixelScale,
    check_stored,
    exceeds_bytes,
    in_planes,
    picture_axes,
    write_picture,
)
from brickrt.graph.errors import BrickError
from brickrt.runtime.files.boxes import Extents
from brickrt.runtime.files.formats.box_files import BoxSource
from brickrt.runtime.files.formats.file_formats import format_of, way_of
from brickrt.runtime.files.source import open_source


@dataclass(frozen=True)
class FilePlanes:
    """Planes [channels, height, width] of a file, whose rows are read when they are asked for, by any thread. `axes`
    are those of channels, rows and columns."""

    source: BoxSource
    axes: tuple[int | None, int, int]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def shape(self) -> Extents:
        """Channels, height, width."""
        return tuple(1 if axis is None else self.source.shape[axis] for axis in self.axes)

    @property
    def dtype(self) -> np.dtype:
        """The file's."""
        return self.source.dtype

    def __getitem__(self, key: tuple[slice, slice]) -> np.ndarray:
        """All channels of some rows."""
        top, end, _ = key[1].indices(self.shape[1])
        lo, extents = [0] * len(self.source.shape), list(self.source.shape)
        lo[self.axes[1]], extents[self.axes[1]] = top, end - top
        read = np.empty(extents, self.dtype)
        with self._lock:
            self.source.read(tuple(lo), read)
        return in_planes(read, self.axes)


def values_beside(outputs: Mapping[str, Path], asked: ResultRequest) -> dict[str, Path]:
    """The file that a run writes for each output: a picture's values, or the output itself. Raises BrickError for
    pictures that are not made row by row, and where another file is in the way."""
    for path in outputs.values():
        found = format_of(path)
        if found is not None and found.way == "picture" and found.name != "PNG":
            raise BrickError(f"{path}: of pictures, runs in bands and windows write .png: change the name's end")
        check_stored(path, asked.stored)
    written = {name: _values(path) if way_of(path) == "picture" else path for name, path in outputs.items()}
    for name, path in written.items():
        if path != outputs[name] and path.exists():
            raise BrickError(f"{path}: is there, where the values of {outputs[name]} would be meanwhile: rename it")
    return written


def _values(path: Path) -> Path:
    return path.with_name(f"{path.name}.npy")


def write_pictures(outputs: Mapping[str, Path], asked: ResultRequest, image: Preprocessing, threads: int) -> None:
    """Makes the pictures, and removes the files that their values are in. Raises BrickError for what is no picture,
    whose values are kept."""
    for path in outputs.values():
        if way_of(path) == "picture":
            values = _values(path)
            source = open_source(values)
            try:
                _write(path, values, source, asked, image, threads)
            finally:
                source.close()
            values.unlink()


def _write(
    path: Path, values: Path, source: BoxSource, asked: ResultRequest, image: Preprocessing, threads: int
) -> None:
    kept = f"the values are in {values}"
    axes = picture_axes(source.shape, image.layout == "nhwc")
    if axes is None:
        raise BrickError(f"{path}: the output is {list(source.shape)}, no picture: {kept}")
    planes = FilePlanes(source, axes)
    if asked.stored != "uint16" and exceeds_bytes(planes):
        raise BrickError(f"{path}: there are whole numbers above 255, which needs --as uint16: {kept}")
    write_picture(path, planes, PixelScale.of(image, planes.shape[0], asked.stored, asked.stored_scale), threads)
