"""Memory for tensors and tables: aligned to vectors, and in huge pages for weights, arena and scratch."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from threading import Lock, Thread

import numpy as np

from brickrt.plan.geometry.arena_packing import ALIGNMENT, aligned

CHUNK = 2**25  # bytes of address space that a pool takes at once
ROOM = 4  # times as much address space as memory that may grow needs at first
WORTH_HUGE = 2**20  # bytes from which huge pages pay: a processor's have 2 MiB, all of which the system clears at once
FIRST = 2**19  # bytes that a pool takes at first, in small pages
PART = 2**24  # bytes of which it pays that a thread has the pages: up to 40 ms where a host has to find them
WORTH_ALIGNING = 2**14  # bytes of an output
PAGE = 4096  # bytes, or a divisor of them where pages are larger


def aligned_empty(nbytes: int) -> np.ndarray:
    """An array of `nbytes` bytes, not initialised, that begins at a multiple of the widest vector."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def output_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that a program writes and a caller keeps, not initialised. Large ones of NumPy begin 16 bytes behind a
    line of the cache, so that each vector that is stored crosses two lines, and takes two to three times as long."""
    nbytes = math.prod(shape) * dtype.itemsize
    return np.empty(shape, dtype) if nbytes < WORTH_ALIGNING else aligned_empty(nbytes).view(dtype).reshape(shape)


class Pages:
    """`nbytes` bytes, uint8, in pages that become resident as they are written to."""

    def __init__(self, nbytes: int) -> None:
        self._map: mmap.mmap | None = None
        if nbytes == 0 or not hasattr(mmap, "MADV_HUGEPAGE"):
            self.bytes = aligned_empty(nbytes)
            return
        self._map = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.bytes = np.frombuffer(self._map, np.uint8)

    def fitting(self) -> np.ndarray:
        """The bytes, in huge pages where there are so many that these pay."""
        return self.in_huge_ones() if self.bytes.size >= WORTH_HUGE else self.bytes

    def in_huge_ones(self) -> np.ndarray:
        """The bytes, whose pages are huge from now on, where none is there yet and the system has such."""
        if self._map is not None:
            with suppress(OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE)
        return self.bytes


class HugePagePool:
    """Arrays side by side in huge pages, where the system has them: weights of 100 MB lie in more small pages than a
    core's TLB has entries. The first few are in small ones, which are enough for most of a small network's. A chunk is
    freed with the last of its arrays. Any thread may ask for arrays."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left, self._begun = np.empty(0, np.uint8), False

    def empty(self, nbytes: int) -> np.ndarray:
        """Bytes that begin at a multiple of the widest vector."""
        taken = aligned(nbytes)
        with self._lock:
            if taken > self._left.size:
                self._left = self._chunk(taken)
            out, self._left = self._left[:nbytes], self._left[taken:]
        return out

    def _chunk(self, taken: int) -> np.ndarray:
        """At least so many bytes for this array and others."""
        begun, self._begun = self._begun, True
        if not begun and taken <= FIRST:
            return aligned_empty(FIRST)
        return Pages(max(taken, CHUNK)).in_huge_ones()

    def copy(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The bytes of the arrays' elements, each in row-major order, one array behind the other."""
        out, start = self.empty(sum(array.nbytes for array in arrays)), 0
        for array in arrays:
            part = out[start : start + array.nbytes]
            part.view(array.dtype).reshape(array.shape)[...] = array
            start += array.nbytes
        return out


class GrowingMemory:
    """Bytes that grow where they lie, and keep the pages that are there: a new page costs more than what is computed in
    it. It has address space for several times what it needed first, which no memory stands behind."""

    def __init__(self) -> None:
        self._room, self._used = Pages(0), np.empty(0, np.uint8)

    def grown(self, nbytes: int, threads: int = 1) -> np.ndarray:
        """At least so many bytes, that begin at a multiple of the widest vector, every page of which is there: those
        that are found missing one by one take many times as long. So many threads may ask for pages."""
        if nbytes > self._room.bytes.size:
            self._used = np.empty(0, np.uint8)
            self._room = Pages(0)  # before there is other memory, which gets its pages
            self._room = _spacious(nbytes)
        if nbytes > self._used.size:
            room = self._room.in_huge_ones() if nbytes >= WORTH_HUGE else self._room.bytes
            _touch(room[self._used.size : nbytes], threads)
            self._used = room[:nbytes]
        return self._used


def _touch(memory: np.ndarray, threads: int) -> None:
    """Has every page of these bytes, which count for nothing yet. The system clears a gigabyte of them in 0.3 to 2
    seconds of a core, so that large ones are shared out."""
    parts = max(1, min(threads, memory.size // PART))
    ends = [memory.size * k // parts for k in range(parts + 1)]

    def touch(lo: int, hi: int) -> None:
        memory[lo:hi:PAGE] = 0
        memory[hi - 1] = 0

    others = [Thread(target=touch, args=each) for each in pairwise(ends[1:])]
    for thread in others:
        thread.start()
    touch(*ends[:2])
    for thread in others:
        thread.join()


def _spacious(nbytes: int) -> Pages:
    """Address space for `nbytes` and for what may follow; for these alone where the process may have no more, and where
    it has a limit, which counts address space too."""
    if not address_space_is_free():
        return Pages(aligned(nbytes))
    try:
        return Pages(aligned(max(ROOM * nbytes, CHUNK)))
    except (OSError, MemoryError, OverflowError):
        return Pages(aligned(nbytes))


def address_space_is_free() -> bool:
    """Whether memory that is not written to costs nothing: on systems with huge pages, without a limit on the data or
    the address space of the process."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return False
    import resource  # which Windows has not

    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS))
    return all(limit == resource.RLIM_INFINITY for limit in limits)


def give_back_freed() -> None:
    """Returns what compiling freed to the system, where the C library can: glibc keeps it otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
