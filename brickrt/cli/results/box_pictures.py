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
from brickrt.cli.results.pictures import PixelScale, check_stored, write_picture
from brickrt.cli.results.png import COLOURS
from brickrt.graph.errors import BrickError
from brickrt.runtime.files.boxes import Extents
from brickrt.runtime.files.formats.box_files import BoxSource
from brickrt.runtime.files.formats.file_formats import format_of, way_of
from brickrt.runtime.files.source import open_source

BITS_8 = 256
ROWS_AT_A_TIME = 256  # of which the greatest value is looked for


@dataclass(frozen=True)
class FilePlanes:
    """Planes [channels, height, width] of a file, whose rows are read when they are asked for, by any thread."""

    source: BoxSource
    shape: Extents
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def dtype(self) -> np.dtype:
        """The file's."""
        return self.source.dtype

    def __getitem__(self, key: tuple[slice, slice]) -> np.ndarray:
        """All channels of some rows."""
        top, end, _ = key[1].indices(self.shape[1])
        channels, _, width = self.shape
        made = np.empty((channels, end - top, width), self.dtype)
        front = len(self.source.shape) - 3
        out = made[0] if front < 0 else made.reshape((1,) * front + made.shape)
        with self._lock:
            self.source.read((0,) * (out.ndim - 2) + (top, 0), out)
        return made


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
    front = len(source.shape) - 3
    channels, *sides = (1, *source.shape) if front < 0 else source.shape[front:]
    if len(sides) != 2 or channels not in COLOURS or any(extent > 1 for extent in source.shape[: max(front, 0)]):
        raise BrickError(f"{path}: the output is {list(source.shape)}, no picture: {kept}")
    planes = FilePlanes(source, (channels, *sides))
    if planes.dtype.kind in "iu" and asked.stored != "uint16" and _greatest(planes) >= BITS_8:
        raise BrickError(f"{path}: there are whole numbers above 255, which needs --as uint16: {kept}")
    write_picture(path, planes, PixelScale.of(image, channels, asked.stored, asked.stored_scale), threads)


def _greatest(planes: FilePlanes) -> int:
    """The greatest whole number; 0 for bytes, which are below 256 anyway."""
    if planes.dtype.itemsize == 1:
        return 0
    tops = range(0, planes.shape[1], ROWS_AT_A_TIME)
    return max(int(planes[:, top : top + ROWS_AT_A_TIME].max(initial=0)) for top in tops)
