"""Reading and writing files by descriptor, and files that take their name once they are whole.

Nothing is mapped: pages of a mapped file count as the process's memory.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, EFBIG, EINVAL, EIO, ENOSPC
from pathlib import Path

import numpy as np

from brickrt.graph.errors import BrickError, InputError


@contextmanager
def refused(name: object) -> Iterator[None]:
    """Errors of the system become one line that names the file; a full disk is said to be full."""
    try:
        yield
    except OSError as e:
        if e.errno in (ENOSPC, EDQUOT):
            raise BrickError(f"{name}: the disk is full: free space, or write to another disk") from e
        if e.errno == EFBIG:
            raise BrickError(f"{name}: a file may not grow as large: raise the limit (ulimit -f), or its disk's") from e
        if e.errno == EIO:
            raise BrickError(f"{name}: the disk failed ({e.strerror}): look at the disk, or use another") from e
        raise BrickError(f"{name}: {e.strerror or e}: check the path and the permissions") from e


def open_file(path: Path) -> int:
    """A descriptor to read from. Raises InputError where there is no such file."""
    if not path.exists():
        raise InputError(f"{path}: no such file: check the path")
    if not path.is_file():
        raise InputError(f"{path}: is no file: check the path")
    with refused(path):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def read_at(fd: int, into: memoryview, offset: int, name: object) -> None:
    """Fills `into`, bytes, from `offset` on. A file that ends before is refused."""
    done = 0
    with refused(name):
        while done < len(into):
            got = os.preadv(fd, [into[done:]], offset + done)
            if got == 0:
                raise InputError(f"{name}: is cut off at {offset + done} bytes: copy or write it again")
            done += got


def write_at(fd: int, data: memoryview, offset: int, name: object) -> None:
    """Writes all of `data`, bytes, at `offset`."""
    done = 0
    with refused(name):
        while done < len(data):
            done += os.pwrite(fd, data[done:], offset + done)


class Unbuffered:
    """A further descriptor of a file, whose transfers pass the system's cache by: they take a core a third of the time
    that others do, which copy. It transfers what lies on whole pages, in memory and in the file. With all else, and
    where the file system has no such transfers, it does nothing."""

    def __init__(self, path: Path) -> None:
        self.name, self._fd, self._refused = str(path), -1, False
        if hasattr(os, "O_DIRECT"):
            with suppress(OSError):  # others transfer what this one does not
                self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECT)

    def read(self, into: memoryview, offset: int) -> bool:
        """Fills `into` from `offset` on; whether it did."""
        return self._moved(lambda: os.preadv(self._fd, [into], offset), into, offset)

    def write(self, data: memoryview, offset: int) -> bool:
        """Writes `data` at `offset`; whether it did, with all of it."""
        return self._moved(lambda: os.pwrite(self._fd, data, offset), data, offset)

    def _moved(self, move: Callable[[], int], data: memoryview, offset: int) -> bool:
        if self._fd < 0 or self._refused or not data or not _on_pages(data, offset):
            return False
        with refused(self.name):
            try:
                return move() == len(data)
            except OSError as e:
                if e.errno != EINVAL:  # which says that this file system's pages are others
                    raise
        self._refused = True
        return False

    def close(self) -> None:
        """Closes the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)


def _on_pages(data: memoryview, offset: int) -> bool:
    address = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return (address | offset | len(data)) % mmap.PAGESIZE == 0


def sync_file(fd: int, name: object) -> None:
    """Returns when what was written is on the disk."""
    with refused(name):
        os.fsync(fd)


def sync_path(path: Path) -> None:
    """Returns when a file, or the names in a folder, are on the disk."""
    with refused(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def part_of(path: Path) -> Path:
    """The name that an output has until it is whole; the same in each run, so that a later one can go on with it."""
    return path.with_name(f".{path.name}.brickrt-part")


def check_room(path: Path, needs: int) -> None:
    """Refuses an output for which the disk has no room, before any work is done."""
    with refused(path.parent):
        disk = os.statvfs(path.parent)
    free = disk.f_bavail * disk.f_frsize
    if needs > free:
        raise BrickError(
            f"{path}: takes {_size(needs)}, its disk has {_size(free)} free: free space, or write to another disk"
        )


def _size(nbytes: int) -> str:
    unit, of = next(((unit, of) for unit, of in (("GiB", 2**30), ("MiB", 2**20)) if nbytes >= of), ("KiB", 2**10))
    return f"{nbytes / of:.2f} {unit}"


class Unfinished:
    """A file under another name, which `finish` gives the name `path`, in place of what had it.

    With `resume` an earlier run's file is gone on with; `resumed` says whether there was one. It may have its own name
    already, where that run ended after it had finished the file.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = Path(os.path.realpath(path))
        _check_target(path, self.path)
        part = part_of(self.path)
        self.resumed = resume and (part.exists() or self.path.exists())
        self.at = part if part.exists() or not self.resumed else self.path
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (0 if self.resumed else os.O_TRUNC)
        with refused(path):
            self.fd = os.open(self.at, flags, 0o666)
        sync_path(self.path.parent)  # a journal may soon say that it is there

    def size(self) -> int:
        """Its bytes."""
        return os.fstat(self.fd).st_size

    def grow(self, size: int) -> None:
        """Gives it its full size. Parts that were not written take no room yet; the disk must have room for them."""
        check_room(self.path, size)
        with refused(self.path):
            os.ftruncate(self.fd, size)

    def finish(self) -> None:
        """Makes it durable and gives it its name."""
        sync_file(self.fd, self.path)
        os.close(self.fd)
        if self.at != self.path:
            with refused(self.path):
                os.replace(self.at, self.path)
            sync_path(self.path.parent)

    def abandon(self, keep: bool) -> None:
        """Closes it; without `keep` what an unfinished run wrote is removed."""
        os.close(self.fd)
        if not keep and self.at != self.path:
            with suppress(FileNotFoundError):
                os.unlink(self.at)


def _check_target(path: Path, target: Path) -> None:
    if not target.parent.is_dir():
        raise BrickError(f"{path}: there is no folder {target.parent}: create it, or give another path")
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        raise BrickError(f"{path}: is a folder, device or pipe: give another path")
