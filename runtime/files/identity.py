"""Digests that tell whether an input is still the same, and checksums of what was written."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np

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
