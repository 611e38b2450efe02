"""Outputs as pictures: values brought back to whole numbers, and written as PNG, JPEG, WebP or BMP."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from brickrt.cli.files import write_whole
from brickrt.cli.inputs.presets import Preprocessing
from brickrt.cli.results.png import COLOURS, write_png
from brickrt.graph.errors import BrickError
from brickrt.runtime.files.extras import needed
from brickrt.runtime.files.formats.file_formats import format_of

QUALITY = 95  # of JPEG and WebP
BYTES = np.dtype(np.uint8)
ROWS_AT_A_TIME = 128  # that are converted, so that they stay in the cache


@dataclass(frozen=True)
class PixelScale:
    """What brings an output's values back to pixels: (value × std + mean) × factor, rounded to the nearest even and
    cut off at what `dtype` holds; NaN becomes 0. `swapped` channels are blue, green, red."""

    factor: float = 255.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    dtype: np.dtype = BYTES
    swapped: bool = False

    @staticmethod
    def of(asked: Preprocessing, channels: int, stored: str | None = None, scale: float | None = None) -> PixelScale:
        """The inverse of what was done to an input of as many channels; with a `scale`, that alone. Values of volumes
        that were cut off at bounds are from 0 to 1."""
        dtype = np.dtype(stored or np.uint8)
        most = np.iinfo(dtype).max
        if scale is not None:
            return PixelScale(scale, dtype=dtype, swapped=asked.swapped)
        if asked.bounds is not None:
            return PixelScale(most, dtype=dtype)
        factor = most if asked.scale is None else most / 255 / asked.scale
        mean, std = asked.mean or (0.0,), asked.std or (1.0,)
        if any(len(values) not in (1, channels) for values in (mean, std)):
            return PixelScale(most, dtype=dtype)
        return PixelScale(factor, mean, std, dtype, asked.swapped)

    def rows(self, planes: Planes, top: int, end: int) -> np.ndarray:
        """Some rows of planes [channels, height, width] as pixels [rows, width, channels]. Whole numbers stay as they
        are, and booleans become black and white."""
        part = planes[slice(None), top:end]
        if self.swapped and len(part) == 3:
            part = part[::-1]
        made = np.empty((*part.shape[1:], len(part)), self.dtype)
        for channel, values in enumerate(part):
            made[:, :, channel] = self._converted(values, channel)
        return made

    def _converted(self, values: np.ndarray, channel: int) -> np.ndarray:
        most = np.iinfo(self.dtype).max
        if values.dtype.kind == "b":
            return values * self.dtype.type(most)
        if values.dtype.kind in "iu":
            return np.clip(values, 0, most)
        mean, std = (given[channel % len(given)] for given in (self.mean, self.std))
        made = values.astype(np.float32)
        made *= np.float32(std * self.factor)
        if mean:
            made += np.float32(mean * self.factor)
        np.rint(made, out=made)
        np.clip(made, 0, most, out=made)
        return np.nan_to_num(made, copy=False) if np.isnan(made.sum()) else made


def picture_axes(shape: Sequence[int], last: bool) -> tuple[int | None, int, int] | None:
    """The axes of channels, rows and columns of an output with 1, 3 or 4 channels, or with none; `last` says that
    channels come last where both could be. None for what is no picture, such as a row of scores."""
    front = int(len(shape) == 4 and shape[0] == 1)
    if 0 in shape or len(shape) - front not in (2, 3):
        return None
    if len(shape) == 2:
        return (None, 0, 1) if shape[0] > 1 else None
    first_fits, last_fits = shape[front] in COLOURS, shape[-1] in COLOURS
    if last_fits and (last or not first_fits):
        return front + 2, front, front + 1
    return (front, front + 1, front + 2) if first_fits else None


def in_planes(value: np.ndarray, axes: tuple[int | None, int, int]) -> np.ndarray:
    """An output, or some of its rows, as [channels, height, width]: a view."""
    if axes[0] is None:
        return value[None]
    front = value.ndim - 3
    return (value[0] if front else value).transpose([axis - front for axis in axes if axis is not None])


def planes_of(value: np.ndarray, last: bool) -> np.ndarray | None:
    """An output as [channels, height, width]; None for what is no picture. See `picture_axes`."""
    axes = picture_axes(value.shape, last)
    return None if axes is None else in_planes(value, axes)


def exceeds_bytes(planes: Planes) -> bool:
    """Whether whole numbers above 255 are among the values."""
    if planes.dtype.kind not in "iu" or planes.dtype == BYTES:
        return False
    tops = range(0, planes.shape[1], ROWS_AT_A_TIME)
    rows = (planes[slice(None), top : top + ROWS_AT_A_TIME] for top in tops)
    return any(part.max(initial=0) > np.iinfo(BYTES).max for part in rows)


def check_stored(path: Path, stored: str | None) -> None:
    """Raises BrickError for a picture of a type that files of the path's name do not hold."""
    found = format_of(path)
    held = ("uint8", "uint16") if found and found.name == "PNG" else ("uint8",)
    if found and found.way == "picture" and stored not in (None, *held):
        raise BrickError(f"{path}: holds {' or '.join(held)}: leave out --as {stored}, or write .tif")


class Planes(Protocol):
    """Planes [channels, height, width], of which rows are asked for: an array, or what reads them."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height, width."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """The type of values."""
        ...

    def __getitem__(self, key: tuple[slice, slice], /) -> np.ndarray:
        """All channels of some rows."""
        ...


def write_picture(path: Path, planes: Planes, scale: PixelScale, threads: int) -> None:
    """Writes planes [channels, height, width] as what the path's name says."""
    (channels, height, width), found = planes.shape, format_of(path)
    kind = found.name if found else ""
    check_stored(path, scale.dtype.name)
    if kind == "PNG":
        shape = height, width, channels
        write_whole(path, lambda f: write_png(f, shape, scale.dtype, lambda a, b: scale.rows(planes, a, b), threads))
        return
    pixels = all_pixels(planes, scale, threads)
    needed("PIL", str(path), "images")
    from PIL import Image

    image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
    image = image.convert("RGB") if channels == 4 and kind == "JPEG" else image
    write_whole(path, lambda file: image.save(file, kind, quality=QUALITY))


def all_pixels(planes: Planes, scale: PixelScale, threads: int) -> np.ndarray:
    """The whole picture [height, width, channels]."""
    height = planes.shape[1]
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(
            lambda top: scale.rows(planes, top, min(top + ROWS_AT_A_TIME, height)), range(0, height, ROWS_AT_A_TIME)
        )
        return np.concatenate(list(parts))
