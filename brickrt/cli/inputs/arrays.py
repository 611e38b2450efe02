"""Arrays from .npy and .npz files. Pickled data, which could run code, is refused."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from brickrt.graph.errors import InputError

_DAMAGE = (ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, SyntaxError)


def read_npy(path: Path) -> np.ndarray:
    """The array of a .npy file, in the byte order of this machine."""
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise InputError(f"{path}: is no .npy file: write it with numpy.save")
    with _damage_refused(path):
        return _native(np.load(path, allow_pickle=False))


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .npz file by name."""
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: is damaged or no .npz file: write it with numpy.savez")
    with _damage_refused(path), np.load(path, allow_pickle=False) as archive:
        return {name: _native(_array(path, name, archive[name])) for name in archive.files}


@contextmanager
def _damage_refused(path: Path) -> Iterator[None]:
    """Errors that NumPy raises while it reads a file become an InputError."""
    try:
        yield
    except InputError:
        raise
    except _DAMAGE as e:
        if "allow_pickle" in str(e):
            raise InputError(f"{path}: holds pickled objects, which are never loaded: save an array of numbers") from e
        raise InputError(f"{path}: is damaged ({e}): write it again") from e
    except MemoryError as e:
        raise InputError(f"{path}: is damaged, or too large for memory: write it again, or use smaller ones") from e


def _array(path: Path, name: str, value: object) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise InputError(f"{path}: '{name}' is no array: write the file with numpy.savez")
    return value


def _native(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("="), copy=False)
