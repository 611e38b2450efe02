"""Files of what a run will read again, in a folder that is gone when the run is over.

They hold bytes as memory has them, and nothing else: the journal says which of them are finished.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.runtime.files.boxes import PIECE_BYTES, Extents, added, as_bytes, pieces
from brickrt.runtime.files.descriptor import Unbuffered, read_at, refused, sync_file, write_at
from brickrt.runtime.files.formats.flat import FlatBoxes, FlatLayout
from brickrt.runtime.files.identity import checksum

SUFFIX = ".brickrt-scratch"
SCRATCH_BUFFERS = 2 * PIECE_BYTES  # of a folder: one to read, one to write
_TRIED = 32 * PIECE_BYTES  # that are written to measure a disk, at most,
_SECONDS = 0.1  # for about as long, and read as long
_BYTES = np.dtype(np.uint8)


def scratch_path(output: str | Path, folder: str | Path | None = None) -> Path:
    """Where the scratch of a run is: beside its output, or in `folder`, under a name that only this output has."""
    path = Path(os.path.abspath(str(output).partition("::")[0]))
    if folder is None:
        return path.with_name(path.name + SUFFIX)
    return Path(folder, f"{path.name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}{SUFFIX}")


class ScratchFile:
    """An array of bytes that is written and read box by box: written by one thread, read by another."""

    dtype = _BYTES

    def __init__(self, path: Path, shape: Extents, reading: bytearray, writing: bytearray, keep: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if keep else os.O_TRUNC)
        with refused(path):
            self._fd = os.open(path, flags, 0o600)
        self.shape, self.name = shape, str(path)
        layout = FlatLayout(shape, _BYTES, 0)
        self._unbuffered = Unbuffered(path)
        self._reading, self._writing = (
            FlatBoxes(self._fd, layout, self.name, one, self._unbuffered) for one in (reading, writing)
        )

    def read(self, lo: Extents, out: np.ndarray) -> None:
        """Fills `out` with the box that begins at `lo`. Raises BrickError where the file ends before."""
        self._reading.read(lo, out)

    def write(self, lo: Extents, array: np.ndarray) -> None:
        """Writes the box that begins at `lo`."""
        self._writing.write(lo, array)

    def checksum(self, lo: Extents, extents: Extents) -> str:
        """The checksum of a box as it is in the file. Raises BrickError where the file ends before."""
        found = 0
        for offset, part in pieces(extents, 1):
            read = np.empty(part, _BYTES)
            self.read(added(lo, offset), read)
            found = zlib.crc32(as_bytes(read), found)
        return f"{found:08x}"

    def sync(self) -> None:
        """Returns when everything written so far is on the disk."""
        sync_file(self._fd, self.name)

    def release(self) -> None:
        """Gives the room on the disk back: nobody reads it any more."""
        with refused(self.name):
            os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Closes the file; a later run may go on with it."""
        self._unbuffered.close()
        os.close(self._fd)


class ScratchFolder:
    """The scratch files of a run, by name, in a folder of their own. With `keep`, what an earlier run left in them
    stays. After an error `of_use` says whether they are to a later run."""

    def __init__(
        self, path: Path, shapes: Mapping[str, Extents], keep: bool, of_use: Callable[[], bool] = lambda: True
    ) -> None:
        self.path, self._of_use = path, of_use
        self.files: dict[str, ScratchFile] = {}
        if not keep:
            remove_scratch(path)
        if not shapes:
            return
        _make(path)
        reading, writing = bytearray(PIECE_BYTES), bytearray(PIECE_BYTES)
        try:
            for number, (name, shape) in enumerate(shapes.items()):
                self.files[name] = ScratchFile(path / f"{number}.rows", shape, reading, writing, keep)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ScratchFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Removes the folder, or keeps it after an error, for a run that resumes."""
        if kind is not None and self._of_use():
            self.close()
        else:
            self.remove()

    def close(self) -> None:
        """Closes all files, which stay there."""
        while self.files:
            self.files.popitem()[1].close()

    def remove(self) -> None:
        """Closes and removes all files and the folder."""
        self.close()
        remove_scratch(self.path)


def remove_scratch(path: Path) -> None:
    """Removes a scratch folder, if there is one; what is none of its files stays."""
    if not path.is_dir() or path.is_symlink():
        return
    with refused(path):
        for file in path.glob("*.rows"):
            file.unlink()
        with suppress(OSError):
            path.rmdir()


def _make(path: Path) -> None:
    """Makes the folder, or takes the one that is there, if it is this user's."""
    if not path.parent.is_dir():
        raise BrickError(f"{path}: there is no folder {path.parent}: create it, or give another with --scratch")
    with refused(path):
        with suppress(FileExistsError):
            path.mkdir(0o700)
        found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise BrickError(f"{path}: is no folder of yours: remove it, or give another with --scratch")


def free_bytes(folder: Path) -> int:
    """The room on the disk of a folder."""
    with refused(folder):
        disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def measured_speed(folder: Path) -> tuple[float, float]:
    """Bytes a second that the disk of a folder writes, with checksums and until they are there, and reads: measured in
    0.3 seconds or less, on most disks, with a file that has no name."""
    data = np.frombuffer(os.urandom(PIECE_BYTES), np.uint8).copy()  # a disk may compress
    with refused(folder), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        fd, written, read, began = file.fileno(), 0, 0, time.perf_counter()
        while written < _TRIED and time.perf_counter() - began < _SECONDS:
            for _ in range(4):
                checksum(data)
                write_at(fd, as_bytes(data), written, folder)
                written += data.nbytes
            sync_file(fd, folder)
        writing = time.perf_counter() - began
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # from the disk, not from what the system remembers
        began = time.perf_counter()
        while read < written and time.perf_counter() - began < _SECONDS:
            read_at(fd, as_bytes(data), read, folder)
            read += data.nbytes
        return written / writing, read / max(time.perf_counter() - began, 1e-6)
