"""Outputs of a run as .npy and .npz files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from brickrt.cli.files import write_whole
from brickrt.cli.terminal.text import note
from brickrt.graph.errors import BrickError


def write_output(path: Path, values: Mapping[str, Any]) -> None:
    """Writes the arrays among the values under their names, those of a sequence as `name.0`, `name.1`, ..."""
    arrays = dict(_arrays(values))
    if path.suffix.lower() == ".npz":
        write_whole(path, lambda file: _write_npz(file, arrays))
        return
    if len(arrays) != 1 or set(arrays) != set(values):
        raise BrickError(f"--output {path}: the output is no tensor: use .npz")
    write_whole(path, lambda file: _write_array(file, next(iter(arrays.values()))))


def _arrays(values: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    for name, value in values.items():
        items = {f"{name}.{k}": item for k, item in enumerate(value)} if isinstance(value, list) else {name: value}
        for key, item in items.items():
            if isinstance(item, np.ndarray | np.generic):
                yield key, _storable(np.asarray(item))
            else:
                note(f"output '{key}' is no tensor and is not written: use brickrt.Runtime to get it")


def _storable(array: np.ndarray) -> np.ndarray:
    """Text as fixed-width characters: arrays of objects would have to be pickled."""
    return array.astype(str) if array.dtype.kind == "O" else array


def _write_npz(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes what numpy.savez would, which refuses an array called `file` and writes the date."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                _write_array(entry, array)


def _write_array(file: IO[bytes], array: np.ndarray) -> None:
    np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
