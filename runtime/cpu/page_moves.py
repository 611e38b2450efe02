"""Moves rows of rings without copying them, where the system can: their pages get other addresses.

Linux moves pages of private memory by `mremap`; with MREMAP_DONTUNMAP (since 5.7) no address is free in between that
another thread could be given. 64 MiB take 0.1 to 1 ms, a copy of them 10.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
LEAST_MOVED_BYTES = 2**18  # that are worth the calls
_MAYMOVE, _FIXED, _DONTUNMAP = 1, 2, 4


def may_move(address: int, stride: int, shift: int) -> bool:
    """Whether planes `stride` bytes apart, the first at `address`, consist of whole pages that can move by `shift`
    bytes."""
    return not (address % PAGE or stride % PAGE or shift % PAGE) and shift >= LEAST_MOVED_BYTES and _moves_pages()


class PageMover:
    """Moves pages inside of an allocation of private memory. Not to be used by two threads at once."""

    def __init__(self) -> None:
        self._aside = np.empty(0, np.uint8)  # room for addresses; nothing in it is resident

    def shift_down(self, start: int, shift: int, count: int) -> None:
        """The bytes [shift, shift + count) behind the address `start` come to lie at [0, count). What was at
        [0, shift) lies behind them. All are whole pages; `count` is above 0."""
        if not self.has_room(shift):
            raise MemoryError(f"no addresses for {shift} bytes")
        aside = int(self._aside.ctypes.data)
        _remap(start, aside, shift)
        for done in range(0, count, shift):
            _remap(start + done + shift, start + done, min(shift, count - done))
        _remap(aside, start + count, shift)

    def has_room(self, shift: int) -> bool:
        """Whether there are addresses for so many bytes: a data limit counts them, though nothing is resident there."""
        if self._aside.size < shift:
            try:
                pages = mmap.mmap(-1, shift, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except (OSError, MemoryError):
                return False
            self._aside = np.frombuffer(pages, np.uint8)
        return True


def _remap(source: int, target: int, nbytes: int) -> None:
    """Gives the pages at `source` the addresses from `target` on; what was there is gone, and `source` reads as
    zeros."""
    if _mremap()(source, nbytes, nbytes, _MAYMOVE | _FIXED | _DONTUNMAP, target) != target:
        code = ctypes.get_errno()
        raise OSError(code, f"mremap: {code}")


@cache
def _mremap() -> Any:
    found = ctypes.CDLL(None, use_errno=True).mremap
    found.restype = ctypes.c_void_p
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    return found


@cache
def _moves_pages() -> bool:
    """Tries it."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return False
    pages = np.frombuffer(mmap.mmap(-1, 3 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    pages[PAGE : 2 * PAGE] = 1
    try:
        PageMover().shift_down(int(pages.ctypes.data), PAGE, PAGE)
    except (AttributeError, OSError):  # no mremap, or an older kernel
        return False
    return bool((pages[:PAGE] == 1).all())
