"""Digests that tell whether an input is still the same, checksums of what was written, and files that a run reads,
over which it writes nothing."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.boxes import as_bytes, pieces, slices
from brickrt.runtime.files.descriptor import read_at

_ENDS = 1 << 16
_SAMPLES = 62
_SAMPLE = 1 << 12


def digest(parts: Iterable[object]) -> str:
    """A digest of the parts, bytes or what `str` says of them."""
    state = blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()


def file_identity(fd: int, name: object) -> str:
    """Covers a file's size, the time of its last change, 64 KiB at either end and 62 samples of 4 KiB between.

    The path is not covered. A change that keeps the size, sets the time back and hits no sample goes unseen.
    """
    status = os.fstat(fd)
    offsets = [
        0,
        max(0, status.st_size - _ENDS),
        *(status.st_size * k // (_SAMPLES + 1) for k in range(1, _SAMPLES + 1)),
    ]
    lengths = [_ENDS, _ENDS, *[_SAMPLE] * _SAMPLES]
    return digest([status.st_size, status.st_mtime_ns, *_samples(fd, name, status.st_size, offsets, lengths)])


def _samples(fd: int, name: object, size: int, offsets: list[int], lengths: list[int]) -> Iterator[bytes]:
    for offset, length in zip(offsets, lengths):
        data = bytearray(min(length, size - offset))
        read_at(fd, memoryview(data), offset, name)
        yield bytes(data)


def folder_identity(root: Path) -> str:
    """Covers the name, size and time of last change of each file in a folder, and the content of its `.json` and `.z*`
    files, which describe arrays. The folder's own path is not covered. Takes about 5 µs a file."""
    found: list[str] = []
    described: list[bytes] = []
    for at, below, files in os.walk(root):
        below.sort()
        for file in sorted(files):
            path = Path(at, file)
            status = path.stat()
            found.append(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}")
            if file.startswith(".z") or file == "zarr.json":
                described.append(path.read_bytes())
    return digest([*found, *described])


def array_identity(array: np.ndarray) -> str:
    """Covers shape, type and every element of an array in memory."""
    state = blake2b(f"{array.shape} {array.dtype}".encode(), digest_size=16)
    for data in contiguous(array):
        state.update(data)
    return state.hexdigest()


def checksum(array: np.ndarray) -> str:
    """The CRC-32 of the elements' bytes in row-major order: quick, and enough to tell what is torn or missing."""
    found = 0
    for data in contiguous(array):
        found = zlib.crc32(data, found)
    return f"{found:08x}"


def contiguous(array: np.ndarray) -> Iterator[memoryview]:
    """The array's bytes in row-major order, in pieces; what is not stored so is copied piece by piece."""
    for offset, extents in pieces(array.shape, array.itemsize):
        piece = np.ascontiguousarray(array[slices(offset, extents)])
        yield as_bytes(piece)


class FilesRead:
    """Files and folders that a run reads, and so may not write over, whatever name leads to them: a link, or a file
    in a folder that is read as one array. `paths` may be places in files, as `a.h5::name`, and None."""

    def __init__(self, paths: Iterable[str | Path | None]) -> None:
        outer = (str(path).partition("::")[0] for path in paths if path is not None)
        self._real = frozenset(os.path.realpath(path) for path in outer if os.path.exists(path))
        self._ids = frozenset(map(_same_for_all_names, self._real))

    def check(self, option: str, path: str | Path, what: str = "an input of this run") -> None:
        """Refuses, before any work is done, what an option is to write, where it is one of them. Raises BrickError."""
        target = os.path.realpath(str(path).partition("::")[0])
        there = [one for one in map(str, (target, *Path(target).parents)) if os.path.exists(one)]
        within = any(_same_for_all_names(one) in self._ids for one in there)
        holds = os.path.isdir(target) and any(one.startswith(target + os.sep) for one in self._real)
        if within or holds:
            raise BrickError(f"{option} {path}: {'is' if within else 'holds'} {what}: give another path")


def _same_for_all_names(path: str) -> tuple[int, int]:
    """What all names of a file have in common."""
    found = os.stat(path)
    return found.st_dev, found.st_ino
